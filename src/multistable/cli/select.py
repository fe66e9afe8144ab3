"""``multistable select``: its options. What it does is in ``experiments.search``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import Debug, reporting
from multistable.cli.minutes import Minutes

EXAMPLES = """[bold]Examples[/bold]

The appendix's grid for warmed-up GRUs, and five runs with the setting that won. Run again, it goes on where it was.

  [cyan]multistable select denoising --T 200 --N 100 --cell gru --version warmup[/cyan]

Twenty settings that Optuna proposes, with rates between the lowest and the highest.

  [cyan]multistable select copy --T 50 --search optuna --trials 20 --rate 1e-4 --rate 1e-2 --layers 1[/cyan]"""


def select(
    task: Annotated[str, typer.Argument(help="copy, denoising, psmnist or plmnist.")],
    T: Annotated[int | None, typer.Option("--T", help="Time steps of a sequence (copy, denoising).")] = None,
    N: Annotated[
        int | None, typer.Option("--N", help="Time steps at the end without anything to learn (denoising, plmnist).")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the four MNIST files (psmnist, plmnist).")] = None,
    cell: Annotated[list[str], typer.Option(help="May be given several times, or all.")] = ["gru"],  # noqa: B006
    version: Annotated[list[str], typer.Option(help="May be given several times, or all.")] = ["warmup"],  # noqa: B006
    search: Annotated[str, typer.Option(help="grid: every setting. optuna: as many as --trials.")] = "grid",
    trials: Annotated[int, typer.Option(min=1, help="Settings that Optuna tries.")] = 20,
    layers: Annotated[list[int], typer.Option(help="May be given several times.")] = [1, 2, 3],  # noqa: B006
    hidden: Annotated[list[int], typer.Option(help="May be given several times.")] = [256, 512],  # noqa: B006
    rate: Annotated[list[float], typer.Option(help="May be given several times.")] = [1e-3, 5e-4, 1e-4],  # noqa: B006
    batch_size: Annotated[list[int], typer.Option(help="May be given several times.")] = [32, 64],  # noqa: B006
    splits: Annotated[int, typer.Option(min=1, help="Divisions of the learning set, and final runs.")] = 5,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training set.", show_default="50")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of the run or the task."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:1 and so on.", show_default="a GPU if there is one")
    ] = None,
    together: Annotated[int, typer.Option(min=1, help="The most runs trained at once, as one ensemble.")] = 32,
    minutes: Minutes = None,
    out: Annotated[Path, typer.Option(help="Where each run has its folder.")] = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many runs there are and how long they may take; do nothing.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Choose layers, units, learning rate and batch size as the paper's appendix does, for each cell and version.

    The learning set is split in several ways into training, validation and selection; the setting of the lowest mean
    selection loss wins, and is run on the usual division. A finished run is not run again.
    """
    kept = f"Interrupted. What is done is kept in {out}: the same command goes on from there."
    with reporting(debug, "Interrupted; nothing was begun." if dry_run else kept):
        from multistable.cli import runs, selecting
        from multistable.experiments.search import Space

        space = Space(tuple(layers), tuple(hidden), tuple(rate), tuple(batch_size))
        bases = runs.combinations(
            task=task,
            task_settings={"T": T, "N": N},
            data=data,
            cells=cell,
            versions=version,
            seeds=[0],
            settings={"epochs": epochs},
            others=set_ or [],
            own_option=selecting.OWN_OPTION,
        )
        way = selecting.chosen_search(search, space, trials)
        place = runs.chosen_device(device, here=not dry_run)
        if dry_run:
            selecting.list_trials(bases, way, splits, out, place, together)
        else:
            selecting.run(bases, way, splits, out, place, together, minutes)
