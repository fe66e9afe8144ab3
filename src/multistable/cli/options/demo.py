"""The options of ``multistable demo``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import reporting
from multistable.cli.shared_options import KEPT, Debug


def command(
    out: Annotated[Path, typer.Option(help="Where the page and the runs are written.")] = Path("runs/demo"),
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    debug: Debug = False,
) -> None:
    """See it: a classic, a warmed-up and a double-layer GRU learn to remember, in about two minutes.

    Ends with a table and one HTML page of pictures.
    """
    with reporting(debug, KEPT.format(out)):
        from multistable.cli.bodies import demo

        demo.run(out, open_page)
