"""Results on different tasks on one scale: the loss as a share of that of guessing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from multistable.experiments.experiment import Result, cell_of, grouped, spread_of, task_of
from multistable.experiments.pictures import Rows, by_version, legend_below
from multistable.experiments.styles import Style, cell_name, style_of
from multistable.palette import INK
from multistable.registry import Registry
from multistable.setting import default_of
from multistable.tasks import TASKS, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def task_name(task: Any, registry: Registry[Any] = TASKS) -> str:
    """A task with those of its settings that are not at their defaults, for instance ``adding, T = 100``."""
    told = {field.name: getattr(task, field.name) for field in fields(task) if field.compare}
    own = [f"{field.name} = {told[field.name]}" for field in fields(task) if told.get(field.name) != default_of(field)]
    return ", ".join([registry.name_of(type(task), task), *own])


def score(result: Result) -> float | None:
    """The test loss as a share of that of guessing; ``None`` for a run that diverged."""
    loss = result.results["test_loss"]
    return None if loss is None else loss / result.config.task.guessing


@dataclass(frozen=True)
class Scores:
    """The scores of many tasks: a panel for each cell, a row for each task, a mark for each version.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        needs: what the answer takes, by the class of a task.
    """

    name: str
    caption: str
    needs: Mapping[type[Task], str]

    def draw(self, results: Sequence[Result]) -> "Figure":
        """Mean and standard deviation over seeds, and every run as a dot."""
        from multistable.experiments.figures import RULE, figure, name_axes

        tasks, cells = list(grouped(results, task_of)), list(grouped(results, cell_of))
        columns = max(len(cells), 1)
        drawn, axes = figure(3.0 + 3.2 * columns, 1.4 + 0.42 * max(len(tasks), 2), columns, squeeze=False, sharey=True)
        for place, cell in zip(axes[0], cells, strict=False):
            runs = [run for run in results if run.config.cell == cell]
            for index, (version, alike) in enumerate(grouped(runs, by_version).items()):
                for task, group in grouped(alike, task_of).items():
                    _mark(place, tasks.index(task) + 0.24 * (index - 1), group, style_of(version, index))
            place.axvline(1, **RULE)
            place.set_xlim(-0.05, 1.2)
            place.set_yticks(range(len(tasks)), list(map(task_name, tasks)))
            name_axes(place, "test loss / loss of guessing", "", cell_name(cell))
        axes[0, 0].set_ylim(max(len(tasks), 1) - 0.5, -0.5)
        legend_below(drawn, axes[0])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each task and cell, with a score for each version, and how long each takes to the classic's best.

        The classic's best is the mean over classic runs of their lowest validation loss. Times are those of all
        networks that were trained together, and the median over the runs that come as far.
        """
        versions = list(grouped(results, by_version))
        groups = grouped(results, lambda config: (config.task, config.cell))
        rows = []
        for task, cell in product(grouped(results, task_of), grouped(results, cell_of)):
            by = grouped(groups.get((task, cell), ()), by_version)
            runs = [by.get(version, []) for version in versions]
            scores = [spread_of(map(score, each)) for each in runs]
            seeds = ", ".join(dict.fromkeys(str(len(each)) for each in runs))
            warmups = " / ".join(f"{_warmup(each):.0f}" for each in runs if each and each[0].config.kind.warmed)
            told = ["not run" if value is None else str(value) for value in scores]
            rows.append([task_name(task), self.needs[type(task)], cell_name(cell), *told, seeds, warmups])
            rows[-1] += [_time(each, by) for each in runs]
        labels = [style_of(version).label for version in versions]
        times = [f"{label}: s to the classic's best" for label in labels]
        return ["task", "needs", "cell", *labels, "seeds", "warmup, s", *times], rows


def _mark(place: Any, y: float, runs: Sequence[Result], style: Style) -> None:
    """Draw the scores of runs in one row; nothing where all diverged."""
    value = spread_of(map(score, runs))
    if value is not None:
        look = {"color": style.colour, "markersize": 6, "capsize": 2, "linewidth": 1, "label": style.label}
        place.errorbar(value.mean, y, xerr=value.deviation, fmt=style.marker, **look)
        known = [each for each in map(score, runs) if each is not None]
        place.plot(known, [y] * len(known), ".", color=INK, markersize=2.5, alpha=0.6)


def _warmup(runs: Sequence[Result]) -> float:
    """Mean seconds of the warmup of some runs, 0 for runs without one."""
    return fmean((run.warmup or {}).get("seconds", 0.0) for run in runs)


def _time(runs: Sequence[Result], by: Mapping[str, Sequence[Result]]) -> str:
    """Seconds, warmup included, until runs are as good as the best of the classic ones, and how many get there."""
    if not runs or "classic" not in by:
        return ""
    level = fmean(run.results["validation_loss"] for run in by["classic"])
    reached = [epoch for epoch in (run.first_epoch(lambda loss: loss <= level) for run in runs) if epoch is not None]
    if not reached:
        return f"never (0 of {len(runs)})"
    # Classic networks are trained together with warmed-up ones: the record of both has the seconds of the warmup.
    alike = by.get("warmup", runs) if runs[0].config.version == "classic" else runs
    epoch = (alike[0].record["seconds"] - _warmup(alike)) / alike[0].config.duration
    return f"{median(reached) * epoch + _warmup(runs):.0f} ({len(reached)} of {len(runs)})"
