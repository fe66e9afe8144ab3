"""Pictures of attractors and fixed points: where they are, who goes there, and how long what they keep lasts."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from multistable.arguments import counted
from multistable.drawing import Axes, Figure, figure, name_axes
from multistable.dynamics.measure.algorithm_1_measure import measured_system
from multistable.dynamics.measure.course_of_attractors import Continuation
from multistable.dynamics.measure.labels import Portrait
from multistable.dynamics.measure.named_attractors import Attractors
from multistable.dynamics.measure.search_fixed_points import FixedPoints
from multistable.dynamics.system.whole_states import flat
from multistable.palette import COLOURS, GREY, INK, MARKERS, ORANGE, VERMILLION

PATHS, PATH_STEPS = 120, 60
"""How many states are followed on their way, and for how many steps."""
NAMED = 12
"""So many attractors have a colour and a marker of their own; those of fewer states are grey."""
STABILITY = {"stable": (COLOURS[0], "o"), "saddle": (VERMILLION, "X"), "repellor": (ORANGE, "^")}
"""The colour and the marker of each kind of fixed point."""
REACH = 0.15
"""The length of a drawn direction, as a share of the width of the picture."""


class Plane:
    """The plane of the largest spread of states ``(n, d)``: their two first principal components."""

    def __init__(self, states: Tensor) -> None:
        states = states.double()
        self._centre = states.mean(dim=0)
        directions = torch.linalg.svd(states - self._centre, full_matrices=False).Vh[:2]
        self._plane = torch.nn.functional.pad(directions, (0, 0, 0, 2 - len(directions)))

    def __call__(self, states: Tensor) -> Any:
        """``(..., 2)`` for states ``(..., d)``."""
        return ((states.double() - self._centre) @ self._plane.mT).numpy()

    def direction(self, ways: Tensor) -> Any:
        """``(..., 2)`` for directions ``(..., d)``."""
        return (ways.double() @ self._plane.mT).numpy()


DOTS = 1000
"""More dots than these are a bitmap in a picture of lines."""

Panel = Callable[[Axes], None]
"""One picture, drawn on axes that it is given."""


def of_attractors(found: Attractors) -> Figure:
    """Four pictures: the state space, the shares of the states, the eigenvalues, and how long deviations last."""
    drawn, axes = figure(11, 8, 2, 2)
    for place, panel in zip(axes.flat, attractor_panels(found), strict=True):
        panel(place)
    return drawn


def attractor_panels(found: Attractors) -> list[Panel]:
    """The pictures of :func:`of_attractors`."""
    few = range(min(len(found), NAMED))
    values = found.eigenvalues_of(few)
    rounds = (
        found.periods[: len(values)] / values[:, 0].abs().log().abs() if len(values) else torch.zeros(0, device="cpu")
    )
    shares = partial(_bars, values=found.fractions.tolist(), what="share of the states that end there")
    if len(found.inputs) > 1:
        along = _along(found.inputs, "number of the input")
        shares = partial(_shares_along, shares=found.fractions_under(), along=along, what="share of the states")
    return [
        partial(_state_space, found=found),
        shares,
        partial(_unit_circle, eigenvalues=values, looks=[_look(i) for i in few]),
        partial(_lifetimes, lifetimes=rounds.tolist()),
    ]


def of_fixed_points(found: FixedPoints, states: Tensor | None) -> Figure:
    """Three pictures: the points with the unstable directions of saddles, the eigenvalues, and the time constants."""
    drawn, axes = figure(15, 4.6, 3)
    for place, panel in zip(axes.flat, fixed_point_panels(found, states), strict=True):
        panel(place)
    return drawn


def fixed_point_panels(found: FixedPoints, states: Tensor | None = None) -> list[Panel]:
    """The pictures of :func:`of_fixed_points`."""
    return [
        partial(_points, found=found, states=states),
        partial(_unit_circle, eigenvalues=found.eigenvalues, looks=[STABILITY[kind] for kind in found.kinds]),
        partial(_constants, found=found),
    ]


def of_continuation(found: Continuation) -> Figure:
    """Two pictures along the path: where the attractors are, and the shares of the states that end at each."""
    drawn, axes = figure(11, 4.6, 2)
    along = _along(found.path, "step")
    for place, panel in zip(axes.flat, course_panels(found.portraits, found.fractions, along), strict=True):
        panel(place)
    return drawn


def course_panels(portraits: Sequence[Portrait], shares: Tensor, along: "Along") -> list[Panel]:
    """The pictures of :func:`of_continuation`.

    Args:
        portraits: the attractors at each step, with numbers that hold for all steps.
        shares: ``(steps, k)``, those of the states that end at each.
        along: where each step stands.
    """
    return [
        partial(_places_along, portraits=portraits, k=shares.shape[-1], along=along),
        partial(_shares_along, shares=shares, along=along, what="share of the states"),
    ]


INPUT = "input"
"""The name of an axis on which inputs stand by their values."""

Along = tuple[list[float], str]
"""Where things stand on an axis, and the name of the axis."""


def _places_along(axes: Axes, portraits: Sequence[Portrait], k: int, along: Along) -> None:
    """Where each of k attractors is at each step."""
    x, label = along
    plane = Plane(torch.cat([part.points for part in portraits if len(part)] or [torch.zeros(1, 2, device="cpu")]))
    for i in range(k):
        there = [(x[step], part) for step, part in enumerate(portraits) if i in part.ids]
        places = [plane(part.orbits[part.ids.index(i)])[:, 0] for _, part in there]
        colour, marker = _look(i)
        first = {value: orbit[0] for (value, _), orbit in zip(there, places, strict=True) if len(orbit) == 1}
        axes.plot(x, [first.get(value, math.nan) for value in x], color=colour, linewidth=0.8, alpha=0.5, zorder=1)
        steps = [value for (value, _), orbit in zip(there, places, strict=True) for _ in orbit]
        heights = [height for orbit in places for height in orbit]
        axes.scatter(steps, heights, color=colour, marker=marker, s=16, zorder=2)
    _whole(axes, label)
    name_axes(axes, label, "first principal component", "where the attractors are")


def _along(path: Tensor, otherwise: str) -> Along:
    """Where each input of a path stands on an axis, and its name: the value if it is one number, else the place."""
    values = path.squeeze(-1).tolist() if path.shape[-1] == 1 else []
    if len(set(values)) == len(path):
        return values, INPUT
    return [float(step) for step in range(len(path))], otherwise


def _look(index: int) -> tuple[str, str]:
    """The colour and the marker of an attractor."""
    if index >= NAMED:
        return GREY, "."
    return COLOURS[index % len(COLOURS)], MARKERS[(index // len(COLOURS) + index) % len(MARKERS)]


def _state_space(axes: Axes, found: Attractors) -> None:
    """Paths from where states begin to where they end, and the attractors."""
    chosen = torch.linspace(0, len(found.labels) - 1, min(PATHS, len(found.labels)), device="cpu").long()
    paths = _paths(found, chosen)
    orbits = [orbit.double() for orbit in found.orbits]
    plane = Plane(torch.cat([paths[-1].double(), *orbits] if len(orbits) > 2 else [*paths.double(), *orbits]))
    labels = found.labels[chosen].tolist()
    for path, label in zip(plane(paths).swapaxes(0, 1), labels, strict=True):
        colour = _look(label)[0] if label >= 0 else INK
        axes.plot(*path.T, color=colour, linewidth=0.7, alpha=0.45, zorder=1)
    for i, orbit in enumerate(orbits):
        colour, marker = _look(i)
        look = {"marker": marker, "s": 60 if i < NAMED else 12, "zorder": 3}
        axes.scatter(*plane(orbit).T, color=colour, **look | ({} if marker == "x" else {"edgecolors": INK}))
    moving = f", {found.moving:.0%} still moving" if found.moving else ""
    many = f"{counted(len(found), 'attractor')}{moving}"
    name_axes(axes, "first principal component", "second principal component", many)


def _paths(found: Attractors, chosen: Tensor) -> Tensor:
    """The states ``(steps, n, d)`` on their way from where they begin, and where they end."""
    with measured_system(found._network, found.inputs.shape[-1]) as system:
        u = found.inputs[found.under[chosen]].to(system.device, system.dtype)
        begin = found.starts[chosen]
        over_time = flat(system.advance(u.expand(PATH_STEPS, *u.shape), system.split(begin)))
    return torch.cat([begin.unsqueeze(0), over_time.cpu(), found.ends[chosen].unsqueeze(0)])


def _bars(axes: Axes, values: Sequence[float], what: str) -> None:
    shown = list(values[:NAMED])
    axes.bar(range(len(shown)), shown, color=[_look(i)[0] for i in range(len(shown))])
    rest = sum(values[NAMED:])
    if rest:
        axes.bar([len(shown)], [rest], color=GREY)
    axes.set_xticks(range(len(shown) + bool(rest)), [*map(str, range(len(shown))), *(["rest"] if rest else [])])
    name_axes(axes, "attractor", "share", what)


def _shares_along(axes: Axes, shares: Tensor, along: Along, what: str) -> None:
    """The share of each attractor where it is there, ``(m, k)``, in the order in which steps stand on the axis."""
    x, label = along
    order = sorted(range(len(x)), key=x.__getitem__)
    for i in range(min(shares.shape[-1], NAMED)):
        colour, marker = _look(i)
        values = [float(shares[place, i]) or math.nan for place in order]
        axes.plot([x[place] for place in order], values, color=colour, marker=marker, markersize=4, label=str(i))
    if shares.shape[-1]:
        axes.legend(title="attractor", fontsize=8, title_fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    axes.set_ylim(-0.02, 1.02)
    _whole(axes, label)
    name_axes(axes, label, "share", what)


def _whole(axes: Axes, label: str) -> None:
    """Ticks at whole numbers, unless the axis has inputs."""
    if label != INPUT:
        axes.xaxis.get_major_locator().set_params(integer=True)


def _unit_circle(axes: Axes, eigenvalues: Tensor, looks: Sequence[tuple[str, str]]) -> None:
    turn = torch.linspace(0, 2 * math.pi, 200, device="cpu")
    axes.plot(turn.cos(), turn.sin(), color=INK, linewidth=1, alpha=0.6, zorder=0)
    for look in dict.fromkeys(looks):
        values = eigenvalues[[own == look for own in looks]].flatten()
        colour, marker = look
        drawn = _dots(len(values)) | {"color": colour, "marker": marker, "alpha": 0.75}
        axes.scatter(values.real, values.imag, s=14, **drawn)
    axes.set_aspect("equal", adjustable="datalim")
    name_axes(axes, "real part", "imaginary part", "eigenvalues: stable within the circle")


def _dots(many: int) -> dict[str, bool]:
    """How so many dots are drawn: a page with thousands of them in an SVG is slow to open."""
    return {"rasterized": many > DOTS}


def _lifetimes(axes: Axes, lifetimes: Sequence[float]) -> None:
    finite = [value for value in lifetimes if 0 < value < math.inf]
    for i, value in enumerate(lifetimes):
        colour, marker = _look(i)
        axes.scatter([i], [value if 0 < value < math.inf else max(finite, default=1.0)], color=colour, marker=marker)
    _decades(axes, finite)
    axes.set_xticks(range(len(lifetimes)))
    name_axes(axes, "attractor", "steps", "how long a small deviation lasts")


def _decades(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis of whole decades, so that it has ticks to read."""
    axes.set_yscale("log")
    finite = [value for value in values if 0 < value < math.inf]
    if finite:
        axes.set_ylim(10 ** math.floor(math.log10(min(finite))), 10 ** math.ceil(math.log10(max(finite)) + 1e-9))


def _constants(axes: Axes, found: FixedPoints) -> None:
    """The longest time constant of each fixed point."""
    constants = found.time_constants.amax(dim=-1).tolist() if len(found) else []
    for kind, (colour, marker) in STABILITY.items():
        of_kind = [(i, value) for i, value in enumerate(constants) if found.kinds[i] == kind]
        if of_kind:
            axes.scatter(*zip(*of_kind, strict=True), color=colour, marker=marker, s=30, label=kind)
    _decades(axes, constants)
    if constants:
        axes.legend()
    name_axes(axes, "fixed point", "steps", "longest time constant")


def _points(axes: Axes, found: FixedPoints, states: Tensor | None) -> None:
    """The points, the unstable directions of saddles, and states behind them."""
    name_axes(axes, "first principal component", "second principal component", str(found))
    shown = [found.points, found.slow_points] + ([] if states is None else [states.detach().cpu().double()])
    if not sum(map(len, shown)):
        return
    plane = Plane(torch.cat(shown))
    if states is not None:
        axes.scatter(*plane(states.detach().cpu()).T, color=GREY, s=4, zorder=0, label="states")
    stable = found.stable
    look: dict[str, Any] = {"color": COLOURS[0], "edgecolors": INK, "s": 60, "zorder": 3}
    axes.scatter(*plane(found.points[stable]).T, label="stable", **look, **_dots(int(stable.sum())))
    look = {"color": VERMILLION, "marker": "X", "s": 36, "zorder": 2}
    axes.scatter(*plane(found.points[~stable]).T, label="unstable", **look, **_dots(int((~stable).sum())))
    if len(found.slow_points):
        axes.scatter(*plane(found.slow_points).T, color=ORANGE, marker="d", s=20, zorder=1, label="slow")
    spread = plane(torch.cat([found.points, found.slow_points]))
    reach = REACH * float((spread.max(axis=0) - spread.min(axis=0)).max())
    for index in (~stable).nonzero().squeeze(-1).tolist()[:PATHS]:
        (place,) = plane(found.points[index : index + 1])
        for way in plane.direction(found.directions(index)):
            ends = [place - reach * way, place + reach * way]
            axes.plot(*zip(*ends, strict=True), color=VERMILLION, linewidth=1, alpha=0.7, zorder=1)
    axes.legend()
