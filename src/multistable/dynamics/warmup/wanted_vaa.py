"""A wanted VAA: few attractors, far from each other, each of them reached by its share of the sequences.

Sequences are sorted into the cells of a grid by how they begin. Every cell has a corner of the cube of states, in which
each unit has one of two values. The network learns two things, both within a few steps: states near a corner return to
it under any input, and the states that sequences lead to go to the corner of their cell. Nothing has to be remembered
for long during the warmup, since a state that returns within a few steps stays for ever.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from multistable.dynamics.measure.vaa_and_vaa_star import proxy
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.system import System
from multistable.dynamics.system.whole_states import States, at_time, flat, map_states
from multistable.dynamics.warmup.verification import WIDER
from multistable.networks.layers import Layer, LayerState

# At an attractor each unit has one of two values, which are this far from zero.
CORNER = 0.9
# There should be so many times more attractors than are wanted, since some are reached late, or never.
MORE = 1.1
# The dimensions of the grid. With more dimensions fewer units tell cells apart, but beginnings have to be longer.
AXES = 2
# How many sequences are told apart, and how long their beginnings are at least.
SEQUENCES, BEGINNING = 1000, 2
# A sequence goes on for up to so many steps after its beginning; then comes a period of at most so many.
LATER, LONGEST = 6, 3
# The largest share of units that may be astray in a state that has to return.
ASTRAY = 0.6


class Outcome(NamedTuple):
    """The states of a gradient step, and how far they are from the goal."""

    losses: Tensor
    """The loss of each layer, ``(layers, ...)``."""
    vaa_star: Tensor
    """VAA* of the states that sequences led to, ``(layers, ...)``."""
    period: Tensor
    """The stabilisation period, ``(...)``."""


def cells_for(wanted: Tensor, states: int) -> Tensor:
    """How many cells a grid needs so that ``states`` random sequences lead to a VAA of ``wanted (...)``.

    With k cells of equal share, k (1 - (1 - 1/k)^n) of them are met by n sequences.
    """
    low, high = torch.ones_like(wanted, dtype=torch.float64), torch.full_like(wanted, 1e6, dtype=torch.float64)
    for _ in range(60):
        middle = (low + high) / 2
        enough = middle * (1 - (1 - 1 / middle) ** states) / states >= wanted
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high


def levels_for(wanted: Tensor, states: int) -> Tensor:
    """The number of levels on each axis of a grid with a few more cells than are needed, ``(..., AXES)``."""
    left, levels = cells_for(torch.minimum(MORE * wanted, (1 + wanted) / 2), states), []
    for axis in range(AXES):
        levels.append((left ** (1 / (AXES - axis)) - 0.1).ceil().clamp(min=1))
        left = left / levels[-1]
    return torch.stack(levels, dim=-1).long()


class Beginnings(NamedTuple):
    """Sequences, told apart by the states that they lead to in the network before the warmup."""

    indices: Tensor
    """Which sequences, ``(..., N)``."""
    steps: Tensor
    """After how many steps they are told apart, ``(...)``."""
    place: Tensor
    """The place of each on each axis of the grid, from 0 to 1, ``(..., N, AXES)``."""


@torch.no_grad()
def beginnings(system: System, data: SequenceSet, draws: Draws, levels: Tensor) -> Beginnings:
    """Sort sequences by the states of the present network early in them.

    They are followed only until every cell of a grid with ``levels (..., AXES)`` has a sequence, since what was seen
    early can be remembered from then on. Sequences that begin alike have to be followed for longer.
    """
    indices = draws.batch(len(data), min(SEQUENCES, len(data)))
    u, lengths = data.select(indices)
    u, longest = u.to(system.device, system.dtype), int(lengths.max())
    before = system.before(data, indices)

    def after(steps: int) -> tuple[Tensor, Tensor]:
        found = places(flat(system.reached(u, lengths.clamp(max=steps), before)))
        return found, _filled(found, levels)

    best, steps = torch.full(system.leading, BEGINNING, device="cpu"), BEGINNING
    place, filled = after(steps)
    while steps < longest and bool((filled < levels.prod(dim=-1)).any()):
        steps *= 2
        later, more = after(steps)
        better = more > filled
        best, filled = torch.where(better, steps, best), torch.maximum(filled, more)
        place = torch.where(better[..., None, None], later, place)
    return Beginnings(indices, best, place)


class Code(NamedTuple):
    """Which units of a layer have their upper value in the corner of a cell; each tensor is ``(..., units)``."""

    axis: Tensor
    """The axis of the grid that a unit reads."""
    threshold: Tensor
    """The level, as a share of the highest, above which a unit has its upper value."""
    sign: Tensor
    """The sign of the upper value."""

    @classmethod
    def of(cls, units: int, draws: Draws) -> "Code":
        """Thresholds spread evenly over each axis, in any order."""
        order = draws.batch(units, units)
        sign = torch.where(draws.normal(units) > 0, 1.0, -1.0)
        return cls(order % AXES, (order // AXES + 0.5) / math.ceil(units / AXES), sign)

    def corner(self, cell: Tensor, levels: Tensor) -> Tensor:
        """The values of the units, ``(..., n, units)``.

        A unit tells whether its axis is beyond its threshold. Cells that are neighbours then differ in few units, and
        all a unit has to learn of a beginning is on which side of a plane it is.

        Args:
            cell: the level of each axis, ``(..., n, AXES)``.
            levels: how many there are, ``(..., AXES)``.
        """
        axis = self.axis.unsqueeze(-2).expand(*cell.shape[:-1], -1)
        highest = (levels - 1).unsqueeze(-2).expand_as(cell).gather(-1, axis)
        beyond = cell.gather(-1, axis) > self.threshold.unsqueeze(-2) * highest
        return CORNER * self.sign.unsqueeze(-2) * torch.where(beyond, 1.0, -1.0)


@dataclass(frozen=True)
class Corners:
    """Which corner each sequence should lead to, and how far it is from it.

    Args:
        data: the sequences.
        draws: draws of its own, so that what a network is given does not depend on the other networks.
        levels: of each axis of the grid, ``(..., AXES)``.
        known: the sequences that are used.
        codes: of each layer.
    """

    data: SequenceSet
    draws: Draws
    levels: Tensor
    known: Beginnings
    codes: list[Code]

    @classmethod
    def of(cls, system: System, data: SequenceSet, draws: Draws, levels: Tensor) -> "Corners":
        """The corners of a grid with ``levels (..., AXES)``, for the networks as they are now."""
        known = beginnings(system, data, draws, levels)
        codes = [Code.of(units_of(layer, system), draws) for layer in system.layers]
        return cls(data, draws, levels, known, codes)

    def step(self, system: System, n: int, longest: int, eps: float) -> Outcome:
        """How far states are from their corners after a period: those that n sequences lead to, and as many others.

        Args:
            system: the networks.
            n: how many sequences, at most.
            longest: the longest period, if it is less than ``LONGEST``.
            eps: the tolerance of VAA*.
        """
        draws, known = self.draws, self.known
        drawn = draws.batch(known.indices.shape[-1], n)
        n = drawn.shape[-1]
        indices = known.indices.gather(-1, drawn)
        u, lengths = self.data.select(indices)
        before = system.before(self.data, indices)
        first = torch.minimum(lengths, known.steps.unsqueeze(-1))
        later = draws.times((lengths - first).clamp(max=LATER) + 1) - 1
        reached = system.reached(u.to(system.device, system.dtype), first + later, before)
        place = known.place.gather(-2, drawn.unsqueeze(-1).expand(*drawn.shape, AXES))
        cell = _cell(place, self.levels)
        period = draws.times(torch.full((*system.leading, 1), min(LONGEST, longest), device="cpu")).squeeze(-1)
        losses, values = [], []
        for index, state in enumerate(reached):
            end, corner = self._stabilised(system, index, state, cell, period)
            losses.append(((core_of(end) - core_of(corner)) / CORNER).square().mean(dim=(-2, -1)))
            values.append(proxy(flat(end)[..., :n, :].detach(), eps))
        return Outcome(torch.stack(losses), torch.stack(values), period)

    def _stabilised(
        self, system: System, index: int, reached: LayerState, cell: Tensor, period: Tensor
    ) -> tuple[States, States]:
        """States of a layer by itself after the period, and their corners, ``(..., 2 n, d)``.

        The first n are ``reached``, whose cells are ``cell (..., n, AXES)``; the others begin near random corners. Half
        of these see an input that changes all the time: a corner that is reached early has to outlast the rest of its
        sequence.
        """
        layer, n = system.layers[index], cell.shape[-2]
        start = layer.warmable_state(reached)
        cell = torch.cat([cell, _cell(self.draws.uniform(n, AXES), self.levels)], dim=-2)
        corner = self.codes[index].corner(cell, self.levels).to(system.device, system.dtype)
        corners = map_states(lambda field: corner[..., : field.shape[-1]], [start])
        near = map_states(lambda field: self._astray(field[..., n:, :]), corners)
        together = map_states(lambda x, y: torch.cat([x, y], dim=-2), [start], near)
        u = self._inputs(system, index, int(period.max()), n)
        _, over_time = layer.warmable(u, together[0])
        at = (period - 1).to(system.device).unsqueeze(-1).expand(*system.leading, 2 * n)
        return at_time([over_time], at), corners

    def _inputs(self, system: System, index: int, time: int, n: int) -> Tensor:
        """Inputs ``(time, ..., 2 n, features)``: constant for each state but the last n // 2, changing for those."""
        constant = system.constant_inputs(2 * n - n // 2, self.draws, layer=index, scale=WIDER)
        changing = self.draws.normal(LONGEST, n // 2, constant.shape[-1]).movedim(-3, 0)[:time]
        changing = (WIDER * changing).to(constant)
        return torch.cat([constant.expand(time, *constant.shape), changing], dim=-2)

    def _astray(self, corner: Tensor) -> Tensor:
        """States ``corner`` with some units anywhere between their value there and the opposite one."""
        share, where, far = (self.draws.uniform(*corner.shape[-2:]).to(corner) for _ in range(3))
        return torch.where(where < ASTRAY * share[..., :1], (2 * far - 1) * corner, corner)


def places(states: Tensor) -> Tensor:
    """The place of each state ``(..., n, d)`` on each principal direction, ``(..., n, AXES)``: the share below it."""
    centred = (states - states.mean(dim=-2, keepdim=True)).double().cpu()
    _, directions = torch.linalg.eigh(centred.mT @ centred)
    along = centred @ directions[..., -AXES:].flip(-1)
    # States with fewer units than there are axes all have one place on the axes that are left.
    along = torch.nn.functional.pad(along, (0, AXES - along.shape[-1])).mT
    # States that are equal but for rounding have one place.
    along = (along / along.std(dim=-1, keepdim=True).clamp(min=1e-9)).round(decimals=5).contiguous()
    return (torch.searchsorted(along.sort(dim=-1).values, along) / along.shape[-1]).mT


def _cell(place: Tensor, levels: Tensor) -> Tensor:
    return (place * levels.unsqueeze(-2)).long()


def _filled(place: Tensor, levels: Tensor) -> Tensor:
    """How many cells of the grid have a sequence, ``(...)``."""
    cell = _cell(place, levels)
    before = torch.cat([torch.ones_like(levels[..., :1]), levels.cumprod(dim=-1)[..., :-1]], dim=-1)
    number = (cell * before.unsqueeze(-2)).sum(dim=-1).sort(dim=-1).values
    return (number.diff(dim=-1) > 0).sum(dim=-1) + 1


def core_of(states: States) -> Tensor:
    """What remembers: the last field of each state, ``(..., n, d)``: of an LSTM c alone, since h follows from it."""
    return torch.cat([cell[-1] for layer in states for cell in layer], dim=-1)


def units_of(layer: Layer, system: System) -> int:
    """The units of the largest field of the layer's state."""
    u = torch.zeros(1, *system.leading, 1, layer.input_size, device=system.device, dtype=system.dtype)
    _, state = layer.warmable(u)
    return max(field.shape[-1] for cell in state for field in cell)
