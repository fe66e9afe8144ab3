"""Whether networks under warmup are multistable by the true measure, at little cost where they are not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from multistable.dynamics.measure.algorithm_2 import random_hidden_states
from multistable.dynamics.measure.stabilisation import stabilise
from multistable.dynamics.measure.variability import distances, vaa
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.system import System, flat

# A network may be multistable under one input and not under another, most often not under those far from zero, which
# the measure meets seldom. Under warmup inputs are this much larger, so that what is reached holds with a margin.
WIDER = 1.5
# The screening: many inputs, few states under each, and first after fewer steps than the measure has, since most
# failures show early.
SCREENED_INPUTS, SCREENED_STATES, SCREENED_STEPS = 64, 4, (200, 1000)
# How far beyond the target VAA has to be, as a share of what is left to 1: a network is looked at many times, and
# should not pass for having been lucky once. And how far below it, by the same share, a measure with inputs of its own
# should find it at worst.
MARGIN, SLACK = 0.4, 1.0
# The least VAA under any one input, of the screening and of the last look, as a share of the target.
WORST_INPUT = 0.75
# VAA varies over inputs: the last look at a network has more of them than the measure. A wanted VAA, which is looked at
# more often, has fewer, after a quick look.
THOROUGH_INPUTS, WANTED_INPUTS, QUICK_STEPS = 40, 20, 1000
# How many standard errors another measure may be off, in each case; and the share of the tolerance within which a
# wanted VAA has to be.
ERRORS, WANTED_ERRORS, NEAR = 2.0, 3.0, 0.5
# There are so many looks that some network will be lucky in one: it has to pass a second one, which decides, and that
# under every input, since one in ten can be a measure's ruin. What is added to the seed for its draws: more than there
# are steps.
SECOND_LOOK = 10**6


class Verdict(NamedTuple):
    """About some networks, those that were asked about; every tensor is ``(...)``."""

    passed: Tensor
    vaa: Tensor
    """The true VAA where it was measured, else NaN."""
    score: Tensor
    """How near each came to passing; minus infinity for those that were not asked about."""


class _Shares(NamedTuple):
    """Each ``(..., inputs)``."""

    vaa: Tensor
    relative: Tensor
    """Of the most that VAA can be: where sequences begin alike, some of the states to start from are equal."""


@dataclass(frozen=True)
class Verification:
    """The true measure for the networks of a system, with draws that depend on the network and the step alone.

    Args:
        system: the networks.
        data: the input sequences.
        seeds: of the draws, ``(...)``.
        target: the VAA to reach, ``(...)``.
        inputs: how many inputs u the measure averages over.
        states: the states under each.
        horizon: M of the measure.
        eps: the tolerance of the VAA.
        on_measure: called before each part of a look, with the number of its states and its steps.
    """

    system: System
    data: SequenceSet
    seeds: Tensor
    target: Tensor
    inputs: int
    states: int
    horizon: int
    eps: float
    on_measure: Callable[[int, int], None] = lambda states, steps: None

    @torch.no_grad()
    def judge(self, which: Tensor, step: int) -> Verdict:
        """Screen the networks ``which (...)``, then measure those that are left."""
        left = which.clone()
        score = torch.where(which, 0.0, -torch.inf).double()
        value = torch.full_like(score, torch.nan)
        least = self.target + MARGIN * (1 - self.target)
        few = min(SCREENED_STATES, len(self.data))
        for steps in sorted({min(steps, self.horizon) for steps in (*SCREENED_STEPS, self.horizon)}):
            if left.any():
                shares = self._shares(left, step, SCREENED_INPUTS, few, WIDER, steps).relative
                enough = (shares.mean(dim=-1) >= least) & (shares.amin(dim=-1) >= WORST_INPUT * self.target)
                score = torch.where(left, score.floor() + shares.mean(dim=-1) / 2, score)
                left = left & enough
                score = torch.where(left, score.floor() + 1, score)
        for draws, worst in ((step, 0.0), (step + SECOND_LOOK, WORST_INPUT)):
            if left.any():
                measured = self._shares(left, draws, THOROUGH_INPUTS, self.states, 1.0, self.horizon)
                value = torch.where(left, measured.vaa.mean(dim=-1), value)
                relative = measured.relative.mean(dim=-1)
                score = torch.where(left, score.floor() + relative / 2, score)
                at_worst = relative - ERRORS * self._standard_error(measured.relative)
                left = left & (relative >= least) & (at_worst >= self.target - SLACK * (1 - self.target))
                left = left & (measured.relative.amin(dim=-1) >= worst * self.target) & self._several(measured.vaa)
                score = torch.where(left, score.floor() + 1, score)
        return Verdict(left, value, score)

    @torch.no_grad()
    def near(self, which: Tensor, step: int, wanted: Tensor, tolerance: float) -> Verdict:
        """Whether the VAA of the networks ``which (...)`` is ``wanted (...)`` within a tolerance.

        So near that another measure, with inputs of its own, should find it within the tolerance too. The VAA of the
        verdict is that of a quick look for networks that are too far below for a thorough one.
        """
        steps = min(QUICK_STEPS, self.horizon)
        quick = self._shares(which, step, self.inputs, self.states, 1.0, steps).vaa.mean(dim=-1)
        # States come together as time goes on, seldom apart: a VAA that is too low now will not be enough later.
        left = which & (quick >= wanted - NEAR * tolerance)
        value = torch.full_like(quick, torch.nan)
        score = torch.where(which, -1 - (quick - wanted).abs(), -torch.inf)
        for draws, inputs in ((step, WANTED_INPUTS), (step + SECOND_LOOK, THOROUGH_INPUTS)):
            if left.any():
                shares = self._shares(left, draws, inputs, self.states, 1.0, self.horizon).vaa
                value = torch.where(left, shares.mean(dim=-1), value)
                score = torch.where(left, -(value - wanted).abs(), score)
                left = left & self._is_near(shares, wanted, tolerance)
        return Verdict(left, torch.where(value.isnan(), quick, value), score)

    def _is_near(self, shares: Tensor, wanted: Tensor, tolerance: float) -> Tensor:
        """Whether shares ``(..., inputs)`` are as ``wanted (...)``, and another measure should find so, too."""
        value = shares.mean(dim=-1)
        error, uncertainty = (value - wanted).abs(), WANTED_ERRORS * self._standard_error(shares)
        return (error <= NEAR * tolerance) & (error + uncertainty <= tolerance) & self._several(shares)

    def _several(self, shares: Tensor) -> Tensor:
        """A single attractor remembers nothing, however low the wanted VAA is, or however many histories coincide."""
        return shares.mean(dim=-1) >= 1.5 / self.states

    def _standard_error(self, shares: Tensor) -> Tensor:
        """Of a measure, by shares ``(..., inputs)`` under more inputs than it has, ``(...)``."""
        return shares.std(dim=-1) / self.inputs**0.5

    def of(self, which: Tensor, step: int) -> tuple[System, SequenceSet, Draws]:
        """The networks ``which (...)`` by themselves, their sequences, and draws for a step."""
        members = which.reshape(-1).nonzero().squeeze(-1).tolist()
        system, data = self.system.of_members(members), self.data.of_members(members)
        seeds = self.seeds.reshape(-1)[members].tolist()
        return system, data, Draws([torch.Generator().manual_seed(seed + step) for seed in seeds], system.members)

    def _shares(self, which: Tensor, step: int, inputs: int, states: int, scale: float, steps: int) -> _Shares:
        """Under inputs ``scale`` times those of the measure; a VAA of 0 where states diverge."""
        self.on_measure(inputs * states, steps)
        system, data, draws = self.of(which, step)
        batches = [draws.batch(len(data), states) for _ in range(inputs)]
        u = scale * draws.normal(inputs, system.input_size).to(device=system.device, dtype=system.dtype)
        start = random_hidden_states(system, data, torch.cat(batches, dim=-1), draws)
        end = stabilise(system, start, u.repeat_interleave(states, dim=-2), steps).states
        by_input = end.double().unflatten(-2, (inputs, states))
        finite = by_input.isfinite().all(dim=-1).all(dim=-1)
        values = torch.where(finite, vaa(by_input.nan_to_num(), self.eps), 0.0).cpu()
        different = _share_of_different(flat(start).unflatten(-2, (inputs, states))).cpu()
        if which.dim() == 0:
            return _Shares(values, values / different)
        nothing = values.new_full((*which.shape, inputs), torch.nan)
        return _Shares(*(nothing.masked_scatter(which.unsqueeze(-1), x) for x in (values, values / different)))


def _share_of_different(states: Tensor) -> Tensor:
    """The share of states ``(..., n, d)`` that differ at all, ``(...)``: equal histories lead to equal states."""
    same = distances(states.double()) == 0
    return (1 / same.sum(dim=-1).double()).sum(dim=-1).round(decimals=12) / states.shape[-2]
