"""Whether a term that keeps attractors while training (``ms.Keep``) makes all warmed-up networks learn."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from multistable.experiments.claims.reinforcement import stays_optimal
from multistable.experiments.experiment import Experiment, Result, grouped
from multistable.experiments.paper.grids import COPY, DENOISING, MAZES
from multistable.experiments.pictures import Curves, Rows, panels_of, setting
from multistable.experiments.styles import kind_name
from multistable.palette import BLUE, VERMILLION
from multistable.rl import AgentConfig
from multistable.training import Config, RunConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MANY, LEARNED = 0.5, 0.01
"""A VAA of many attractors, and the test loss of a network that has learned."""

TERM = {False: "without", True: "with the term"}

Share = Callable[[Result], float | None]
"""A share of a run, or whether something holds of it; ``None`` for a run that does not count."""


def learned(run: Result) -> float | None:
    """Whether a network ends with a low test loss; one whose loss is not finite has not learned."""
    loss = run.results["test_loss"]
    return float(loss is not None and loss < LEARNED)


def lost(run: Result) -> float | None:
    """Whether a network that began with many attractors had few at some epoch."""
    _, values = run.curve("vaa")
    return float(min(values) < MANY) if values and values[0] >= MANY else None


def optimal_later(agent: Result) -> float | None:
    """The share of the evaluations after the first optimal one that are optimal too."""
    return None if agent.results["first_optimal"] is None else stays_optimal(agent)


def series(config: Config) -> str:
    """A cell, its version, and whether its attractors are kept."""
    return f"{kind_name((config.cell, config.version))}, {TERM[config.keep]}"


@dataclass(frozen=True)
class Shares:
    """Shares of runs, with and without the term.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        shares: by what they are called; the first is drawn.
    """

    name: str
    caption: str
    shares: Mapping[str, Share]

    def draw(self, results: Sequence[Result]) -> "Figure":
        """A panel for each task, two bars for each cell and version."""
        from multistable.experiments.figures import figure, legend, name_axes

        panels, (told, share) = panels_of(results), next(iter(self.shares.items()))
        drawn, axes = figure(5.0 * max(len(panels), 1), 4.2, max(len(panels), 1), squeeze=False)
        for place, (task, group) in zip(axes[0], panels.items(), strict=False):
            kinds = grouped(group, lambda config: kind_name((config.cell, config.version)))
            for index, (keep, about) in enumerate(TERM.items()):
                runs = [[run for run in some if run.config.keep == keep] for some in kinds.values()]
                heights = [_mean(some, share) or 0.0 for some in runs]
                where = [x + 0.4 * (index - 0.5) for x in range(len(kinds))]
                place.bar(where, heights, 0.38, color=(VERMILLION, BLUE)[index], label=about)
            place.set_xticks(range(len(kinds)), list(kinds), rotation=30, ha="right", fontsize=8.5)
            place.set_ylim(0, 1.05)
            legend(place)
            name_axes(place, "", told)
            place.set_title(setting(task), loc="right", fontsize=10)
        return drawn

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each task, cell, version and term."""
        rows = []
        for task, group in panels_of(results).items():
            for name, runs in grouped(group, series).items():
                rows.append([setting(task), name, *(_in_words(runs, share) for share in self.shares.values())])
        return ["task", "networks", *self.shares], rows


def _counted(runs: Sequence[Result], share: Share) -> list[float]:
    return [value for run in runs if (value := share(run)) is not None]


def _mean(runs: Sequence[Result], share: Share) -> float | None:
    counted = _counted(runs, share)
    return statistics.fmean(counted) if counted else None


def _in_words(runs: Sequence[Result], share: Share) -> str:
    counted = _counted(runs, share)
    if not counted:
        return ""
    if set(counted) <= {0.0, 1.0}:
        return f"{sum(counted):.0f} of {len(counted)}"
    return f"{statistics.fmean(counted):.2f} of {len(counted)}, at worst {min(counted):.2f}"


SUPERVISED = Shares(
    name="learned",
    caption="The share of networks that learn, and of those with many attractors before training that lose them.",
    shares={"learned": learned, "attractors lost": lost},
)
CURVES = Curves(
    name="curves", caption="Loss and VAA epoch by epoch.", quantities=("validation_loss", "vaa"), series=series
)
BY_DEFAULT: dict[str, Any] = {"warmup_algorithm": "fast", "warmup_batch_size": 32}
"""The warmup that ``ms.warmup`` does if nothing else is asked for."""

EXPERIMENTS = (
    Experiment(
        name="keeping-copy",
        order=100,
        labels=(),
        title="Copy first input, T = 300 and 600: training with a term that keeps attractors",
        runs=tuple(
            RunConfig(task, cell, version, keep=keep, **BY_DEFAULT)
            for task, cell, version, keep in product(
                COPY[1:], ("lstm", "gru", "mgu"), ("warmup", "double"), (False, True)
            )
        ),
        pictures=(SUPERVISED,),
        claims=(),
        sized=lambda scale: scale.times(4),
    ),
    Experiment(
        name="keeping-denoising",
        order=101,
        labels=(),
        title="Denoising, N = 100: double LSTMs trained with a term that keeps attractors",
        runs=tuple(RunConfig(DENOISING[1], "lstm", "double", keep=keep, **BY_DEFAULT) for keep in (False, True)),
        pictures=(SUPERVISED, CURVES),
        claims=(),
    ),
    Experiment(
        name="keeping-tmaze",
        order=102,
        labels=(),
        title="T-Maze, L = 100: agents trained with a term that keeps attractors",
        runs=tuple(
            AgentConfig(MAZES[1], cell, "warmup", keep=keep) for cell, keep in product(("lstm", "gru"), (False, True))
        ),
        pictures=(
            Shares(
                name="stay_optimal",
                caption="Of the evaluations after the first optimal one, the share that is optimal too; agents that "
                "never are optimal do not count.",
                shares={"optimal later": optimal_later},
            ),
            Curves(
                name="curves",
                caption="Return and VAA, episode by episode.",
                quantities=("return", "vaa"),
                series=series,
            ),
        ),
        claims=(),
        sized=lambda scale: scale.times(2),
    ),
)
