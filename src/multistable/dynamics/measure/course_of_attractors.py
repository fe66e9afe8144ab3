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
from multistable.dynamics.system.inputs import constant_inputs
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.sequences import AtMost
from multistable.dynamics.system.system import features_of, network_of, sequences_of
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
) -> Continuation:
    """Follow attractors along a path of inputs, or from one network to the next.

    At each step the attractors are found anew, from the same states or the same time steps of the same sequences. Then
    each attractor is carried to the next step: what it leads to there has its number. Where several lead to one, the
    nearest keeps its number, and the others have merged into it. One to which none leads is new; it is carried back to
    tell from which attractor it has split.

    Args:
        rnn: a network, or a list of networks of the same form, one for each step; not ensembles.
        sequences: the input sequences, see :func:`measure`.
        inputs: the constant inputs along the path in their order, ``(steps, features)``; with a list of networks one,
            or one for each; or ``"zero"``.
        states: states to start from in place of those that sequences lead to, see :func:`measure`.
        batch_size: how many sequences lead to states. If it is not given, 320, or all where there are fewer sequences;
            given states are all taken.
        stabilisation: M, the steps after which states are called settled.
        longest: the longest period looked for, see :func:`attractors`.
        eps: states no more than this apart are the same.
        generator: where sequences and time steps are drawn from, the same at each step; see :func:`measure`.
    """
    eps = positive_number("eps", eps)
    networks, path = _steps(rnn, inputs)
    if sequences is not None:  # once: an iterator has them no second time
        sequences = sequences_of(network_of(networks[0]), sequences)
    choices: dict[str, Any] = {"states": states, "batches": 1, "batch_size": batch_size, "longest": longest}
    choices |= {"stabilisation": stabilisation, "eps": eps}
    found = [
        attractors(network, sequences, inputs=u, generator=_again(generator), **choices)
        for network, u in zip(networks, path, strict=True)
    ]
    portraits, changes, unused = [found[0].portraits[0]], [], len(found[0])
    for step in range(1, len(found)):
        before, after = portraits[-1], found[step].portraits[0]
        (there,) = _carried(networks[step], before, after, eps)
        (origins,) = _carried(networks[step - 1], after, before, eps)
        named, unused = inherited(before, after, there, unused)
        portraits.append(named)
        for i, place in zip(before.ids, there.tolist(), strict=True):
            if i not in named.ids:
                changes.append(Change(step, i, False, named.ids[place] if place >= 0 else None))
        for i, place in zip(named.ids, origins.tolist(), strict=True):
            if i not in before.ids:
                changes.append(Change(step, i, True, before.ids[place] if place >= 0 else None))
    fractions = torch.zeros(len(found), unused, dtype=torch.float64, device="cpu")
    for row, part in zip(fractions, portraits, strict=True):
        row[part.ids] = part.fractions
    return Continuation(found, portraits, fractions, changes, path)


def _carried(network: nn.Module, before: Portrait, after: Portrait, eps: float) -> list[Tensor]:
    with measured_system(network, len(after.u)) as system:
        return carried(system, [(before, after)], CARRIED, eps)


def _steps(rnn: Any, inputs: Any) -> tuple[Sequence[nn.Module], Tensor]:
    """The network and the input of each step."""
    networks = list(rnn) if isinstance(rnn, Sequence | nn.ModuleList) else None
    for network in [rnn] if networks is None else networks:
        if isinstance(network_of(network), Ensemble):
            raise TypeError("rnn must be a network, or a list of networks, got an Ensemble: take its unstack()")
    if networks is not None and not networks:
        raise ValueError("rnn must be a network, or a list of at least one, got an empty list")
    features = features_of(network_of(rnn if networks is None else networks[0]), inputs)
    path = constant_inputs(
        torch.zeros(1, features, device="cpu") if isinstance(inputs, str) and inputs == "zero" else inputs, features
    )
    if networks is None:
        return [rnn] * len(path), path
    if len(path) not in (1, len(networks)):
        raise ValueError(f"inputs must be one, or one for each of {len(networks)} networks, got {len(path)}")
    return networks, path.expand(len(networks), -1)


def _again(generator: Any) -> Any:
    """A generator that draws what this one would draw now; what is none as it is."""
    if not isinstance(generator, torch.Generator):
        return generator
    copy = torch.Generator(generator.device)
    copy.set_state(generator.get_state())
    return copy
