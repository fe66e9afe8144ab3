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


def _divided(rows: Tensor, lengths: Tensor, resets: Tensor, shape: tuple[int, ...], device: torch.device) -> Pieces:
    """The pieces of sequences, found on the CPU and moved to a device.

    Args:
        rows: ``(time, sequences)``, the row of the input that each step of each sequence reads.
        lengths: ``(sequences,)``.
        resets: ``(time, sequences)``.
        shape: how the sequences are arranged, ``(..., n)``: pieces stay in the entry of ``...`` that they are from.
    """
    count = len(lengths)
    times = torch.arange(len(rows), device="cpu").unsqueeze(1)
    starts = (resets | (times == 0)) & (times < lengths)
    sequence, start = starts.T.nonzero(as_tuple=True)
    is_last = torch.cat([sequence[1:] != sequence[:-1], torch.ones(1, dtype=torch.bool, device="cpu")])
    stop = torch.where(is_last, lengths[sequence], start.roll(-1))
    continues = (start == 0) & ~resets[0, sequence]
    entry = sequence // shape[-1]

    groups: list[Group] = []
    back = torch.empty(int(lengths.sum()), dtype=torch.long, device="cpu")
    ends = OfDirections(torch.empty_like(lengths), torch.empty_like(lengths))
    rows_before = states_before = 0
    for chosen in _grouped(stop - start):
        own = (stop - start)[chosen]
        in_entry = torch.bincount(entry[chosen], minlength=count // shape[-1])
        width = int(in_entry.max())
        place = torch.arange(len(chosen), device="cpu") - (in_entry.cumsum(0) - in_entry)[entry[chosen]]
        place += entry[chosen] * width
        time, places = int(own.max()), width * len(in_entry)

        # A place without a piece reads a row of its own entry, a step after the end of its piece the last one again.
        steps = rows[0, :: shape[-1]].repeat_interleave(width).repeat(time, 1)
        read = torch.minimum(start[chosen] + times[:time], stop[chosen] - 1)
        steps[:, place] = rows[read, sequence[chosen]]
        of_place = torch.ones(places, dtype=torch.long, device="cpu").index_copy(0, place, own)
        given = [
            torch.full((places,), count, device="cpu").index_copy(0, place, torch.where(which, sequence, count)[chosen])
            for which in (continues, is_last)
        ]
        within = times[:time] < own
        outputs = rows_before + times[:time] * places + place
        back[steps[:, place][within]] = outputs[within]
        ends.onward[sequence[chosen][is_last[chosen]]] = (states_before + place)[is_last[chosen]]
        ends.reverse[sequence[chosen][start[chosen] == 0]] = (states_before + place)[start[chosen] == 0]
        rows_before += time * places
        states_before += places

        arranged = (*shape[:-1], width)
        padded = None if bool((of_place == time).all()) else of_place.view(arranged).to(device)
        before = OfDirections(*(numbers.view(arranged).to(device) for numbers in given))
        groups.append(Group(steps.view(time, *arranged).to(device), padded, before))
    return Pieces(groups, back.to(device), OfDirections(*(numbers.to(device) for numbers in ends)))


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
