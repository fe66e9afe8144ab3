"""``multistable demo``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import Debug, reporting


def demo(
    out: Annotated[Path, typer.Option(help="Where the page and the runs are written.")] = Path("runs/demo"),
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    debug: Debug = False,
) -> None:
    """See it: a classic, a warmed-up and a double-layer GRU learn to remember, in about two minutes.

    Ends with a table and one HTML page of pictures.
    """
    with reporting(debug, f"Interrupted. What is done is kept in {out}: the same command goes on from there."):
        import webbrowser

        from multistable.cli import runs
        from multistable.cli.progress import progress
        from multistable.experiments import demo

        configs = demo.configs()
        with progress(runs.unfinished(configs, out)) as shown:
            page = demo.demo(out, callbacks=[shown])
        runs.show_results(configs, out)
        typer.echo(f"What happened, in pictures: {page.resolve().as_uri()}")
        if open_page:
            webbrowser.open(page.resolve().as_uri())
