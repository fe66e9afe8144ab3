"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.declared import MEASURE, OUTPUT, SEVERAL, TRAINING
from multistable.training.settings import PRECISIONS

KEPT = "Interrupted. What is done is kept in {}: the same command goes on from there."
"""Said when a command is interrupted that goes on where it was."""

NOTHING_BEGUN = "Interrupted; nothing was begun."

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=OUTPUT)]
Out = Annotated[Path, typer.Option(help="Where each run has its folder.", rich_help_panel=OUTPUT)]
Device = Annotated[
    str | None,
    typer.Option(help="cpu, cuda or cuda:1 and so on.", show_default="a GPU if there is one", rich_help_panel=TRAINING),
]
Together = Annotated[
    int, typer.Option(min=1, help="The most runs trained at once, as one ensemble.", rich_help_panel=TRAINING)
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Stop cleanly at the end of the first epoch, of agents at the first evaluation, after so many minutes.",
        rich_help_panel=TRAINING,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Say what would be done, what is done already and how long the rest may take; do nothing.",
        rich_help_panel=OUTPUT,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other setting of the run or the task, for instance warmup_steps=50; 'multistable list settings' has "
        f"all. {SEVERAL}",
        rich_help_panel=MEASURE,
    ),
]

# Of the commands that are about experiments of the paper.

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...", help="Experiments ('multistable list experiments'), or all, which are the paper's."
    ),
]
ScaleName = Annotated[str, typer.Option("--scale", help="smoke, small or paper.")]
Precision = Annotated[
    str,
    typer.Option(
        help=f"Of matrix products in training on a GPU: {' or '.join(PRECISIONS)}. Other runs than those of another."
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SETTING=VALUE,...",
        help=f"Only runs with these settings, for instance T=300 or cell=gru,lstm. {SEVERAL[:-1]}: values of one "
        "setting add up, those of several must all be met.",
    ),
]
OwnCells = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CELL",
        help=f"Make every kind of run with this cell of your own too, for instance module:Class. {SEVERAL}",
    ),
]
Stored = Annotated[list[Path] | None, typer.Option(help=f"Stored results (JSON) in place of run folders. {SEVERAL}")]
