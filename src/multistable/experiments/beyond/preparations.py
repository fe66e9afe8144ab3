"""Ways to prepare a network, side by side: what each gives it before training, and what it learns after that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multistable.experiments.experiment import Experiment, Result, Spread, cell_of, grouped, spread_of
from multistable.experiments.paper.grids import COPY, DENOISING, grid
from multistable.experiments.pictures import Rows, legend_below, panels_of, quantity_name, setting
from multistable.experiments.styles import cell_name, style_of
from multistable.tasks import Task
from multistable.training import Config, RunConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS = ("lstm", "gru")
GATED = ("paper", "fast", "chrono", "orthogonal", "uniform-gates", "flossing")
"""The methods that fit these cells, as runs name them."""
NONE = "none"
ELMAN, UNGATED = "multistable.cells.elman:Elman", ("fast", "orthogonal", "identity")
"""The cell of IRNN, with ReLU, and the methods for it: units at rest leave flossing too few directions to follow."""

LEARNED = 0.1
"""A network has learned once its loss is below this. Without any memory it is 1."""
NAMES = {"fast": "warmup (the default)", "paper": "Algorithm 3"}


def method_of(config: Config) -> str:
    """How the network of a run is prepared."""
    return NAMES.get(config.warmup_algorithm, config.warmup_algorithm) if config.kind.warmed else NONE


def seconds_of(result: Result) -> float | None:
    """The seconds of the preparation, its share of those of the runs that were prepared together."""
    course = result.warmup or {}
    return course["seconds"] / course["together"] if "seconds" in course else None


@dataclass(frozen=True)
class Preparations:
    """What methods give networks before training, and what networks learn.

    Attributes:
        name: of its files.
        caption: what the figure shows.
    """

    name: str
    caption: str

    def draw(self, results: Sequence[Result]) -> "Figure":
        """A dot for the test loss of each run, a line for each method, a panel for each task."""
        from matplotlib.ticker import NullFormatter

        from multistable.experiments.figures import RULE, figure, name_axes

        panels, methods = panels_of(results), list(grouped(results, method_of))
        cells = list(grouped(results, cell_of))
        count = max(len(panels), 1)
        drawn, axes = figure(2.4 + 2.6 * count, 1.4 + 0.38 * len(methods), count, squeeze=False, sharey=True)
        for place, (task, runs) in zip(axes[0], panels.items(), strict=False):
            for cell, some in grouped(runs, cell_of).items():
                known = [(run.results.get("test_loss"), methods.index(method_of(run.config))) for run in some]
                dots = [(loss, line) for loss, line in known if loss is not None]
                style, beside = style_of(cell, cells.index(cell)), 0.24 * (cells.index(cell) - (len(cells) - 1) / 2)
                look = {"color": style.colour, "markersize": 5, "alpha": 0.8, "label": style.label}
                place.plot([loss for loss, _ in dots], [line + beside for _, line in dots], style.marker, **look)
            place.set_xscale("log")
            place.xaxis.set_minor_formatter(NullFormatter())
            place.set_xlim(min(LEARNED / 10, place.get_xlim()[0]), max(2.0, place.get_xlim()[1]))
            place.axvline(LEARNED, **RULE)
            name_axes(place, quantity_name("test_loss", task), "", setting(task))
        axes[0, 0].set_yticks(range(len(methods)), methods)
        axes[0, 0].set_ylim(max(len(methods), 1) - 0.5, -0.5)
        legend_below(drawn, axes[0])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each task, cell and method."""
        header = ["task", "cell", "method", "VAA before", "lifetime, steps", "told after noise"]
        header += ["learned", "epochs to learn", "test loss", "seconds"]
        rows = []
        for task, runs in panels_of(results).items():
            for (cell, method), some in grouped(runs, lambda config: (config.cell, method_of(config))).items():
                before = [(run.metrics or [{}])[0] for run in some]
                epochs = [run.first_epoch(lambda loss: loss < LEARNED) for run in some]
                measured = [spread_of(row.get(name) for row in before) for name in ("vaa", "recalled")]
                lasting = sorted(row["lifetime"] for row in before if row.get("lifetime") is not None)
                learned = f"{sum(epoch is not None for epoch in epochs)} of {len(some)}"
                ends = [spread_of(run.results.get("test_loss") for run in some), spread_of(map(seconds_of, some))]
                told = [_told(measured[0]), _range(lasting), _told(measured[1])]
                told += [
                    learned,
                    _told(spread_of(epochs)),
                    _told(ends[0]),
                    "" if ends[1] is None else _short(ends[1].mean),
                ]
                rows.append([setting(task), cell_name(cell), method, *told])
        return header, rows


def _told(value: Spread | None) -> str:
    return "" if value is None else str(value)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _range(values: Sequence[float]) -> str:
    """The least and the most, of sorted values."""
    return " to ".join(dict.fromkeys(map(_short, (*values[:1], *values[-1:]))))


def prepared(tasks: Sequence[Task], cells: Sequence[str], methods: Sequence[str], **settings: Any) -> list[RunConfig]:
    """Classic networks, and networks that are prepared by some methods."""
    runs = grid(tasks, cells, ["classic"], memory_before=True, **settings)
    for method in methods:
        runs += grid(tasks, cells, ["warmup"], memory_before=True, warmup_algorithm=method, **settings)
    return list(runs)


def experiment(name: str, order: int, title: str, runs: Sequence[RunConfig]) -> Experiment:
    """The comparison in some runs."""
    return Experiment(
        name=f"prepare-{name}",
        order=order,
        labels=(),
        title=f"{title}: ways to prepare a network",
        runs=tuple(runs),
        pictures=(
            Preparations(
                name="methods",
                caption="Test loss of the weights of the lowest validation loss, by how the network was prepared.",
            ),
        ),
        claims=(),
    )


RELU = {"nonlinearity": "relu"}
EXPERIMENTS = (
    experiment("copy", 200, "Copy first input", prepared(COPY, CELLS, GATED)),
    experiment("denoising", 201, "Denoising", prepared(DENOISING, CELLS, GATED)),
    experiment("relu", 202, "Copy first input, ReLU", prepared(COPY[:1], [ELMAN], UNGATED, cell_options=RELU)),
)
