"""Appendix H: pretraining and training with an auxiliary loss that has the network reconstruct its input."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from multistable.experiments.claims.auxiliary import Cost, cost, costs
from multistable.experiments.experiment import Experiment, Result, cell_of, grouped, kind_of
from multistable.experiments.paper import printed
from multistable.experiments.paper.grids import COPY, DENOISING, LINE_MNIST, WARMED, grid
from multistable.experiments.pictures import IN_PAPER, Bars, Curves, Rows, legend_below
from multistable.experiments.styles import cell_name, style_of
from multistable.tasks import Task
from multistable.tasks.permuted_mnist import PermutedMNIST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS = WARMED[:3]


def in_pretraining(result: Result) -> Result:
    """A result with only the epochs up to the end of the pretraining."""
    return replace(result, metrics=[row for row in result.metrics if row["epoch"] <= result.config.pretraining])


def in_training(result: Result) -> Result:
    """A result with only the epochs from the end of the pretraining on, which becomes epoch 0."""
    before = result.config.pretraining
    rows = [row | {"epoch": row["epoch"] - before} for row in result.metrics if row["epoch"] >= before]
    return replace(result, metrics=rows)


@dataclass(frozen=True)
class PhaseCurves:
    """Quantities epoch by epoch, in one of the phases of the runs with an auxiliary loss; a curve for each cell.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        quantities: a panel for each.
        part: limits a result to the epochs to show.
    """

    name: str
    caption: str
    quantities: tuple[str, ...]
    part: Callable[[Result], Result]

    def draw(self, results: Sequence[Result]) -> "Figure":
        """A panel for each quantity."""
        return self._curves.draw(self._shown(results))

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each cell: the quantities at the beginning and at the end."""
        return self._curves.table(self._shown(results))

    def _shown(self, results: Sequence[Result]) -> list[Result]:
        return [self.part(result) for result in results if result.config.version == "auxiliary"]

    @property
    def _curves(self) -> Curves:
        return Curves(self.name, self.caption, self.quantities, series=cell_of)


@dataclass(frozen=True)
class Costs:
    """The seconds and the gradient steps that a warmup or a pretraining takes before training.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        printed: the paper's steps or epochs before training, by version.
    """

    name: str
    caption: str
    printed: Mapping[str, str]

    def draw(self, results: Sequence[Result]) -> "Figure":
        """The seconds of each cell, side by side."""
        from multistable.experiments.figures import figure, name_axes

        drawn, axes = figure(6.0, 3.4)
        kinds = self._kinds(results)
        cells = list(dict.fromkeys(cell for cell, _ in kinds))
        for index, version in enumerate(("warmup", "auxiliary")):
            style = style_of(version, index)
            there = [
                (x, costs(kinds[cell, version])[0].mean) for x, cell in enumerate(cells) if (cell, version) in kinds
            ]
            if there:
                where, seconds = zip(*there, strict=True)
                places = np.array(where) + 0.4 * index - 0.2
                bars = axes.bar(places, seconds, 0.37, color=style.colour, label=BEFORE[version])
                axes.bar_label(bars, fmt="{:.3g}", fontsize=9, padding=2)
        axes.set_xticks(range(len(cells)), list(map(cell_name, cells)))
        axes.set_xlim(-0.6, max(len(cells), 1) - 0.4)
        name_axes(axes, "cell", "seconds of a run before training")
        legend_below(drawn, [axes])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each cell with a warmup, and one for each cell with a pretraining."""
        rows = []
        for (cell, version), runs in self._kinds(results).items():
            seconds, steps = costs(runs)
            ours = [str(seconds.runs), str(seconds), f"{steps.mean:g}"]
            rows.append([cell_name(cell), BEFORE[version], *ours, self.printed[version]])
        return ["cell", "before training", "runs", "seconds of a run", "gradient steps", IN_PAPER], rows

    @staticmethod
    def _kinds(results: Sequence[Result]) -> dict[Any, list[Cost]]:
        """The costs of runs, by cell and version."""
        groups = grouped(results, kind_of)
        found = {kind: [entry for entry in map(cost, runs) if entry is not None] for kind, runs in groups.items()}
        return {kind: entries for kind, entries in found.items() if entries}


BEFORE = {"warmup": "warmup", "auxiliary": "pretraining"}


def experiment(name: str, order: int, task: Task, labels: tuple[str, str], title: str, **of_others: Any) -> Experiment:
    """Networks with an auxiliary loss on one task, beside classic and warmed-up ones."""
    classifies = isinstance(task, PermutedMNIST)
    validated = "validation_accuracy" if classifies else "validation_loss"
    tested = "test_accuracy" if classifies else "test_loss"
    return Experiment(
        name=f"auxiliary-{name}",
        order=order,
        labels=labels,
        title=f"{title}: pretraining and training with a reconstruction loss",
        runs=grid([task], CELLS, ["auxiliary"]) + grid([task], CELLS, ["classic", "warmup"], **of_others),
        pictures=(
            PhaseCurves(
                "pretraining", "Pretraining, 0 being before it.", ("reconstruction_loss", "vaa"), in_pretraining
            ),
            PhaseCurves(
                "training",
                "Training, 0 being the end of the pretraining.",
                (validated, "reconstruction_loss", "vaa"),
                in_training,
            ),
            Bars(tested, "On the test set, the weights of the lowest validation loss.", tested),
            Costs(
                "cost",
                "What comes before training: 100 steps of warmup, or 20 epochs of pretraining.",
                printed.BEFORE_TRAINING,
            ),
        ),
        claims=("C23", "C24"),
    )


EXPERIMENTS = (
    *(
        experiment(f"copy-{task.T}", 90 + i, task, ("fig:rw_pt_copy", "fig:rw_copy"), f"Copy first input, T = {task.T}")
        for i, task in enumerate(COPY)
    ),
    *(
        experiment(
            f"denoising-{task.N}",
            93 + i,
            task,
            ("fig:rw_pt_denoising", "fig:rw_denoising"),
            f"Denoising, N = {task.N}",
        )
        for i, task in enumerate(DENOISING)
    ),
    *(
        experiment(
            f"line-mnist-{task.N}",
            95 + i,
            task,
            ("fig:rw_pt_row_mnist", "fig:rw_row_mnist"),
            f"Permuted line-sequential MNIST, N = {task.N}",
            epochs=70,
        )
        for i, task in enumerate(LINE_MNIST)
    ),
)
