"""What ``multistable reproduce`` does."""

from collections.abc import Sequence
from pathlib import Path

import typer

from multistable.cli.conditions import check_conditions
from multistable.cli.console import console, table
from multistable.cli.experiments import chosen, chosen_scale, write_report
from multistable.cli.minutes import Limit
from multistable.cli.progress import progress
from multistable.cli.runs import chosen_device, left_to_train, unfinished
from multistable.experiments.experiment import Experiment
from multistable.experiments.reproduce import Plan, plan, reproduce
from multistable.experiments.runners import Runner, make_runner
from multistable.experiments.scales import Scale


def run(
    names: Sequence[str],
    scale: str,
    where: Sequence[str],
    cells: Sequence[str],
    precision: str,
    out: Path,
    device: str | None,
    minutes: float | None,
    together: int,
    runner: str,
    ray_address: str | None,
    dry_run: bool,
) -> None:
    """Run what is left of experiments, and write their report; without any work for a dry run."""
    wanted, size = chosen(names), chosen_scale(scale, precision, where, cells)
    # The device of another machine is not known here, and a plan needs none.
    chosen_device(device, here=ray_address is None and not dry_run)
    machine = make_runner(runner, device, ray_address)
    check_conditions(wanted, size)
    todo = plan(wanted, size, out, together)
    if dry_run:
        show_plan(todo, wanted, size, out, machine.device)
        return
    with machine:
        show_plan(todo, wanted, size, out, machine.device)
        problems = run_all(wanted, size, out, machine, together, minutes)
    write_report(wanted, size, out)
    if problems:
        raise typer.Exit(1)


def show_plan(todo: Plan, wanted: Sequence[Experiment], scale: Scale, out: Path, device: str) -> None:
    """Show which runs are left and how long they may take."""
    listing = table("experiment", "runs", "finished", "", title=f"Scale {scale.name}: {scale.about}")
    for experiment in wanted:
        configs = experiment.at(scale, out)
        done = len(configs) - len(unfinished(configs, out))
        listing.add_row(experiment.name, str(len(configs)), str(done), experiment.title)
    console().print(listing)
    console().print(left_to_train(todo.groups, out, device))


def run_all(
    wanted: Sequence[Experiment], scale: Scale, out: Path, runner: Runner, together: int, minutes: float | None
) -> list[str]:
    """Run what is left, then the runs that follow from its results; return why some could not run."""
    problems: list[str] = []
    left, before = plan(wanted, scale, out, together), None
    with Limit(minutes, lambda: len(unfinished(configs, out))) as limit:
        while left.left and left != before:
            configs = [config for group in left.groups for config in group]
            with progress(unfinished(configs, out)) as shown:
                problems = reproduce(left, out, runner=runner, callbacks=[shown, *limit.callbacks])
            left, before = plan(wanted, scale, out, together), left
    problems = list(dict.fromkeys([*problems, *limit.problems]))
    for problem in problems:
        typer.echo(f"Not run: {problem}", err=True)
    if problems:
        counts = {experiment.name: len(unfinished(experiment.at(scale, out), out)) for experiment in wanted}
        told = ", ".join(f"{name} ({count})" for name, count in counts.items() if count)
        typer.echo(f"Runs are left of {told}" if told else "No run is left: others have made them", err=True)
    return problems
