"""The kinds of figures that experiments consist of: bars of results, curves over epochs, the course of warmups."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from multistable.dynamics.warmup.run_warmup import FINAL_STABILISATION
from multistable.experiments.experiment import Kind, Result, Spread, cell_of, grouped, spread, task_of
from multistable.experiments.styles import Style, cell_name, style_of
from multistable.networks.cell_specs import JOINED
from multistable.palette import INK
from multistable.rl import TMaze
from multistable.tasks import Task, settings_of
from multistable.training import Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Label = Callable[[Config], str | None]
Rows = tuple[list[str], list[list[str]]]

LOG_FROM = 10.0
"""Losses whose means differ by more than this factor are drawn on a logarithmic axis."""
LINEAR_RETURNS = 5.0
"""Returns between this and its negative are drawn on a linear axis."""
LEGEND_ENTRY, LEGEND_LETTER = 0.6, 0.075
"""Inches that an entry of a legend takes, and each of its letters."""
IN_PAPER = "in the paper"
"""The heading of a column with the paper's own numbers."""
NARROWEST = 4.5
"""The least width of a figure in inches, so that there is room for a legend."""


def setting(task: Task) -> str:
    """The settings of a task in words, for instance ``T = 50``; nothing for a task without any."""
    return ", ".join(f"{name} = {value}" for name, value in settings_of(task).items() if name != "cue")


def quantity_name(quantity: str, task: Task) -> str:
    """The name of a quantity, as an axis has it."""
    loss = getattr(task, "loss_name", "loss")
    names = {
        "validation_loss": f"validation {loss}",
        "training_loss": f"training {loss}",
        "test_loss": f"test {loss}",
        "test_accuracy": "test accuracy",
        "validation_accuracy": "validation accuracy",
        "reconstruction_loss": "reconstruction squared error",
        "return": "mean return of both layouts",
        "vaa": "VAA",
        "initial_vaa": "VAA before training",
    }
    return names.get(quantity, quantity)


def limit(axes: Any, quantity: str) -> None:
    """Set the range of the y axis: losses and VAA from 0; returns up to the treasure, logarithmic below -5.

    An agent that bounces off a wall until the end has a return of -0.1 H, in long mazes many times the treasure's 4.
    """
    if quantity == "return":
        from matplotlib.ticker import FixedLocator, NullLocator

        axes.set_yscale("symlog", linthresh=LINEAR_RETURNS)
        axes.yaxis.set_major_locator(FixedLocator([-100, -50, -20, -10, -5, -2, 0, 2, 4]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylim(None, 1.1 * TMaze.treasure)
    else:
        axes.set_ylim(0, 1.05 if quantity == "vaa" else None)


def whole_numbers(axes: Any) -> None:
    """Mark whole numbers alone on the x axis: steps, epochs and episodes have no halves."""
    axes.xaxis.get_major_locator().set_params(integer=True)


def by_version(config: Config) -> str:
    """The version of a run."""
    return config.version


@dataclass(frozen=True)
class Bars:
    """A result of the summaries by cell, side by side for each version, one panel for each task.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        quantity: the name of the result in the summaries.
        hue: which of the bars of a cell a run belongs to; by default each version has a bar.
        printed: what the paper prints for a cell and hue, the same for all tasks.
    """

    name: str
    caption: str
    quantity: str = "test_loss"
    hue: Label = by_version
    printed: Mapping[Kind, str] = field(default_factory=dict)

    def draw(self, results: Sequence[Result]) -> "Figure":
        """Mean and standard deviation over seeds, and every run as a dot."""
        from multistable.experiments.figures import figure, name_axes

        panels = panels_of(results)
        hues = list(grouped(results, self.hue))
        most = max((len(grouped(group, cell_of)) for group in panels.values()), default=1)
        count = max(len(panels), 1)
        width = max(NARROWEST, (1.3 + (0.9 if count == 1 else 0.6) * most) * count)
        drawn, axes = figure(width, 3.8, count, squeeze=False)
        for place, (task, group) in zip(axes[0], panels.items(), strict=False):
            cells = list(grouped(group, cell_of))
            width = 0.8 / len(hues)
            for index, hue in enumerate(hues):
                style = style_of(hue, index)
                for x, cell in enumerate(cells):
                    runs = [r for r in group if r.config.cell == cell and self.hue(r.config) == hue]
                    where = x + (index - (len(hues) - 1) / 2) * width
                    bar(place, where, 0.92 * width, runs, self.quantity, style)
            names = [cell_name(cell).replace(JOINED, f"{JOINED}\n") for cell in cells]
            place.set_xticks(range(len(cells)), names, fontsize=11 if count == 1 else 8.5)
            place.set_xlim(-0.6, len(cells) - 0.4)
            name_axes(place, "cell", quantity_name(self.quantity, task), setting(task))
            if self.quantity.endswith("loss"):
                _log_where_wide(place, [spread(runs, self.quantity) for runs in grouped(group, self._kind).values()])
            if place.get_yscale() == "linear":
                limit(place, "vaa" if self.quantity.endswith("vaa") else self.quantity)
        legend_below(drawn, axes[0])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each cell and version, a column for each task, and one for what the paper prints, if anything."""
        panels = panels_of(results)
        kinds = list(grouped(results, self._kind))
        rows = []
        for cell, hue in kinds:
            entries = []
            for group in panels.values():
                value = spread([r for r in group if self._kind(r.config) == (cell, hue)], self.quantity)
                entries.append("" if value is None else f"{value} ({value.runs})")
            entries += [self.printed.get((cell, hue), "")] if self.printed else []
            rows.append([cell_name(cell), hue, *entries])
        tasks = [setting(task) or quantity_name(self.quantity, task) for task in panels]
        return ["cell", "version", *tasks, *([IN_PAPER] if self.printed else [])], rows

    def _kind(self, config: Config) -> tuple[str, str] | None:
        hue = self.hue(config)
        return None if hue is None else (config.cell, hue)


@dataclass(frozen=True)
class Curves:
    """Quantities epoch by epoch, mean and spread over the runs of a series.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        quantities: a panel for each.
        series: which curve a run belongs to; ``None`` for runs that are not shown.
    """

    name: str
    caption: str
    quantities: tuple[str, ...]
    series: Label

    def draw(self, results: Sequence[Result]) -> "Figure":
        """A panel for each quantity."""
        from multistable.experiments.figures import figure

        groups = grouped(results, self.series)
        drawn, axes = figure(5.0 * len(self.quantities), 3.4, len(self.quantities), squeeze=False)
        for place, quantity in zip(axes[0], self.quantities, strict=True):
            curve_panel(place, groups, quantity)
            limit(place, quantity)
        legend_below(drawn, axes[0])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each series: the quantities before training and at the end."""
        rows = []
        for label, runs in grouped(results, self.series).items():
            entries = [first_to_last(runs, quantity) for quantity in self.quantities]
            rows.append([style_of(label, 0).label, str(len(runs)), *entries])
        return ["series", "runs", *(f"{quantity}, first to last" for quantity in self.quantities)], rows


@dataclass(frozen=True)
class WarmupCourse:
    """VAA* of each layer at each step of the warmup, and VAA of the network at its end and, if recorded, on the way.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        printed: the paper's VAA at the end.
    """

    name: str
    caption: str
    printed: str = ""

    def draw(self, results: Sequence[Result]) -> "Figure":
        """Mean and spread over the runs, a panel for each layer and one for the network."""
        from multistable.experiments.figures import RULE, curve, figure, name_axes

        warmups = [r.warmup for r in results if r.warmup and "vaa_star" in r.warmup]
        table = np.array([course["vaa_star"] for course in warmups]).reshape(len(warmups), *self._size(warmups))
        _, steps, layers = table.shape
        drawn, axes = figure(3.7 * (layers + 1) + 0.4, 3.4, layers + 1, squeeze=False, sharex=True, sharey=True)
        for layer, place in enumerate(axes[0, :-1]):
            place.axhline(results[0].config.target, **RULE, label="target k")
            style = style_of(f"layer {layer + 1}", layer)
            curve(place, np.arange(1, steps + 1), table[..., layer], style, markers=False)
            name_axes(place, "gradient step of the warmup", "VAA*", style.label)
        network = axes[0, -1]
        recorded = [dict(course["vaa_course"]) for course in warmups if "vaa_course" in course]
        if recorded:
            # Measured as in training: at smaller scales M is shorter there than in the measure that ends a warmup.
            style = style_of(f"on the way, M = {results[0].config.stabilisation:,}", layers)
            curve(network, *joined(recorded), style)
        if warmups:
            ends = Spread.of([course["vaa"] for course in warmups])
            label = f"at the end, M = {FINAL_STABILISATION:,}"
            network.errorbar(steps, ends.mean, ends.deviation, fmt="s", color=INK, capsize=3, label=label)
            network.plot([steps] * len(warmups), [course["vaa"] for course in warmups], ".", color=INK, alpha=0.7)
        name_axes(network, "gradient step of the warmup", "VAA", "network")
        network.set_ylim(0, 1.05)
        whole_numbers(network)
        legend_below(drawn, axes[0])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each run."""
        rows = []
        for result in results:
            if result.warmup and "vaa_star" in result.warmup:
                last = np.mean(result.warmup["vaa_star"][-10:], axis=0)
                ours = [f"{value:.3f}" for value in (*last, result.warmup["vaa"])]
                rows.append([str(result.config.seed), *ours, self.printed])
        layers = max((len(row) - 3 for row in rows), default=0)
        each = [f"layer {i + 1}, VAA* of the last ten steps" for i in range(layers)]
        return ["seed", *each, "VAA after", IN_PAPER], rows

    @staticmethod
    def _size(warmups: Sequence[dict[str, Any]]) -> tuple[int, ...]:
        """The numbers of steps and of layers."""
        return np.shape(warmups[0]["vaa_star"]) if warmups else (0, 0)


def bar(place: Any, where: float, width: float, runs: Sequence[Result], quantity: str, style: Style) -> None:
    """Draw the mean and standard deviation of a result, and each run as a dot; nothing if no run has the result."""
    value = spread(runs, quantity)
    if value is not None:
        place.bar(where, value.mean, width, color=style.colour, alpha=0.75, label=style.label)
        place.errorbar(where, value.mean, value.deviation, color=INK, capsize=2, linewidth=1)
        dots = [run.results[quantity] for run in runs if run.results.get(quantity) is not None]
        place.plot([where] * len(dots), dots, ".", color=INK, markersize=3, alpha=0.7)


def curve_panel(place: Any, groups: Mapping[str, Sequence[Result]], quantity: str) -> None:
    """Draw a quantity epoch by epoch, a curve for each group of runs, and name the axes."""
    from multistable.experiments.figures import curve, name_axes

    for index, (label, runs) in enumerate(groups.items()):
        epochs, table = joined([dict(zip(*run.curve(quantity), strict=True)) for run in runs])
        if table.size:
            curve(place, epochs, table, style_of(label, index), markers=False)
    whole_numbers(place)
    if groups:
        config = next(iter(groups.values()))[0].config
        name_axes(place, config.unit, quantity_name(quantity, config.task))
    else:
        place.text(0.5, 0.5, "no finished run", ha="center", transform=place.transAxes)


def joined(runs: Sequence[Mapping[int, float | None]]) -> tuple[list[int], Any]:
    """All k times at which any run has a value, and a table ``(runs, k)``; NaN where a run has none."""
    times = sorted({time for run in runs for time in run})
    return times, np.array([[run.get(time) for time in times] for run in runs], dtype=float)


def first_to_last(runs: Iterable[Result], quantity: str) -> str:
    """The means of a quantity before training and at the end, in words; empty if no run has it."""
    curves = [values for _, values in (run.curve(quantity) for run in runs) if values]
    if not curves:
        return ""
    first, last = (np.mean([values[place] for values in curves]) for place in (0, -1))
    return f"{first:.4f} to {last:.4f}"


def panels_of(results: Iterable[Result]) -> dict[Task, list[Result]]:
    """Results by task, from the shortest to the longest."""
    panels = grouped(results, task_of)
    return dict(sorted(panels.items(), key=lambda item: (item[0].length, getattr(item[0], "N", 0))))


def _log_where_wide(axes: Any, spreads: Iterable[Any]) -> None:
    means = [entry.mean for entry in spreads if entry is not None and entry.mean > 0]
    if means and max(means) > LOG_FROM * min(means):
        axes.set_yscale("log")


def legend_below(drawn: "Figure", axes: Sequence[Any]) -> None:
    """Draw one legend for all panels below them, at the left: of a wide picture, a small screen shows that side."""
    entries = {
        label: handle for place in axes for handle, label in zip(*place.get_legend_handles_labels(), strict=True)
    }
    if entries:
        handles, labels = list(entries.values()), list(entries)
        widest = LEGEND_ENTRY + LEGEND_LETTER * max(map(len, labels))
        rows = -(-len(labels) // max(1, int(drawn.get_figwidth() / widest)))
        columns = -(-len(labels) // rows)
        drawn.legend(handles, labels, loc="outside lower left", ncols=columns, frameon=False)
