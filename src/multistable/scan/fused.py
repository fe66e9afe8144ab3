"""The time loop of every cell in ``CELLS`` as one kernel launch, on a GPU, through Triton.

The same signature and the same results as ``reference.scan``. The kernels load late: Triton is not a dependency
of this library, the CUDA builds of PyTorch bring it.
"""

import importlib.util
import os
from functools import cache
from typing import Any

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.cells.brc import BRC
from multistable.cells.chrono import ChronoLSTM
from multistable.cells.gru import GRU
from multistable.cells.lstm import LSTM
from multistable.cells.mgu import MGU
from multistable.cells.nbrc import NBRC

PRECISIONS = ("ieee", "tf32x3", "tf32")
"""Of the products with the recurrent matrix: float32, three TF32 products that make up almost float32, TF32."""

MAX_HIDDEN = 1024

# By exact type: a subclass may have another step.
_KINDS: dict[type[Cell[Any]], str] = {
    LSTM: "lstm",
    ChronoLSTM: "lstm",
    GRU: "gru",
    MGU: "mgu",
    BRC: "brc",
    NBRC: "nbrc",
}


def supported(cell: Cell[Any], projected: Tensor) -> str | None:
    """Why the kernels cannot advance ``cell`` over inputs, ``projected`` or not, or None where they can."""
    if type(cell) not in _KINDS:
        return f"there is no kernel for {type(cell).__name__}"
    if cell.hidden_size > MAX_HIDDEN:
        return f"the kernels take at most {MAX_HIDDEN} hidden units, got {cell.hidden_size}"
    if not _has_triton():
        return "Triton is not installed"
    if not projected.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the kernels run on a CUDA device, got {projected.device}"
    if projected.is_cuda and torch.is_autocast_enabled("cuda"):
        return "the kernels do not follow torch.autocast"
    for tensor in (projected, *cell.parameters()):
        if tensor.dtype != torch.float32:
            return f"the kernels compute in float32, got {tensor.dtype}"
        if tensor.device != projected.device:
            return f"the cell is on {tensor.device}, its input on {projected.device}"
    if projected.numel() == 0:
        return f"the input must not be empty, got {tuple(projected.shape)}"
    return None


def scan(cell: Cell[Any], projected: Tensor, state: Any, *, precision: str = "ieee") -> Any:
    """All states of ``cell``.

    Second derivatives raise: ``reference.scan`` has them.

    Args:
        projected: projected inputs, ``(time, ..., n, gates * hidden_size)``; an input constant in time may have
            stride 0 there.
        state: the state before the first step, each field ``(..., n, hidden_size)``.
        precision: of the recurrent products, at least, one of ``PRECISIONS``.

    Returns:
        The state after each step, each field ``(time, ..., n, hidden_size)``.
    """
    return _all_states(cell, projected, state, precision, own=False)


def scan_input(cell: Cell[Any], u: Tensor, state: Any, *, precision: str = "ieee") -> Any:
    """``scan`` of ``cell.project(u)``, in half the memory: the recurrence overwrites the projected input.

    Args:
        u: inputs, ``(time, ..., n, input_size)``; leading dimensions may be 1 where the cell has more.
        state: the state before the first step, each field ``(..., n, hidden_size)``; zero when not given.
        precision: as for :func:`scan`.
    """
    from multistable.scan.kernels.project import Project
    from multistable.scan.kernels.recurrence import KINDS

    _refuse(supported(cell, u))
    lead = cell.bias.shape[:-1]
    u = u.expand(len(u), *lead, *u.shape[-2:]).reshape(len(u), -1, *u.shape[-2:])
    weight, bias = (x.reshape(-1, *x.shape[len(lead) :]) for x in (cell.input_weight, cell.bias))
    width = KINDS[_KINDS[type(cell)]].slots * cell.hidden_size
    projected = Project.apply(u, weight, bias, width)
    projected = projected.unflatten(1, lead) if lead else projected.squeeze(1)
    state = cell.zero_state(projected[0]) if state is None else cell.State(*state)
    return _all_states(cell, projected, state, precision, own=True)


def _all_states(cell: Cell[Any], projected: Tensor, state: Any, precision: str, *, own: bool) -> Any:
    from multistable.scan.kernels.recurrence import KINDS, all_states

    weight, bias = _check(cell, projected, state, precision)
    lead = projected.shape[1:-2]
    fields = all_states(
        KINDS[_KINDS[type(cell)]],
        precision,
        _flatten_lead(projected),
        weight.reshape(-1, *weight.shape[len(lead) :]),
        None if bias is None else bias.reshape(-1, bias.shape[-1]),
        *(x.expand(*lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in state),
        own=own,
    )
    return cell.State(*(x.unflatten(1, lead) if len(lead) > 1 else x if lead else x.squeeze(1) for x in fields))


@torch.no_grad()
def settle(cell: Cell[Any], projected: Tensor, state: Any, steps: int, *, precision: str = "ieee") -> Any:
    """The state after ``steps`` steps under a constant input; no state in between is stored, and none has a gradient.

    Args:
        projected: one projected input, ``(..., n, gates * hidden_size)``.
        state: the state before the first step, each field ``(..., n, hidden_size)``.

    Returns:
        The state after the last step, each field ``(..., n, hidden_size)``.
    """
    from multistable.scan.kernels.recurrence import KINDS, advance_all

    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    constant = projected.expand(steps, *projected.shape)
    weight, bias = _check(cell, constant, state, precision)
    lead = projected.shape[:-2]
    buffers, _, _ = advance_all(
        KINDS[_KINDS[type(cell)]],
        precision,
        _flatten_lead(constant),
        weight.reshape(-1, *weight.shape[len(lead) :]),
        None if bias is None else bias.reshape(-1, bias.shape[-1]),
        tuple(x.expand(*lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in state),
        save=False,
        keep=False,
    )
    return cell.State(*(x[:, steps % 2].clone().reshape(*lead, *x.shape[-2:]) for x in buffers))


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise ValueError(f"the fused time loop cannot run: {reason}")


def _check(cell: Cell[Any], projected: Tensor, state: Any, precision: str) -> tuple[Tensor, Tensor | None]:
    """The recurrent weight and bias, the latter of some GRUs; raises where the kernels cannot run."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    _refuse(supported(cell, projected))
    for name, x in zip(cell.State._fields, state, strict=True):
        if x.dtype != projected.dtype or x.device != projected.device:
            raise ValueError(
                f"state {name!r} must be {projected.dtype} on {projected.device} like the input, "
                f"got {x.dtype} on {x.device}"
            )
    weight: Any = cell.recurrent_weight
    bias: Any = getattr(cell, "recurrent_bias", None)
    lead = len(projected.shape) - 3
    expected = (*projected.shape[1:-2], *weight.shape[lead:])
    if tuple(weight.shape) != expected:
        raise ValueError(
            f"the leading dimensions of the weights must be those of the input, {tuple(projected.shape[1:-2])}, "
            f"got a recurrent weight of {tuple(weight.shape)}"
        )
    return weight, bias


def _flatten_lead(projected: Tensor) -> Tensor:
    """``(time, ..., n, any)`` as ``(time, networks, n, any)``; an expansion in time stays one."""
    if projected.dim() == 3:
        return projected.unsqueeze(1)
    lead = projected.stride()[1:-2]
    mergeable = all(lead[i] == lead[i + 1] * projected.shape[i + 2] for i in range(len(lead) - 1))
    if mergeable or projected.stride(0) != 0:
        return projected.flatten(1, -3)
    once = projected[0].flatten(0, -3)
    return once.expand(len(projected), *once.shape)
