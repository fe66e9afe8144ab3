"""What ``multistable list`` does."""

from collections.abc import Sequence
from dataclasses import MISSING, fields
from inspect import getdoc, getmodule
from typing import Any

from rich.table import Table

import multistable as ms
from multistable.cli.console import console, table
from multistable.cli.declared import option_name
from multistable.experiments.catalogue import experiments
from multistable.experiments.paper.contents import names
from multistable.registry import Registry
from multistable.rl import AgentConfig
from multistable.rl.agent_tasks import PROCESSES
from multistable.setting import Setting, declared, default_of
from multistable.tasks import TASKS
from multistable.training import VERSIONS, RunConfig


def run(tables: Sequence[str]) -> None:
    """Show the tables of these names."""
    for name in tables:
        console().print(TABLES[name]())


def tasks() -> Table:
    """The tasks and their settings."""
    made = table("task", "options", "", title="Tasks")
    for name, kind in (*_entries(TASKS), *_entries(PROCESSES)):
        settings = declared(kind)
        options = [_option(field.name, field, settings.get(field.name, (None, None))[1]) for field in fields(kind)]
        made.add_row(name, " ".join(options), _first_sentence(kind))
    return made


def cells() -> Table:
    """The cells."""
    made = table("cell", "", title="Cells")
    for name, kind in _entries(ms.CELLS):
        made.add_row(name, (getattr(getmodule(kind), "__doc__", None) or "").partition("\n")[0])
    return made


def versions() -> Table:
    """The versions of a cell's network."""
    made = table("version", "", title="Versions")
    for name, kind in VERSIONS.items():
        made.add_row(name, kind.about)
    return made


def settings() -> Table:
    """All settings of runs, those without an option for ``--set``."""
    made = table("setting", "option", "default", "", title="Settings")
    for kind in (RunConfig, AgentConfig):
        for name, (field, setting) in declared(kind).items():
            if kind is AgentConfig and name in declared(RunConfig):
                continue
            value = default_of(field)
            default = setting.unless_given or ("" if value is MISSING else str(value))
            option = option_name(kind, name) if setting.panel else f"--set {name}="
            made.add_row(name, "TASK" if name == "task" else option, default, setting.help)
        made.add_section()
    return made


def every_experiment() -> Table:
    """The experiments."""
    made = table("experiment", "claims", "", "of the paper", title="Experiments")
    for name, experiment in experiments().items():
        made.add_row(name, ", ".join(experiment.claims), experiment.title, names(experiment.labels))
    return made


TABLES = {"tasks": tasks, "cells": cells, "versions": versions, "settings": settings, "experiments": every_experiment}


def _entries(registry: Registry[Any]) -> list[tuple[str, Any]]:
    return [(name, registry.find(name)) for name in registry.names()]


def _option(name: str, field: Any, setting: Setting | None) -> str:
    """How a setting of a task is given to ``train``; the settings of your own tasks have no options of their own."""
    if setting is None or setting.panel is None:
        option = f"--set {name}={name.upper()}"
    elif isinstance(field.default, bool):
        option = f"--no-{name}" if field.default else f"--{name}"
    else:
        option = f"--{name} {name.upper()}"
    return option if default_of(field) is MISSING else f"[{option}]"


def _first_sentence(kind: type) -> str:
    return (getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
