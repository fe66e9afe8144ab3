"""What ``multistable train`` does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from multistable.cli.console import console, table
from multistable.cli.minutes import Limit
from multistable.cli.progress import progress
from multistable.cli.runs import chosen_device, combinations, left_to_train, show_results, unfinished
from multistable.training import BusyRunError, Callback, Config, RunFolder, train
from multistable.training.trainer import groups, usual_device

FINISHED = "finished"


def run(
    task: str,
    settings: Mapping[str, Any],
    others: Sequence[str],
    out: Path,
    device: str | None,
    together: int,
    minutes: float | None,
    tensorboard: bool,
    dry_run: bool,
) -> None:
    """Train a run for each cell, version and seed, or only list them."""
    seeds = chosen_seeds(settings["seeds"], settings["seed"])
    configs = combinations(task, {**settings, "seeds": None, "seed": seeds}, others)
    # A plan is no work: it can be made for the GPU of another machine.
    place = chosen_device(device, here=not dry_run)
    if dry_run:
        list_runs(configs, out, together, place)
    else:
        train_runs(configs, out, place, together, tensorboard, minutes)


def chosen_seeds(count: int | None, these: Sequence[int] | None) -> list[int]:
    """The seeds of ``--seeds`` or ``--seed``."""
    if count is not None and these:
        raise ValueError("--seeds is how many seeds and --seed is which: only one of them can be given")
    return list(these) if these else list(range(count or 1))


def list_runs(configs: Sequence[Config], out: Path, together: int, device: torch.device | None) -> None:
    """Say what is done of each run, which are trained together, and how long it may take."""
    listing = table("run", "state", "trained with")
    launch, parts = 0, groups(configs, together)
    for group in parts:
        states = [_state(config, out) for config in group]
        launch += any(state != FINISHED for state in states)
        for config, state in zip(group, states, strict=True):
            listing.add_row(config.name, state, "" if state == FINISHED else f"group {launch}")
        listing.add_section()
    console().print(listing)
    console().print(left_to_train(parts, out, (device or usual_device()).type))


def train_runs(
    configs: Sequence[Config],
    out: Path,
    device: torch.device | None,
    together: int,
    tensorboard: bool,
    minutes: float | None,
) -> None:
    """Train runs, showing progress, until the minutes are over, and end with a table of all results."""
    left = unfinished(configs, out)
    if len(left) < len(configs):
        console().print(f"{len(configs) - len(left)} of {len(configs)} runs are finished already.")
    callbacks: list[Callback] = []
    if tensorboard:
        from multistable.training.tensorboard import TensorBoard

        callbacks.append(TensorBoard(out))
    try:
        with Limit(minutes, lambda: len(unfinished(configs, out))) as limit, progress(left) as shown:
            train(configs, out, device=device, callbacks=[shown, *callbacks, *limit.callbacks], together=together)
    except BusyRunError:
        show_results(configs, out)
        raise
    show_results(configs, out)


def _state(config: Config, out: Path) -> str:
    folder = RunFolder.of(config, out)
    if folder.finished:
        return FINISHED
    reached = folder.checkpoints()
    return f"goes on after {config.unit} {reached[-1]}" if reached else "to begin"
