"""Figures of agents: how they play during training, and when they first are optimal, a panel for each maze."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from multistable.experiments.experiment import Kind, Result, cell_of, grouped, kind_of
from multistable.experiments.pictures import (
    Rows,
    legend_below,
    limit,
    panels_of,
    quantity_name,
    setting,
    whole_numbers,
)
from multistable.experiments.styles import Style, cell_name, style_of
from multistable.palette import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def kind_style(kind: Kind) -> Style:
    """The style of a cell and version: the cell's, with solid lines for warmed-up agents and dashed ones for others."""
    of_cell = style_of(kind[0], 0)
    warmed = kind[1] == "warmup"
    label = f"{of_cell.label}, warmed up" if warmed else of_cell.label
    return Style(label, of_cell.colour, of_cell.marker, "-" if warmed else "--")


@dataclass(frozen=True)
class Courses:
    """A quantity episode by episode, mean and spread over the agents of each cell and version.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        quantity: the name of the quantity in the metrics.
        window: over how many recorded values the running mean of each agent is taken: the greedy policies of an agent
            that learns are good and bad in turn.
    """

    name: str
    caption: str
    quantity: str = "return"
    window: int = 1

    def draw(self, results: Sequence[Result]) -> "Figure":
        """A row of panels for each maze, a column for each cell."""
        from multistable.experiments.figures import figure, name_axes

        panels, cells = panels_of(results), list(grouped(results, cell_of))
        size = (max(len(cells), 1), max(len(panels), 1))
        drawn, axes = figure(2.6 * size[0] + 0.6, 2.4 * size[1] + 0.7, *size, squeeze=False, sharex=True, sharey="row")
        for line, (task, group) in zip(axes, panels.items(), strict=False):
            for place, cell in zip(line, cells, strict=True):
                self._panel(place, [run for run in group if run.config.cell == cell])
                name_axes(place, "episode", quantity_name(self.quantity, task), f"{setting(task)}, {cell_name(cell)}")
                limit(place, self.quantity)
                whole_numbers(place)
                place.label_outer()
        legend_below(drawn, axes.flatten())
        return drawn

    def _panel(self, place: Any, runs: Sequence[Result]) -> None:
        from multistable.experiments.figures import curve

        for kind, alike in grouped(runs, kind_of).items():
            curves = [dict(zip(*run.curve(self.quantity), strict=True)) for run in alike]
            episodes = sorted({episode for values in curves for episode in values})
            table = [
                running_mean([values.get(episode, np.nan) for episode in episodes], self.window) for values in curves
            ]
            if episodes:
                curve(place, episodes, table, kind_style(kind), markers=False)

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each cell and version: the mean over all evaluations, and the value at the end."""
        return _for_each_kind(results, lambda runs: _ends([run.curve(self.quantity)[1] for run in runs]))


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """The mean of each value and those before it, at most ``window`` in all."""
    return [statistics.fmean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]


def _ends(curves: Sequence[Sequence[float]]) -> str:
    """The mean over all points of some curves, and over their last points, in words; empty without a curve."""
    curves = [curve for curve in curves if curve]
    if not curves:
        return ""
    overall, last = statistics.fmean(map(statistics.fmean, curves)), statistics.fmean(curve[-1] for curve in curves)
    return f"{overall:.3g}, at the end {last:.3g} ({len(curves)})"


@dataclass(frozen=True)
class FirstOptimal:
    """How many episodes agents need to become optimal.

    An agent that never is optimal counts with all its episodes: the bar is then paler and the mean a lower bound.
    """

    name: str
    caption: str

    def draw(self, results: Sequence[Result]) -> "Figure":
        """Mean and deviation for each cell and version, and every agent as a dot, or a cross if it never is optimal."""
        from multistable.experiments.figures import figure, name_axes

        panels = panels_of(results)
        drawn, axes = figure(5.0 * max(len(panels), 1), 4.2, max(len(panels), 1), squeeze=False)
        for place, (task, group) in zip(axes[0], panels.items(), strict=False):
            kinds = grouped(group, kind_of)
            for x, (kind, runs) in enumerate(kinds.items()):
                reached = [run.results["first_optimal"] is not None for run in runs]
                counts = [
                    run.results["first_optimal"] if ok else run.config.episodes
                    for run, ok in zip(runs, reached, strict=True)
                ]
                deviation = statistics.stdev(counts) if len(counts) > 1 else 0.0
                look = {"color": kind_style(kind).colour, "alpha": 0.75 if all(reached) else 0.3}
                place.bar(x, statistics.fmean(counts), 0.8, **look)
                place.errorbar(x, statistics.fmean(counts), deviation, color=INK, capsize=2, linewidth=1)
                for count, ok in zip(counts, reached, strict=True):
                    place.plot([x], [count], "." if ok else "x", color=INK, markersize=4, alpha=0.7)
            labels = [kind_style(kind).label for kind in kinds]
            place.set_xticks(range(len(kinds)), labels, rotation=60, ha="right", fontsize=8.5)
            name_axes(place, "agents", "episodes until optimal", setting(task))
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each cell and version."""
        return _for_each_kind(results, lambda runs: _first([run.results["first_optimal"] for run in runs]))


def _for_each_kind(results: Sequence[Result], said: Callable[[list[Result]], str]) -> Rows:
    """A row for each cell and version; ``said`` puts the results of its agents in each maze into words."""
    panels, rows = panels_of(results), []
    for kind in grouped(results, kind_of):
        alike = [[run for run in group if kind_of(run.config) == kind] for group in panels.values()]
        rows.append([kind_style(kind).label, *(said(runs) if runs else "" for runs in alike)])
    return ["agents", *(setting(task) for task in panels)], rows


def _first(episodes: Sequence[int | None]) -> str:
    """The mean of the episodes at which agents were first optimal, and how many ever were, in words."""
    reached = [episode for episode in episodes if episode is not None]
    mean = f"{statistics.fmean(reached):.0f}" if reached else "never"
    return f"{mean} ({len(reached)} of {len(episodes)})"
