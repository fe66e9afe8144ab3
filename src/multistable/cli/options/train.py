"""The options of ``multistable train``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from multistable.cells import CELLS
from multistable.cli.declared import (
    OUTPUT,
    TRAINING,
    options_of_runs,
    options_of_tasks,
    parameter,
    several,
    with_options,
)
from multistable.cli.errors import reporting
from multistable.cli.shared_options import KEPT, NOTHING_BEGUN, Debug, Device, DryRun, Minutes, Out, Set, Together
from multistable.registry import REFERENCE
from multistable.rl.agent_tasks import PROCESSES
from multistable.rl.config import AgentConfig
from multistable.tasks import TASKS
from multistable.training import VERSIONS, RunConfig

# Nothing of these is wrapped: typer makes one line of lines that no empty one separates.
EXAMPLES = """[bold]Examples[/bold]

A minute on a CPU: a short sequence to remember, with and without warmup.

  [cyan]multistable train copy --T 20 --hidden 64 --epochs 3 --training-sequences 4000 --vaa-every 3[/cyan]

The paper's benchmark at T = 50, for every cell and version and five seeds. Run again, it goes on where it was.

  [cyan]multistable train copy --T 50 --cell all --version all --seeds 5[/cyan]

What would be done, and what is done already.

  [cyan]multistable train denoising --T 200 --N 100 --cell gru --cell lstm --dry-run[/cyan]

Images, from files in a folder. Without --data they are downloaded.

  [cyan]multistable train plmnist --N 72 --cell gru --version all --data mnist[/cyan]

A cell and a task of your own, the classes Leaky and Sums in the files cells.py and tasks.py of this folder.

  [cyan]multistable train tasks:Sums --cell cells:Leaky --set first=3[/cyan]

Agents that have to remember where the treasure is: two minutes on a CPU.

  [cyan]multistable train tmaze --L 10 --cell gru --layers 1 --hidden 64 --episodes 200[/cyan]"""

CELL = several(
    RunConfig,
    "cell",
    ["gru"],
    f"{', '.join(CELLS.names())}, {REFERENCE} for one of your own, or all; for double "
    "layers also two, such as gru+lstm.",
)
VERSION = several(
    RunConfig,
    "version",
    ["classic", "warmup"],
    f"{', '.join(VERSIONS)}, or all; 'multistable list versions' tells of them.",
)

SEEDS = parameter(
    "seeds",
    int | None,
    typer.Option(min=1, help="How many seeds: 0, 1, 2 and so on.", show_default="1", rich_help_panel=TRAINING),
)


@with_options(
    [
        *options_of_tasks(TASKS | PROCESSES),
        *[CELL, VERSION, SEEDS, several(RunConfig, "seed", None, "This seed.")],
        *options_of_runs([RunConfig, AgentConfig], several=["cell", "version", "seed"]),
    ]
)
def command(
    task: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join([*TASKS.names(), *PROCESSES.names()])}, or {REFERENCE} for one of your own; "
            "'multistable list tasks' tells of them."
        ),
    ],
    device: Device = None,
    together: Together = 32,
    minutes: Minutes = None,
    set_: Set = None,
    out: Out = Path("runs"),
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write for TensorBoard.", rich_help_panel=OUTPUT)
    ] = False,
    dry_run: DryRun = False,
    debug: Debug = False,
    **settings: Any,
) -> None:
    """Train networks on one of the paper's benchmarks, and compare them.

    Every combination of cell, version and seed is a run with a folder of its own.

    A finished run is not run again; an interrupted one goes on where it was when the same command is given again.
    """
    with reporting(debug, NOTHING_BEGUN if dry_run else KEPT.format(out)):
        from multistable.cli.bodies import train

        train.run(task, settings, set_ or [], out, device, together, minutes, tensorboard, dry_run)
