"""Sequences of different lengths, or that start anew at some steps, as pieces that advance side by side.

A state that is set to zero knows nothing of what was before. So a sequence with resets is pieces that do not depend on
each other, of which the first alone continues the given state. Pieces of similar lengths make a group, a batch of
its own: however often states are reset, the time loops are as fast as ever, and there are few of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

ROWS_FOR_A_STEP = 16
"""A time step costs as much as the work on so many rows: what makes it worth while to pad short pieces to long ones.

On a CPU 2 is a little better for large layers, 32 for small ones.
"""


def rows_of(x: Tensor, index: Tensor) -> Tensor:
    """``(*index.shape, features)`` from ``x (..., features)``; rows are numbered over all dimensions but the last."""
    return x.reshape(-1, x.shape[-1]).index_select(0, index.flatten()).unflatten(0, index.shape)


def at_end(x: Tensor, lengths: Tensor) -> Tensor:
    """``x (time, ..., n, features)`` at the last step of each sequence, whose ``lengths`` are ``(..., n)``."""
    return rows_of(x, (lengths - 1) * lengths.numel() + _numbered(lengths))


def reversed_in_time(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """``x (time, ..., n, features)`` from its end to its start, each sequence within its own length, ``(..., n)``."""
    if x.stride(0) == 0:
        return x
    if lengths is None:
        return x.flip(0)
    times = torch.arange(len(x), device=x.device).view(-1, *(1,) * lengths.dim())
    mirrored = torch.where(times < lengths, lengths - 1 - times, times)
    return rows_of(x, mirrored * lengths.numel() + _numbered(lengths))


def _numbered(x: Tensor) -> Tensor:
    return torch.arange(x.numel(), device=x.device).view(x.shape)


class OfDirections(NamedTuple):
    """One tensor for the layers that read from the start, and one for those that read from the end."""

    onward: Tensor
    reverse: Tensor


@dataclass(frozen=True)
class Group:
    """Pieces of similar lengths.

    Attributes:
        steps: ``(time, ..., pieces)``, the row of the input that each step of each piece reads.
        lengths: ``(..., pieces)``; None where no piece is padded.
        before: ``(..., pieces)``, the row of the given state with which a piece starts; one past the last for zero.
    """

    steps: Tensor
    lengths: Tensor | None
    before: OfDirections


@dataclass(frozen=True)
class Pieces:
    """What sequences are divided into.

    Attributes:
        groups: batches of pieces.
        back: for each row of the input, the row of its output among those of all groups, one group after the other.
        ends: for each sequence, the row of its last state among those of all groups.
    """

    groups: Sequence[Group]
    back: Tensor
    ends: OfDirections


def pieces_of_batch(resets: Tensor) -> Pieces:
    """The pieces of sequences of one length: ``resets (time, ..., n)`` tells before which steps the state is zero."""
    time, *leading, n = resets.shape
    cuts = resets.reshape(time, -1).cpu()
    rows = torch.arange(cuts.numel(), device="cpu").view(cuts.shape)
    lengths = torch.full((cuts.shape[1],), time, device="cpu")
    return _divided(rows, lengths, cuts, (*leading, n), resets.device)


def pieces_of_packed(packed: PackedSequence, resets: Tensor | None = None) -> Pieces:
    """The pieces of the rows of ``packed.data``.

    ``resets`` is ``(time, n)``, its sequences in the order that they had before they were packed. The given states and
    the last ones have that order too.
    """
    sizes = packed.batch_sizes
    n = int(sizes[0])
    order = torch.arange(n, device="cpu") if packed.unsorted_indices is None else packed.unsorted_indices.cpu()
    rows = (sizes.cumsum(0) - sizes).unsqueeze(1) + order
    lengths = (sizes.unsqueeze(1) > order).sum(0)
    cuts = torch.zeros(rows.shape, dtype=torch.bool, device="cpu") if resets is None else resets[: len(sizes)].cpu()
    return _divided(rows, lengths, cuts, (n,), packed.data.device)


class _Cuts(NamedTuple):
    """Of each piece: the sequence it is from, its first step, the step after its last, whether it is the last piece."""

    sequence: Tensor
    start: Tensor
    stop: Tensor
    is_last: Tensor


def _divided(rows: Tensor, lengths: Tensor, resets: Tensor, shape: tuple[int, ...], device: torch.device) -> Pieces:
    """The pieces of sequences, found on the CPU and moved to a device.

    Args:
        rows: ``(time, sequences)``, the row of the input that each step of each sequence reads.
        lengths: ``(sequences,)``.
        resets: ``(time, sequences)``.
        shape: how the sequences are arranged, ``(..., n)``: pieces stay in the entry of ``...`` that they are from.
    """
    all_cuts = _cut(lengths, resets)
    groups: list[Group] = []
    back = torch.empty(int(lengths.sum()), dtype=torch.long, device="cpu")
    ends = OfDirections(torch.empty_like(lengths), torch.empty_like(lengths))
    rows_before = states_before = 0
    for chosen in _grouped(all_cuts.stop - all_cuts.start):
        cuts = _Cuts(*(values[chosen] for values in all_cuts))
        place, width = _places(cuts.sequence // shape[-1], len(lengths) // shape[-1])
        own = cuts.stop - cuts.start
        times = torch.arange(int(own.max()), device="cpu").unsqueeze(1)

        # A place without a piece reads a row of its own entry, a step after the end of its piece the last one again.
        steps = rows[0, :: shape[-1]].repeat_interleave(width).repeat(len(times), 1)
        steps[:, place] = rows[torch.minimum(cuts.start + times, cuts.stop - 1), cuts.sequence]
        within = times < own
        back[steps[:, place][within]] = (rows_before + times * steps.shape[1] + place)[within]
        ends.onward[cuts.sequence[cuts.is_last]] = (states_before + place)[cuts.is_last]
        ends.reverse[cuts.sequence[cuts.start == 0]] = (states_before + place)[cuts.start == 0]
        rows_before += steps.numel()
        states_before += steps.shape[1]

        def arranged(values: Tensor, place: Tensor = place, width: int = width, fill: int = 0) -> Tensor:
            """One number of each piece, at its place."""
            of_places = torch.full((len(lengths) // shape[-1] * width,), fill, device="cpu")
            return of_places.index_copy(0, place, values).view(*shape[:-1], width).to(device)

        from_start = (cuts.start == 0) & ~resets[0, cuts.sequence]
        before = (torch.where(given, cuts.sequence, len(lengths)) for given in (from_start, cuts.is_last))
        padded = steps.numel() > int(own.sum())
        groups.append(
            Group(
                steps.view(len(times), *shape[:-1], width).to(device),
                arranged(own, fill=1) if padded else None,
                OfDirections(*(arranged(values, fill=len(lengths)) for values in before)),
            )
        )
    return Pieces(groups, back.to(device), OfDirections(*(numbers.to(device) for numbers in ends)))


def _cut(lengths: Tensor, resets: Tensor) -> _Cuts:
    """All pieces, ordered by sequence and start."""
    times = torch.arange(len(resets), device="cpu").unsqueeze(1)
    starts = (resets | (times == 0)) & (times < lengths)
    sequence, start = starts.T.nonzero(as_tuple=True)
    is_last = torch.cat([sequence[1:] != sequence[:-1], torch.ones(1, dtype=torch.bool, device="cpu")])
    return _Cuts(sequence, start, torch.where(is_last, lengths[sequence], start.roll(-1)), is_last)


def _places(entry: Tensor, entries: int) -> tuple[Tensor, int]:
    """Where pieces stand that are ordered by their entries, and how many places each entry has."""
    counts = torch.bincount(entry, minlength=entries)
    width = int(counts.max())
    within = torch.arange(len(entry), device="cpu") - (counts.cumsum(0) - counts)[entry]
    return entry * width + within, width


def _grouped(lengths: Tensor) -> list[Tensor]:
    """The numbers of the pieces of each group, ascending.

    Pieces whose lengths are within a power of two come together, and join those of the next longer lengths where
    padding costs less than taking the steps of their own.
    """
    powers = torch.frexp((lengths - 1).double()).exponent
    groups: list[Tensor] = []
    longest = 0
    for power in powers.unique().flip(0):
        numbers = (powers == power).nonzero().squeeze(1)
        own = int(lengths[numbers].max())
        if groups and len(numbers) * (longest - own) <= ROWS_FOR_A_STEP * own:
            groups[-1] = torch.cat([groups[-1], numbers])
        else:
            groups.append(numbers)
            longest = own
    return [numbers.sort().values for numbers in groups]
