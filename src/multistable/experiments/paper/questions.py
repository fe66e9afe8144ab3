"""Questions that the paper's conclusion leaves open: warmup without data, and what states settle on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from multistable.experiments.claims.questions import TIMES, preparation
from multistable.experiments.experiment import Experiment, Result, Spread, grouped, kind_of, spread
from multistable.experiments.paper.grids import CELLS, COPY, DENOISING, THREE_VERSIONS, TWO_VERSIONS, WARMED, grid
from multistable.experiments.paper.warming import LOSS
from multistable.experiments.pictures import Bars, Rows, legend_below, panels_of, setting
from multistable.experiments.styles import kind_name
from multistable.palette import BLUE, GREY, ORANGE
from multistable.tasks import Task
from multistable.training import RunConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settled:
    """The shares of settled states at fixed points, on cycles and still moving, before and after training.

    Attributes:
        name: of its files.
        caption: what the figure shows.
    """

    name: str
    caption: str

    def draw(self, results: Sequence[Result]) -> "Figure":
        """A bar for each cell and version, divided by the means over seeds."""
        from multistable.experiments.figures import RULE, figure, name_axes

        parts = {"at fixed points": BLUE, "on cycles": ORANGE, "still moving": GREY}
        panels = list(product(panels_of(results).items(), TIMES.items()))
        kinds = list(grouped(results, kind_of))
        drawn, axes = figure(1.6 + 0.36 * len(kinds) * max(len(panels), 1), 4.6, max(len(panels), 1), squeeze=False)
        for place, ((task, group), (time, when)) in zip(axes[0], panels, strict=False):
            for x, kind in enumerate(kinds):
                shares = self._shares([r for r in group if kind_of(r.config) == kind], time)
                bottom = 0.0
                for (label, colour), share in zip(parts.items(), shares or (), strict=False):
                    place.bar(x, share.mean, 0.8, bottom, color=colour, alpha=0.75, label=label)
                    bottom += share.mean
            place.axhline(1, **RULE)
            names = [kind_name(kind) for kind in kinds]
            place.set_xticks(range(len(kinds)), names, rotation=60, ha="right", fontsize=9)
            place.set_ylim(0, 1.05)
            name_axes(place, "cell and version", "share of settled states", f"{setting(task)}, {when}")
        legend_below(drawn, axes[0])
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each cell and version."""
        rows = []
        panels = list(product(panels_of(results).items(), TIMES))
        for kind, runs in grouped(results, kind_of).items():
            told = [self._shares([r for r in group if kind_of(r.config) == kind], time) for (_, group), time in panels]
            entries = [" / ".join(f"{share.mean:.3f}" for share in shares) if shares else "" for shares in told]
            rows.append([*(kind_name(kind).split(", ", 1)), str(len(runs)), *entries])
        names = [f"{setting(task)}, {TIMES[time]}" for (task, _), time in panels]
        return ["cell", "version", "runs", *(f"{name}: fixed / cycles / moving" for name in names)], rows

    @staticmethod
    def _shares(runs: Sequence[Result], time: str) -> tuple[Spread, Spread, Spread] | None:
        """The shares at fixed points, on cycles and moving; ``None`` if no run has them."""
        fixed, cycles = (spread(runs, f"{time}_{quantity}") for quantity in ("fixed_points", "cycles"))
        if fixed is None or cycles is None:
            return None
        return fixed, cycles, Spread(max(0.0, 1 - fixed.mean - cycles.mean), 0.0, fixed.runs)


def prepared(tasks: Sequence[Task]) -> tuple[RunConfig, ...]:
    """Classic networks, and networks warmed up on the data and on random sequences."""
    random = grid(tasks, WARMED[:3], ["warmup"], warmup_sequences="random")
    return grid(tasks, WARMED[:3], TWO_VERSIONS) + random


def random_warmup(name: str, order: int, title: str, tasks: Sequence[Task]) -> Experiment:
    """The experiment of question Q1 on some tasks."""
    return Experiment(
        name=f"random-warmup-{name}",
        order=order,
        labels=(),
        title=f"{title}: warmup on random sequences in place of the data",
        runs=prepared(tasks),
        pictures=(
            Bars(name="test_loss", caption=LOSS, hue=preparation),
            Bars(
                name="vaa",
                caption="VAA for the sequences of the task before training, whatever the warmup was on.",
                quantity="initial_vaa",
                hue=preparation,
            ),
        ),
        claims=("Q1",),
    )


def attractors(name: str, order: int, title: str, task: Task) -> Experiment:
    """The experiment of question Q2 on a task."""
    return Experiment(
        name=f"attractors-{name}",
        order=order,
        labels=(),
        title=f"{title}: fixed points and cycles among the settled states",
        runs=grid([task], WARMED, THREE_VERSIONS) + grid([task], CELLS[-2:], ["classic"]),
        pictures=(
            Settled(
                name="shares",
                caption="What the states that VAA compares do in 1000 steps after the stabilisation period: stay "
                "within eps of where they are, leave and come back within 500 steps, or neither.",
            ),
        ),
        claims=("Q2",),
    )


EXPERIMENTS = (
    random_warmup("copy", 100, "Copy first input", COPY[:2]),
    random_warmup("denoising", 101, "Denoising", DENOISING[:1]),
    attractors("copy", 102, "Copy first input, T = 50", COPY[0]),
    attractors("denoising", 103, "Denoising, N = 5", DENOISING[0]),
)
