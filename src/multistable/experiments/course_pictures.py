"""How agents learn on different tasks: their return and, beside it, their VAA."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from multistable.experiments.experiment import Result, grouped, spread_of
from multistable.experiments.pictures import Rows, by_version, curve_panel, legend_below, limit
from multistable.experiments.score_pictures import task_name
from multistable.experiments.styles import cell_name, style_of
from multistable.rl.agent_tasks import PROCESSES, AgentTask
from multistable.training import Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = {"return": "return", "vaa": "VAA"}


@dataclass(frozen=True)
class Beside:
    """A row of panels for each task: return and VAA of each cell, a curve for each version.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        needs: what playing a task well takes.
    """

    name: str
    caption: str
    needs: Mapping[AgentTask, str]

    def draw(self, results: Sequence[Result]) -> "Figure":
        """Mean and standard deviation over seeds; the returns of a task have one scale."""
        from multistable.experiments.figures import figure, name_axes

        tasks, cells = grouped(results, _task), list(grouped(results, _cell)) or [""]
        columns, rows = 2 * len(cells), max(len(tasks), 1)
        drawn, axes = figure(2.7 * columns + 0.4, 2.2 * rows + 0.6, columns, rows, squeeze=False, sharex="row")
        for line, (task, group) in zip(axes, tasks.items(), strict=False):
            for place, (quantity, cell) in zip(line, product(QUANTITIES, cells), strict=True):
                runs = [run for run in group if run.config.cell == cell]
                curve_panel(place, grouped(runs, by_version), quantity)
                name_axes(place, "episode", QUANTITIES[quantity], f"{cell_name(cell)}, {_named(task)}")
                place.title.set_fontsize(9)
                if quantity == "vaa":
                    limit(place, quantity)
            for place in line[1 : len(cells)]:
                place.sharey(line[0])
        legend_below(drawn, axes.flatten())
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each task, cell and version: returns, when agents were first as good as can be, VAA, seconds.

        All seconds are those of the agents that were trained together, divided by how many these were.
        """
        header = ["task", "needs", "cell", "version", "agents", "return at the end", "over training"]
        header += ["always right", "first after episodes", "VAA, first to last", "warmup, s", "all, s"]
        rows = []
        for (task, cell, version), runs in grouped(results, lambda c: (c.task, c.cell, c.version)).items():
            row = [_named(task), self.needs[task], cell_name(cell), style_of(version).label, str(len(runs))]
            row.append(str(spread_of(run.results["final_return"] for run in runs)))
            row += [str(spread_of(fmean(run.curve("return")[1]) for run in runs)), *_first(runs)]
            vaa = [run.curve("vaa")[1] for run in runs]
            row.append(" to ".join(f"{fmean(values[place] for values in vaa):.2f}" for place in (0, -1)))
            row += [f"{fmean(map(_warming, runs)):.1f}", f"{fmean(map(_seconds, runs)):.0f}"]
            rows.append(row)
        return header, rows


def _first(runs: Sequence[Result]) -> list[str]:
    """How many agents ever played as well as can be, and after how many episodes, by seed."""
    found = [run.results["first_optimal"] for run in runs]
    told = ", ".join("never" if episode is None else str(episode) for episode in found)
    return [f"{sum(episode is not None for episode in found)} of {len(found)}", told]


def _warming(run: Result) -> float:
    """Seconds of the warmup of one agent, 0 without one."""
    return (run.warmup or {}).get("seconds", 0.0)


def _seconds(run: Result) -> float:
    """Seconds of warmup, training, evaluations and measures: the share of one of those that were trained together."""
    return run.record["seconds"] / run.record["together"]


def _named(task: AgentTask) -> str:
    return task_name(task, PROCESSES)


def _task(config: Config) -> Any:
    return config.task


def _cell(config: Config) -> str:
    return config.cell
