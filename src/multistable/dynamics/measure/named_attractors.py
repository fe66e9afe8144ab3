"""Which attractors settled states are at: how many there are, where, and which states lead to which."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import counted, plain, positive_integer, positive_integers, positive_number
from multistable.dynamics.measure.algorithm_1_measure import (
    BATCH_SIZE,
    BATCHES,
    batching,
    measuring,
    starting,
)
from multistable.dynamics.measure.fixed_points_and_cycles import LONGEST, Kinds, kinds_of_states
from multistable.dynamics.measure.labels import Portrait, carried, inherited, portrait, shares_of
from multistable.dynamics.measure.memory import bits_about, shares_returning
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.inputs import check_inputs
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import Turn, each_part
from multistable.dynamics.system.step import precise_step
from multistable.dynamics.system.system import System, network_of
from multistable.dynamics.system.whole_states import flat
from multistable.networks.ensemble import Ensemble

CARRIED = 2000
"""An attractor is the same under another input if it is there so many steps after the input has changed."""


@dataclass(frozen=True)
class Attractors:
    """The result of :func:`attractors`. For an ensemble each attribute is a list, with one entry for each member.

    There are k attractors, numbered by the share of states that end there, the largest first; n states, batch by batch;
    and m different inputs. An attractor that is there under several inputs is one, though its points move.

    Attributes:
        points: ``(k, d)``, a point of each attractor, under the input that leads most states there.
        orbits: for each attractor all its points ``(p, d)``, in their order.
        labels: ``(n,)``, the number of the attractor where each state ends, -1 for a state that still moves.
        fractions: ``(k,)``, the share of states that end at each.
        periods: ``(k,)``, 1 for a fixed point, p for a cycle of p steps.
        speeds: ``(n,)``, how far the next step leads each settled state.
        starts, ends: ``(n, d)``, each state before it settled and after.
        origins: ``(n,)``, the number of the sequence, or of the given state, that each state comes from.
        times: ``(n,)``, the time step of the sequence after which each state was taken, from 1 on; 0 for given states.
        portraits: the attractors under each input, with the same numbers; see :class:`Portrait`.
        inputs: ``(m, features)``, the different inputs.
        under: ``(n,)``, the number of the input of each state.
        state_periods: ``(batches, batch_size)``, or ``(R, batches, batch_size)`` for an ensemble: the period of the
            attractor where each state ends, 0 where it still moves.
        fixed_points: the share of states at a fixed point.
        cycles: the share on a cycle of at most the longest period looked for.
        moving: the share of the others: on their way, on a longer cycle, or never to return.
        members: for an ensemble the results of the members, else empty.
    """

    points: Any = field(compare=False)
    orbits: Any = field(compare=False)
    labels: Any = field(compare=False)
    fractions: Any = field(compare=False)
    periods: Any = field(compare=False)
    speeds: Any = field(compare=False)
    starts: Any = field(compare=False)
    ends: Any = field(compare=False)
    origins: Any = field(compare=False)
    times: Any = field(compare=False)
    portraits: Any = field(compare=False)
    inputs: Any = field(compare=False)
    under: Any = field(compare=False)
    state_periods: Tensor = field(compare=False)
    fixed_points: Any
    cycles: Any
    moving: Any
    members: "tuple[Attractors, ...]" = field(default=(), compare=False)
    _network: Any = field(default=None, compare=False)

    def __repr__(self) -> str:
        if self.members:
            return f"Attractors of {len(self.members)} networks: {list(self.members)}"
        kinds = ", ".join(counted(self.kinds.count(kind), kind) for kind in ("fixed point", "cycle"))
        shares = ", ".join(f"{share:.3g}" for share in self.fractions.tolist()[:8])
        more = ", ..." if len(self) > 8 else ""
        return f"Attractors({kinds}; fractions: {shares}{more}; moving: {self.moving:.3g})"

    def __len__(self) -> int:
        return len(self.members) or len(self.periods)

    @property
    def kinds(self) -> Any:
        """For each attractor ``"fixed point"`` or ``"cycle"``."""
        if self.members:
            return [member.kinds for member in self.members]
        return ["fixed point" if period == 1 else "cycle" for period in self.periods.tolist()]

    @cached_property
    def eigenvalues(self) -> Any:
        """``(k, d)``, complex, those of the largest modulus first: of the derivative of a step at a fixed point, and of
        one round of a cycle. Computed in float64 when first asked for, for the network as it was.
        """
        if self.members:
            return [member.eigenvalues for member in self.members]
        return self.eigenvalues_of(range(len(self)))

    def eigenvalues_of(self, which: Sequence[int]) -> Tensor:
        """:attr:`eigenvalues` of some of the attractors, for where there are many."""
        values = torch.zeros(len(which), self.ends.shape[-1], dtype=torch.complex128, device="cpu")
        with precise_step(self._network, self.inputs.shape[-1]) as step:
            for row, index in zip(values, which, strict=True):
                u = self.inputs[self._input_of(index)].unsqueeze(0)
                x, u = (tensor.to(step.system.device, torch.float64) for tensor in (self.orbits[index], u))
                around = torch.eye(x.shape[-1], dtype=torch.float64, device=x.device)
                for point in x.split(1):
                    around = step.jacobians(point, u)[0] @ around
                row[:] = torch.linalg.eigvals(around.cpu())
        return values.gather(-1, values.abs().argsort(dim=-1, descending=True))

    @property
    def time_constants(self) -> Any:
        """``(k,)``, the steps in which a small deviation from each attractor becomes e times smaller, or larger at one
        that is unstable.
        """
        if self.members:
            return [member.time_constants for member in self.members]
        return self.periods / self.eigenvalues[:, 0].abs().log().abs()

    @property
    def stable(self) -> Any:
        """``(k,)``, whether states beside each attractor come back. A state may rest where it is not stable: one that
        begins at zero, in a network without biases.
        """
        if self.members:
            return [member.stable for member in self.members]
        return self.eigenvalues[:, 0].abs() <= 1

    def fractions_under(self) -> Any:
        """``(m, k)``, the share of the states under each input that end at each attractor."""
        if self.members:
            return [member.fractions_under() for member in self.members]
        shares = torch.zeros(len(self.portraits), len(self), dtype=torch.float64, device="cpu")
        for row, found in zip(shares, self.portraits, strict=True):
            row[found.ids] = found.fractions
        return shares

    def bits(self, targets: Any) -> Any:
        """How many bits the attractors carry about what the states had read: the mutual information of ``labels`` and
        targets, corrected for its bias in few samples. States that still move count as one more attractor.

        Args:
            targets: whole numbers or truth values, one or several for each state, ``(n,)`` or ``(n, m)``. What belongs
                to the sequences is found with ``origins`` and ``times``: ``y[found.origins]``, or
                ``y[found.times - 1, found.origins]`` where there is a value for each time step. For an ensemble
                ``(R, n)`` or ``(R, n, m)``.
        """
        if self.members:
            return [member.bits(own) for member, own in zip(self.members, targets, strict=True)]
        return bits_about(self.labels, targets)

    def returning(
        self,
        noise: float | Sequence[float],
        *,
        stabilisation: int = 10_000,
        eps: float = 1e-4,
        generator: torch.Generator | None = None,
    ) -> Any:
        """The share of the states at attractors that come back from a displacement: how much noise a memory survives.

        Args:
            noise: the length of the displacement, whose direction is random, or several lengths.
            stabilisation: the steps after which a state must be back.
            eps: how near.
            generator: where directions are drawn from, see :func:`measure`.

        Returns:
            A number, or a list with one for each length.
        """
        if self.members:
            options: dict[str, Any] = {"stabilisation": stabilisation, "eps": eps, "generator": generator}
            return [member.returning(noise, **options) for member in self.members]
        given = plain(noise)
        several = isinstance(given, list | tuple | Tensor)
        sizes = [positive_number("noise", plain(size)) for size in (given if several else [given])]
        settling = (positive_integer("stabilisation", stabilisation), positive_number("eps", eps))
        shares = shares_returning(
            self._network, self.ends, self.under, self.portraits, sizes, settling, Draws(generator)
        )
        return shares if several else shares[0]

    def plot(self) -> Any:
        """A figure of Matplotlib: the states on their way in principal components, the shares, the eigenvalues, and how
        long small deviations last. Of an ensemble take one of ``members``.
        """
        from multistable.dynamics.measure.plots import of_attractors

        if self.members:
            raise ValueError("an ensemble has a picture for each member: take one of its members")
        return of_attractors(self)

    def _input_of(self, index: int) -> int:
        """The number of the input whose point of an attractor is in ``points``."""
        return int(self.fractions_under()[:, index].argmax())


@interrupted_once
def attractors(
    rnn: nn.Module,
    sequences: Any = None,
    *,
    inputs: Any = "normal",
    states: Any = None,
    batches: int = BATCHES,
    batch_size: int = BATCH_SIZE,
    stabilisation: int = 10_000,
    longest: int = LONGEST,
    eps: float = 1e-4,
    generator: Generators = None,
    part: str | None = None,
    forward: Forward | None = None,
) -> Any:
    """Find the attractors of a network: how many, where, of which kind, and which states end at which.

    The states are those that :func:`measure` compares; with the same arguments they are the very same. They are
    followed for twice the longest period. A state that stays within ``eps`` of where it was is at a fixed point. One
    that leaves, comes back within ``eps``, and is there again after the same time is on a cycle. There is a tolerance
    because attractors are only approached, and because rounding keeps even a state at a fixed point jittering. States
    on one cycle are at one attractor, at whatever phase they are.

    Under several inputs an attractor keeps its number as long as it is there: each is carried from one input to the
    nearest other ones, along a straight line in small steps.

    Args:
        rnn: a network, an ensemble, or a model with recurrent parts inside, see :func:`measure`.
        sequences: the input sequences, or batches, see :func:`measure`.
        inputs: the constant inputs, see :func:`measure`. What a network remembers while nothing comes is found with
            ``"zero"``.
        states: states to start from in place of those that sequences lead to, see :func:`measure`.
        batches: I, how many batches of states, each with its own constant input, see :func:`measure`.
        batch_size: the states of a batch, see :func:`measure`.
        stabilisation: M, the steps after which states are called settled.
        longest: the longest period looked for. A state that moves by less than ``eps`` in twice as many steps counts as
            one at a fixed point.
        eps: states no more than this apart are the same.
        generator: see :func:`measure`.
        part: see :func:`measure`.
        forward: see :func:`measure`.

    Returns:
        :class:`Attractors`, for several parts a dict of these by name.
    """
    batches, batch_size, stabilisation, longest = positive_integers(
        batches=batches, batch_size=batch_size, stabilisation=stabilisation, longest=longest
    )
    eps = positive_number("eps", eps)
    check_inputs(inputs)

    def one(network: nn.Module, sequences: Any, _: Turn) -> Attractors:
        rnn = network_of(network)
        with measuring(rnn, sequences, batch_size, inputs=inputs, states=states) as (system, data):
            sizes, draws = batching(system, data, batches, batch_size), Draws(generator, system.members)
            found = kinds_of_states(system, data, draws, sizes, (stabilisation, longest, eps))
            networks: Sequence[nn.Module] = rnn.unstack() if isinstance(rnn, Ensemble) else [copy.deepcopy(rnn)]
            each = [_of_one(system, found, place, sizes, eps, network) for place, network in enumerate(networks)]
        return _together(each) if isinstance(rnn, Ensemble) else each[0]

    return each_part(one, rnn, sequences, **starting(states, batch_size), part=part, forward=forward)


def _of_one(
    system: System, found: Kinds, place: int, sizes: tuple[int, int], eps: float, network: nn.Module
) -> Attractors:
    """The attractors of the single network, or of the member at a place."""

    def own(tensor: Tensor) -> Tensor:
        return tensor if system.members is None else tensor[place]

    settled, alone = found.settled, system if system.members is None else system.of_members([place])
    starts, ends = (own(flat(states)) for states in (settled.start, settled.settled.layers))
    periods, speeds, u = own(found.periods), own(found.speeds), own(settled.u)
    inputs, under = different(u.cpu())
    parts = []
    for index in range(len(inputs)):
        here = under == index
        parts.append(portrait(alone, ends[here], u[here], periods[here], speeds[here], eps))
    portraits = _with_one_name(alone, parts, inputs, eps)
    labels = torch.full((len(under),), -1, device="cpu")
    for index, part in enumerate(portraits):
        labels[under == index] = part.labels
    portraits, labels = _by_share(portraits, labels)
    k = int(labels.max()) + 1
    orbits = [_most_common(portraits, i) for i in range(k)]
    of_states = periods.cpu()
    return Attractors(
        points=torch.stack([orbit[0] for orbit in orbits]) if k else ends.cpu()[:0],
        orbits=orbits,
        labels=labels,
        fractions=shares_of(labels, range(k)),
        periods=torch.tensor([len(orbit) for orbit in orbits], dtype=torch.long, device="cpu"),
        speeds=speeds.cpu(),
        starts=starts.cpu(),
        ends=ends.cpu(),
        origins=own(settled.origins),
        times=own(settled.times),
        portraits=portraits,
        inputs=inputs,
        under=under,
        state_periods=of_states.unflatten(-1, sizes),
        fixed_points=(of_states == 1).double().mean().item(),
        cycles=(of_states > 1).double().mean().item(),
        moving=(of_states == 0).double().mean().item(),
        _network=network,
    )


def different(u: Tensor) -> tuple[Tensor, Tensor]:
    """The different ones among inputs ``(n, features)``, as they come, and for each input the number of its own."""
    place: dict[tuple[float, ...], int] = {}
    under = torch.tensor([place.setdefault(tuple(row), len(place)) for row in u.tolist()], device="cpu")
    first = [int((under == index).nonzero()[0]) for index in range(len(place))]
    return u[first], under


def _with_one_name(system: System, parts: list[Portrait], inputs: Tensor, eps: float) -> list[Portrait]:
    """The portraits under several inputs, with the same id for the same attractor."""
    ways = nearest_first(inputs)
    places = carried(system, [(parts[i], parts[j]) for i, j in ways], CARRIED, eps)
    root = ways[0][0] if ways else 0
    named, unused = {root: parts[root]}, len(parts[root])
    for (before, after), there in zip(ways, places, strict=True):
        named[after], unused = inherited(named[before], parts[after], there, unused)
    return [named[index] for index in range(len(parts))]


def nearest_first(inputs: Tensor) -> list[tuple[int, int]]:
    """Ways that join all inputs ``(m, features)``, from the one nearest to zero on: the shortest left next."""
    joined, ways = [int(inputs.norm(dim=-1).argmin())], []
    apart = torch.cdist(inputs.double(), inputs.double())
    while len(joined) < len(inputs):
        rest = [index for index in range(len(inputs)) if index not in joined]
        shortest = int(apart[joined][:, rest].argmin())
        ways.append((joined[shortest // len(rest)], rest[shortest % len(rest)]))
        joined.append(ways[-1][1])
    return ways


def _by_share(portraits: list[Portrait], labels: Tensor) -> tuple[list[Portrait], Tensor]:
    """Portraits and labels with numbers in the order of the shares of all states."""
    ids = range(int(labels.max()) + 1)
    order = sorted(ids, key=lambda i: -int((labels == i).sum()))
    place = {old: new for new, old in enumerate(order)} | {-1: -1}
    renamed = torch.tensor([place[label] for label in labels.tolist()], dtype=torch.long, device="cpu")
    return [found.named([place[i] for i in found.ids]) for found in portraits], renamed


def _most_common(portraits: Sequence[Portrait], index: int) -> Tensor:
    """The orbit of an attractor under the input that leads the largest share of states there."""
    there = [found for found in portraits if index in found.ids]
    best = max(there, key=lambda found: float(found.fractions[found.ids.index(index)]))
    return best.orbits[best.ids.index(index)]


def _together(members: list[Attractors]) -> Attractors:
    """The results of the members as one, each attribute a list."""
    names = [name for name in Attractors.__dataclass_fields__ if name != "members"]
    lists: dict[str, Any] = {name: [getattr(member, name) for member in members] for name in names}
    lists["state_periods"] = torch.stack(lists["state_periods"])
    return Attractors(**lists, members=tuple(members))
