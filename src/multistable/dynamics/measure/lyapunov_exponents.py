"""Lyapunov exponents: how fast a network forgets small differences between its states, or magnifies them."""

import copy
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from multistable.arguments import positive_integer, positive_integers
from multistable.dynamics.measure.algorithm_1_measure import (
    BATCH_SIZE,
    BATCHES,
    batching,
    check_finite,
    measuring,
    settled_states,
    starting,
)
from multistable.dynamics.measure.fixed_points_and_cycles import periods
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.contexts import evaluating
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.inputs import check_inputs
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import Turn, each_part
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.step import in_float64
from multistable.dynamics.system.system import System, paying_threads
from multistable.dynamics.system.whole_states import States, divided, flat, map_states

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
SHORTEST = 5
"""The fewest time steps of a sequence that states are followed along."""
RETURN = 1e-6
"""A state that comes back so near to where it was, again and again, is at a fixed point or on a cycle."""


@dataclass(frozen=True)
class Lyapunov:
    """The result of :func:`lyapunov`. Single values are numbers, or for an ensemble lists with one for each member.

    Attributes:
        exponents: ``(batches, batch_size)``, or ``(R, batches, batch_size)`` for an ensemble: the largest Lyapunov
            exponent at each state, for one step. It is negative where small differences shrink, and minus infinity
            where two steps shrink them to less than about a hundred-millionth, which float64 cannot tell from nothing.
            If k of them were asked for, ``(..., batch_size, k)``, in falling order.
        spectrum: the means over the states of the first k exponents, a list of k numbers.
        exponent: the median of the largest exponents.
        lifetime: the steps after which a small difference is 1/e of what it was, by that median; infinite if
            differences do not shrink.
        chaotic: the share of states at which differences grow e-fold within a hundred steps, and which never come back
            to where they were.
        unstable: the share of states at a fixed point or on a cycle that others beside them leave so fast.
    """

    exponents: Tensor = field(compare=False, repr=False)
    spectrum: Any = field(repr=False)
    exponent: Any
    lifetime: Any
    chaotic: Any
    unstable: Any

    @classmethod
    def of(cls, exponents: Tensor, returning: Tensor, *, several: bool) -> "Lyapunov":
        """The result for ``exponents (..., batches, batch_size, k)``.

        Args:
            exponents: of each state.
            returning: whether each state comes back to where it was, ``(..., batches, batch_size)``.
            several: whether the user asked for a number of them.
        """
        largest = exponents[..., 0]
        median = largest.flatten(-2).quantile(0.5, dim=-1, interpolation="nearest")
        lifetime = torch.where(median < 0, -1 / median, torch.inf)
        growing = largest > CHAOTIC
        chaotic, unstable = ((growing & kind).double().mean(dim=(-2, -1)).tolist() for kind in (~returning, returning))
        spectrum = exponents.mean(dim=(-3, -2)).tolist()
        shown = exponents if several else largest
        return cls(shown, spectrum, median.tolist(), lifetime.tolist(), chaotic, unstable)


@interrupted_once
def lyapunov(
    rnn: nn.Module,
    sequences: Any = None,
    *,
    exponents: int | None = None,
    inputs: Any = "normal",
    states: Any = None,
    batches: int = BATCHES,
    batch_size: int = BATCH_SIZE,
    stabilisation: int = 10_000,
    steps: int = 1000,
    generator: Generators = None,
    part: str | None = None,
    forward: Forward | None = None,
) -> Any:
    """The Lyapunov exponents at the settled states, which tell whether and how these still move.

    States that VAA counts as different attractors may be at rest, drift together too slowly for M steps to show it, or
    wander over one strange attractor. The largest exponent is negative and large in the first case, negative and small
    in the second, positive in the third; it is 0 on a continuum of fixed points and on a cycle along which states can
    slide.

    The states are those that :func:`measure` compares; with the same arguments they are the very same. Beside each one
    a companion in a random direction is followed in float64, and brought back near it every few steps; for k exponents
    there are k companions, in directions that are kept at right angles (QR). In the first half of the steps the
    companions turn to the directions in which differences last longest; the second half is counted.

    With ``inputs="sequences"`` nothing is constant: each state is followed along its own input sequence from the first
    step on, and the second half of the sequence is counted.

    Args:
        rnn: a network, an ensemble, or a model with recurrent parts inside, see :func:`measure`.
        sequences: the input sequences, or batches, see :func:`measure`.
        exponents: k, how many exponents; only the largest if it is not given.
        inputs: the constant inputs, see :func:`measure`; or ``"sequences"``.
        states: states to start from in place of those that sequences lead to, see :func:`measure`.
        batches: I, how many batches of states, each with its own constant input, see :func:`measure`.
        batch_size: the states of a batch, see :func:`measure`.
        stabilisation: M, the steps after which states are called settled.
        steps: for how many steps the companions are followed.
        generator: see :func:`measure`.
        part: see :func:`measure`.
        forward: see :func:`measure`.

    Returns:
        :class:`Lyapunov`, for several parts a dict of these by name.
    """
    batches, batch_size, stabilisation, steps = positive_integers(
        batches=batches, batch_size=batch_size, stabilisation=stabilisation, steps=steps
    )
    k = 1 if exponents is None else positive_integer("exponents", exponents)
    along = isinstance(inputs, str) and inputs == "sequences"
    if along and states is not None:
        raise ValueError('states cannot be given with inputs="sequences", whose states come from the sequences')
    chosen = "normal" if along else inputs
    check_inputs(chosen)

    def one(network: nn.Module, sequences: Any, _: Turn) -> Lyapunov:
        given = {"inputs": chosen, "states": states}
        with measuring(network, sequences, batch_size, **given) as (system, data):
            sizes = batching(system, data, batches, batch_size)
            draws = Draws(generator, system.members)
            if along:
                drawn = [draws.batch(len(data), sizes[1]) for _ in range(sizes[0])]
                course = _Course.along(system, cast(SequenceSet, data), torch.cat(drawn, dim=-1))
            else:
                found = settled_states(system, data, draws, sizes, stabilisation)
                course = _Course.under(found.settled.layers, found.u, steps)
        size_of_state = flat(course.states).shape[-1]
        if k > size_of_state:
            raise ValueError(f"exponents must not exceed the size of the state, {size_of_state}, got {k}")
        precise = copy.deepcopy(network).double()
        with torch.no_grad(), evaluating(precise):
            in_steps = in_float64(precise, course.u.shape[-1])
            with paying_threads(precise, in_steps):
                values, returning = _exponents(in_steps, course, k, draws)
        each = values.unflatten(-2, sizes).cpu(), returning.unflatten(-1, sizes).cpu()
        return Lyapunov.of(*each, several=exponents is not None)

    return each_part(one, rnn, sequences, **starting(states, batch_size), part=part, forward=forward)


@dataclass(frozen=True)
class _Course:
    """Where states begin and what they read, in float64.

    Attributes:
        states: the states.
        u: their inputs, ``(time, ..., n, features)``.
        lengths: how many of these each state reads, ``(..., n)``.
        constant: whether they are the same all the time.
    """

    states: States
    u: Tensor
    lengths: Tensor
    constant: bool

    @classmethod
    def under(cls, states: States, u: Tensor, steps: int) -> "_Course":
        """So many steps under constant inputs ``(..., n, features)``."""
        lengths = torch.full(u.shape[:-1], steps, device=u.device)
        return cls(map_states(Tensor.double, states), u.double().expand(steps, *u.shape), lengths, True)

    @classmethod
    def along(cls, system: System, data: SequenceSet, indices: Tensor) -> "_Course":
        """Along the sequences at ``indices (..., n)``, from their first step on."""
        u, lengths = data.select(indices)
        if int(lengths.min()) < SHORTEST:
            raise ValueError(
                f'sequences must have at least {SHORTEST} time steps with inputs="sequences", '
                f"got one of {int(lengths.min())}"
            )
        u = u.to(device=system.device, dtype=system.dtype)
        states = system.only_last(u[:1], system.before(data, indices))
        return cls(map_states(Tensor.double, states), u[1:].double(), lengths.to(u.device) - 1, False)


def _exponents(system: System, course: _Course, k: int, draws: Draws) -> tuple[Tensor, Tensor]:
    """The first k exponents of each state, and whether it comes back to where it was.

    Returns:
        The mean logarithm ``(..., n, k)`` of the growth of small differences in a step, over the second half of the
        steps, and ``(..., n)``.
    """
    states, u, lengths = course.states, course.u, course.lengths
    x, n, steps = flat(states), lengths.shape[-1], len(u)
    first = flat(map_states(lambda field: draws.normal(k * n, field.shape[-1]).to(field), states))
    _, directions = _at_right_angles(first.expand(*x.shape[:-2], -1, -1).unflatten(-2, (k, n)))
    growth, counted = x.new_zeros(*x.shape[:-2], k, n), torch.zeros_like(lengths)
    reference = x
    distances: list[Tensor] = []
    for begin in range(0, steps, PAUSE):
        window = min(PAUSE, steps - begin)
        distance = _distance(x)
        companions = x.unsqueeze(-3) + directions * distance.unsqueeze(-2).unsqueeze(-1)
        together = torch.cat([x, companions.flatten(-3, -2)], dim=-2)
        inputs = torch.cat([u[begin : begin + window]] * (k + 1), dim=-2)
        together = flat(system.only_last(inputs, divided(together, states)))
        before, x = x, together[..., :n, :]
        grown, directions = _at_right_angles(together[..., n:, :].unflatten(-2, (k, n)) - x.unsqueeze(-3))
        counts = (begin + PAUSE > lengths // 2) & (begin + window <= lengths)
        rates = torch.log(grown / distance.unsqueeze(-2))
        growth = torch.where(counts.unsqueeze(-2), growth + rates, growth)
        counted += window * counts
        if course.constant and begin + PAUSE > steps // 2:
            reference = reference if distances else before
            distances.append(torch.linalg.vector_norm(x - reference, dim=-1) / (1 + reference.norm(dim=-1)))
    check_finite(x, f"{steps} more steps")
    exponents = (growth / counted.unsqueeze(-2)).movedim(-2, -1)
    if not distances:
        return exponents, torch.zeros_like(lengths, dtype=torch.bool)
    return exponents, periods(torch.stack(distances * (2 if len(distances) == 1 else 1)), RETURN) > 0


def _at_right_angles(ways: Tensor) -> tuple[Tensor, Tensor]:
    """Gram and Schmidt, twice over, for the k ways ``(..., k, n, d)`` from each of n states.

    Returns:
        How long each way is beside those before it, ``(..., k, n)``, and the ways at right angles, of length 1. One
        that is zero has no direction, and stays zero.
    """
    found: list[Tensor] = []
    lengths = []
    for way in ways.unbind(dim=-3):
        for _ in range(2 if found else 0):
            others = torch.stack(found, dim=-3)
            way = way - ((others * way.unsqueeze(-3)).sum(dim=-1, keepdim=True) * others).sum(dim=-3)
        length = torch.linalg.vector_norm(way, dim=-1)
        lengths.append(length)
        found.append(way * torch.where(length > 0, 1 / length, 0).unsqueeze(-1))
    return torch.stack(lengths, dim=-2), torch.stack(found, dim=-3)


def _distance(x: Tensor) -> Tensor:
    """How far companions are from states ``(..., n, d)``, ``(..., n)``."""
    norm = torch.linalg.vector_norm(x, dim=-1).clamp_min(1)
    return torch.maximum(DISPLACEMENT * norm.sqrt(), LEAST * norm)
