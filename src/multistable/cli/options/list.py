"""The options of ``multistable list``."""

from enum import StrEnum
from typing import Annotated

import typer

from multistable.cli.errors import reporting


class What(StrEnum):
    """What can be listed."""

    TASKS = "tasks"
    CELLS = "cells"
    VERSIONS = "versions"
    SETTINGS = "settings"
    EXPERIMENTS = "experiments"


def command(
    what: Annotated[What | None, typer.Argument(help="One of them alone.", show_default="all")] = None,
) -> None:
    """List what can be trained and run: tasks, cells, versions of a cell's network, settings, and experiments."""
    with reporting():
        from multistable.cli.bodies import list

        list.run([what.value] if what else [*What])
