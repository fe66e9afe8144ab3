"""Whether networks under warmup are multistable by the true measure, at little cost where they are not."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from multistable.dynamics.contexts import ieee_float32
from multistable.dynamics.draws import Draws
from multistable.dynamics.sequences import SequenceSet
from multistable.dynamics.stabilisation import stabilise
from multistable.dynamics.states import random_hidden_states
from multistable.dynamics.system import System
from multistable.dynamics.vaa import vaa

# Under warmup a network is asked for more than the measure asks: inputs this much larger too. What is reached for
# these holds for the measure's own with a margin, whichever it draws.
WIDER = 1.5
# The screening: many inputs, for a network may be multistable under one and not under another, few states under each,
# and first after fewer steps than the measure has, since most failures show early.
SCREENED_INPUTS, SCREENED_STATES, SCREENED_STEPS = 16, 8, (200, 1000)
# The least VAA under any one input, as a share of the target.
WORST_INPUT = 0.5


class Verdict(NamedTuple):
    """About some networks, those that were asked about; every tensor is ``(...)``."""

    passed: Tensor
    vaa: Tensor
    """The true VAA where it was measured, else NaN."""
    score: Tensor
    """How near each came to passing; minus infinity for those that were not asked about."""


@dataclass(frozen=True)
class Verification:
    """The true measure for the networks of a system, with draws that depend on the network and the step alone.

    Args:
        system: the networks.
        data: the input sequences.
        draws: where a seed for each network is drawn from.
        target: the VAA to reach, ``(...)``.
        eps: the tolerance of the VAA.
        inputs: how many inputs u the measure averages over.
        states: the states under each.
        horizon: M of the measure.
    """

    system: System
    data: SequenceSet
    seeds: Tensor
    target: Tensor
    eps: float
    inputs: int
    states: int
    horizon: int

    @torch.no_grad()
    def judge(self, which: Tensor, step: int) -> Verdict:
        """Screen the networks ``which (...)``, then measure those that are left."""
        left = which.clone()
        score = torch.where(which, 0.0, -torch.inf).double()
        value = torch.full_like(score, torch.nan)
        few = min(SCREENED_STATES, len(self.data))
        for steps in sorted({min(steps, self.horizon) for steps in (*SCREENED_STEPS, self.horizon)}):
            if left.any():
                shares = self._shares(left, step, SCREENED_INPUTS, few, (1.0, WIDER), steps)
                enough = (shares.mean(dim=-1) >= self.target) & (shares.amin(dim=-1) >= WORST_INPUT * self.target)
                score = torch.where(left, score.floor() + shares.mean(dim=-1) / 2, score)
                left = left & enough
                score = torch.where(left, score.floor() + 1, score)
        if left.any():
            value = torch.where(left, self.measured(left, step), value)
            score = torch.where(left, score + value / 2, score)
        return Verdict(left & (value >= self.target), value, score)

    @torch.no_grad()
    def measured(self, which: Tensor, step: int) -> Tensor:
        """The true VAA of the networks ``which (...)``; NaN for the others."""
        return self._shares(which, step, self.inputs, self.states, (1.0,), self.horizon).mean(dim=-1)

    def _shares(
        self, which: Tensor, step: int, inputs: int, states: int, scales: tuple[float, ...], steps: int
    ) -> Tensor:
        """VAA under each of some inputs and the same times each of ``scales``, ``(..., inputs * scales)``."""
        members = which.reshape(-1).nonzero().squeeze(-1).tolist()
        system, data = self.system.of_members(members), self.data.of_members(members)
        seeds = self.seeds.reshape(-1)[members].tolist()
        draws = Draws([torch.Generator().manual_seed(seed + step) for seed in seeds], system.members)
        batches = [draws.batch(len(data), states) for _ in range(inputs)]
        u = draws.normal(inputs, system.input_size).to(device=system.device, dtype=system.dtype)
        u = torch.cat([scale * u for scale in scales], dim=-2).repeat_interleave(states, dim=-2)
        with ieee_float32():
            start = random_hidden_states(system, data, torch.cat(batches * len(scales), dim=-1), draws)
            end = stabilise(system, start, u, steps).states
        finite = end.isfinite().all(dim=-1, keepdim=True)
        by_input = torch.where(finite, end, 0).double().unflatten(-2, (inputs * len(scales), states))
        lost = ~finite.squeeze(-1).unflatten(-1, (inputs * len(scales), states)).all(dim=-1)
        values = torch.where(lost, 0.0, vaa(by_input, self.eps)).cpu()
        if which.dim() == 0:
            return values
        return values.new_full((*which.shape, values.shape[-1]), torch.nan).masked_scatter(which.unsqueeze(-1), values)
