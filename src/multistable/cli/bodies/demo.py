"""What ``multistable demo`` does."""

import webbrowser
from pathlib import Path

import typer

from multistable.cli.progress import progress
from multistable.cli.runs import show_results, unfinished
from multistable.experiments import demo


def run(out: Path, open_page: bool) -> None:
    """Train the networks of the demo, and show their results and the page."""
    configs = demo.configs()
    with progress(unfinished(configs, out)) as shown:
        page = demo.demo(out, callbacks=[shown])
    show_results(configs, out)
    typer.echo(f"What happened, in pictures: {page.resolve().as_uri()}")
    if open_page:
        webbrowser.open(page.resolve().as_uri())
