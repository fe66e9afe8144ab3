"""Which settled states are at the same attractor, under one input and from one input to another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from multistable.dynamics.measure.stabilisation import stabilise
from multistable.dynamics.system.system import System
from multistable.dynamics.system.whole_states import flat

LEADERS = 32
"""The cycles of so many states are followed at once."""
PATH, PAUSE = 32, 16
"""From one input to another an attractor is carried in so many steps of the input, each held for so many steps."""


@dataclass(frozen=True, eq=False)
class Portrait:
    """The attractors of a network under one constant input.

    Attributes:
        u: ``(features,)``, the input.
        ids: for each attractor its id, which it keeps as the input changes.
        orbits: for each attractor all its points ``(p, d)``: one of a fixed point, those of a cycle in their order.
        labels: ``(n,)``, the id of the attractor where each state ends, -1 for a state that still moves.
        speeds: ``(n,)``, how far the next step leads each settled state.
    """

    u: Tensor
    ids: list[int]
    orbits: list[Tensor]
    labels: Tensor
    speeds: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def points(self) -> Tensor:
        """``(k, d)``, the first point of each attractor."""
        return torch.stack([orbit[0] for orbit in self.orbits]) if self.orbits else torch.zeros(0, 0, device="cpu")

    @property
    def fractions(self) -> Tensor:
        """``(k,)``, the share of the states that end at each attractor."""
        return shares_of(self.labels, self.ids)

    def named(self, ids: Sequence[int]) -> "Portrait":
        """The same with other ids."""
        new = torch.tensor([*ids, -1], device="cpu")
        place = {old: index for index, old in enumerate(self.ids)}
        where = torch.tensor([place.get(label, -1) for label in self.labels.tolist()], dtype=torch.long, device="cpu")
        return replace(self, ids=list(ids), labels=new[where])


def shares_of(labels: Tensor, ids: Iterable[int]) -> Tensor:
    """The share of each of the ids among the labels ``(n,)``, ``(k,)``."""
    return torch.tensor([(labels == i).double().mean().item() for i in ids], dtype=torch.float64, device="cpu")


def portrait(system: System, states: Tensor, u: Tensor, periods: Tensor, speeds: Tensor, eps: float) -> Portrait:
    """The attractors at which settled states are, those of most states first.

    Args:
        system: a single network, or an ensemble of one.
        states: ``(n, d)``, settled under the input.
        u: the input, ``(1, features)``, or the same for each state.
        periods: of each state, 0 where it still moves.
        speeds: of each state.
        eps: a state no more than this away from a point of an attractor is there.
    """
    labels, u = torch.full_like(periods, -1), u[:1]
    orbits: list[Tensor] = []
    left = (periods > 0).nonzero().squeeze(-1)
    while len(left):
        leaders = left[:LEADERS]
        cycles = _cycles(system, states[leaders], u, int(periods[leaders].max()))
        for leader, cycle in zip(leaders.tolist(), cycles.unbind(dim=1), strict=True):
            if labels[leader] < 0:
                orbit = cycle[: int(periods[leader])]
                labels[left[_distance(states[left], orbit) <= eps]] = len(orbits)
                orbits.append(orbit)
        left = left[labels[left] < 0]
    order = sorted(range(len(orbits)), key=lambda i: -int((labels == i).sum()))
    found = Portrait(
        u[0].cpu(), list(range(len(orbits))), [orbit.cpu() for orbit in orbits], labels.cpu(), speeds.cpu()
    )
    place = {old: new for new, old in enumerate(order)}
    renamed = found.named([place[i] for i in found.ids])
    return replace(renamed, ids=list(range(len(order))), orbits=[found.orbits[i] for i in order])


def carried(system: System, pairs: Sequence[tuple[Portrait, Portrait]], stabilisation: int, eps: float) -> list[Tensor]:
    """For each pair of portraits, at which attractor of the second each of the first ends when the input changes.

    The input goes straight from one to the other in small steps, and then stays. All pairs are followed at once.

    Returns:
        For each pair ``(k,)``, places in the second portrait, -1 where a state ends at none of them.
    """
    if not sum(len(before) for before, _ in pairs):
        return [torch.zeros(0, dtype=torch.long, device="cpu") for _ in pairs]
    points = [before.points for before, _ in pairs]
    begin, end = (
        torch.cat([pair[i].u.expand(len(pair[0]), -1) for pair in pairs]).to(system.device, system.dtype)
        for i in range(2)
    )
    states = system.split(torch.cat([x for x in points if len(x)]))
    first, last = (x.expand(*system.leading, *x.shape) for x in (begin, end))
    if bool((begin != end).any()):
        for share in torch.linspace(0, 1, PATH + 1, device="cpu")[1:].tolist():
            between = torch.lerp(first, last, share)
            states = system.only_last(between.expand(PAUSE, *between.shape), states)
    ends = stabilise(system, states, last, stabilisation).states.reshape(len(begin), -1).cpu()
    parts = ends.split([len(x) for x in points])
    return [places_of(part, after, eps) for part, (_, after) in zip(parts, pairs, strict=True)]


def inherited(before: Portrait, after: Portrait, places: Tensor, unused: int) -> tuple[Portrait, int]:
    """The second portrait with the ids of the first, given where the attractors of the first end in it.

    Where several end at one, the nearest gives it its id; one where none ends has a new id, from ``unused`` on.
    """
    ids: list[int] = []
    for index, orbit in enumerate(after.orbits):
        from_here = (places == index).nonzero().squeeze(-1).tolist()
        nearest = min(from_here, key=lambda i: float(_distance(before.orbits[i], orbit).min()), default=None)
        ids.append(unused if nearest is None else before.ids[nearest])
        unused += nearest is None
    return after.named(ids), unused


def places_of(states: Tensor, after: Portrait, eps: float) -> Tensor:
    """At which attractor of a portrait each of the states ``(n, d)`` is, ``(n,)``, -1 at none of them."""
    if not after.orbits or not len(states):
        return torch.full((len(states),), -1, device="cpu")
    distances = torch.stack([_distance(states, orbit) for orbit in after.orbits])
    nearest = distances.min(dim=0)
    return torch.where(nearest.values <= eps, nearest.indices, -1)


def _cycles(system: System, states: Tensor, u: Tensor, longest: int) -> Tensor:
    """The states ``(longest, n, d)`` from now on, the present ones first."""
    if longest == 1:
        return states.unsqueeze(0)
    over_time = system.advance(u.expand(longest - 1, *system.leading, len(states), -1), system.split(states))
    return torch.cat([states.unsqueeze(0), flat(over_time).reshape(longest - 1, *states.shape)])


def _distance(states: Tensor, orbit: Tensor) -> Tensor:
    """How far each of the states ``(n, d)`` is from the nearest point of an orbit ``(p, d)``."""
    apart = torch.cdist(states.double(), orbit.double(), compute_mode="donot_use_mm_for_euclid_dist")
    return apart.min(dim=-1).values
