"""How fast a network forgets small differences between its states, or magnifies them: Lyapunov exponents."""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import positive_integer
from multistable.dynamics.contexts import evaluating
from multistable.dynamics.draws import Draws, Generators
from multistable.dynamics.measure import measuring, settle
from multistable.dynamics.system import States, System, flat, map_states, system_of

DISPLACEMENT = 1e-6
"""How far a state's companion is put from it: small beside any state, large beside the rounding of float64."""
PAUSE = 5
"""The steps between two looks, after each of which the companion is put back to that distance."""
CHAOTIC = 0.01
"""An exponent above this is chaos: small differences grow e-fold within a hundred steps."""


@dataclass(frozen=True)
class Lyapunov:
    """The result of :func:`lyapunov`. Single values are numbers, or for an ensemble lists with one for each member.

    Attributes:
        exponents: ``(batches, batch_size)``, or ``(R, batches, batch_size)`` for an ensemble: the largest Lyapunov
            exponent at each state, for one step. Negative where small differences shrink.
        exponent: their median.
        lifetime: the steps after which a small difference is 1/e of what it was, by that median; infinite where
            differences do not shrink.
        chaotic: the share of states at which differences grow e-fold within a hundred steps.
    """

    exponents: Tensor = field(compare=False)
    exponent: Any
    lifetime: Any
    chaotic: Any

    @classmethod
    def of(cls, exponents: Tensor) -> "Lyapunov":
        """The summary of exponents."""
        median = exponents.flatten(-2).quantile(0.5, dim=-1, interpolation="nearest")
        lifetime = torch.where(median < 0, -1 / median, torch.inf)
        chaotic = (exponents > CHAOTIC).double().mean(dim=(-2, -1))
        return cls(exponents, median.tolist(), lifetime.tolist(), chaotic.tolist())


def lyapunov(
    rnn: nn.Module,
    sequences: Any,
    *,
    batches: int = 10,
    batch_size: int = 32,
    stabilisation: int = 10_000,
    steps: int = 1000,
    generator: Generators = None,
) -> Lyapunov:
    """The largest Lyapunov exponent at the settled states: what VAA cannot tell of states that still move.

    States that VAA counts as different attractors may be at rest, drift together too slowly for M steps to show it, or
    wander over one strange attractor. The exponent is negative and large in the first case, negative and small in the
    second, positive in the third; it is 0 on a continuum of fixed points and on a cycle that is slid along.

    The states are those that :func:`measure` compares, with the same arguments the very same. Beside each one a
    companion in a random direction is followed in float64, and brought back near every few steps. The first half of
    the steps lets it turn to where differences last longest; the second half is counted.

    Args:
        rnn: a network or an ensemble, see :func:`measure`.
        sequences: the input sequences, see :func:`measure`.
        batches: I, how many batches of states, each with its own constant input u ~ N(0, 1).
        batch_size: the states of a batch.
        stabilisation: M, the steps after which states are called settled.
        steps: how many steps the companions are followed for.
        generator: see :func:`measure`.
    """
    sizes = {"batches": batches, "batch_size": batch_size, "stabilisation": stabilisation, "steps": steps}
    for name, value in sizes.items():
        positive_integer(name, value)
    with measuring(rnn, sequences, batch_size) as (system, data):
        draws = Draws(generator, system.members)
        settled, u = settle(system, data, draws, batches, batch_size, stabilisation)
    precise = copy.deepcopy(rnn).double()
    with torch.no_grad(), evaluating(precise):
        states = map_states(Tensor.double, settled.layers)
        exponents = _exponents(system_of(precise, data.features).frozen(), states, u.double(), steps, draws)
    return Lyapunov.of(exponents.unflatten(-1, (batches, batch_size)).cpu())


def _exponents(system: System, states: States, u: Tensor, steps: int, draws: Draws) -> Tensor:
    """The mean logarithm ``(..., n)`` of what a step makes of a small difference, over the second half of the steps."""
    n = u.shape[-2]
    both_inputs = torch.cat([u, u], dim=-2)
    companions = _near(states, map_states(lambda x: x + draws.normal(*x.shape[-2:]).to(x), states))
    growth, counted = torch.zeros(u.shape[:-1], dtype=u.dtype, device=u.device), 0
    for begin in range(0, steps, PAUSE):
        window = min(PAUSE, steps - begin)
        both = map_states(lambda x, y: torch.cat([x, y], dim=-2), states, companions)
        both = system.last(both_inputs.expand(window, *both_inputs.shape), both)
        states = map_states(lambda x: x[..., :n, :], both)
        companions = map_states(lambda x: x[..., n:, :], both)
        if begin + PAUSE > steps // 2:
            growth += torch.log(_distance(states, companions) / DISPLACEMENT)
            counted += window
        companions = _near(states, companions)
    return growth / counted


def _near(states: States, companions: States) -> States:
    """Companions in the same directions, at the small distance; one that has met its state stays there."""
    distance = _distance(states, companions)
    scale = (DISPLACEMENT / distance.clamp_min(torch.finfo(distance.dtype).tiny)).unsqueeze(-1)
    return map_states(lambda x, y: x + (y - x) * scale, states, companions)


def _distance(states: States, companions: States) -> Tensor:
    """``(..., n)``, over all layers."""
    return torch.linalg.vector_norm(flat(companions) - flat(states), dim=-1)
