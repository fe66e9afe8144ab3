"""The command line ``multistable``.

The command X is two files: ``options/X.py`` has its options and its help, and ``bodies/X.py``, imported once the
command has its arguments, has what it does with them; what commands share lies beside these folders.
"""

import sys
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated

import typer

from multistable import __version__
from multistable.memory import keep_freed_memory

ABOUT = """Measure how many attractors a recurrent network can reach, and create them before training.

[bold]demo[/bold] shows it in two minutes, [bold]train[/bold] trains networks on the paper's benchmarks,
[bold]show[/bold] reads their results, [bold]reproduce[/bold] runs the paper's experiments."""

COMMANDS = ("demo", "train", "reproduce", "select", "claims", "report", "list", "show", "inspect", "info")

app = typer.Typer(
    name="multistable",
    help=ABOUT,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for name in COMMANDS:
    options = import_module(f"multistable.cli.options.{name}")
    needed = any(parameter.default is parameter.empty for parameter in signature(options.command).parameters.values())
    app.command(name, epilog=getattr(options, "EXAMPLES", None), no_args_is_help=needed)(options.command)


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
    # Cells and tasks of the current folder can be imported, as with ``python -m``.
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, "")
    app()
