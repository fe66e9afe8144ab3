"""What ``multistable show`` does."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multistable.cli.console import console, table
from multistable.cli.results import number, results
from multistable.cli.wide import WideTable
from multistable.dynamics.warmup.history import RECENT_STEPS
from multistable.training import Config, RunFolder

LARGEST = 4
"""So many attractors and changes of an epoch are told."""


def run(folders: Sequence[Path]) -> None:
    """Show the run of one folder, or compare those of several."""
    if len(folders) == 1:
        show_run(folders[0])
    else:
        compare_runs(folders)


def show_run(path: Path) -> None:
    """The settings, the warmup, the epochs and the results of a run."""
    config, folder = _opened(path)
    settings = table("setting", "", title=config.name)
    for name, value in config.to_dict().items():
        settings.add_row(name, str(value))
    metrics = folder.metrics(config.unit)
    apart = (config.unit, "phase", "seconds", "step_seconds")
    names = list(dict.fromkeys(name for row in metrics for name in row if name not in apart))
    titles = [name.replace("_", " ") for name in names]
    epochs = WideTable([config.unit, *titles, "seconds"], title=f"{config.unit.capitalize()}s")
    for row in metrics:
        phase = " pretraining" if row.get("phase") == "pretraining" and row["epoch"] else ""
        reached, seconds = f"{row[config.unit]}{phase}", f"{row['seconds']:.1f}"
        epochs.add_row(reached, *(number(row.get(name)) for name in names), seconds)
    course = folder.warmup()
    records = folder.attractors()
    told = [] if course is None else [_warmup(course, config.target)]
    console().print(settings, *told, epochs, *([_attractors(records)] if records else []))
    if folder.finished:
        console().print(results([(config, folder.summary())]))
    else:
        console().print("Not finished: the command that began it goes on from there.")


def _warmup(course: dict[str, Any], target: float) -> str:
    """How a warmup ended; a network can be multistable although VAA* of one layer is low."""
    if "vaa_star" not in course:
        return f"Warmup: {course['outcome']}, {course['reason']}\n"
    recent = course["vaa_star"][-RECENT_STEPS:]
    ends = ", ".join(f"{statistics.fmean(values):.2f}" for values in zip(*recent, strict=True))
    told = f"{course['outcome']} after {len(course['vaa_star'])} steps, VAA {course['vaa']:.2f}"
    return f"Warmup: {told}; VAA* of each layer in its last {len(recent)} steps: {ends} (target {target:g})\n"


def _attractors(records: Sequence[dict[str, Any]]) -> WideTable:
    """Which attractors there were while the input was zero: the numbers of the largest with their shares."""
    shown = WideTable(["epoch", "attractors", "number: share", "moving", "since then"], title="Attractors")
    for record in records:
        found = sorted(record["attractors"], key=lambda one: -one["fraction"])
        shares = ", ".join(f"{one['id']}: {one['fraction']:.2f}" for one in found[:LARGEST])
        more = ", ..." if len(found) > LARGEST else ""
        moving = number(record["moving"])
        shown.add_row(f"{record['epoch']}", f"{len(found)}", shares + more, moving, _changes(record["changes"]))
    return shown


def _changes(changes: Sequence[dict[str, Any]]) -> str:
    """What has appeared and disappeared, in words."""
    words = {True: ("is new", "splits from"), False: ("is gone", "merges into")}
    told = []
    for change in changes[:LARGEST]:
        alone, joined = words[change["appears"]]
        other = change["other"]
        told.append(f"{change['id']} {alone}" if other is None else f"{change['id']} {joined} {other}")
    return "; ".join(told + ["..."] * (len(changes) > LARGEST))


def compare_runs(paths: Sequence[Path]) -> None:
    """The results of finished runs."""
    opened = [_opened(path) for path in paths]
    console().print(results([(config, folder.summary()) for config, folder in opened if folder.finished]))
    unfinished = [folder.path.name for _, folder in opened if not folder.finished]
    if unfinished:
        console().print(f"Not finished: {', '.join(unfinished)}")


def _opened(path: Path) -> tuple[Config, RunFolder]:
    folder = RunFolder(path)
    if not (path / "config.json").exists():
        raise ValueError(f"{path} is not the folder of a run: it has no config.json")
    return folder.config(), folder
