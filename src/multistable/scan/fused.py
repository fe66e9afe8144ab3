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
from multistable.scan.kernels.kinds import KINDS, Kind

PRECISIONS = ("ieee", "tf32x3", "tf32")
"""How precisely products with the recurrent matrix are computed: float32, almost float32, and TF32.

Almost float32 is the sum of three products in half precision; it applies to the products with the input as well. With
the other two, products with the input follow PyTorch's own setting.
"""

MAX_HIDDEN = 1024

# By exact type: a subclass may have another step.
_KINDS: dict[type[Cell[Any]], Kind] = {
    LSTM: KINDS["lstm"],
    ChronoLSTM: KINDS["lstm"],
    GRU: KINDS["gru"],
    MGU: KINDS["mgu"],
    BRC: KINDS["brc"],
    NBRC: KINDS["nbrc"],
}


def supported(cell: Cell[Any], projected: Tensor) -> str | None:
    """Why the kernels cannot advance ``cell`` over inputs, projected or not; None if they can."""
    if type(cell) not in _KINDS:
        return f"there is no kernel for {type(cell).__name__}"
    if cell.hidden_size > MAX_HIDDEN:
        return f"the kernels take at most {MAX_HIDDEN} hidden units, got {cell.hidden_size}"
    if not _has_triton():
        return "Triton is not installed"
    if not projected.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the kernels run on a CUDA device, got {projected.device}"
    if torch.is_autocast_enabled(projected.device.type):
        return "the kernels do not follow torch.autocast"
    # Not cell.parameters(), which also looks for modules inside: that would be host time of every call.
    for tensor in (projected, *(weight for weight in cell._parameters.values() if weight is not None)):
        if tensor.dtype != torch.float32:
            return f"the kernels compute in float32, got {tensor.dtype}"
        if tensor.device != projected.device:
            return f"the cell is on {tensor.device}, its input on {projected.device}"
    if projected.numel() == 0:
        return f"the input must not be empty, got {tuple(projected.shape)}"
    return None


def scan(cell: Cell[Any], projected: Tensor, state: Any, *, precision: str = "ieee", only_last: bool = False) -> Any:
    """All states of ``cell``, or only the last.

    Second derivatives raise: ``reference.scan`` has them.

    Args:
        projected: projected inputs, ``(time, ..., n, gates * hidden_size)``; an input constant in time may have
            stride 0 there.
        state: the state before the first step, each field ``(..., n, hidden_size)``.
        precision: the least precision of the recurrent products, one of ``PRECISIONS``.
        only_last: return the state after the last step alone, without gradient; no other is stored.

    Returns:
        The state after each step, each field ``(time, ..., n, hidden_size)``; without time if ``only_last``.
    """
    from multistable.scan.kernels import recurrence

    _check(cell, projected, precision)
    weight, bias = _recurrent(cell, projected)
    state = _expanded(cell, projected, state)
    run = recurrence.only_last if only_last else recurrence.all_states
    return cell.State(*run(_KINDS[type(cell)], precision, projected, None, None, weight, bias, *state))


def scan_input(
    cell: Cell[Any],
    u: Tensor,
    state: Any = None,
    *,
    precision: str = "ieee",
    steps: int | None = None,
    only_last: bool = False,
) -> Any:
    """``scan`` of ``cell.project(u)``, in half the memory: the recurrence overwrites the projected input.

    Args:
        u: inputs, ``(time, ..., n, input_size)``; leading dimensions may be 1 where the cell has more.
        state: the state before the first step, each field ``(..., n, hidden_size)``; zero if not given.
        precision: as for :func:`scan`.
        steps: the number of steps, if ``u (1, ...)`` is one input for all of them; only without a gradient.
        only_last: as for :func:`scan`.
    """
    from multistable.scan.kernels import recurrence

    _check(cell, u, precision)
    input_bias = cell.input_bias
    lead = input_bias.shape[:-1]
    if u.shape[1:-2] != lead:
        u = u.expand(len(u), *lead, *u.shape[-2:])
    state = () if state is None else _expanded(cell, u, state)
    run = recurrence.only_last if only_last else recurrence.all_states
    inputs = (_KINDS[type(cell)], precision, u, cell.input_weight, input_bias, *_recurrent(cell, u), *state)
    return cell.State(*run(*inputs, steps=steps))


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _check(cell: Cell[Any], x: Tensor, precision: str) -> None:
    """Raise if the kernels cannot run."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    reason = supported(cell, x)
    if reason is not None:
        raise ValueError(f"the fused time loop cannot run: {reason}")


def _recurrent(cell: Cell[Any], x: Tensor) -> tuple[Tensor, Tensor | None]:
    """The recurrent weight, and the bias inside the candidate of a GRU, for inputs ``(time, ..., n, any)``."""
    weight: Any = cell.recurrent_weight
    bias: Any = getattr(cell, "candidate_bias", None)
    lead = x.shape[1:-2]
    if weight.shape[: len(lead)] != lead or cell.bias.dim() != len(lead) + 1:
        raise ValueError(
            f"the leading dimensions of the weights must be those of the input, {tuple(lead)}, "
            f"got a recurrent weight of {tuple(weight.shape)}"
        )
    return weight, bias


def _expanded(cell: Cell[Any], x: Tensor, state: Any) -> list[Tensor]:
    """The fields of the state, each with the leading dimensions of ``x (time, ..., n, any)``."""
    fields = []
    for name, field in zip(cell.State._fields, state, strict=True):
        if field.dtype != x.dtype or field.device != x.device:
            raise ValueError(
                f"state {name!r} must be {x.dtype} on {x.device} like the input, got {field.dtype} on {field.device}"
            )
        fields.append(field if field.shape[:-2] == x.shape[1:-2] else field.expand(*x.shape[1:-2], *field.shape[-2:]))
    return fields
