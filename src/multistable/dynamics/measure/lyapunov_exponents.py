"""Lyapunov exponents: how fast a network forgets small differences between its states, or magnifies them."""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import positive_integers
from multistable.dynamics.measure.algorithm_1_measure import (
    BATCH_SIZE,
    BATCHES,
    batching,
    check_finite,
    measuring,
    settled_states,
)
from multistable.dynamics.system.contexts import evaluating
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.system import States, System, flat, map_states, system_of

DISPLACEMENT = 1e-8
"""The distance of a companion from a state of norm 1. It is half-way between 1, where a step is no longer linear, and
the rounding of float64, so each changes an exponent by some 1e-9. It grows with the root of the norm of larger states.
"""
LEAST = 1e-12
"""The least distance as a share of the norm. Beyond a norm of 1e8, the root would be lost in rounding."""
PAUSE = 2
"""The steps after which the growth of the distance is noted and the companion is put back to its first distance."""
CHAOTIC = 0.01
"""An exponent above this is chaos: small differences grow e-fold within a hundred steps."""


@dataclass(frozen=True)
class Lyapunov:
    """The result of :func:`lyapunov`. Single values are numbers, or for an ensemble lists with one for each member.

    Attributes:
        exponents: ``(batches, batch_size)``, or ``(R, batches, batch_size)`` for an ensemble: the largest Lyapunov
            exponent at each state, for one step. It is negative where small differences shrink, and minus infinity
            where two steps shrink them to less than about a hundred-millionth, which float64 cannot tell from nothing.
        exponent: the median of the exponents.
        lifetime: the steps after which a small difference is 1/e of what it was, by that median; infinite if
            differences do not shrink.
        chaotic: the share of states at which differences grow e-fold within a hundred steps.
    """

    exponents: Tensor = field(compare=False, repr=False)
    exponent: Any
    lifetime: Any
    chaotic: Any

    @classmethod
    def of(cls, exponents: Tensor) -> "Lyapunov":
        """The result for ``exponents``."""
        median = exponents.flatten(-2).quantile(0.5, dim=-1, interpolation="nearest")
        lifetime = torch.where(median < 0, -1 / median, torch.inf)
        chaotic = (exponents > CHAOTIC).double().mean(dim=(-2, -1))
        return cls(exponents, median.tolist(), lifetime.tolist(), chaotic.tolist())


def lyapunov(
    rnn: nn.Module,
    sequences: Any = None,
    *,
    inputs: Any = "normal",
    states: Any = None,
    batches: int = BATCHES,
    batch_size: int = BATCH_SIZE,
    stabilisation: int = 10_000,
    steps: int = 1000,
    generator: Generators = None,
) -> Lyapunov:
    """The largest Lyapunov exponent at the settled states, which tells whether and how these still move.

    States that VAA counts as different attractors may be at rest, drift together too slowly for M steps to show it, or
    wander over one strange attractor. The exponent is negative and large in the first case, negative and small in the
    second, positive in the third; it is 0 on a continuum of fixed points and on a cycle along which states can slide.

    The states are those that :func:`measure` compares; with the same arguments they are the very same. Beside each one
    a companion in a random direction is followed in float64, and brought back near it every few steps. In the first
    half of the steps the companion turns to the direction in which differences last longest; the second half is
    counted.

    Args:
        rnn: a network or an ensemble, see :func:`measure`.
        sequences: the input sequences, see :func:`measure`.
        inputs: the constant inputs, see :func:`measure`.
        states: states to start from in place of those that sequences lead to, see :func:`measure`.
        batches: I, how many batches of states, each with its own constant input, see :func:`measure`.
        batch_size: the states of a batch, see :func:`measure`.
        stabilisation: M, the steps after which states are called settled.
        steps: for how many steps the companions are followed.
        generator: see :func:`measure`.
    """
    batches, batch_size, stabilisation, steps = positive_integers(
        batches=batches, batch_size=batch_size, stabilisation=stabilisation, steps=steps
    )
    with measuring(rnn, sequences, batch_size, inputs=inputs, states=states) as (system, data):
        batches, size = batching(system, data, batches, batch_size)
        draws = Draws(generator, system.members)
        found = settled_states(system, data, draws, batches, size, stabilisation)
    states, u = map_states(Tensor.double, found.settled.layers), found.u.double()
    precise = copy.deepcopy(rnn).double()
    with torch.no_grad(), evaluating(precise):
        exponents = _exponents(_in_float64(precise, states, u), states, u, steps, draws)
    return Lyapunov.of(exponents.unflatten(-1, (batches, size)).cpu())


def _in_float64(rnn: nn.Module, states: States, u: Tensor) -> System:
    """A network with float64 parameters and buffers as a system; an error if it still computes in lower precision."""
    accepted = f"{type(rnn).__name__} must compute in float64 when its parameters and buffers are in float64"
    try:
        system = system_of(rnn, u.shape[-1]).with_present_weights()
        found = flat(system.only_last(u.expand(1, *u.shape), states)).dtype
    except (RuntimeError, TypeError) as error:
        raise TypeError(f"{accepted}, as tensors made by x.new_zeros or kept as buffers do: {error}") from error
    if found != torch.float64:
        raise TypeError(f"{accepted}, got states in {found}")
    return system


def _exponents(system: System, states: States, u: Tensor, steps: int, draws: Draws) -> Tensor:
    """The mean logarithm ``(..., n)`` of the growth of a small difference in a step, over the second half of steps."""
    n = u.shape[-2]
    both_inputs = torch.cat([u, u], dim=-2)
    companions, before = _near(states, map_states(lambda x: draws.normal(*x.shape[-2:]).to(x), states))
    growth, counted = torch.zeros_like(u[..., 0]), 0
    for begin in range(0, steps, PAUSE):
        window = min(PAUSE, steps - begin)
        both = map_states(lambda x, y: torch.cat([x, y], dim=-2), states, companions)
        both = system.only_last(both_inputs.expand(window, *both_inputs.shape), both)
        states = map_states(lambda x: x[..., :n, :], both)
        ways = map_states(lambda x: x[..., n:, :] - x[..., :n, :], both)
        if begin + PAUSE > steps // 2:
            growth += torch.log(torch.linalg.vector_norm(flat(ways), dim=-1) / before)
            counted += window
        companions, before = _near(states, ways)
    check_finite(flat(states), f"{steps} more steps")
    return growth / counted


def _near(states: States, ways: States) -> tuple[States, Tensor]:
    """Companions beside the states, in the directions ``ways``, and their distances ``(..., n)``.

    A companion whose difference from its state is zero has no direction, and stays at the state.
    """
    length = torch.linalg.vector_norm(flat(ways), dim=-1)
    norm = torch.linalg.vector_norm(flat(states), dim=-1).clamp_min(1)
    distance = torch.maximum(DISPLACEMENT * norm.sqrt(), LEAST * norm)
    scale = torch.where(length > 0, distance / length, 0).unsqueeze(-1)
    return map_states(lambda x, way: x + way * scale, states, ways), distance
