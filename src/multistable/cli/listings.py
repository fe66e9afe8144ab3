"""What ``list``, ``show`` and ``info`` show."""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from importlib.metadata import PackageNotFoundError, version
from inspect import getdoc, getmodule, signature
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

import multistable as ms
from multistable.cli.console import console, table
from multistable.cli.results import number, results
from multistable.cli.train import TASK, train
from multistable.cli.wide import WideTable
from multistable.dynamics.warmup.history import RECENT_STEPS
from multistable.experiments.paper import experiments
from multistable.extras import how_to_install
from multistable.rl.config import PROCESSES
from multistable.scan.cpu import compiled_equations
from multistable.tasks import TASKS
from multistable.training import VERSIONS, Config, RunFolder

PACKAGES = ("triton", "numba", "numpy", "tensorboard", "ray", "optuna")
GIB = 2**30


def tasks() -> Table:
    """The tasks and their settings."""
    made = table("task", "options", "", title="Tasks")
    for name, kind in (TASKS | PROCESSES).items():
        options = [_option(field) for field in fields(kind)]  # type: ignore[arg-type]
        made.add_row(name, " ".join(options), _first_sentence(kind))
    return made


def cells() -> Table:
    """The cells."""
    made = table("cell", "", title="Cells")
    for name, kind in ms.CELLS.items():
        made.add_row(name, (getmodule(kind).__doc__ or "").partition("\n")[0])
    return made


def versions() -> Table:
    """The versions of a cell's network."""
    made = table("version", "", title="Versions")
    for name, kind in VERSIONS.items():
        made.add_row(name, kind.about)
    return made


def paper() -> Table:
    """The paper's experiments."""
    made = table("experiment", "claims", "", "of the paper", title="Experiments")
    for name, experiment in experiments().items():
        made.add_row(name, ", ".join(experiment.claims), experiment.title, ", ".join(experiment.labels))
    return made


def show_run(path: Path) -> None:
    """The settings, the warmup, the epochs and the results of a run."""
    config, folder = _opened(path)
    settings = table("setting", "", title=config.name)
    for name, value in config.to_dict().items():
        settings.add_row(name, str(value))
    metrics = folder.metrics()
    apart = (config.unit, "phase", "seconds", "step_seconds")
    names = list(dict.fromkeys(name for row in metrics for name in row if name not in apart))
    titles = [name.replace("_", " ") for name in names]
    epochs = WideTable([config.unit, *titles, "seconds"], title=f"{config.unit.capitalize()}s")
    for row in metrics:
        phase = " pretraining" if row.get("phase") == "pretraining" and row["epoch"] else ""
        reached, seconds = f"{row[config.unit]}{phase}", f"{row['seconds']:.1f}"
        epochs.add_row(reached, *(number(row.get(name)) for name in names), seconds)
    course = folder.warmup()
    console().print(settings, *([] if course is None else [_warmup(course, config.target)]), epochs)
    if folder.finished:
        console().print(results([(config, folder.summary())]))
    else:
        console().print("Not finished: the command that began it goes on from there.")


def _warmup(course: dict[str, Any], target: float) -> str:
    """How a warmup ended: a network may be multistable though a layer stayed behind."""
    if "vaa_star" not in course:
        return f"Warmup: {course['outcome']}, {course['reason']}\n"
    recent = course["vaa_star"][-RECENT_STEPS:]
    ends = ", ".join(f"{statistics.fmean(values):.2f}" for values in zip(*recent, strict=True))
    told = f"{course['outcome']} after {len(course['vaa_star'])} steps, VAA {course['vaa']:.2f}"
    return f"Warmup: {told}; VAA* of each layer in its last {len(recent)} steps: {ends} (target {target:g})\n"


def compare_runs(paths: Sequence[Path]) -> None:
    """The results of finished runs."""
    opened = [_opened(path) for path in paths]
    console().print(results([(config, folder.summary()) for config, folder in opened if folder.finished]))
    unfinished = [folder.path.name for _, folder in opened if not folder.finished]
    if unfinished:
        console().print(f"Not finished: {', '.join(unfinished)}")


def packages() -> Table:
    """What is installed."""
    made = table("package", "version", title="Versions")
    made.add_row("multistable", ms.__version__)
    made.add_row("python", platform.python_version())
    made.add_row("torch", torch.__version__)  # says more than the installed package: what it was built for
    for name in PACKAGES:
        made.add_row(name, _installed(name))
    return made


def devices() -> Table:
    """What there is to compute on."""
    made = table("device", "name", "memory", title="Devices")
    made.add_row("cpu", f"{os.cpu_count()} cores, {torch.get_num_threads()} threads of PyTorch", _memory())
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        memory = f"{total / GIB:.0f} GiB, {free / GIB:.0f} GiB of it free"
        made.add_row(f"cuda:{index}", torch.cuda.get_device_name(index), memory)
    return made


def time_loops() -> Table:
    """The time loop that each cell has on each device, and why where it is the plain one."""
    places = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    made = table("cell", *places, title="Time loop")
    for cell in ms.CELLS:
        made.add_row(cell, *(ms.backends(ms.RNN(cell, 1, 128).to(place))[0] for place in places))
    return made


def cpu_loop() -> str:
    """What the loop on the CPU is made of, and what is missing on a machine without a GPU."""
    with_numba = "compiled by numba"
    without = f"PyTorch's operations, slower than with numba: {how_to_install('numba')}"
    loop = f"The loop on the CPU is {with_numba if compiled_equations() else without}."
    if torch.cuda.is_available():
        return loop
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    return f"{loop}\nNo GPU is used: this PyTorch is {built} and finds none."


def _opened(path: Path) -> tuple[Config, RunFolder]:
    folder = RunFolder(path)
    if not (path / "config.json").exists():
        raise ValueError(f"{path} is not the folder of a run: it has no config.json")
    return folder.config(), folder


def _option(field: "Field[Any]") -> str:
    """How a setting of a task is given to ``train``; only those of the paper's tasks have options of their own."""
    name, value = field.name, field.name.upper()
    if not _is_option_of_tasks(name):
        option = f"--set {name}={value}"
    elif isinstance(field.default, bool):
        option = f"--no-{name}" if field.default else f"--{name}"
    else:
        option = f"--{name} {value}"
    return option if field.default is MISSING and field.default_factory is MISSING else f"[{option}]"


def _is_option_of_tasks(name: str) -> bool:
    """Whether an option of ``train`` by this name sets something of the task: ``--k``, for instance, does not."""
    parameter = signature(train).parameters.get(name)
    return parameter is not None and parameter.annotation.__metadata__[0].rich_help_panel == TASK


def _first_sentence(kind: type) -> str:
    return (getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIB:.0f} GiB"
    except (AttributeError, ValueError, OSError):  # not every system tells
        return ""
