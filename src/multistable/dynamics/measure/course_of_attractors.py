"""How attractors change along a path of inputs, or from one network to the next, as in the course of a training."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from multistable.arguments import positive_number
from multistable.dynamics.measure.algorithm_1_measure import measured_system
from multistable.dynamics.measure.fixed_points_and_cycles import LONGEST
from multistable.dynamics.measure.labels import Portrait, carried, inherited
from multistable.dynamics.measure.named_attractors import CARRIED, Attractors, attractors
from multistable.dynamics.measure.search_fixed_points import FixedPoints, fixed_points
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.inputs import constant_inputs
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import parts_of_each
from multistable.dynamics.system.sequences import AtMost
from multistable.dynamics.system.system import features_of, network_of
from multistable.networks.ensemble import Ensemble

STATES = AtMost(320)
"""The default number of states."""


class Change(NamedTuple):
    """An attractor that appears or disappears at a step of a continuation.

    Attributes:
        step: the number of the step from which on it is there, or no more.
        id: its number.
        appears: whether it appears, or disappears.
        other: the attractor of which it is a part before it appears, or where its states go when it disappears: it
            splits from this one, or merges into it. ``None`` if there is none.
    """

    step: int
    id: int
    appears: bool
    other: int | None


@dataclass(frozen=True, eq=False)
class Continuation:
    """The result of :func:`continuation`.

    Attributes:
        steps: the attractors at each step; their ``portraits`` have the numbers that hold for all steps.
        portraits: the one portrait of each step: ``ids``, ``points``, ``orbits``, ``labels``, ``fractions``.
        fractions: ``(steps, k)``, the share of the states that end at each of all k attractors.
        changes: what appears and disappears, in order.
        path: ``(steps, features)``, the input of each step.
    """

    steps: list[Attractors] = field(repr=False)
    portraits: list[Portrait] = field(repr=False)
    fractions: Tensor = field(repr=False)
    changes: list[Change]
    path: Tensor = field(repr=False)

    @property
    def counts(self) -> list[int]:
        """The number of attractors at each step."""
        return [len(found) for found in self.portraits]

    def fixed_points(self, states: int = 128, **options: Any) -> list[FixedPoints]:
        """The fixed points at each step, saddles and repellors included: see :func:`fixed_points`.

        The search begins from the points of the step before, and from some of the states. So the first ``labels`` of a
        step say which point each of those before has become.

        Args:
            states: how many of the states to begin from.
            options: those of :func:`fixed_points`.
        """
        found: list[FixedPoints] = []
        for step, u in zip(self.steps, self.path, strict=True):
            before = found[-1].points if found else step.starts[:0].double()
            begin = torch.cat([before, step.starts[:states].double()])
            found.append(fixed_points(step._network, u, begin, **options))
        return found

    def plot(self) -> Any:
        """A figure of Matplotlib: where the attractors are along the path, and the shares of the states."""
        from multistable.dynamics.measure.plots import of_continuation

        return of_continuation(self)


@interrupted_once
def continuation(
    rnn: nn.Module | Sequence[nn.Module],
    sequences: Any = None,
    *,
    inputs: Any = "zero",
    states: Any = None,
    batch_size: int = STATES,
    stabilisation: int = 10_000,
    longest: int = LONGEST,
    eps: float = 1e-4,
    generator: torch.Generator | None = None,
    part: str | None = None,
    forward: Forward | None = None,
) -> Any:
    """Follow attractors along a path of inputs, or from one network to the next.

    At each step the attractors are found anew, from the same states or the same time steps of the same sequences. Then
    each attractor is carried to the next step: what it leads to there has its number. Where several lead to one, the
    nearest keeps its number, and the others have merged into it. One to which none leads is new; it is carried back to
    tell from which attractor it has split.

    Args:
        rnn: a network, or a list of networks of the same form, one for each step; not ensembles. Or a model with
            recurrent parts inside, or a list of models: each part is followed by itself, with what it reads in its own
            model of the same batches.
        sequences: the input sequences, or batches, see :func:`measure`.
        inputs: the constant inputs along the path in their order, ``(steps, features)``; with a list of networks one,
            or one for each; or ``"zero"``.
        states: states to start from in place of those that sequences lead to, see :func:`measure`.
        batch_size: how many sequences lead to states. If it is not given, 320, or all where there are fewer sequences;
            given states are all taken.
        stabilisation: M, the steps after which states are called settled.
        longest: the longest period looked for, see :func:`attractors`.
        eps: states no more than this apart are the same.
        generator: where sequences and time steps are drawn from, the same at each step; see :func:`measure`.
        part: see :func:`measure`.
        forward: see :func:`measure`.

    Returns:
        :class:`Continuation`, for several parts a dict of these by name.
    """
    eps = positive_number("eps", eps)
    models = list(rnn) if isinstance(rnn, Sequence | nn.ModuleList) else None
    if models is not None and not models:
        raise ValueError("rnn must be a network, or a list of at least one, got an empty list")
    for model in [rnn] if models is None else models:
        if isinstance(network_of(model), Ensemble):
            raise TypeError("rnn must be a network, or a list of networks, got an Ensemble: take its unstack()")
    choices: dict[str, Any] = {"states": states, "batches": 1, "batch_size": batch_size, "longest": longest}
    choices |= {"stabilisation": stabilisation, "eps": eps}

    def one(pairs: Sequence[tuple[nn.Module, Any]]) -> Continuation:
        networks, data = zip(*pairs, strict=True)
        path = _path(networks[0], inputs, None if models is None else len(models))
        steps = list(zip(networks, data, strict=True)) if len(networks) > 1 else list(pairs) * len(path)
        found = [
            attractors(network, sequences, inputs=u, generator=_again(generator), **choices)
            for (network, sequences), u in zip(steps, path, strict=True)
        ]
        return _joined([network for network, _ in steps], found, path, eps)

    given: list[nn.Module] = [rnn] if models is None else models  # type: ignore[list-item]
    read = parts_of_each(given, sequences, part=part, forward=forward, driven=states is None)
    if isinstance(read[0], dict):
        return {name: one([each[name] for each in read]) for name in read[0]}
    return one(read)


def _joined(networks: Sequence[nn.Module], found: list[Attractors], path: Tensor, eps: float) -> Continuation:
    """The attractors of each step with numbers that hold for all of them."""
    portraits, changes, unused = [found[0].portraits[0]], [], len(found[0])
    for step in range(1, len(found)):
        after = found[step].portraits[0]
        pair = networks[step - 1], networks[step]
        named, told, unused = followed(pair, portraits[-1], after, step, unused, eps)
        portraits.append(named)
        changes += told
    fractions = torch.zeros(len(found), unused, dtype=torch.float64, device="cpu")
    for row, part in zip(fractions, portraits, strict=True):
        row[part.ids] = part.fractions
    return Continuation(found, portraits, fractions, changes, path)


def followed(
    networks: tuple[nn.Module, nn.Module], before: Portrait, after: Portrait, step: int, unused: int, eps: float
) -> tuple[Portrait, list[Change], int]:
    """The attractors of a step with the numbers of those of the step before.

    Args:
        networks: of the step before, and of this one.
        before: the attractors of the step before, with their numbers.
        after: those of this step.
        step: what the step is called in changes.
        unused: the first number that no attractor has had.
        eps: states no more than this apart are the same.

    Returns:
        The attractors of this step with their numbers, what has changed, and the first number that is unused now.
    """
    (there,) = _carried(networks[1], before, after, eps)
    (origins,) = _carried(networks[0], after, before, eps)
    named, unused = inherited(before, after, there, unused)
    changes = [
        Change(step, i, False, named.ids[place] if place >= 0 else None)
        for i, place in zip(before.ids, there.tolist(), strict=True)
        if i not in named.ids
    ]
    changes += [
        Change(step, i, True, before.ids[place] if place >= 0 else None)
        for i, place in zip(named.ids, origins.tolist(), strict=True)
        if i not in before.ids
    ]
    return named, changes, unused


def _carried(network: nn.Module, before: Portrait, after: Portrait, eps: float) -> list[Tensor]:
    with measured_system(network, len(after.u)) as system:
        return carried(system, [(before, after)], CARRIED, eps)


def _path(network: nn.Module, inputs: Any, networks: int | None) -> Tensor:
    """The input of each step; ``networks`` is how many there are, ``None`` for a single one along the whole path."""
    path = constant_inputs(inputs, features_of(network_of(network), inputs))
    if networks is None:
        return path
    if len(path) not in (1, networks):
        raise ValueError(f"inputs must be one, or one for each of {networks} networks, got {len(path)}")
    return path.expand(networks, -1)


def _again(generator: Any) -> Any:
    """A generator that draws what this one would draw now; what is none as it is."""
    if not isinstance(generator, torch.Generator):
        return generator
    copy = torch.Generator(generator.device)
    copy.set_state(generator.get_state())
    return copy
