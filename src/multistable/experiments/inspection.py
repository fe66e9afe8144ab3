"""What a network can hold, for how long, under which inputs and how robustly, in plain words and on one page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import counted
from multistable.dynamics.measure import Attractors, FixedPoints, Lyapunov, attractors, fixed_points, lyapunov
from multistable.dynamics.measure.search_fixed_points import MOST_POINTS
from multistable.experiments.page import write_page
from multistable.training.portraits import Record, course_of

STATES, STARTS, INPUTS, TIME = 320, 128, 10, 60
"""The states that are followed, those that searches begin from, the random inputs, the steps of random sequences."""
NOISE = (0.05, 0.25, 0.5)
"""Displacements, as shares of the median distance between attractors."""
LONG = 1e5
"""A lifetime in steps beyond which a memory is said to last."""


@dataclass(frozen=True)
class Inspection:
    """What was found of a network.

    Attributes:
        quiet: its attractors while its input is zero.
        driven: its attractors under random inputs.
        points: its fixed points while its input is zero.
        decay: how differences between its states shrink while its input is zero.
        noise: for each of ``NOISE`` the length of a displacement and the share of states that come back; empty where
            there are no two attractors.
        random: whether the sequences were random.
    """

    network: nn.Module
    quiet: Attractors
    driven: Attractors
    points: FixedPoints
    decay: Lyapunov
    noise: list[tuple[float, float]]
    random: bool

    @property
    def answers(self) -> list[tuple[str, str]]:
        """Questions and answers."""
        return [
            ("How many things can it hold?", _how_many(self.quiet)),
            ("For how long?", _how_long(self.quiet, self.decay)),
            ("Under which inputs?", _under_which(self.driven)),
            ("How robustly?", _how_robustly(self.noise)),
            ("What lies between?", _between(self.points)),
        ]


def inspection(rnn: nn.Module, sequences: Tensor | None, *, stabilisation: int = 10_000, seed: int = 0) -> Inspection:
    """Look at a network.

    Args:
        rnn: the network.
        sequences: ``(time, n, features)``; random ones if there are none.
        stabilisation: M, the steps after which states are called settled.
        seed: of all draws.
    """

    def draws() -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    features: Any = rnn.input_size
    x = torch.randn(TIME, STATES, features, generator=draws()) if sequences is None else sequences
    x = x.transpose(0, 1) if getattr(rnn, "batch_first", False) else x
    sizes: dict[str, Any] = {"stabilisation": stabilisation}
    quiet = attractors(rnn, x, inputs="zero", generator=draws(), **sizes)
    driven = attractors(rnn, x, batches=INPUTS, generator=draws(), **sizes)
    points = fixed_points(rnn, torch.zeros(features), quiet.starts[:STARTS])
    decay = lyapunov(rnn, x, inputs="zero", batches=1, generator=draws(), **sizes)
    noise = []
    if len(quiet) > 1:
        apart = torch.pdist(quiet.points.double()).median().item()
        lengths = [share * apart for share in NOISE]
        noise = list(zip(lengths, quiet.returning(lengths, generator=draws(), **sizes), strict=True))
    return Inspection(rnn, quiet, driven, points, decay, noise, sequences is None)


def write(found: Inspection, path: Path, name: str, records: Sequence[Record] = ()) -> Path:
    """Write the page of an inspection; ``records`` are those of a run that recorded its attractors."""
    from multistable.dynamics.measure.plots import attractor_panels, course_panels, fixed_point_panels
    from multistable.experiments.figures import figure, svg

    space, shares, _, lasting = attractor_panels(found.quiet)
    saddles, circle, _ = fixed_point_panels(found.points)
    panels = [
        ("While nothing comes", "States on their way to the attractors where they end.", space),
        ("Who ends where", "The share of the states at each attractor.", shares),
        ("How long deviations last", "The steps in which a small one becomes e times smaller.", lasting),
        ("Fixed points", "Saddles are drawn with the directions in which states leave.", saddles),
        ("Eigenvalues", "Those of all fixed points: in the circle deviations shrink.", circle),
        ("Under random inputs", "The share of the states at each attractor.", attractor_panels(found.driven)[1]),
    ]
    if records:
        epochs = [float(record["epoch"]) for record in records]
        places, course = course_panels(*course_of(records), (epochs, "epoch"))
        panels += [
            ("In the course of training", "Where the attractors were. One keeps its colour while it is there.", places),
            ("Who ended where", "The share of the states at each attractor after each epoch.", course),
        ]
    pictures = []
    for index, (title, about, panel) in enumerate(panels):
        drawn, axes = figure(4.6, 3.6)
        panel(axes)
        pictures.append({"svg": svg(drawn, f"picture-{index}", about), "title": title, "about": about})
    content: dict[str, Any] = {"answers": found.answers, "pictures": pictures, "random": found.random}
    return write_page(path, "inspect.html.j2", name=name, network=str(found.network), **content)


def _how_many(found: Attractors) -> str:
    if found.moving > 0.5:
        return (
            f"{found.moving:.0%} of its states still move when they should have come to rest: what it holds lies on a "
            f"continuum or changes all the time. Beside these it has {counted(len(found), 'attractor')}."
        )
    if len(found) == 1:
        return "One: whatever it has read, it ends at the same place. It forgets."
    cycles = found.kinds.count("cycle")
    told = f", {cycles} of them cycles" if cycles else ""
    moving = f" {found.moving:.0%} of its states still move." if found.moving else ""
    return f"{len(found)} different things while its input is zero{told}.{moving}"


def _how_long(found: Attractors, decay: Lyapunov) -> str:
    if decay.chaotic > 0.5:
        return "It does not settle: small differences between its states grow."
    if decay.lifetime > LONG:
        return "Small differences between its states last longer than can be told: nothing brings states together."
    fading = f"small differences are a third of what they were after {counted(max(1, round(decay.lifetime)), 'step')}."
    if len(found) > 1:
        return f"What is kept by the choice of an attractor lasts as long as nothing comes. The rest fades: {fading}"
    return f"It fades: {fading}"


def _under_which(found: Attractors) -> str:
    counts = [len(part) for part in found.portraits]
    if min(counts) == max(counts):
        return f"Under each of {len(counts)} random inputs that do not change it has {counted(counts[0], 'attractor')}."
    return f"Under {len(counts)} random inputs that do not change it has {min(counts)} to {max(counts)} attractors."


def _how_robustly(noise: list[tuple[float, float]]) -> str:
    if not noise:
        return "There are no two attractors between which noise could carry a state."
    shares = ", ".join(f"{back:.0%} from {share:.0%}" for share, (_, back) in zip(NOISE, noise, strict=True))
    return f"Of states that are displaced by a share of the distance between attractors, so many come back: {shares}."


def _between(found: FixedPoints) -> str:
    kinds = [(found.kinds.count(kind), kind) for kind in ("saddle", "repellor")]
    told = " and ".join(counted(n, kind) for n, kind in kinds if n) or "no saddles"
    told = f"at least {told}" if len(found) > MOST_POINTS else told
    slow = (
        f", and {counted(len(found.slow_points), 'point')} that states are slow to leave"
        if len(found.slow_points)
        else ""
    )
    return f"Beside {counted(int(found.stable.sum()), 'stable fixed point')}, {told} were found{slow}."
