"""What ``multistable select`` does."""

from collections.abc import Sequence
from pathlib import Path

import torch

from multistable.cli.console import console, table
from multistable.cli.minutes import Limit
from multistable.cli.progress import progress
from multistable.cli.runs import left_to_train, show_results, unfinished
from multistable.experiments.experiment import Result, finished, grouped
from multistable.experiments.search import Search, Space, by_grid, by_optuna, select, trial
from multistable.experiments.selection import Setting, final, mean_loss, setting_of
from multistable.training import Config, RunConfig, train
from multistable.training.trainer import groups, usual_device

SEARCHES = ("grid", "optuna")

OWN_OPTION = {
    "num_layers": "--layers",
    "hidden_size": "--hidden",
    "learning_rate": "--rate",
    "batch_size": "--batch-size",
    "seed": "--splits",
    "data_seed": "the selection itself",
}
"""What is chosen among, or follows from how it is chosen."""


def chosen_search(name: str, space: Space, trials: int) -> Search:
    """A search by name."""
    if name not in SEARCHES:
        raise ValueError(f"--search must be one of {', '.join(SEARCHES)}, got {name!r}")
    return by_grid(space) if name == "grid" else by_optuna(space, trials)


def run(
    bases: Sequence[Config],
    search: Search,
    splits: int,
    out: Path,
    device: torch.device | None,
    together: int,
    minutes: float | None,
) -> None:
    """Select for each cell and version; show the settings, best first, and the final runs of the first."""
    # What is left is not counted: which runs follow depends on the results of those before.
    limit = Limit(minutes)

    def trained(configs: Sequence[Config]) -> list[Result]:
        left = unfinished(configs, out)
        if left:
            with progress(left) as shown:
                train(left, out, device=device, callbacks=[shown, *limit.callbacks], together=together)
        return finished(configs, out)

    with limit:
        for base in supervised(bases):
            results = select(base, search, trained, splits)
            show(base, results)
            show_results([result.config for result in final(results)], out)


def list_trials(
    bases: Sequence[Config], search: Search, splits: int, out: Path, device: torch.device | None, together: int
) -> None:
    """Say how many settings would be tried for each cell and version, what is done of these, and how long it takes."""
    listing = table("network", "settings", "runs", "finished", numbers=True)
    parts: list[list[RunConfig]] = []
    for base in supervised(bases):
        asked = _asked(base, search, splits, out)
        runs = [config for at_once in asked for config in at_once]
        done = len(runs) - len(unfinished(runs, out))
        listing.add_row(f"{base.cell} {base.version}", str(len(runs) // splits), str(len(runs)), str(done))
        parts += [group for at_once in asked for group in groups(at_once, together)]
    console().print(listing)
    console().print(left_to_train(parts, out, (device or usual_device()).type))
    console().print(f"After these come {splits} runs with the setting that wins, for each cell and version.")


def _asked(base: RunConfig, search: Search, splits: int, out: Path) -> list[list[RunConfig]]:
    """The runs that a search asks for at once, each time that it asks; it goes by the results there are."""
    asked: list[list[RunConfig]] = []

    def evaluate(settings: Sequence[Setting]) -> list[float | None]:
        trials = [trial(base, setting, splits) for setting in settings]
        asked.append([config for runs in trials for config in runs])
        there = [finished(runs, out) for runs in trials]
        return [mean_loss(results) if len(results) == splits else None for results in there]

    search(evaluate)
    return asked


def supervised(bases: Sequence[Config]) -> list[RunConfig]:
    """The same, which must have a learning set."""
    for base in bases:
        if not isinstance(base, RunConfig):
            raise ValueError(f"task must be one with a learning set to split, got {base.task}")
    return [base for base in bases if isinstance(base, RunConfig)]


def show(base: RunConfig, results: Sequence[Result]) -> None:
    """The settings by their mean selection loss."""
    trials = [result for result in results if result.config.selection > 0]
    tried = [(mean_loss(alike), setting) for setting, alike in grouped(trials, setting_of).items()]
    listing = table("L", "H", "rate", "B", "selection loss", numbers=True, title=f"{base.cell} {base.version}")
    for loss, setting in sorted((entry for entry in tried if entry[0] is not None), key=lambda entry: entry[0] or 0.0):
        listing.add_row(*(f"{value:g}" for value in setting), f"{loss:.4g}")
    for loss, setting in tried:
        if loss is None:
            listing.add_row(*(f"{value:g}" for value in setting), "diverged")
    console().print(listing)
