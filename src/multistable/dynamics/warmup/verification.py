"""Whether networks under warmup reach their goal by the true measure, at little cost if they do not."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from multistable.dynamics.measure.algorithm_2_reachable_states import random_hidden_states
from multistable.dynamics.measure.vaa_and_vaa_star import distances
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.system import System
from multistable.dynamics.system.whole_states import flat, map_states
from multistable.dynamics.warmup.foresight import Foresight
from multistable.dynamics.warmup.goal import Goal

# A network may be multistable under one input and not under another. Inputs far from zero, which the measure seldom
# draws, are the most dangerous. Inputs under warmup are this much larger, so that what is reached holds with a margin.
WIDER = 1.5
# The screening: many inputs, few states under each.
SCREENED_INPUTS, SCREENED_STATES = 64, 4
# Of so many batches of sequences the states of a look are taken, however many inputs it has: a network keeps or loses
# states by its input far more than by the sequences that led to them.
POOL = 8
# Both are shares of what is left from the target to 1. MARGIN: how far beyond the target VAA has to be. A network is
# looked at many times, and should not pass because it was lucky once. SLACK: how far below the target another measure,
# with inputs of its own, may find it at worst.
MARGIN, SLACK = 0.4, 1.0
# The least VAA under any one input, in the screening and in the last look, as a share of the target.
WORST_INPUT = 0.75
# VAA varies over inputs, so the last look at a network has more of them than the measure. Looks at a wanted VAA are
# more frequent: they have fewer inputs, and begin with a quick one.
THOROUGH_INPUTS, WANTED_INPUTS = 40, 20
# By how many standard errors another measure may differ, in each case; and the share of the tolerance within which a
# wanted VAA has to be met.
ERRORS, WANTED_ERRORS, NEAR = 2.0, 3.0, 0.5
# There are so many looks that some network will be lucky in one. It has to pass a second look, which decides, and there
# under every input, since one input in ten can spoil a measure. The second look adds this to the seed of its draws; it
# is more than a warmup has steps.
SECOND_LOOK = 10**6


class Verdict(NamedTuple):
    """The result of a look at the networks that were ``asked`` about; every tensor is ``(...)``."""

    passed: Tensor
    vaa: Tensor
    """The true VAA where it was measured, else NaN."""
    score: Tensor
    """How near each network came to passing; minus infinity for those that were not asked about."""


class _Shares(NamedTuple):
    """Each ``(..., inputs)``."""

    vaa: Tensor
    relative: Tensor
    """VAA as a share of the highest it can be: where sequences begin alike, some of the first states are equal."""
    after: int
    """The steps of stabilisation; fewer than the measure has if the time was up."""


@dataclass(frozen=True)
class Verification:
    """The true measure of the networks of a system, with draws that depend on the network and the step alone.

    Args:
        system: the networks.
        data: the input sequences.
        seeds: of the draws, ``(...)``.
        target: the VAA to reach, ``(...)``, for networks without a wanted VAA.
        inputs: how many inputs u the measure averages over.
        states: the states under each.
        horizon: M of the measure.
        eps: the tolerance of VAA.
        on_measure: called now and then with how many states are followed, the steps done, and those to do.
        deadline: the ``time.monotonic()`` at which looks stop. What was not seen to the end does not pass.
    """

    system: System
    data: SequenceSet
    seeds: Tensor
    target: Tensor
    inputs: int
    states: int
    horizon: int
    eps: float
    on_measure: Callable[[int, int, int], None] = lambda states, done, steps: None
    deadline: float = math.inf

    @torch.no_grad()
    def judge(self, asked: Tensor, step: int) -> Verdict:
        """Whether the networks ``asked (...)`` are multistable: a screening, then two measures of what passes."""
        left = asked.clone()
        score = torch.where(asked, 0.0, -torch.inf).double()
        value = torch.full_like(score, torch.nan)
        least = self.target + MARGIN * (1 - self.target)
        worst = WORST_INPUT * self.target
        few = min(SCREENED_STATES, len(self.data))
        for draws, inputs, states, scale in (
            (step, SCREENED_INPUTS, few, WIDER),
            (step, self.inputs, self.states, 1.0),
            (step + SECOND_LOOK, THOROUGH_INPUTS, self.states, 1.0),
        ):
            if not left.any():
                break
            shares = self._shares(left, draws, inputs, states, scale, pool=POOL, least=least, worst=worst)
            relative = shares.relative.mean(dim=-1)
            score = torch.where(left, score.floor() + relative / 2, score)
            left = left & (relative >= least) & (shares.relative.amin(dim=-1) >= worst) & (shares.after == self.horizon)
            if scale == 1.0:
                value = torch.where(left, shares.vaa.mean(dim=-1), value)
                at_worst = relative - ERRORS * self._standard_error(shares.relative)
                left = left & (at_worst >= self.target - SLACK * (1 - self.target)) & self._several(shares.vaa)
            score = torch.where(left, score.floor() + 1, score)
        return Verdict(left, torch.where(left, value, torch.nan), score)

    @torch.no_grad()
    def vaa_in_time(self, asked: Tensor) -> tuple[Tensor, int]:
        """The VAA of the networks ``asked (...)``, and after how many steps: as many as the time allows."""
        shares = self._shares(asked, 0, self.inputs, self.states, 1.0, pool=POOL)
        return shares.vaa.mean(dim=-1), shares.after

    @torch.no_grad()
    def judge_wanted(self, asked: Tensor, step: int, goal: Goal) -> Verdict:
        """Whether the VAA of the networks ``asked (...)`` is the wanted one.

        It has to be so near that another measure, with inputs of its own, should find it within the tolerance too. For
        networks that are too far below for a thorough look, the VAA of the verdict is that of a quick one.
        """
        too_low = goal.target - NEAR * goal.tolerance
        quick = self._shares(asked, step, self.inputs, self.states, 1.0, least=too_low).vaa.mean(dim=-1)
        left = asked & (quick >= too_low)
        value = torch.full_like(quick, torch.nan)
        score = torch.where(asked, -1 - (quick - goal.target).abs(), -torch.inf)
        for draws, inputs in ((step, WANTED_INPUTS), (step + SECOND_LOOK, THOROUGH_INPUTS)):
            if left.any():
                shares = self._shares(left, draws, inputs, self.states, 1.0)
                value = torch.where(left, shares.vaa.mean(dim=-1), value)
                score = torch.where(left, -(value - goal.target).abs(), score)
                left = left & self._is_near(shares.vaa, goal) & (shares.after == self.horizon)
        return Verdict(left, torch.where(value.isnan(), quick, value), score)

    def _is_near(self, shares: Tensor, goal: Goal) -> Tensor:
        """Whether VAA by the shares ``(..., inputs)`` is the wanted one, and another measure should find so too."""
        value = shares.mean(dim=-1)
        error, uncertainty = (value - goal.target).abs(), WANTED_ERRORS * self._standard_error(shares)
        near = (error <= NEAR * goal.tolerance) & (error + uncertainty <= goal.tolerance)
        return near & self._several(shares)

    def _several(self, shares: Tensor) -> Tensor:
        """Whether there is more than one attractor: a network with one remembers nothing, however low its goal is."""
        return shares.mean(dim=-1) >= 1.5 / self.states

    def _standard_error(self, shares: Tensor) -> Tensor:
        """The standard error of a measure, ``(...)``, from shares ``(..., inputs)`` under more inputs than it has."""
        return shares.std(dim=-1) / self.inputs**0.5

    def of(self, asked: Tensor, step: int) -> tuple[System, SequenceSet, Draws]:
        """The networks ``asked (...)`` over their present weights, with their sequences, and draws for a step."""
        members = asked.reshape(-1).nonzero().squeeze(-1).tolist()
        system, data = self.system.of_members(members), self.data.of_members(members)
        seeds = self.seeds.reshape(-1)[members].tolist()
        return system, data, Draws([torch.Generator().manual_seed(seed + step) for seed in seeds], system.members)

    def _shares(
        self,
        asked: Tensor,
        step: int,
        inputs: int,
        states: int,
        scale: float,
        *,
        pool: int | None = None,
        least: Tensor | float = -1.0,
        worst: Tensor | float = -1.0,
    ) -> _Shares:
        """VAA under inputs ``scale`` times those of the measure; 0 where states diverge.

        Args:
            asked: which networks, ``(...)``.
            step: of the warmup; the draws depend on it.
            inputs: how many inputs.
            states: how many states under each.
            scale: of the inputs.
            pool: of how many batches the states are taken; of one for each input if not given.
            least: the mean of relative shares below which a network is given up, ``(...)``.
            worst: the same for the share under any one input.
        """
        system, data, draws = self.of(asked, step)
        u = system.constant_inputs(inputs, draws, first=0, scale=scale)
        batches = [draws.batch(len(data), self.states) for _ in range(inputs if pool is None else min(pool, inputs))]
        reached = random_hidden_states(system, data, torch.cat(batches, dim=-1), draws)
        # Each input has the next batch, or where it needs only a part of one, the next part.
        own = torch.arange(inputs, device="cpu")
        first = own % len(batches) * self.states + own // len(batches) * states % (self.states // states * states)
        rows = (first.unsqueeze(-1) + torch.arange(states, device="cpu")).flatten().to(system.device)
        start = map_states(lambda x: x.index_select(-2, rows), reached)
        different = _share_of_different(flat(start).unflatten(-2, (inputs, states))).cpu()
        least, worst = (
            torch.as_tensor(bound, device="cpu").expand(asked.shape)[asked].reshape(system.leading)
            for bound in (least, worst)
        )

        def hopeless(values: Tensor) -> Tensor:
            relative = values / different
            return (relative.mean(dim=-1) < least) | (relative.amin(dim=-1) < worst)

        foresight = Foresight(system.leading, inputs, states, self.horizon, self.eps, self.deadline, self.on_measure)
        values = foresight.run(system, start, u.repeat_interleave(states, dim=-2), hopeless)
        if asked.dim() == 0:
            return _Shares(values, values / different, foresight.after)
        nothing = values.new_full((*asked.shape, inputs), torch.nan)
        of_all = [nothing.masked_scatter(asked.unsqueeze(-1), x) for x in (values, values / different)]
        return _Shares(of_all[0], of_all[1], foresight.after)


def _share_of_different(states: Tensor) -> Tensor:
    """The share of states ``(..., n, d)`` that differ at all, ``(...)``: equal histories lead to equal states."""
    same = distances(states.double()) == 0
    return (1 / same.sum(dim=-1).double()).sum(dim=-1).round(decimals=12) / states.shape[-2]
