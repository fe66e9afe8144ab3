"""The results of runs as a table."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from multistable.cli.wide import WideTable
from multistable.experiments.scales import settings_in
from multistable.training import Config
from multistable.training.group import PREPARED

Run = tuple[Config, dict[str, Any]]
"""A run and its summary."""

MEASURED = {
    "best_epoch": "best epoch",
    "first_optimal": "first optimal",
    "final_return": "return",
    "validation_loss": "validation loss",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "initial_vaa": "VAA before",
    "final_vaa": "VAA after",
}

IN_NAMES = ("task", "cell", "version", "seed")
"""Settings that are part of the name of a run."""


def results(runs: Sequence[Run]) -> WideTable:
    """A table with a row for each run, the settings in which runs differ, and mean and deviation over several seeds."""
    shown = {name: title for name, title in MEASURED.items() if any(_has(summary, name) for _, summary in runs)}
    settings = differing([config for config, _ in runs])
    titles = [name.replace("_", " ") for name in settings]
    made = WideTable(["run", *titles, *shown.values(), "warmup", "seconds"])
    made.caption = "Seconds are those of all runs that were trained together." if _some_together(runs) else None
    for alike in by_seed(runs).values():
        theirs = [_told(alike[0][0]).get(name, "") for name in settings]
        for config, summary in alike:
            found = summary["results"]
            values = [number(found.get(name)) for name in shown]
            seconds = f"{summary['record']['seconds']:.0f}"
            made.add_row(config.name, *theirs, *values, found["warmup"] or "", seconds)
        if len(alike) > 1:
            label = f"{alike[0][0].cell} {alike[0][0].version}, mean ± sd of {len(alike)}"
            columns = {name: [summary["results"].get(name) for _, summary in alike] for name in shown}
            spreads = ["" if name == "best_epoch" else spread(values) for name, values in columns.items()]
            made.add_row(label, *theirs, *spreads, _multistable(alike), "", style="bold")
        made.add_section()
    return made


def _has(summary: dict[str, Any], name: str) -> bool:
    """Whether a result is shown: one that is not ``None``, or that an agent was never optimal."""
    return name in summary["results"] and (name == "first_optimal" or summary["results"][name] is not None)


def differing(configs: Sequence[Config]) -> list[str]:
    """The settings of runs and tasks that have several values and are not part of names."""
    values: dict[str, set[str]] = {}
    for config in configs:
        for name, value in _told(config).items():
            values.setdefault(name, set()).add(value)
    return [name for name, several in values.items() if len(several) > 1 and name not in IN_NAMES]


def _told(config: Config) -> dict[str, str]:
    """The settings that have an influence on a run, as texts."""
    without = config.without_meaning()
    return {name: str(value) for name, value in settings_in(config).items() if name not in without}


def by_seed(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ in nothing but their seed."""
    alike: dict[str, list[Run]] = {}
    for config, summary in runs:
        alike.setdefault(_without_seed(config), []).append((config, summary))
    return alike


def number(value: float | bool | None) -> str:
    """A loss, an accuracy, a VAA or a count."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.4f}"


def mean(values: Sequence[float | None], written: Callable[[float], str] = number) -> str:
    """The mean; "-" if a value is missing."""
    present = [value for value in values if value is not None]
    return written(statistics.fmean(present)) if present and len(present) == len(values) else "-"


def spread(values: Sequence[float | None]) -> str:
    """Mean and sample standard deviation; "-" if a value is missing."""
    present = [value for value in values if value is not None]
    if len(present) < len(values):
        return "-"
    digits = 0 if all(isinstance(value, int) for value in present) else 4
    return f"{statistics.fmean(present):.{digits}f} ± {statistics.stdev(present):.{digits}f}"


def _without_seed(config: Config) -> str:
    return replace(config, seed=0).name


def _multistable(runs: Sequence[Run]) -> str:
    outcomes = [summary["results"]["warmup"] for _, summary in runs]
    if None in outcomes or PREPARED in outcomes:
        return ""
    return f"{outcomes.count('multistable')} of {len(outcomes)}"


def _some_together(runs: Sequence[Run]) -> bool:
    return any(summary["record"]["together"] > 1 for _, summary in runs)
