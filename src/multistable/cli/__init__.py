"""The command line ``multistable``.

Modules are imported inside the commands that need them, so that help is there at once.
"""

from typing import Annotated

import typer

from multistable import __version__
from multistable.cli import demo, look, reproduce, select, train
from multistable.memory import keep_freed_memory

ABOUT = """Measure how many attractors a recurrent network can reach, and create them before training.

[bold]demo[/bold] shows it in two minutes, [bold]train[/bold] trains networks on the paper's benchmarks,
[bold]show[/bold] reads their results, [bold]reproduce[/bold] runs the paper's experiments."""

app = typer.Typer(
    name="multistable",
    help=ABOUT,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("train", epilog=train.EXAMPLES, no_args_is_help=True)(train.train)
app.command("reproduce", epilog=reproduce.EXAMPLES, no_args_is_help=True)(reproduce.reproduce)
app.command("select", epilog=select.EXAMPLES, no_args_is_help=True)(select.select)
app.command("claims")(reproduce.claims)
app.command("report", no_args_is_help=True)(reproduce.report)
app.command("list")(look.list_)
app.command("show", no_args_is_help=True)(look.show)
app.command("info")(look.info)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"multistable {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


def main() -> None:
    """What the console script calls."""
    keep_freed_memory()
    app()
