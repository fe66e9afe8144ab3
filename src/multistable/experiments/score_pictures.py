"""Results on different tasks on one scale: the loss as a share of that of guessing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median
from typing import TYPE_CHECKING

from multistable.experiments.experiment import Result, grouped, spread_of
from multistable.experiments.pictures import Rows, by_version, legend_below
from multistable.experiments.styles import cell_name, style_of
from multistable.palette import INK
from multistable.setting import default_of
from multistable.tasks import TASKS, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def task_name(task: Task) -> str:
    """A task with those of its settings that are not at their defaults, for instance ``adding, T = 100``."""
    told = {field.name: getattr(task, field.name) for field in fields(task) if field.compare}  # type: ignore[arg-type]
    own = [f"{field.name} = {told[field.name]}" for field in fields(task) if told.get(field.name) != default_of(field)]  # type: ignore[arg-type]
    return ", ".join([TASKS.name_of(type(task), task), *own])


def score(result: Result) -> float | None:
    """The test loss as a share of that of guessing; ``None`` for a run that diverged."""
    loss = result.results["test_loss"]
    return None if loss is None else loss / result.config.task.guessing


def epoch_seconds(result: Result) -> float:
    """The mean wall time of an epoch of the networks that a warmed-up run was trained together with."""
    return (result.record["seconds"] - _warmup_seconds(result)) / result.config.epochs


def _warmup_seconds(result: Result) -> float:
    return (result.warmup or {}).get("seconds", 0.0)


def first_at(result: Result, level: float) -> int | None:
    """The first epoch whose validation loss is at most ``level``; ``None`` if none is."""
    return next((epoch for epoch, loss in zip(*result.curve("validation_loss"), strict=True) if loss <= level), None)


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

        tasks = list(grouped(results, lambda config: config.task))
        cells = grouped(results, lambda config: config.cell)
        versions = list(grouped(results, by_version))
        size = 3.0 + 3.2 * max(len(cells), 1), 1.4 + 0.42 * max(len(tasks), 2)
        drawn, axes = figure(*size, max(len(cells), 1), squeeze=False, sharey=True)
        for place, (cell, runs) in zip(axes[0], cells.items(), strict=False):
            for index, version in enumerate(versions):
                style = style_of(version, index)
                shift = (index - (len(versions) - 1) / 2) * 0.24
                for y, task in enumerate(tasks):
                    found = [score(run) for run in runs if (run.config.task, run.config.version) == (task, version)]
                    value = spread_of(found)
                    if value is None:
                        continue
                    look = {"color": style.colour, "markersize": 6, "capsize": 2, "linewidth": 1}
                    bars = place.errorbar(value.mean, y + shift, xerr=value.deviation, fmt=style.marker, **look)
                    bars.set_label(style.label)
                    known = [each for each in found if each is not None]
                    place.plot(known, [y + shift] * len(known), ".", color=INK, markersize=2.5, alpha=0.6)
            place.axvline(1, **RULE)
            place.set_xlim(-0.05, 1.2)
            place.set_yticks(range(len(tasks)), list(map(task_name, tasks)))
            name_axes(place, "test loss / loss of guessing", "", cell_name(cell))
        axes[0, 0].set_ylim(len(tasks) - 0.5, -0.5)
        legend_below(drawn, axes[0])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each task and cell, with a score for each version, and how long each takes to the classic's best.

        The classic's best is the mean over classic runs of their lowest validation loss. Times are those of all
        networks that were trained together, and the median over the runs that come as far.
        """
        versions = list(grouped(results, by_version))
        labels = [style_of(version).label for version in versions]
        rows = []
        for (task, cell), runs in grouped(results, lambda config: (config.task, config.cell)).items():
            by = grouped(runs, by_version)
            scores = [spread_of(map(score, by.get(version, ()))) for version in versions]
            counts = ", ".join(dict.fromkeys(str(len(by.get(version, ()))) for version in versions))
            told = ["" if value is None else str(value) for value in scores]
            times = [_times(by.get(version, ()), by) for version in versions]
            rows.append([task_name(task), self.needs[type(task)], cell_name(cell), *told, counts, _warmups(by), *times])
        header = ["task", "needs", "cell", *labels, "seeds", "warmup, s"]
        return [*header, *(f"{label}: s to the classic's best" for label in labels)], rows


def _warmups(by: Mapping[str, Sequence[Result]]) -> str:
    """Mean seconds of the warmups of each version that has any."""
    seconds = [fmean(map(_warmup_seconds, runs)) for version, runs in by.items() if runs[0].config.kind.warmed]
    return " / ".join(f"{each:.0f}" for each in seconds)


def _times(runs: Sequence[Result], by: Mapping[str, Sequence[Result]]) -> str:
    """Seconds, warmup included, until runs are as good as the best of the classic ones, and how many get there."""
    if not runs or not by.get("classic"):
        return ""
    level = fmean(run.results["validation_loss"] for run in by["classic"])
    # Classic networks are trained together with warmed-up ones, and the record has the seconds of both.
    alike = next((each for each in (*runs, *by.get("warmup", ())) if each.warmup), runs[0])
    reached = [epoch for epoch in (first_at(run, level) for run in runs) if epoch is not None]
    if not reached:
        return f"never (0 of {len(runs)})"
    seconds = median(reached) * epoch_seconds(alike) + fmean(map(_warmup_seconds, runs))
    return f"{seconds:.0f} ({len(reached)} of {len(runs)})"
