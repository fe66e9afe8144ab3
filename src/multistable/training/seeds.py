"""Random numbers of a run. All of them follow from its seed, whatever runs it is trained with."""

import hashlib

import torch


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A generator for one purpose of one run, for instance ``(seed, "order", epoch)``.

    Each purpose has a generator of its own, made when it is needed. So no state has to be kept, and what one part of a
    run draws has no influence on another part. It is on the CPU, so that a run draws the same on every device.
    """
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
