"""``multistable reproduce``, ``claims`` and ``report``: their options. What they do is in ``experiments``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import Debug, reporting

EXAMPLES = """[bold]Examples[/bold]

Does everything run? A few minutes on a CPU, every figure, nothing to be learned from it.

  [cyan]multistable reproduce all --scale smoke[/cyan]

One figure, small networks and short sequences.

  [cyan]multistable reproduce copy-curves --scale small[/cyan]

The paper's own sizes on a GPU, twenty minutes at a time.

  [cyan]multistable reproduce double-copy --scale paper --minutes 20[/cyan]"""

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME...", help="Experiments, or all; 'multistable list experiments' tells of them."),
]
ScaleName = Annotated[str, typer.Option("--scale", help="smoke, small or paper.")]
Out = Annotated[Path, typer.Option(help="Where each run has its folder.")]


def reproduce(
    names: Names,
    scale: ScaleName = "small",
    out: Out = Path("runs"),
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:1 and so on.", show_default="a GPU if there is one")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop cleanly at the end of the first epoch after so many minutes.")
    ] = None,
    together: Annotated[int, typer.Option(min=1, help="The most runs trained at once, as one ensemble.")] = 32,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; do nothing.")] = False,
    debug: Debug = False,
) -> None:
    """Run experiments of the paper, draw their figures and write a report.

    A finished run is not run again; an interrupted one goes on where it was when the same command is given again.
    """
    kept = f"Interrupted. What is done is kept in {out}: the same command goes on from there."
    with reporting(debug, kept):
        from multistable.cli import experiments
        from multistable.cli.runs import chosen_device
        from multistable.experiments.reproduce import plan
        from multistable.training.trainer import usual_device

        wanted, size = experiments.chosen(names), experiments.chosen_scale(scale)
        where = chosen_device(device) or usual_device()
        todo = plan(wanted, size, out, together)
        experiments.show_plan(todo, wanted, size, out, where)
        if dry_run:
            return
        problems = experiments.run(wanted, size, out, where, together, minutes)
        experiments.write_report(wanted, size, out)
        if problems:
            raise typer.Exit(1)


def claims(
    scale: ScaleName = "small",
    out: Out = Path("runs"),
    results: Annotated[
        list[Path] | None,
        typer.Option(help="Stored results (JSON) in place of run folders. May be given several times."),
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Show every comparison with its numbers.")] = False,
    debug: Debug = False,
) -> None:
    """Show the verdict of the stored results on each claim of the paper."""
    with reporting(debug):
        from multistable.cli import experiments
        from multistable.experiments.archive import read_results
        from multistable.experiments.report import everything, findings

        if results:
            found = [result for path in results for result in read_results(path)]
            where = ", ".join(str(path) for path in results)
        else:
            size = experiments.chosen_scale(scale)
            found = everything(experiments.chosen(["all"]), size, out)
            where = f"scale {size.name} ({size.about})"
        seeds = len({result.config.seed for result in found})
        experiments.show_claims(list(findings(found).values()), f"{where}: {len(found)} runs, {seeds} seeds", details)


def report(names: Names, scale: ScaleName = "small", out: Out = Path("runs"), debug: Debug = False) -> None:
    """Write the report of what there is, without running anything."""
    with reporting(debug):
        from multistable.cli import experiments

        experiments.write_report(experiments.chosen(names), experiments.chosen_scale(scale), out)
