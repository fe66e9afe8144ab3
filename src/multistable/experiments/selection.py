"""Hyperparameter selection (appendix F): every setting on the same splits, the lowest mean selection loss wins."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from multistable.experiments.experiment import Kind, Result, grouped, kind_of, spread
from multistable.experiments.pictures import IN_PAPER, Bars, Rows
from multistable.experiments.scales import Scale
from multistable.experiments.styles import cell_name
from multistable.training import Config, RunConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Setting = tuple[int, int, float, int]
"""L, H, the learning rate and B."""


def setting_of(config: Config) -> Setting:
    """The setting of a run."""
    return config.num_layers, config.hidden_size, config.learning_rate, config.batch_size


def best(results: Sequence[Result]) -> dict[Kind, RunConfig]:
    """For each cell and version a run with the winning setting, that of the lowest mean selection loss.

    A setting with a run that diverged cannot win.
    """
    chosen = {}
    for kind, runs in grouped(_selecting(results), kind_of).items():
        tried = [(mean_loss(alike), alike[0].config) for alike in grouped(runs, setting_of).values()]
        means = [(loss, config) for loss, config in tried if loss is not None]
        if means:
            chosen[kind] = min(means, key=lambda entry: entry[0])[1]
    return chosen


def mean_loss(results: Sequence[Result]) -> float | None:
    """The mean selection loss; ``None`` when one of the runs has diverged."""
    losses = [result.results["selection_loss"] for result in results]
    return None if None in losses else statistics.fmean(losses)


def final_runs(results: Sequence[Result], scale: Scale) -> list[RunConfig]:
    """The runs with the winning settings on the usual division of the learning set, one for each seed."""
    chosen = best(results).values()
    return [replace(config, selection=0.0, seed=seed) for config in chosen for seed in range(scale.seeds)]


@dataclass(frozen=True)
class Selected:
    """The winning settings and their test results, beside those that the paper prints.

    Attributes:
        name: of its files.
        caption: what the figure shows.
        quantity: the name of the test result in the summaries.
        printed: the paper's table: for each cell and version the setting, the mean and the deviation.
    """

    name: str
    caption: str
    quantity: str
    printed: dict[Kind, tuple[Setting, float, float]]

    def draw(self, results: Sequence[Result]) -> "Figure":
        """The results of the final runs."""
        return Bars(self.name, self.caption, self.quantity).draw(final(results))

    def table(self, results: Sequence[Result]) -> Rows:
        """A row for each cell and version; without results it has the paper's numbers alone."""
        chosen, rows = best(results), []
        for kind in dict.fromkeys([*chosen, *self.printed]):
            value = spread([run for run in final(results) if kind_of(run.config) == kind], self.quantity)
            ours = "" if value is None else str(value), _said(setting_of(chosen[kind])) if kind in chosen else ""
            theirs = "", ""
            if kind in self.printed:
                setting, mean, deviation = self.printed[kind]
                theirs = f"{mean:.4f} ± {deviation:.4f}", _said(setting)
            each = (entry for pair in zip(ours, theirs, strict=True) for entry in pair)
            rows.append([cell_name(kind[0]), kind[1], *each])
        return ["cell", "version", self.quantity.replace("_", " "), IN_PAPER, "L, H, rate, B", IN_PAPER], rows


def _said(setting: Setting) -> str:
    return ", ".join(f"{value:g}" for value in setting)


def final(results: Sequence[Result]) -> list[Result]:
    """The results of the final runs."""
    return [result for result in results if result.config.selection == 0]


def _selecting(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result.config.selection > 0]
