"""The weights of a step as kernels take them, side by side, and their gradients apart again."""

import operator
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from multistable.scan.kernels.form import Form

Weights = tuple[Tensor, ...]


def parts_of(form: Form, sources: Weights) -> Weights:
    """The weights that products and units count, from what ``Members.sources`` returns."""
    program = form.program
    if program.windows is None:
        return sources
    whole = dict(zip(program.sources, sources, strict=True))
    parts = []
    for place, start, stop in program.windows:
        weight = whole[place]
        parts.append(weight if stop - start == weight.shape[-1] else weight[..., start:stop])
    return tuple(parts)


def gradients_of_sources(
    form: Form, sources: Weights, of_parts: list[Tensor | None], others: dict[int, Tensor]
) -> list[Tensor | None]:
    """The gradient of each source, from those of :func:`parts_of`.

    Args:
        others: for some sources, by their number, a further gradient, of its first columns.
    """
    program = form.program
    if program.windows is None:
        return of_parts
    pieces: list[list[tuple[int, Tensor]]] = [
        [(0, others[index])] if index in others else [] for index in range(len(sources))
    ]
    for window, gradient in zip(program.windows, of_parts, strict=True):
        if gradient is not None:
            pieces[program.sources.index(window.weight)].append((window.start, gradient))
    return [_joined(source, own) if own else None for source, own in zip(sources, pieces, strict=True)]


def _joined(source: Tensor, pieces: list[tuple[int, Tensor]]) -> Tensor:
    """The gradient of all columns, from those of some, each with its first column."""
    if pieces[0][1].shape == source.shape and len(pieces) == 1:
        return pieces[0][1]
    pieces.sort(key=operator.itemgetter(0))
    ends = [0, *[start + gradient.shape[-1] for start, gradient in pieces]]
    if ends[-1] == source.shape[-1] and ends[:-1] == [start for start, _ in pieces]:
        return torch.cat([gradient for _, gradient in pieces], -1)
    found = source.new_zeros(source.shape)
    for start, gradient in pieces:
        found[..., start : start + gradient.shape[-1]] += gradient
    return found


def matrices_of(form: Form, weights: Weights, members: int) -> Tensor:
    """All blocks side by side, ``(members, hidden, blocks * hidden)``; a view where they lie so in memory."""
    hidden, program = form.program.hidden, form.program
    parts = []
    for slot in form.slots:
        for place in program.products[slot.product].matrices:
            matrix = weights[place].view(members, *weights[place].shape[-2:])
            if matrix.shape[1] != hidden:
                matrix = matrix[:, slot.lane * hidden : (slot.lane + 1) * hidden]
            parts.append(matrix)
    return _side_by_side(parts)


def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    first, width = parts[0], 0
    for part in parts:
        follows = part.data_ptr() == first.data_ptr() + width * first.element_size()
        if not follows or part.stride() != first.stride() or part.stride(-1) != 1:
            return torch.cat(list(parts), -1)
        width += part.shape[-1]
    return first if len(parts) == 1 else first.as_strided((*first.shape[:-1], width), first.stride())


def units_of(form: Form, weights: Weights, members: int) -> Tensor | None:
    """The weights of units side by side, ``(members, units * hidden)``, those of a row repeated; None without any."""
    units, hidden = form.program.units, form.program.hidden
    if not units:
        return None
    if _are_one(form, weights, members):
        return weights[units[0].value[0]].reshape(members, -1).contiguous()
    found = []
    for unit in units:
        place, lane = unit.value
        weight = weights[place].reshape(members, -1)
        found.append(weight.expand(-1, hidden) if unit.of_row else weight[:, lane * hidden : (lane + 1) * hidden])
    return torch.cat(found, -1)


def _are_one(form: Form, weights: Weights, members: int) -> bool:
    """Whether the weights of units are one weight as it is."""
    place = _place_of_units(form)
    return place is not None and weights[place].numel() == members * len(form.program.units) * form.program.hidden


@cache
def _place_of_units(form: Form) -> int | None:
    """Where the weight is of which the weights of units are all lanes in order, if they are of one."""
    units = form.program.units
    first = units[0].value[0]
    in_order = all(unit.value == (first, lane) and not unit.of_row for lane, unit in enumerate(units))
    return first if in_order else None


def gradients_of_each(
    form: Form, weights: Weights, of_matrices: Tensor | None, of_units: Tensor | None
) -> list[Tensor | None]:
    """The gradient of each weight, from those of :func:`matrices_of` and :func:`units_of`."""
    found: list[Tensor | None] = [None] * len(weights)
    if of_matrices is not None:
        _take_matrices_apart(form, weights, of_matrices, found)
    if of_units is not None:
        _take_units_apart(form, weights, of_units, found)
    return found


def _take_matrices_apart(form: Form, weights: Weights, gradient: Tensor, found: list[Any]) -> None:
    program, hidden = form.program, form.program.hidden
    for index, product in enumerate(program.products):
        rows = [slot for slot in form.slots if slot.product == index]
        start = 0
        for place in product.matrices:
            width = weights[place].shape[-1]
            if width == gradient.shape[-1]:
                found[place] = gradient.view(weights[place].shape)
                return
            blocks = [gradient[..., s.first * hidden + start : s.first * hidden + start + width] for s in rows]
            whole = (blocks[0] if len(blocks) == 1 else torch.cat(blocks, -2)).reshape(weights[place].shape)
            found[place] = whole if found[place] is None else found[place] + whole
            start += width


def _take_units_apart(form: Form, weights: Weights, gradient: Tensor, found: list[Any]) -> None:
    hidden, members = form.program.hidden, len(gradient)
    if _are_one(form, weights, members):
        place = form.program.units[0].value[0]
        found[place] = gradient.reshape(weights[place].shape)
        return
    for unit, lane in zip(form.program.units, gradient.split(hidden, -1), strict=True):
        place, part = unit.value
        if found[place] is None:
            found[place] = torch.zeros_like(weights[place], memory_format=torch.contiguous_format)
        own = found[place].view(members, -1)
        own = own if unit.of_row else own[:, part * hidden : (part + 1) * hidden]
        own += lane.sum(-1, keepdim=True) if unit.of_row else lane
