"""What ``multistable select`` does."""

from collections.abc import Sequence
from pathlib import Path

import torch

from multistable.cli.console import console, table
from multistable.cli.progress import progress
from multistable.cli.runs import show_results, unfinished
from multistable.experiments.experiment import Result, finished, grouped
from multistable.experiments.search import Search, Space, by_grid, by_optuna, select
from multistable.experiments.selection import final, mean_loss, setting_of
from multistable.training import Config, RunConfig, train

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
    bases: Sequence[Config], search: Search, splits: int, out: Path, device: torch.device | None, together: int
) -> None:
    """Select for each cell and version; show the settings, best first, and the final runs of the first."""

    def trained(configs: Sequence[Config]) -> list[Result]:
        left = unfinished(configs, out)
        if left:
            with progress(left) as shown:
                train(left, out, device=device, callbacks=[shown], together=together)
        return finished(configs, out)

    for base in bases:
        if not isinstance(base, RunConfig):
            raise ValueError(f"task must be one with a learning set to split, got {base.task}")
        results = select(base, search, trained, splits)
        show(base, results)
        show_results([result.config for result in final(results)], out)


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
