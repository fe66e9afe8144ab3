"""Which settled states are at fixed points, and which are on cycles."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import check_positive_number, positive_integers
from multistable.dynamics.measure.algorithm_1_measure import BATCH_SIZE, BATCHES, batching, measuring, settled_states
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.system import WINDOW, States, System, at_time, flat


@dataclass(frozen=True)
class Attractors:
    """The result of :func:`attractors`. The shares are numbers, or for an ensemble lists with one for each member.

    Attributes:
        periods: ``(batches, batch_size)``, or ``(R, batches, batch_size)`` for an ensemble: 1 at a fixed point, p on
            a cycle of p steps, 0 for a state that still moves.
        fixed_points: the share of states at a fixed point.
        cycles: the share on a cycle of at most the longest period looked for.
        moving: the share of the others: on their way, on a longer cycle, or never to return.
    """

    periods: Tensor = field(compare=False, repr=False)
    fixed_points: Any
    cycles: Any
    moving: Any

    @classmethod
    def of(cls, periods: Tensor) -> "Attractors":
        """The result for ``periods``."""
        shares = [kind.double().mean(dim=(-2, -1)).tolist() for kind in (periods == 1, periods > 1, periods == 0)]
        return cls(periods, *shares)


def attractors(
    rnn: nn.Module,
    sequences: Any = None,
    *,
    inputs: Any = "normal",
    states: Any = None,
    batches: int = BATCHES,
    batch_size: int = BATCH_SIZE,
    stabilisation: int = 10_000,
    longest: int = 500,
    eps: float = 1e-4,
    generator: Generators = None,
) -> Attractors:
    """Tell the settled states at fixed points from those on cycles, which VAA counts alike.

    The states are those that :func:`measure` compares; with the same arguments they are the very same. They are
    followed for twice the longest period. A state that stays within ``eps`` of where it was is at a fixed point. One
    that leaves, comes back within ``eps``, and is there again after the same time is on a cycle. There is a tolerance
    because attractors are only approached, and because rounding keeps even a state at a fixed point jittering.

    Args:
        rnn: a network or an ensemble, see :func:`measure`.
        sequences: the input sequences, see :func:`measure`.
        inputs: the constant inputs, see :func:`measure`.
        states: states to start from in place of those that sequences lead to, see :func:`measure`.
        batches: I, how many batches of states, each with its own constant input, see :func:`measure`.
        batch_size: the states of a batch, see :func:`measure`.
        stabilisation: M, the steps after which states are called settled.
        longest: the longest period looked for. A state that moves by less than ``eps`` in twice as many steps counts as
            one at a fixed point.
        eps: states no more than this apart are the same.
        generator: see :func:`measure`.
    """
    batches, batch_size, stabilisation, longest = positive_integers(
        batches=batches, batch_size=batch_size, stabilisation=stabilisation, longest=longest
    )
    check_positive_number("eps", eps)
    with measuring(rnn, sequences, batch_size, inputs=inputs, states=states) as (system, data):
        batches, size = batching(system, data, batches, batch_size)
        draws = Draws(generator, system.members)
        found = settled_states(system, data, draws, batches, size, stabilisation)
        distances = _distances(system, found.settled.layers, found.u, 2 * longest)
    return Attractors.of(periods(distances, eps).unflatten(-1, (batches, size)).cpu())


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
