"""Which of the things beside a padded batch are the lengths of its sequences."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def lengths_among(beside: Sequence[Any], padded: Tensor) -> Tensor | None:
    """The lengths ``(n,)`` of sequences ``(time, ..., n, features)``, if one of the entries beside them has them.

    Integers are lengths if each sequence changes for the last time where it then ends and its padding begins. If some
    sequence changes later, they are something else, such as classes. Between the two, there is no telling.
    """
    candidates = [c for entry in beside if (c := _integers(entry, padded.shape[-2], len(padded))) is not None]
    if not candidates:
        return None
    still = _still_from(padded)
    unclear = False
    for candidate in candidates:
        if bool(((candidate == len(padded)) | (candidate == still) & (candidate > 0)).all()):
            return candidate
        unclear = unclear or bool((still <= candidate).all())
    if unclear:
        raise ValueError(
            "sequences have integers beside them that may be their lengths or something else, such as classes: pass "
            "torch.nn.utils.rnn.pack_padded_sequence(inputs, lengths, enforce_sorted=False), or the inputs alone"
        )
    return None


def _integers(entry: Any, n: int, time: int) -> Tensor | None:
    """``entry`` as ``(n,)`` integers on the CPU if it may be lengths of up to ``time`` steps; else ``None``."""
    if isinstance(entry, list | tuple) and entry and all(type(number) is int for number in entry):
        if not all(0 <= number <= time for number in entry):
            return None
        entry = torch.tensor(entry, device="cpu")
    if not isinstance(entry, Tensor) or entry.shape != (n,) or n == 0 or time < 2:
        return None
    if entry.is_floating_point() or entry.is_complex() or entry.dtype == torch.bool or entry.is_meta:
        return None
    numbers = entry.detach().cpu().long()
    return numbers if bool(((numbers >= 0) & (numbers <= time)).all()) else None


def _still_from(padded: Tensor) -> Tensor:
    """The step from which on each sequence does not change any more, ``(n,)`` on the CPU; 0 if it never changes."""
    changes = (padded[1:] != padded[:-1]) & ~(padded[1:].isnan() & padded[:-1].isnan())
    changes = changes.any(dim=-1).flatten(1, -2).any(dim=1) if padded.dim() == 4 else changes.any(dim=-1)
    steps = torch.arange(1, len(padded), device=padded.device).unsqueeze(-1)
    return (changes * steps).amax(dim=0).cpu()
