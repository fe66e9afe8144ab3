"""From the options of ``multistable train`` to runs, and from runs to what is shown of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import torch

from multistable.cells import CELLS
from multistable.cli.console import console, table
from multistable.cli.minutes import Limit
from multistable.cli.progress import duration, progress
from multistable.cli.results import results
from multistable.experiments.estimate import seconds
from multistable.rl.config import PROCESSES
from multistable.tasks import TASKS
from multistable.training import BusyRunError, Callback, Config, RunFolder, train
from multistable.training.kinds import config_class
from multistable.training.trainer import chosen_device as chosen_device
from multistable.training.trainer import groups, usual_device

# What has an option that takes several, or is made of other options.
OWN_OPTION = {"task": "TASK", "cell": "--cell", "version": "--version", "seed": "--seed"}


def combinations(
    *,
    task: str,
    task_settings: Mapping[str, Any],
    data: Path | None,
    cells: Sequence[str],
    versions: Sequence[str],
    seeds: Iterable[int],
    settings: Mapping[str, Any],
    others: Sequence[str],
    own_option: Mapping[str, str] | None = None,
) -> list[Config]:
    """A run for every cell, version and seed.

    Args:
        task: its name.
        task_settings: its settings; ``None`` for those that were not given.
        data: the folder of its files.
        cells: names, or ``all``.
        versions: names, or ``all``.
        seeds: one run for each.
        settings: of the runs; ``None`` for those that were not given.
        others: further settings of the task or the runs, each ``NAME=VALUE``.
        own_option: settings that cannot be among the others, and what sets them, beside those of ``OWN_OPTION``.
    """
    kind = config_class(task)
    if task not in TASKS | PROCESSES:
        raise ValueError(f"task must be one of {', '.join(TASKS | PROCESSES)}, got {task!r}")
    of_task, of_run = _divided(task, kind, others, OWN_OPTION | dict(own_option or {}))
    _refuse_twice({**task_settings, "data": data}, of_task)
    _refuse_twice(settings, of_run)
    made = kind.make_task(task, _given(task_settings) | of_task, data)
    shared = _given(settings) | of_run
    known = [field.name for field in fields(kind)]
    for name in shared:
        if name not in known:
            raise ValueError(f"runs on {task} have no setting {name!r}")
    return [
        kind(task=made, cell=cell, version=version, seed=seed, **shared)
        for cell, version, seed in product(_names(cells, CELLS), _names(versions, kind.versions()), seeds)
    ]


def chosen_seeds(count: int | None, these: Sequence[int] | None) -> list[int]:
    """The seeds of ``--seeds`` or ``--seed``."""
    if count is not None and these:
        raise ValueError("--seeds is how many seeds and --seed is which: only one of them can be given")
    return list(dict.fromkeys(these)) if these else list(range(count or 1))


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


def left_to_train(parts: Sequence[Sequence[Config]], out: Path, device: str) -> str:
    """In words, how many runs of some groups are to be trained, and how long they may take on ``cuda`` or ``cpu``."""
    left = [some for group in parts if (some := unfinished(group, out))]
    runs, every = sum(map(len, left)), sum(map(len, parts))
    taken = duration(sum(forecast(some, out, device) for some in left))
    launches = f"{len(left)} {'group' if len(left) == 1 else 'groups'}"
    return f"{runs} of {every} runs to train, in {launches}, folders in {out}. Roughly {taken} on {device}."


def forecast(group: Sequence[Config], out: Path, device: str) -> float:
    """How long runs of a group may take, together from where the one is that is least far."""
    done = min(max(RunFolder.of(config, out).checkpoints(), default=0) for config in group)
    return seconds(group, device, done)


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


def show_results(configs: Sequence[Config], out: Path) -> None:
    """A table of the runs that are finished."""
    folders = [(config, RunFolder.of(config, out)) for config in configs]
    finished = [(config, folder.summary()) for config, folder in folders if folder.finished]
    if finished:
        console().print(results(finished))
        console().print(f"Each run is a folder in {out}.")


def unfinished(configs: Sequence[Config], out: Path) -> list[Config]:
    """The runs that are still to be trained, or to be trained further."""
    return [config for config in configs if not RunFolder.of(config, out).finished]


FINISHED = "finished"


def _state(config: Config, out: Path) -> str:
    folder = RunFolder.of(config, out)
    if folder.finished:
        return FINISHED
    reached = folder.checkpoints()
    return f"goes on after {config.unit} {reached[-1]}" if reached else "to begin"


def _names(given: Sequence[str], registry: Iterable[str]) -> list[str]:
    return list(registry) if "all" in given else list(dict.fromkeys(given))


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _refuse_twice(options: Mapping[str, Any], others: Mapping[str, Any]) -> None:
    """Refuse a setting of ``--set`` that has been given already."""
    for name, value in others.items():
        if options.get(name) is not None:
            raise ValueError(f"{name} must be given once, got {options[name]} and, by --set, {value}")


def _divided(
    task: str, kind: type[Config], settings: Sequence[str], own_option: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``NAME=VALUE`` settings of the task, and those of the run."""
    of_task = [field.name for field in fields((TASKS | PROCESSES)[task])]  # type: ignore[arg-type]
    of_run = [field.name for field in fields(kind) if field.name not in own_option]
    found: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE, got {setting!r}")
        if name in own_option:
            raise ValueError(f"--set {name}: {own_option[name]} sets it")
        if name not in of_task + of_run:
            raise ValueError(f"--set must name one of {', '.join(of_task + of_run)}, got {name!r}")
        part = found[0 if name in of_task else 1]
        _refuse_twice(part, {name: _value(value)})
        part[name] = _value(value)
    return found


def _value(text: str) -> Any:
    """What JSON makes of it, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
