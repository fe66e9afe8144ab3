"""Commands that look and change nothing: ``list``, ``show`` and ``info``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import Debug, reporting


class What(StrEnum):
    """What can be listed."""

    TASKS = "tasks"
    CELLS = "cells"
    VERSIONS = "versions"
    EXPERIMENTS = "experiments"


def list_(
    what: Annotated[What | None, typer.Argument(help="One of them alone.", show_default="all")] = None,
) -> None:
    """List what can be trained and run: tasks, cells, versions of a cell's network, and the paper's experiments."""
    with reporting():
        from multistable.cli import listings
        from multistable.cli.console import console

        tables = {What.TASKS: listings.tasks, What.CELLS: listings.cells, What.VERSIONS: listings.versions}
        tables[What.EXPERIMENTS] = listings.paper
        for name in What if what is None else [what]:
            console().print(tables[name]())


def show(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_FOLDER...", help="One or more folders of runs.")],
    debug: Debug = False,
) -> None:
    """Show a run: its settings, its epochs and its results; or compare the results of several."""
    with reporting(debug):
        from multistable.cli import listings

        if len(folders) == 1:
            listings.show_run(folders[0])
        else:
            listings.compare_runs(folders)


def info() -> None:
    """Show versions, devices, and which time loop advances each cell on each device."""
    with reporting():
        from multistable.cli import listings
        from multistable.cli.console import console

        for made in (listings.packages(), listings.devices(), listings.time_loops()):
            console().print(made)
        console().print(listings.cpu_loop())
