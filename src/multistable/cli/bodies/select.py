"""What ``multistable select`` does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from multistable.cli.console import console, table
from multistable.cli.declared import option_name
from multistable.cli.minutes import Limit
from multistable.cli.progress import progress
from multistable.cli.runs import chosen_device, combinations, left_to_train, show_results, unfinished
from multistable.experiments.experiment import Result, finished, grouped
from multistable.experiments.search import Search, Space, by_grid, by_optuna, planned, select
from multistable.experiments.selection import final, mean_loss, setting_of
from multistable.training import Config, RunConfig, train
from multistable.training.trainer import groups, usual_device

SEARCHES = ("grid", "optuna")


def run(
    task: str,
    settings: Mapping[str, Any],
    others: Sequence[str],
    search: str,
    space: Space,
    trials: int,
    splits: int,
    out: Path,
    device: str | None,
    together: int,
    minutes: float | None,
    dry_run: bool,
) -> None:
    """Select for each cell and version, or only say what there is to do."""
    # What is chosen among, or follows from how it is chosen.
    own_option = {name: option_name(RunConfig, name) for name in vars(space)}
    own_option |= {"seed": "--splits", "data_seed": "the selection itself"}
    bases = supervised(combinations(task, {**settings, "seed": [0]}, others, own_option))
    way = chosen_search(search, space, trials)
    place = chosen_device(device, here=not dry_run)
    if dry_run:
        list_trials(bases, way, splits, out, place, together)
    else:
        select_each(bases, way, splits, out, place, together, minutes)


def chosen_search(name: str, space: Space, trials: int) -> Search:
    """A search by name."""
    if name not in SEARCHES:
        raise ValueError(f"--search must be one of {', '.join(SEARCHES)}, got {name!r}")
    return by_grid(space) if name == "grid" else by_optuna(space, trials)


def supervised(bases: Sequence[Config]) -> list[RunConfig]:
    """The same, which must have a learning set."""
    for base in bases:
        if not isinstance(base, RunConfig):
            raise ValueError(f"task must be one with a learning set to split, got {base.task}")
    return [base for base in bases if isinstance(base, RunConfig)]


def select_each(
    bases: Sequence[RunConfig],
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
        for base in bases:
            results = select(base, search, trained, splits)
            show(base, results)
            show_results([result.config for result in final(results)], out)


def list_trials(
    bases: Sequence[RunConfig], search: Search, splits: int, out: Path, device: torch.device | None, together: int
) -> None:
    """Say how many settings would be tried for each cell and version, what is done of these, and how long it takes."""
    listing = table("network", "settings", "runs", "finished", "final runs", "finished", numbers=True)
    parts: list[list[RunConfig]] = []
    open_ones = []
    for base in bases:
        network = f"{base.cell} {base.version}"
        asked, finals = planned(base, search, lambda runs: finished(runs, out), splits)
        trials = [config for at_once in asked for config in at_once]
        counts = [len(trials) // splits, len(trials), _finished(trials, out)]
        counts += [splits, 0] if finals is None else [len(finals), _finished(finals, out)]
        listing.add_row(network, *map(str, counts))
        parts += [group for at_once in (*asked, finals or []) for group in groups(at_once, together)]
        open_ones += [network] if finals is None else []
    console().print(listing)
    console().print(left_to_train(parts, out, (device or usual_device()).type))
    if open_ones:
        console().print(f"After these come {splits} runs with the setting that wins, for {', '.join(open_ones)}.")


def _finished(configs: Sequence[Config], out: Path) -> int:
    return len(configs) - len(unfinished(configs, out))


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
