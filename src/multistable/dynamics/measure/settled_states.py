"""What the states of a network settle on: fixed points, or cycles."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import check_positive_number, positive_integers
from multistable.dynamics.measure.algorithm_1 import BATCH_SIZE, measuring, settle
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
        """The shares of periods."""
        shares = [kind.double().mean(dim=(-2, -1)).tolist() for kind in (periods == 1, periods > 1, periods == 0)]
        return cls(periods, *shares)


def attractors(
    rnn: nn.Module,
    sequences: Any,
    *,
    batches: int = 10,
    batch_size: int = BATCH_SIZE,
    stabilisation: int = 10_000,
    longest: int = 500,
    eps: float = 1e-4,
    generator: Generators = None,
) -> Attractors:
    """Tell the settled states at fixed points from those on cycles, which VAA counts alike.

    The states are those that :func:`measure` compares, with the same arguments the very same. They are followed for
    twice the longest period. One that stays within ``eps`` of where it was is at a fixed point; one that leaves and
    comes back within ``eps``, and is there again after as long once more, is on a cycle. Rounding keeps even a state
    at a fixed point jittering, and attractors are approached for ever: neither can be asked for to the last bit.

    Args:
        rnn: a network or an ensemble, see :func:`measure`.
        sequences: the input sequences, see :func:`measure`.
        batches: I, how many batches of states, each with its own constant input u ~ N(0, 1).
        batch_size: the states of a batch, see :func:`measure`.
        stabilisation: M, the steps after which states are called settled.
        longest: the longest period looked for. A state that moves by less than ``eps`` in twice as many steps cannot
            be told from a fixed point.
        eps: states no more than this apart are the same.
        generator: see :func:`measure`.
    """
    batches, batch_size, stabilisation, longest = positive_integers(
        batches=batches, batch_size=batch_size, stabilisation=stabilisation, longest=longest
    )
    check_positive_number("eps", eps)
    with measuring(rnn, sequences, batch_size) as (system, data):
        draws, size = Draws(generator, system.members), min(batch_size, len(data))
        settled, u = settle(system, data, draws, batches, size, stabilisation)
        distances = _distances(system.frozen(), settled.layers, u, 2 * longest)
    return Attractors.of(periods(distances, eps).unflatten(-1, (batches, size)).cpu())


def periods(distances: Tensor, eps: float) -> Tensor:
    """The period ``(...)`` of states from their distances ``(2 longest, ...)`` after 1, 2, ... steps; 0 without one."""
    near = distances <= eps
    left = (~near).cummax(dim=0).values
    longest = len(distances) // 2
    again = (near & left)[:longest] & near[1::2]
    first = again.int().argmax(dim=0) + 1
    return torch.where(left[-1], torch.where(again.any(dim=0), first, 0), 1)


def _distances(system: System, states: States, u: Tensor, steps: int) -> Tensor:
    """How far from where they are states will be after 1, 2, ... steps under a constant input: ``(steps, ..., n)``."""
    start, told = flat(states), []
    for begin in range(0, steps, WINDOW):
        over_time = system.advance(u.expand(min(WINDOW, steps - begin), *u.shape), states)
        states = at_time(over_time, -1)
        told.append(torch.linalg.vector_norm(flat(over_time) - start, dim=-1))
    return torch.cat(told)
