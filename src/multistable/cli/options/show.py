"""The options of ``multistable show``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import reporting
from multistable.cli.shared_options import Debug


def command(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_FOLDER...", help="One or more folders of runs.")],
    debug: Debug = False,
) -> None:
    """Show a run: its settings, its epochs and its results; or compare the results of several."""
    with reporting(debug):
        from multistable.cli.bodies import show

        show.run(folders)
