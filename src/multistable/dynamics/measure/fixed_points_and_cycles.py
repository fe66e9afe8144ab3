"""Which settled states are at fixed points, and which are on cycles."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multistable.dynamics.measure.algorithm_1_measure import Settled, batching, measuring, settled_states
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.states import StateSet
from multistable.dynamics.system.system import WINDOW, System
from multistable.dynamics.system.whole_states import States, at_time, flat

LONGEST = 500
"""The default of the longest period that is looked for."""


@dataclass(frozen=True)
class Kinds:
    """Which of the settled states are at rest, on cycles, or on their way.

    Attributes:
        settled: the states and their inputs.
        periods: of each state, ``(..., n)``: 1 at a fixed point, p on a cycle of p steps, 0 where it still moves.
        speeds: ``(..., n)``, how far the next step leads each state.
    """

    settled: Settled
    periods: Tensor
    speeds: Tensor

    def share(self, kind: Tensor) -> Any:
        """The share of states of a kind ``(..., n)``; for an ensemble a list."""
        return kind.double().mean(dim=-1).tolist()

    @property
    def fixed_points(self) -> Any:
        """The share of states at a fixed point."""
        return self.share(self.periods == 1)

    @property
    def cycles(self) -> Any:
        """The share on a cycle of at most the longest period looked for."""
        return self.share(self.periods > 1)


def shares_of_kinds(
    rnn: nn.Module,
    sequences: Any,
    *,
    batches: int,
    batch_size: int,
    stabilisation: int,
    eps: float,
    generator: Generators,
    longest: int = LONGEST,
) -> tuple[Any, Any]:
    """The shares of settled states at fixed points and on cycles: of :func:`attractors` no more than these."""
    with measuring(rnn, sequences, batch_size) as (system, data):
        sizes = batching(system, data, batches, batch_size)
        draws = Draws(generator, system.members)
        found = kinds_of_states(system, data, draws, sizes, (stabilisation, longest, eps))
    return found.fixed_points, found.cycles


def kinds_of_states(
    system: System, data: SequenceSet | StateSet, draws: Draws, sizes: tuple[int, int], settling: tuple[int, int, float]
) -> Kinds:
    """Follow the settled states for twice the longest period.

    Args:
        system: the network over its present weights.
        data: what leads to the states.
        draws: where batches, time steps and inputs are drawn from.
        sizes: how many batches of how many states.
        settling: the stabilisation period, the longest period looked for, and the tolerance.
    """
    stabilisation, longest, eps = settling
    settled = settled_states(system, data, draws, sizes, stabilisation)
    distances = _distances(system, settled.settled.layers, settled.u, 2 * longest)
    return Kinds(settled, periods(distances, eps), distances[0])


def periods(distances: Tensor, eps: float) -> Tensor:
    """The periods ``(...)`` of states, 0 for none, from their distances ``(2 longest, ...)`` after 1, 2, ... steps."""
    near = distances <= eps
    left = (~near).cummax(dim=0).values
    longest = len(distances) // 2
    again = (near & left)[:longest] & near[1::2]
    first = again.int().argmax(dim=0) + 1
    return torch.where(left[-1], torch.where(again.any(dim=0), first, 0), 1)


def _distances(system: System, states: States, u: Tensor, steps: int) -> Tensor:
    """The distances ``(steps, ..., n)`` of states from where they are now, after 1, 2, ... steps under ``u``."""
    start, distances = flat(states), []
    for begin in range(0, steps, WINDOW):
        over_time = system.advance(u.expand(min(WINDOW, steps - begin), *u.shape), states)
        states = at_time(over_time, -1)
        distances.append(torch.linalg.vector_norm(flat(over_time) - start, dim=-1))
    return torch.cat(distances)
