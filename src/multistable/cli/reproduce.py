"""``multistable reproduce``, ``claims`` and ``report``: their options. What they do is in ``experiments``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import Debug, reporting
from multistable.cli.minutes import Minutes

EXAMPLES = """[bold]Examples[/bold]

Does everything run? A few minutes on a CPU, every figure, nothing to be learned from it.

  [cyan]multistable reproduce all --scale smoke[/cyan]

One figure, small networks and short sequences.

  [cyan]multistable reproduce copy-curves --scale small[/cyan]

The paper's own sizes on a GPU, twenty minutes at a time.

  [cyan]multistable reproduce double-copy --scale paper --minutes 20[/cyan]

The same on a cluster, whose nodes share a file system.

  [cyan]multistable reproduce double-copy --scale paper --runner ray --ray-address HOST:6379[/cyan]"""

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME...", help="Experiments, or all; 'multistable list experiments' tells of them."),
]
ScaleName = Annotated[str, typer.Option("--scale", help="smoke, small or paper.")]
Precision = Annotated[
    str,
    typer.Option(help="Of matrix products in training on a GPU: ieee or tf32. Other runs than those of another."),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SETTING=VALUE,...",
        help="Only runs with these settings, for instance T=300 or cell=gru,lstm. May be given several times: "
        "values of one setting add up, those of several must all be met.",
    ),
]
Out = Annotated[Path, typer.Option(help="Where each run has its folder.")]
Stored = Annotated[
    list[Path] | None,
    typer.Option(help="Stored results (JSON) in place of run folders. May be given several times."),
]


def reproduce(
    names: Names,
    scale: ScaleName = "small",
    where: Where = None,
    precision: Precision = "ieee",
    out: Out = Path("runs"),
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:1 and so on.", show_default="a GPU if there is one")
    ] = None,
    minutes: Minutes = None,
    together: Annotated[int, typer.Option(min=1, help="The most runs trained at once, as one ensemble.")] = 32,
    runner: Annotated[
        str, typer.Option(help="local: in this process. ray: on a Ray cluster, several groups at once.")
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="Of a Ray cluster whose nodes have --out under the same path.", show_default="one on this machine"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; do nothing.")] = False,
    debug: Debug = False,
) -> None:
    """Run experiments of the paper, draw their figures and write a report.

    A finished run is not run again; an interrupted one goes on where it was when the same command is given again.
    """
    kept = f"Interrupted. What is done is kept in {out}: the same command goes on from there."
    with reporting(debug, kept):
        from multistable.cli import experiments
        from multistable.cli.conditions import check_conditions
        from multistable.cli.runs import chosen_device
        from multistable.experiments.reproduce import plan
        from multistable.experiments.runners import make_runner

        wanted, size = experiments.chosen(names), experiments.chosen_scale(scale, precision, where or ())
        # That of another machine is not known here, and a plan needs none.
        chosen_device(device, here=ray_address is None and not dry_run)
        machine = make_runner(runner, device, ray_address)
        check_conditions(wanted, size)
        todo = plan(wanted, size, out, together)
        if dry_run:
            experiments.show_plan(todo, wanted, size, out, machine.device)
            return
        with machine:
            experiments.show_plan(todo, wanted, size, out, machine.device)
            problems = experiments.run(wanted, size, out, machine, together, minutes)
        experiments.write_report(wanted, size, out)
        if problems:
            raise typer.Exit(1)


def claims(
    scale: ScaleName = "small",
    precision: Precision = "ieee",
    out: Out = Path("runs"),
    results: Stored = None,
    details: Annotated[bool, typer.Option("--details", help="Show every comparison with its numbers.")] = False,
    debug: Debug = False,
) -> None:
    """Show the verdict of the stored results on each claim of the paper.

    Results in files count whatever precision they were trained in; of a run that is in several files, the last counts.
    """
    with reporting(debug):
        from multistable.cli import experiments
        from multistable.experiments.report import verdicts

        size, known = experiments.chosen_scale(scale, precision), experiments.chosen(["all"])
        found = experiments.results_in(results, out, known, size)
        judged, seeds = verdicts(known, size, found), len({result.config.seed for result in found.values()})
        experiments.show_claims(list(judged.values()), size, f"{len(found)} runs, {seeds} seeds", details)


def report(
    names: Names,
    scale: ScaleName = "small",
    where: Where = None,
    precision: Precision = "ieee",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where each run has its folder, and where the report goes.", show_default="runs; report with --results"
        ),
    ] = None,
    results: Stored = None,
    debug: Debug = False,
) -> None:
    """Write the report of what there is, without running anything.

    Results in files count whatever precision they were trained in; of a run that is in several files, the last counts.
    """
    with reporting(debug):
        from multistable.cli import experiments
        from multistable.cli.conditions import check_conditions

        wanted, size = experiments.chosen(names), experiments.chosen_scale(scale, precision, where or ())
        check_conditions(wanted, size)
        folder = out or Path("report" if results else "runs")
        experiments.write_report(wanted, size, folder, experiments.results_in(results, folder, wanted, size))
