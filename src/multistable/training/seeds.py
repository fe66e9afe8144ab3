"""Random numbers of a run: all from its own seed, whatever it is trained together with."""

import hashlib

import torch


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A generator for one purpose of one run, for instance ``(seed, "order", epoch)``.

    Each purpose has its own, made when it is needed: no state has to be kept, and what one part of a run draws never
    moves what another does. On the CPU, so that a run is given the same on every device.
    """
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
