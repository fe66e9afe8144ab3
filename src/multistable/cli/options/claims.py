"""The options of ``multistable claims``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import reporting
from multistable.cli.shared_options import Debug, Out, Precision, ScaleName, Stored


def command(
    scale: ScaleName = "small",
    precision: Precision = "ieee",
    out: Out = Path("runs"),
    results: Stored = None,
    details: Annotated[bool, typer.Option("--details", help="Show every comparison with its numbers.")] = False,
    debug: Debug = False,
) -> None:
    """Show the verdict of the stored results on each claim of the paper.

    Results in files count whatever precision they were trained in; of a run that is in several files, the last counts.
    """
    with reporting(debug):
        from multistable.cli.bodies import claims

        claims.run(scale, precision, out, results, details)
