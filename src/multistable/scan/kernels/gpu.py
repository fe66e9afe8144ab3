"""What a launch must know of a GPU, and the memory in which programs meet."""

import importlib
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor

from multistable.scan.kernels.form import Form
from multistable.scan.kernels.plan import Plan, plan


@cache
def matrix_kernels() -> Any:
    """The kernels on the matrix units, or None where Gluon, in which they are written, is missing or too old."""
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 6):
        return None
    try:
        return importlib.import_module("multistable.scan.kernels.matrix")
    except ImportError:  # Triton still calls it experimental, and may move it; float32 does not need it.
        return None


@cache
def capacity(device: torch.device) -> dict[str, Any]:
    """The facts of a device that decide a plan: multiprocessors, bytes of shared memory for a program, matrix units."""
    if device.type == "cuda":
        properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
        ampere = torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)
        return {
            "processors": properties["multiprocessor_count"],
            "shared_memory": properties["max_shared_mem"],
            "matrix_units": ampere and matrix_kernels() is not None,
        }
    # Triton's interpreter runs one program after the other, so that none can wait for another, and knows no Gluon.
    return {"processors": 1, "shared_memory": 2**20, "matrix_units": False}


def plan_for(
    form: Form, device: torch.device, members: int, rows: int, precision: str, *, backward: bool
) -> Plan | None:
    """The division of a launch; None for a form without products."""
    if not form.blocks:
        return None
    facts = capacity(device)
    if not form.fits_matrix_units:
        facts = facts | {"matrix_units": False}
    sizes = {"hidden": form.program.hidden, "gates": form.blocks, "members": members, "rows": rows}
    return plan(**sizes, precision=precision, backward=backward, **facts)


def arrivals_of(division: Plan, like: Tensor) -> Tensor:
    """Memory in which the programs of each group count their meetings; never read if there are none."""
    if division.splits == 1:
        return like
    return torch.zeros(division.groups, dtype=torch.int64, device=like.device)


def inbox_of(division: Plan, like: Tensor, readers: int) -> Tensor:
    """Memory in which the programs of a group on the matrix units send each other numbers; never read by a lone one.

    It has place for ``(rows, inputs)`` numbers for each of ``readers``, which is 1 if all programs read the same.
    """
    if division.splits == 1:
        return like
    return like.new_zeros(2, division.groups, readers, division.rows, division.inputs)
