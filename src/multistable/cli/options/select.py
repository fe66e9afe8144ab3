"""The options of ``multistable select``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from multistable.cli.declared import SEARCH, options_of_runs, options_of_tasks, several, with_options
from multistable.cli.errors import reporting
from multistable.cli.options.train import CELL, VERSION
from multistable.cli.shared_options import KEPT, NOTHING_BEGUN, Debug, Device, DryRun, Minutes, Out, Set, Together
from multistable.experiments.search import SPLITS, Space
from multistable.registry import REFERENCE
from multistable.tasks import TASKS
from multistable.training import RunConfig

EXAMPLES = """[bold]Examples[/bold]

The appendix's grid for warmed-up GRUs, and five runs with the setting that won. Run again, it goes on where it was.

  [cyan]multistable select denoising --T 200 --N 100 --cell gru --version warmup[/cyan]

Twenty settings that Optuna proposes, with rates between the lowest and the highest.

  [cyan]multistable select copy --T 50 --search optuna --trials 20 --rate 1e-4 --rate 1e-2 --layers 1[/cyan]"""

CHOSEN = {name: several(RunConfig, name, values) for name, values in vars(Space()).items()}
"""What is chosen among."""


@with_options(
    [
        *options_of_tasks(TASKS),
        *[CELL, VERSION.replace(default=["warmup"]), *CHOSEN.values()],
        *options_of_runs([RunConfig], several=["cell", "version", "seed", *CHOSEN]),
    ]
)
def command(
    task: Annotated[str, typer.Argument(help=f"{', '.join(TASKS.names())}, or {REFERENCE} for one of your own.")],
    search: Annotated[
        str, typer.Option(help="grid: every setting. optuna: as many as --trials.", rich_help_panel=SEARCH)
    ] = "grid",
    trials: Annotated[int, typer.Option(min=1, help="Settings that Optuna tries.", rich_help_panel=SEARCH)] = 20,
    splits: Annotated[
        int, typer.Option(min=1, help="Divisions of the learning set, and final runs.", rich_help_panel=SEARCH)
    ] = SPLITS,
    set_: Set = None,
    device: Device = None,
    together: Together = 32,
    minutes: Minutes = None,
    out: Out = Path("runs"),
    dry_run: DryRun = False,
    debug: Debug = False,
    **settings: Any,
) -> None:
    """Choose layers, units, learning rate and batch size as the paper's appendix does, for each cell and version.

    The learning set is split in several ways into training, validation and selection; the setting of the lowest mean
    selection loss wins, and is run on the usual division. A finished run is not run again.
    """
    with reporting(debug, NOTHING_BEGUN if dry_run else KEPT.format(out)):
        from multistable.cli.bodies import select

        space = Space(**{name: tuple(settings.pop(name)) for name in CHOSEN})
        select.run(task, settings, set_ or [], search, space, trials, splits, out, device, together, minutes, dry_run)
