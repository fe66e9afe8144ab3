"""Where the states of a network go once its input no longer changes, and which of them stay apart: for pictures."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multistable.dynamics.measure.algorithm_2_reachable_states import random_hidden_states
from multistable.dynamics.measure.vaa_and_vaa_star import vaa
from multistable.dynamics.system.contexts import ieee_float32
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.system import studying
from multistable.dynamics.system.whole_states import flat

RECORDED = 90
"""At about how many times the states are recorded."""


@dataclass(frozen=True)
class Settling:
    """Reachable states under one constant input.

    Attributes:
        times: the steps after which the states are recorded, ``(k,)``, from 0 to the stabilisation period.
        states: the states at those times, ``(k, n, d)``: the reachable states first, the settled ones last.
        eps: the tolerance of VAA: states that are no farther apart count as one point.
    """

    times: Tensor
    states: Tensor
    eps: float = 1e-4

    @property
    def points(self) -> int:
        """At how many different points the states end: their number times their VAA."""
        return round(vaa(self.states[-1].double(), self.eps).item() * self.states.shape[1])

    def nearest(self) -> Tensor:
        """The distance of each state from the nearest other one at each time, ``(k, n)``."""
        # Time by time: all distances at once would fill the memory.
        return torch.stack([_nearest(states.double()) for states in self.states])

    def projected(self) -> Tensor:
        """``states`` on the plane of the largest spread, ``(k, n, 2)``.

        It is the plane of the two principal components of the settled states. If these are all at the same point,
        they span no plane, and the first states count too.
        """
        ends = self.states[[-1] if self.points > 1 else [0, -1]].flatten(0, 1).double()
        centre = ends.mean(dim=0)
        plane = torch.linalg.svd(ends - centre, full_matrices=False).Vh[:2].T
        return (self.states.double() - centre) @ plane


def _nearest(states: Tensor) -> Tensor:
    """``(n,)`` for states ``(n, d)``. Not by products of matrices, whose rounding would hide small distances."""
    distances = torch.cdist(states, states, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.fill_diagonal_(math.inf).amin(dim=-1)


@torch.no_grad()
def settling(
    rnn: nn.Module,
    sequences: Any,
    *,
    stabilisation: int = 10_000,
    eps: float = 1e-4,
    generator: torch.Generator | None = None,
) -> Settling:
    """Follow the states of a network, one for each sequence, under a constant input u ~ N(0, 1).

    Args:
        rnn: a network, see ``ms.measure``; not an ensemble.
        sequences: n input sequences, each taken up to a random time step (Algorithm 2).
        stabilisation: M, the steps after which the states are called settled. On the way they are recorded ever less
            often, since they move ever less.
        eps: the tolerance of VAA.
        generator: where the time steps and the input are drawn from.
    """
    times = torch.logspace(0, math.log10(stabilisation), RECORDED).round().long().unique()
    with ieee_float32(), studying(rnn, sequences) as (system, data):
        draws = Draws(generator, system.members)
        states = random_hidden_states(system, data, torch.arange(len(data)), draws)
        u = system.constant_input(0, draws).expand(len(data), -1)
        system = system.with_present_weights()
        recorded = [flat(states)]
        for gap in times.diff(prepend=times.new_zeros(1)).tolist():
            states = system.only_last(u.expand(gap, *u.shape), states)
            recorded.append(flat(states))
    return Settling(torch.cat([times.new_zeros(1), times]), torch.stack(recorded), eps)
