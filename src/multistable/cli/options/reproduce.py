"""The options of ``multistable reproduce``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import reporting
from multistable.cli.shared_options import (
    KEPT,
    Debug,
    Device,
    DryRun,
    Minutes,
    Names,
    Out,
    OwnCells,
    Precision,
    ScaleName,
    Together,
    Where,
)

EXAMPLES = """[bold]Examples[/bold]

Does everything run? A few minutes on a CPU, every figure, nothing to be learned from it.

  [cyan]multistable reproduce all --scale smoke[/cyan]

One figure, small networks and short sequences.

  [cyan]multistable reproduce copy-curves --scale small[/cyan]

The paper's own sizes on a GPU, twenty minutes at a time.

  [cyan]multistable reproduce double-copy --scale paper --minutes 20[/cyan]

The same on a cluster, whose nodes share a file system.

  [cyan]multistable reproduce double-copy --scale paper --runner ray --ray-address HOST:6379[/cyan]"""


def command(
    names: Names,
    scale: ScaleName = "small",
    where: Where = None,
    cell: OwnCells = None,
    precision: Precision = "ieee",
    out: Out = Path("runs"),
    device: Device = None,
    minutes: Minutes = None,
    together: Together = 32,
    runner: Annotated[
        str, typer.Option(help="local: in this process. ray: on a Ray cluster, several groups at once.")
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="Of a Ray cluster whose nodes have --out under the same path.", show_default="one on this machine"
        ),
    ] = None,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    """Run experiments of the paper, draw their figures and write a report.

    A finished run is not run again; an interrupted one goes on where it was when the same command is given again.
    """
    with reporting(debug, KEPT.format(out)):
        from multistable.cli.bodies import reproduce

        reproduce.run(
            names,
            scale,
            where or (),
            cell or (),
            precision,
            out,
            device,
            minutes,
            together,
            runner,
            ray_address,
            dry_run,
        )
