"""All fixed points near what a network visits, stable or not, and the points that it is slow to leave."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import count, counted, positive_integer, positive_number
from multistable.dynamics.measure.algorithm_2_reachable_states import every_state
from multistable.dynamics.measure.newton import REST, Resting, come_to_rest
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.draws import Generators
from multistable.dynamics.system.inputs import constant_inputs, inputs_in_any_form, is_zero
from multistable.dynamics.system.interrupts import interrupted_once
from multistable.dynamics.system.models import Turn, each_part
from multistable.dynamics.system.modules import example_of
from multistable.dynamics.system.sequences import check_range
from multistable.dynamics.system.states import state_set
from multistable.dynamics.system.step import Step, precise_step, stepping
from multistable.dynamics.system.system import features_of, network_of, sequences_of
from multistable.networks.ensemble import Ensemble

FLAT = 0.02
"""A point that is none of rest is a minimum of the speed if its slope is less. Beside a fixed point it is about 1."""
LATER = 500
"""Where the search from a state fails, it begins anew from where the network leads that state in so many steps."""
FOLLOWED = 64
"""So many states are followed there in any case: a search goes to the nearest point, also where states go elsewhere."""
AROUND = 1000
"""Of minima within so many times the tolerance the slowest counts: a search ends near a minimum, not at it."""
MOST_PAIRS = 1024
"""A round begins half-way between, and beyond, so many pairs of the fixed points that are known."""
MOST_POINTS = 2048
"""With more fixed points than these the search does not begin again: their pairs would fill the memory."""
GOLDEN = 0.618034
"""Its multiples, without their whole parts, are spread evenly over all numbers between 0 and 1."""


@dataclass(frozen=True, eq=False, repr=False)
class FixedPoints:
    """The result of :func:`fixed_points`, all on the CPU in float64. The stable points come first, those with the most
    unstable directions last.

    Attributes:
        points: ``(k, d)``, whole states of all layers, [h, c] for LSTM.
        speeds: ``(k,)``, |f(x, u) - x|: what rounding leaves of zero.
        eigenvalues: ``(k, d)``, complex, of the derivative of a step at each point, those of the largest modulus first.
        labels: ``(n,)``, for each of the given states the point that the search from it came to, -1 for none.
        u: ``(features,)``, the constant input.
        slow_points: ``(s, d)``, where the speed has a minimum that is not zero: states pass there slowly.
        slow_speeds: ``(s,)``, how far a step leads from there.
    """

    points: Tensor
    speeds: Tensor
    eigenvalues: Tensor
    labels: Tensor
    u: Tensor
    slow_points: Tensor
    slow_speeds: Tensor
    _network: nn.Module

    def __repr__(self) -> str:
        return f"FixedPoints({self})"

    def __str__(self) -> str:
        counts = [(self.kinds.count(kind), kind) for kind in ("stable", "saddle", "repellor")]
        told = [f"{n} {kind}" if kind == "stable" else counted(n, kind) for n, kind in counts if n]
        slow = [counted(len(self.slow_points), "slow point")] if len(self.slow_points) else []
        return ", ".join((told or ["no fixed points"]) + slow)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def unstable(self) -> Tensor:
        """``(k,)``, the number of unstable directions: eigenvalues outside the unit circle."""
        return (self.eigenvalues.abs() > 1).sum(dim=-1)

    @property
    def stable(self) -> Tensor:
        """``(k,)``, whether a point has no unstable direction."""
        return self.unstable == 0

    @property
    def kinds(self) -> list[str]:
        """For each point ``"stable"``, ``"saddle"``, or ``"repellor"`` where all directions are unstable."""
        d = self.points.shape[-1]
        return ["stable" if n == 0 else "repellor" if n == d else "saddle" for n in self.unstable.tolist()]

    @property
    def time_constants(self) -> Tensor:
        """``(k, d)``, the steps in which a deviation along each eigenvector becomes e times smaller, or larger where it
        is unstable; infinite where it stays."""
        return 1 / self.eigenvalues.abs().log().abs()

    def jacobians(self) -> Tensor:
        """``(k, d, d)``, the derivative of a step at each point."""
        with stepping(self._network, len(self.u)) as step:
            return step.jacobians(*_on_device(step, self.points, self.u.unsqueeze(0))).cpu()

    def directions(self, index: int) -> Tensor:
        """The unstable directions of a point, ``(unstable, d)``, each of length 1: real parts of eigenvectors."""
        with stepping(self._network, len(self.u)) as step:
            at = _on_device(step, self.points[index].unsqueeze(0), self.u.unsqueeze(0))
            values, vectors = torch.linalg.eig(step.jacobians(*at)[0].cpu())
        ways = vectors[:, values.abs() > 1].mT.real
        return ways / torch.linalg.vector_norm(ways, dim=-1, keepdim=True).clamp_min(1e-300)

    def plot(self, states: Tensor | None = None) -> Any:
        """A figure of Matplotlib: the points in principal components with the unstable directions of saddles, the
        eigenvalues, and the time constants.

        Args:
            states: states ``(n, d)`` to draw behind the points.
        """
        from multistable.dynamics.measure.plots import of_fixed_points

        return of_fixed_points(self, states)


@interrupted_once
def fixed_points(
    rnn: nn.Module,
    u: Any,
    states: Any = None,
    *,
    sequences: Any = None,
    eps: float = 1e-4,
    slow: float = 1e-2,
    rounds: int = 10,
    iterations: int = 50,
    generator: Generators = None,
    part: str | None = None,
    forward: Forward | None = None,
) -> Any:
    """Find the fixed points of a network under a constant input, saddles and repellors included.

    From each of the states the speed |f(x, u) - x| is followed downhill (Levenberg and Marquardt), all of them at once
    in float64, to where it is zero or has a minimum; from some, and where that fails, also from where the network leads
    the state. Then from half-way between the points that were found, where saddles are, and from as far beyond them, as
    long as that leads to new ones. There may be others: no search from some states can promise all.

    Only what lies near the states counts: of each unit no further beyond their range than one and their largest number.
    Farther off gates may close, and every state would be at rest.

    Args:
        rnn: a network, an ensemble, or a model with recurrent parts inside, see :func:`measure`.
        u: the constant input, ``(features,)``, or ``"zero"``.
        states: where to begin, ``(n, d)``, see :func:`measure`: what the network visits, such as
            :func:`reachable_states`; for an ensemble also ``(R, n, d)``.
        sequences: in place of states, input sequences or batches, see :func:`measure`. The search begins from the
            states that they lead to, one of each.
        eps: points no more than this apart are the same.
        slow: the largest speed at which a minimum counts as a slow point.
        rounds: how many times to begin again between and beyond points that were found, as long as new ones are. Where
            there are more than 1,024 pairs, each round takes others: a network with hundreds of points may need more.
            Beyond 2,048 points the search ends.
        iterations: the most derivatives to compute for a state.
        generator: where the time steps of sequences are drawn from, see :func:`measure`.
        part: see :func:`measure`.
        forward: see :func:`measure`.

    Returns:
        :class:`FixedPoints`, or for an ensemble a list, one for each member; for several parts a dict of these by name.
    """
    rounds, iterations = count("rounds", rounds), positive_integer("iterations", iterations)
    eps, slow = positive_number("eps", eps), positive_number("slow", slow)
    if (states is None) == (sequences is None):
        raise ValueError("states must be given, or sequences in place of them, got " + _given(states))
    if not is_zero(u):
        inputs_in_any_form(u, "u")

    def one(network: nn.Module, sequences: Any, _: Turn) -> Any:
        rnn = network_of(network)
        members = rnn.unstack() if isinstance(rnn, Ensemble) else None
        data = None if sequences is None else sequences_of(rnn, sequences)
        with torch.no_grad():
            begin = states if data is None else every_state(rnn, data, generator)
        starts = state_set(begin, None if members is None else len(members))
        check_range(starts.states, example_of(rnn).dtype, "states")
        where = _u(u, features_of(rnn, u) if data is None else data.features, example_of(rnn).dtype)
        if members is None:
            return _of_one(rnn, where, starts.states, eps, slow, rounds, iterations)
        own = [starts.of_members([place]).states for place in range(len(members))]
        alone = [x if x.dim() == 2 else x[0] for x in own]
        each = zip(members, alone, strict=True)
        return [_of_one(member, where, x, eps, slow, rounds, iterations) for member, x in each]

    return each_part(one, rnn, sequences, driven=states is None, part=part, forward=forward)


def _given(states: Any) -> str:
    return "neither" if states is None else "both"


def _u(u: Any, features: int, dtype: torch.dtype) -> Tensor:
    """The constant input ``(1, features)``, checked."""
    inputs = constant_inputs(u, features, "u")
    check_range(inputs, dtype, "u")
    if len(inputs) != 1:
        raise ValueError(f"u must be one constant input, got {len(inputs)}: call once for each")
    return inputs


def _of_one(
    rnn: nn.Module, u: Tensor, states: Tensor, eps: float, slow: float, rounds: int, iterations: int
) -> FixedPoints:
    with precise_step(rnn, u.shape[-1]) as step:
        x, one = _on_device(step, step.checked(states), u)
        found, slow_ends, visited = _from_states(step, x, one, iterations)
        ends, labels = _known(found, eps)
        ends = _joined(ends, slow_ends[-1], eps)
        eigenvalues = _eigenvalues(step, ends, one)
        in_vain = 0
        for number in range(rounds):
            if not 1 < len(ends) <= MOST_POINTS:
                break
            begin = _between_and_beyond(ends, number)
            others_left = len(ends) * (len(ends) - 1) // 2 > MOST_PAIRS
            more = _near(come_to_rest(step, begin, one, iterations), visited)
            slow_ends.append(more)
            new, values = _new(step, ends, more.points[more.fixed], one, eps)
            ends, eigenvalues = torch.cat([ends, new]), torch.cat([eigenvalues, values])
            in_vain = 0 if len(new) else in_vain + 1
            if in_vain > others_left:
                break
        speeds = torch.linalg.vector_norm(step(ends, one) - ends, dim=-1)
        slow_points, slow_speeds = _slow(slow_ends, ends, slow, eps)
    order = sorted(range(len(ends)), key=lambda i: int((eigenvalues[i].abs() > 1).sum()))
    ranks = torch.tensor(order, dtype=torch.long, device="cpu").argsort()
    place = torch.tensor([*ranks.tolist(), -1], device="cpu")
    return FixedPoints(
        points=ends[order].cpu(),
        speeds=speeds[order].cpu(),
        eigenvalues=eigenvalues[order],
        labels=place[labels.cpu()],
        u=u[0],
        slow_points=slow_points.cpu(),
        slow_speeds=slow_speeds.cpu(),
        _network=step.rnn,
    )


def _from_states(step: Step, x: Tensor, u: Tensor, iterations: int) -> tuple[Resting, list[Resting], Tensor]:
    """Where the search from each state ends, all ends, and the states that the network is known to visit.

    Where the search fails, or ends far away, it begins anew from where the network leads the state.
    """
    first = _near(come_to_rest(step, x, u, iterations), x)
    followed = ~first.fixed
    followed[:: -(-len(x) // FOLLOWED)] = True
    later = step.after(x[followed], u, LATER)
    visited = torch.cat([x, later[later.isfinite().all(dim=-1)]])
    again = _near(come_to_rest(step, later, u, iterations), visited)
    places = followed.nonzero().squeeze(-1)
    better = again.fixed & ~first.fixed[followed]
    both = [value.index_copy(0, places[better], new[better]) for value, new in zip(first, again, strict=True)]
    return Resting(*both), [first, again], visited


def _joined(ends: Tensor, found: Resting, eps: float) -> Tensor:
    """The points that are known, each at its place, and the new ones among those that were found."""
    together = torch.cat([ends, found.points[found.fixed]])
    return together[torch.unique(merged(together, eps))]


def _near(found: Resting, visited: Tensor) -> Resting:
    """The same with an infinite speed for what is far from the states that are visited."""
    reach = 1 + visited.abs().amax()
    inside = (found.points >= visited.amin(dim=0) - reach) & (found.points <= visited.amax(dim=0) + reach)
    return found._replace(speeds=found.speeds.where(inside.all(dim=-1), torch.inf))


def _known(found: Resting, eps: float) -> tuple[Tensor, Tensor]:
    """The different fixed points, and for each end the number of its own, -1 for none."""
    labels = torch.full_like(found.fixed, -1, dtype=torch.long)
    leaders, own = torch.unique(merged(found.points[found.fixed], eps), return_inverse=True)
    labels[found.fixed] = own
    return found.points[found.fixed][leaders], labels


def _new(step: Step, known: Tensor, found: Tensor, u: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Of the fixed points ``found (n, d)`` those that are not ``known`` yet, and their eigenvalues.

    With an eigenvalue of 1 a point is one of a continuum: there are others between any two of these. The speed tells a
    point to within eps where eigenvalues are farther from 1 than this.
    """
    together = torch.cat([known, found])
    leaders = torch.unique(merged(together, eps))
    new = together[leaders[leaders >= len(known)]]
    values = _eigenvalues(step, new, u)
    alone = (values - 1).abs().amin(dim=-1) > REST * (1 + torch.linalg.vector_norm(new, dim=-1)).cpu() / eps
    return new[alone.to(new.device)], values[alone]


def _between_and_beyond(points: Tensor, place: int) -> Tensor:
    """The middles of pairs of points, and the places beyond either: of three points with a saddle in the middle any two
    lead to the third. Where there are too many pairs, half of those taken are the nearest, and half are of all other
    distances alike; the latter are others in each round, whose number is ``place``.
    """
    first, second = torch.triu_indices(len(points), len(points), 1, device=points.device)
    apart = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")[first, second]
    taken, half = apart.argsort(stable=True), MOST_PAIRS // 2
    if len(taken) > MOST_PAIRS:
        others = taken[half:]
        spaced = (torch.arange(half, device=points.device) + GOLDEN * place % 1) * (len(others) / half)
        taken = torch.cat([taken[:half], others[spaced.long()]])
    one, other = points[first[taken]], points[second[taken]]
    return torch.cat([(one + other) / 2, 2 * one - other, 2 * other - one])


def _slow(found: list[Resting], ends: Tensor, slow: float, eps: float) -> tuple[Tensor, Tensor]:
    """The minima of the speed that are not zero, and how fast states are there."""
    points = torch.cat([ending.points for ending in found])
    speeds = torch.cat([ending.speeds for ending in found])
    slopes, fixed = (torch.cat([getattr(ending, name) for ending in found]) for name in ("slopes", "fixed"))
    there = ~fixed & (speeds <= slow) & (slopes <= FLAT)
    order = speeds[there].argsort()
    points, speeds = points[there][order], speeds[there][order]
    slowest = torch.unique(merged(points, AROUND * eps))
    return points[slowest], speeds[slowest]


def _eigenvalues(step: Step, points: Tensor, u: Tensor) -> Tensor:
    """``(k, d)``, those of the largest modulus first; on the CPU, where they are found sooner."""
    parts = [torch.linalg.eigvals(step.jacobians(some, u).cpu()) for some in points.split(64)]
    values = torch.cat(parts) if parts else torch.zeros(0, points.shape[-1], dtype=torch.complex128, device="cpu")
    return values.gather(-1, values.abs().argsort(dim=-1, descending=True))


def merged(points: Tensor, eps: float) -> Tensor:
    """For each of the points ``(n, d)`` the number of the first that it is the same as: no more than ``eps`` away."""
    labels = torch.full((len(points),), -1, dtype=torch.long, device=points.device)
    left = torch.arange(len(points), device=points.device)
    while len(left):
        near = torch.linalg.vector_norm(points[left] - points[left[0]], dim=-1) <= eps
        labels[left[near]] = left[0]
        left = left[~near]
    return labels


def _on_device(step: Step, *tensors: Tensor) -> list[Tensor]:
    return [tensor.to(device=step.system.device, dtype=torch.float64) for tensor in tensors]
