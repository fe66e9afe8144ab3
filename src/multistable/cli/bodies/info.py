"""What ``multistable info`` does."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch
from rich.table import Table

import multistable as ms
from multistable.cli.console import console, table
from multistable.extras import how_to_install
from multistable.scan.cpu import compiler_of_passes

PACKAGES = ("triton", "llvmlite", "numpy", "tensorboard", "ray", "optuna")
GIB = 2**30


def run() -> None:
    """Show what is installed, what there is to compute on, and the time loops."""
    for made in (packages(), devices(), time_loops(), cpu_loop()):
        console().print(made)


def packages() -> Table:
    """The versions of this package and of those that it uses."""
    made = table("package", "version", title="Versions")
    made.add_row("multistable", ms.__version__)
    made.add_row("python", platform.python_version())
    made.add_row("torch", torch.__version__)  # says more than the installed package: what it was built for
    for name in PACKAGES:
        made.add_row(name, _installed(name))
    return made


def devices() -> Table:
    """The devices of this machine."""
    made = table("device", "name", "memory", title="Devices")
    made.add_row("cpu", f"{os.cpu_count()} cores, {torch.get_num_threads()} threads of PyTorch", _memory())
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        memory = f"{total / GIB:.0f} GiB, {free / GIB:.0f} GiB of it free"
        made.add_row(f"cuda:{index}", torch.cuda.get_device_name(index), memory)
    return made


def time_loops() -> Table:
    """The time loop of each cell on each device, and for plain loops the reason."""
    places = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    made = table("cell", *places, title="Time loop")
    for cell in ms.CELLS.names():
        made.add_row(cell, *(ms.backends(ms.RNN(cell, 1, 128).to(place))[0] for place in places))
    return made


def cpu_loop() -> str:
    """What the loop on the CPU is made of, and why no GPU is used if none is."""
    without = f"PyTorch's operations, slower than with llvmlite: {how_to_install('llvmlite')}"
    loop = f"The loop on the CPU is {'compiled by llvmlite' if compiler_of_passes() else without}."
    if torch.cuda.is_available():
        return loop
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    return f"{loop}\nNo GPU is used: this PyTorch is {built} and finds none."


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
