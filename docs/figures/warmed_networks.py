"""Pictures and counts of networks that were warmed up: what became of them in training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from multistable.dynamics.warmup.history import RECENT_STEPS
from multistable.experiments.experiment import Result, grouped
from multistable.experiments.figures import figure, name_axes
from multistable.experiments.paper.grids import WARMED
from multistable.experiments.pictures import Rows, legend_below
from multistable.experiments.styles import style_of
from multistable.training import RunConfig

EARLY = 5
"""The epoch after which a page asks whether training has kept the attractors of a warmup."""
MANY, LEARNED = 0.5, 0.01
"""The VAA from which a network has many attractors, and the test loss below which it has learned its task."""


def warmed_by(config: RunConfig) -> str:
    """The warmup in words."""
    return f"{config.warmup_steps} steps" if config.warmup_algorithm == "paper" else config.warmup_algorithm


def early(run: Result) -> float:
    """The VAA of a run after a few epochs."""
    epochs, values = run.curve("vaa")
    return values[epochs.index(EARLY)]


def learned(runs: Sequence[Result]) -> str:
    """How many of some runs have learned their task."""
    return f"{sum(run.results['test_loss'] < LEARNED for run in runs)} of {len(runs)}"


@dataclass(frozen=True)
class Kept:
    """Whether warmed-up LSTMs, GRUs and MGUs that keep their attractors early in training are those that learn.

    Attributes:
        name: of its files.
        caption: what one sees.
    """

    name: str
    caption: str

    def draw(self, results: Sequence[Result]) -> Figure:
        """A dot for each run."""
        drawn, axes = figure(6.0, 3.8)
        for index, ((version,), runs) in enumerate(self._by(results, "version").items()):
            style = style_of(version, index)
            for cell, marker in zip(WARMED[:3], "os^", strict=True):
                shown = [run for run in runs if run.config.cell == cell]
                if not shown:
                    continue
                label = f"{cell.upper()}, {style.label}"
                losses = [run.results["test_loss"] for run in shown]
                axes.plot([early(run) for run in shown], losses, marker, color=style.colour, alpha=0.75, label=label)
        name_axes(axes, f"VAA after epoch {EARLY}", "test squared error")
        axes.set_yscale("log")
        axes.set_xlim(-0.03, 1.03)
        legend_below(drawn, [axes])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """How many runs of each cell and version have many attractors, and how many of these learn."""
        rows = []
        for (cell, version), runs in self._by(results, "cell", "version").items():
            kept = [run for run in runs if early(run) >= MANY]
            lost = [run for run in runs if early(run) < MANY]
            warmed = sum(run.results["initial_vaa"] >= MANY for run in runs)
            rows.append([cell.upper(), version, f"{warmed} of {len(runs)}", learned(kept), learned(lost)])
        after = f"after epoch {EARLY}"
        few = f"learned, of those with fewer {after}"
        return [
            "cell",
            "version",
            "VAA of 0.5 or more before training",
            f"learned, of those with it {after}",
            few,
        ], rows

    @staticmethod
    def _by(results: Sequence[Result], *settings: str) -> dict[Any, list[Result]]:
        warmed = [run for run in results if run.config.kind.warmed and run.config.cell in WARMED[:3]]
        return grouped(warmed, lambda config: tuple(getattr(config, name) for name in settings))


@dataclass(frozen=True)
class LastLayer:
    """How far the last layer of each network came in its warmup, and how its loss then fell.

    Attributes:
        name: of its files.
        caption: what one sees.
    """

    name: str
    caption: str

    def draw(self, results: Sequence[Result]) -> Figure:
        """A line for each run, in the colour of its warmup."""
        drawn, (warmup, training) = figure(10.0, 3.4, 2)
        for index, (label, runs) in enumerate(grouped(results, warmed_by).items()):
            style = style_of(label, index)
            for number, run in enumerate(runs):
                look = {"color": style.colour, "linestyle": style.line, "linewidth": 1.2, "alpha": 0.8}
                stars = [layers[-1] for layers in run.warmup["vaa_star"]]
                smooth = np.convolve(stars, np.full(RECENT_STEPS, 1 / RECENT_STEPS), mode="valid")
                steps = range(RECENT_STEPS, len(stars) + 1)
                # The shorter of two warmups that begin alike is drawn over the longer.
                warmup.plot(steps, smooth, **look, zorder=3 - len(stars) / 1000, label="" if number else style.label)
                training.plot(*run.curve("validation_loss"), **look)
        name_axes(warmup, "gradient step of the warmup", "VAA* of the last layer")
        name_axes(training, "epoch", "validation squared error")
        training.set_yscale("log")
        legend_below(drawn, [warmup])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """How many learned."""
        groups = grouped(results, warmed_by).items()
        return ["warmup", "learned"], [[label, learned(runs)] for label, runs in groups]
