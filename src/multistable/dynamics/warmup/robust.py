"""Attractors that attract: after this warmup states come back to where they were when noise has moved them.

The default asks only that states stay apart, which they do on a continuum too. Here units store bits. A bit is the sign
of the mean of a few units, as many as it takes to tell the sign in spite of the noise. The network learns two things,
both within a few steps: a state near a corner of the cube, with noise on every number, returns to it under any input,
whichever of all corners it is; and sequences lead to corners, each to its own, without being told which.
"""

import math

import torch
from torch import Tensor

from multistable.dynamics.measure.noise import robustness_of
from multistable.dynamics.measure.vaa_and_vaa_star import distances, proxy
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.system import System, at_time, flat, map_states
from multistable.dynamics.warmup.gradient_steps import (
    Warming,
    check_finite,
    copies,
    descend,
    gradients_of,
    interpolate,
    normalised,
)
from multistable.dynamics.warmup.history import WarmupStep
from multistable.dynamics.warmup.verification import WIDER
from multistable.dynamics.warmup.wanted_vaa import CORNER, Outcome, core_of
from multistable.networks.layers import LayerState

# The longest period; a state that returns within a few steps stays for ever. Sequences are read for so many steps.
LONGEST, EARLY = 3, 8
# The random corners of a step. Noise on states near them is WIDER times what they should withstand.
CORNERS = 128
# First come steps that make corners attractors, a share of all; then also ones that lead sequences to different ones.
# Of the last half the learning rate falls to zero.
CORNERS_FIRST, FALLING = 0.4, 0.5
# The chance that noise turns any of the bits, at most.
TURNED = 0.01
# States that sequences lead to should differ in so many bits; what that counts beside the rest.
DIFFERING, APART = 2, 0.1
# The look at the end: inputs, states under each, and the steps before and after the noise. The share of states that
# have to come back, and to how many attractors, as a share of the states.
INPUTS, STATES, SETTLING = 10, 32, 1000
RETURNED, PLACES = 0.95, 0.25


def units_of_a_bit(units: int, noise: float) -> int:
    """The fewest units whose mean tells a bit, so that noise seldom turns any of the bits of a layer."""

    def chance(r: int) -> float:
        return units // r * math.erfc(CORNER * math.sqrt(r / 2) / noise) / 2

    return next((r for r in range(1, units) if chance(r) <= TURNED), units)


class Bits:
    """The bits of a layer: unit i belongs to bit i modulo ``number``."""

    def __init__(self, units: int, noise: float) -> None:
        self.each = units_of_a_bit(units, noise)
        self.number = units // self.each

    def corner(self, x: Tensor) -> Tensor:
        """The nearest corner, by the means of the units of each bit: ``(..., units)`` for ``x (..., units)``."""
        units = x.shape[-1]
        rows = torch.nn.functional.pad(x, (0, -units % self.number)).unflatten(-1, (-1, self.number))
        signs = torch.where(rows.sum(dim=-2, keepdim=True) > 0, 1.0, -1.0).to(x)
        return CORNER * signs.expand_as(rows).flatten(-2)[..., :units]


def robust_warmup(warming: Warming, noise: float) -> None:
    """Gradient steps that make corners attractors, and lead sequences to many of them, in place."""
    last = int(warming.limit.max())
    for step in range(1, last + 1):
        weights, before = warming.parameters, copies(warming.parameters)
        outcome = _outcome(warming, noise, apart=step > CORNERS_FIRST * last)
        loss = outcome.losses.mean(dim=0)
        check_finite(loss, [], warming, step)
        gradients, _ = normalised(gradients_of(loss, warming), warming.system)
        descend(gradients, warming)
        rate = min(1.0, (1 - step / (last + 1)) / FALLING)
        interpolate(weights, before, torch.full(warming.system.leading, rate, device="cpu"), warming.system)
        warming.record(WarmupStep(step, outcome.vaa_star.cpu(), loss.detach().cpu(), outcome.period))
        if warming.time_is_up():
            break


def withstands(warming: Warming, noise: float) -> None:
    """Measure whether states come back, and put it into the history."""
    seeds = warming.draws.integer(2**31).reshape(-1).tolist()
    system, data, history = warming.system.with_present_weights(), warming.data, warming.history
    draws = Draws([torch.Generator().manual_seed(seed) for seed in seeds], system.members)
    sizes = (INPUTS, min(STATES, len(data)))
    found = robustness_of(system, data, draws, noise, sizes, SETTLING, SETTLING, warming.eps)
    shares = [found.returned, found.returned_changing, found.vaa, found.vaa_changing]
    back, back_changing, places, places_changing = (torch.tensor(share, device="cpu") for share in shares)
    least = torch.minimum(back, back_changing), torch.minimum(places, places_changing)
    history.robustness, history.verifies = found, True
    history.verified = (least[0] >= RETURNED) & (least[1] >= max(PLACES, 1.5 / sizes[1]))


def _outcome(warming: Warming, noise: float, *, apart: bool) -> Outcome:
    """How far states are from corners, and if asked those of sequences from each other."""
    system, draws = warming.system.with_present_weights(), warming.draws
    indices = draws.batch(len(warming.data), warming.batch_size)
    u, lengths = warming.data.select(indices)
    before = system.before(warming.data, indices)
    times = draws.times(lengths.clamp(max=EARLY))
    reached = system.reached(u[:EARLY].to(system.device, system.dtype), times, before)
    longest = min(LONGEST, warming.max_stabilisation)
    period = draws.times(torch.full((*system.leading, 1), longest, device="cpu")).squeeze(-1)
    losses, values = [], []
    for index, state in enumerate(reached):
        loss, ends = _of_layer(system, draws, index, state, period, noise, apart)
        losses.append(loss)
        values.append(proxy(ends.detach(), warming.eps))
    return Outcome(torch.stack(losses), torch.stack(values), period)


def _of_layer(
    system: System, draws: Draws, index: int, reached: LayerState, period: Tensor, noise: float, apart: bool
) -> tuple[Tensor, Tensor]:
    """The loss of a layer by itself after a period, ``(...)``, and where sequences lead to, ``(..., n, d)``."""
    layer = system.layers[index]
    start = layer.warmable_state(reached)
    own = core_of([start]).detach()
    n, units = own.shape[-2:]
    bits = Bits(units, noise)
    drawn = bits.corner(draws.normal(CORNERS, units).to(own))
    corners = torch.cat([bits.corner(own), drawn], dim=-2)

    def with_near(field: Tensor) -> Tensor:
        corner = drawn[..., torch.arange(field.shape[-1], device=field.device) % units]
        return torch.cat([field, corner + WIDER * noise * draws.normal(*corner.shape[-2:]).to(field)], dim=-2)

    u = _inputs(system, draws, index, n, int(period.max()))
    _, over_time = layer.warmable(u, map_states(with_near, [start])[0])
    at = (period - 1).to(system.device).unsqueeze(-1).expand(*system.leading, n + CORNERS)
    end = at_time([over_time], at)
    core = core_of(end)
    off = ((core - corners) / CORNER).square().mean(dim=-1)
    loss = off[..., :n].mean(dim=-1) + off[..., n:].mean(dim=-1)
    if apart:
        loss = loss + APART * _nearness(core[..., :n, :], 2 * CORNER * math.sqrt(DIFFERING * bits.each))
    return loss, flat(end)[..., :n, :]


def _inputs(system: System, draws: Draws, index: int, n: int, time: int) -> Tensor:
    """Inputs ``(time, ..., n + CORNERS, features)``, constant for each state but half of those near corners."""
    changing = CORNERS // 2
    constant = system.constant_inputs(n + CORNERS - changing, draws, layer=index, scale=WIDER)
    drawn = [system.constant_inputs(changing, draws, layer=index, scale=WIDER) for _ in range(LONGEST)]
    over_time = torch.stack(drawn)[:time]
    return torch.cat([constant.expand(time, *constant.shape), over_time], dim=-2)


def _nearness(x: Tensor, margin: float) -> Tensor:
    """How much nearer than ``margin`` states ``(..., n, d)`` are to each other, ``(...)``."""
    itself = torch.eye(x.shape[-2], dtype=torch.bool, device=x.device)
    near = (1 - distances(x) / margin).clamp(min=0).square()
    return near.masked_fill(itself, 0).sum(dim=(-2, -1)) / (2 * x.shape[-2])
