"""The options of ``multistable report``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.declared import OUTPUT
from multistable.cli.errors import reporting
from multistable.cli.shared_options import Debug, Names, OwnCells, Precision, ScaleName, Stored, Where


def command(
    names: Names,
    scale: ScaleName = "small",
    where: Where = None,
    cell: OwnCells = None,
    precision: Precision = "ieee",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where each run has its folder, and where the report goes.",
            show_default="runs; report with --results",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    results: Stored = None,
    debug: Debug = False,
) -> None:
    """Write the report of what there is, without running anything.

    Results in files count whatever precision they were trained in; of a run that is in several files, the last counts.
    """
    with reporting(debug):
        from multistable.cli.bodies import report

        report.run(
            names, scale, where or (), cell or (), precision, out or Path("report" if results else "runs"), results
        )
