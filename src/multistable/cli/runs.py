"""From the settings that a command is given to runs, and what is said of some runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

from multistable.cells import CELLS
from multistable.cli.console import console
from multistable.cli.declared import option_name
from multistable.cli.progress import duration
from multistable.cli.results import results
from multistable.experiments.estimate import seconds
from multistable.registry import REFERENCE
from multistable.rl.agent_tasks import PROCESSES
from multistable.setting import declared
from multistable.tasks import TASKS
from multistable.training import Config, RunFolder
from multistable.training.kinds import config_class
from multistable.training.trainer import chosen_device as chosen_device


def combinations(
    task: str, settings: Mapping[str, Any], others: Sequence[str], own_option: Mapping[str, str] | None = None
) -> list[Config]:
    """A run for every cell, version and seed.

    Args:
        task: its name.
        settings: of the task and the runs, ``None`` for those that were not given; several values of ``cell`` and
            ``version``, names or ``all``, and of ``seed``.
        others: further settings of the task or the runs, each ``NAME=VALUE``.
        own_option: settings that cannot be among the others, and what sets them, beside those with several values.
    """
    known = [*TASKS.names(), *PROCESSES.names()]
    if task not in known and ":" not in task:
        raise ValueError(f"task must be one of {', '.join(known)} or {REFERENCE}, got {task!r}")
    kind = config_class(task)
    several = {name: settings[name] for name in ("cell", "version", "seed")}
    given = {name: value for name, value in settings.items() if name not in several and value is not None}
    own_option = {"task": "TASK", **{name: option_name(kind, name) for name in several}, **(own_option or {})}
    of_task, of_run = _divided(fields(kind.tasks.find(task)), kind, others, own_option)
    for name, value in (of_task | of_run).items():
        _refuse_twice(given, name, value)
    for name, value in given.items():
        (of_task if name in _SETTINGS_OF_TASKS else of_run)[name] = value
    made = kind.make_task(task, of_task, of_task.pop("data", None))
    unknown = of_run.keys() - {field.name for field in fields(kind)}
    if unknown:
        raise ValueError(f"runs on {task} have no setting {min(unknown)!r}")
    names = {"cell": list(CELLS.names()), "version": list(kind.versions()), "seed": []}
    chosen = [names[name] if "all" in values else list(dict.fromkeys(values)) for name, values in several.items()]
    return [
        kind(task=made, cell=cell, version=version, seed=seed, **of_run) for cell, version, seed in product(*chosen)
    ]


_SETTINGS_OF_TASKS = {name for kind in (TASKS | PROCESSES).values() for name in declared(kind)}


def unfinished(configs: Sequence[Config], out: Path) -> list[Config]:
    """The runs that are still to be trained, or to be trained further."""
    return [config for config in configs if not RunFolder.of(config, out).finished]


def left_to_train(parts: Sequence[Sequence[Config]], out: Path, device: str) -> str:
    """In words, how many runs of some groups are to be trained, and how long they may take on ``cuda`` or ``cpu``."""
    left = [some for group in parts if (some := unfinished(group, out))]
    runs, every = sum(map(len, left)), sum(map(len, parts))
    taken = duration(sum(forecast(some, out, device) for some in left))
    launches = f"{len(left)} {'group' if len(left) == 1 else 'groups'}"
    return f"{runs} of {every} runs to train, in {launches}, folders in {out}. Roughly {taken} on {device}."


def forecast(group: Sequence[Config], out: Path, device: str) -> float:
    """How long a group may take in seconds: it goes on from where the run is that has come the least far."""
    done = min(max(RunFolder.of(config, out).checkpoints(), default=0) for config in group)
    return seconds(group, device, done)


def show_results(configs: Sequence[Config], out: Path) -> None:
    """A table of the runs that are finished."""
    folders = [(config, RunFolder.of(config, out)) for config in configs]
    finished = [(config, folder.summary()) for config, folder in folders if folder.finished]
    if finished:
        console().print(results(finished))
        console().print(f"Each run is a folder in {out}.")


def _divided(
    fields_of_task: Sequence[Any], kind: type[Config], others: Sequence[str], own_option: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``NAME=VALUE`` settings of the task, and those of the run."""
    of_task = [field.name for field in fields_of_task]
    of_run = [field.name for field in fields(kind) if field.name not in own_option]
    found: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for text in others:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE, got {text!r}")
        if name in own_option:
            raise ValueError(f"--set {name}: {own_option[name]} sets it")
        if name not in of_task + of_run:
            raise ValueError(f"--set must name one of {', '.join(of_task + of_run)}, got {name!r}")
        part = found[0 if name in of_task else 1]
        _refuse_twice(part, name, _value(value))
        part[name] = _value(value)
    return found


def _refuse_twice(given: Mapping[str, Any], name: str, value: Any) -> None:
    """Refuse a setting of ``--set`` that has been given already."""
    if name in given:
        raise ValueError(f"{name} must be given once, got {given[name]} and, by --set, {value}")


def _value(text: str) -> Any:
    """What JSON makes of it, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
