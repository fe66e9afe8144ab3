"""The results of runs as a table."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from multistable.cli.console import table
from multistable.training import RunConfig

Run = tuple[RunConfig, dict[str, Any]]
"""A run and its summary."""

MEASURED = {
    "validation_loss": "validation loss",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "initial_vaa": "VAA before",
    "final_vaa": "VAA after",
}


def results(runs: Sequence[Run]) -> Table:
    """A row for each run, and for several seeds of one configuration their mean and standard deviation."""
    shown = {
        name: title
        for name, title in MEASURED.items()
        if any(summary["results"][name] is not None for _, summary in runs)
    }
    made = table("run", "best epoch", *shown.values(), "warmup", "seconds", numbers=True)
    made.caption = "Seconds are those of all runs that were trained together." if _some_together(runs) else None
    for alike in by_seed(runs).values():
        for config, summary in alike:
            found = summary["results"]
            values = [number(found[name]) for name in shown]
            seconds = f"{summary['record']['seconds']:.0f}"
            made.add_row(config.name, str(found["best_epoch"]), *values, found["warmup"] or "", seconds)
        if len(alike) > 1:
            label = f"{alike[0][0].cell} {alike[0][0].version}, mean ± sd of {len(alike)}"
            spreads = [spread([summary["results"][name] for _, summary in alike]) for name in shown]
            made.add_row(label, "", *spreads, _multistable(alike), "", style="bold")
        made.add_section()
    return made


def by_seed(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ in nothing but their seed."""
    alike: dict[str, list[Run]] = {}
    for config, summary in runs:
        alike.setdefault(_without_seed(config), []).append((config, summary))
    return alike


def number(value: float | None) -> str:
    """A loss, an accuracy or a VAA."""
    return "-" if value is None else f"{value:.4f}"


def mean(values: Sequence[float | None], written: Callable[[float], str] = number) -> str:
    """The mean; none where one of them is missing."""
    present = [value for value in values if value is not None]
    return written(statistics.fmean(present)) if present and len(present) == len(values) else "-"


def spread(values: Sequence[float | None]) -> str:
    """Mean and sample standard deviation; none where one of them is missing."""
    present = [value for value in values if value is not None]
    return f"{mean(values)} ± {statistics.stdev(present):.4f}" if len(present) == len(values) else "-"


def _without_seed(config: RunConfig) -> str:
    settings = config.to_dict()
    del settings["seed"]
    return str(settings)


def _multistable(runs: Sequence[Run]) -> str:
    outcomes = [summary["results"]["warmup"] for _, summary in runs]
    if None in outcomes:
        return ""
    return f"{outcomes.count('multistable')} of {len(outcomes)}"


def _some_together(runs: Sequence[Run]) -> bool:
    return any(summary["record"]["together"] > 1 for _, summary in runs)
