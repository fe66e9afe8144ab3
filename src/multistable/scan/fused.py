"""The time loop of any cell as one kernel launch, on a GPU, through Triton.

The same signature and the same results as ``reference.scan``, for every cell of which a program can be made. The
kernels load late: Triton is not a dependency of this library, the CUDA builds of PyTorch bring it.
"""

import importlib.util
import math
import os
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan.program import RefusedError, weights_of
from multistable.scan.program.members import program_of_members

if TYPE_CHECKING:
    from multistable.scan.kernels.form import Form

PRECISIONS = ("ieee", "tf32x3", "tf32")
"""How precisely products with the recurrent matrix are computed: float32, almost float32, and TF32.

Almost float32 is the sum of three products in half precision; it applies to the products with the input as well. With
the other two, products with the input follow PyTorch's own setting.
"""

MAX_HIDDEN = 1024


def supported(cell: Cell[Any], projected: Tensor) -> str | None:
    """Why the kernels cannot advance ``cell`` over inputs, projected or not; None if they can."""
    weights = weights_of(cell)
    reason = _unfit(cell, projected, weights)
    try:
        if reason is None:
            _prepared(cell, weights, projected.dim() - 3)
    except RefusedError as refused:
        reason = _refusal(cell, refused)
    return reason


def _unfit(cell: Cell[Any], projected: Tensor, weights: dict[str, Tensor]) -> str | None:
    """Why these tensors cannot be computed with here."""
    if cell.hidden_size > MAX_HIDDEN:
        return f"the kernels take at most {MAX_HIDDEN} hidden units, got {cell.hidden_size}"
    if not _has_triton():
        return "Triton is not installed"
    if not projected.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the kernels run on a CUDA device, got {projected.device}"
    for tensor in (projected, *weights.values()):
        if tensor.dtype != torch.float32:
            return f"the kernels compute in float32, got {tensor.dtype}"
        if tensor.device != projected.device:
            return f"the cell is on {tensor.device}, its input on {projected.device}"
    if projected.numel() == 0:
        return f"the input must not be empty, got {tuple(projected.shape)}"
    return None


def _prepared(cell: Cell[Any], weights: dict[str, Tensor], dims: int) -> "tuple[Form, dict[str, Tensor], int]":
    """The form of the program that ``program_of_members`` has, its weights, and how many members these are of."""
    from multistable.scan.kernels.form import form_of

    program, weights, members = program_of_members(cell, weights, dims)
    return form_of(program), weights, members


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
    return _run(cell, projected, (None, None), state, precision=precision, only_last=only_last)


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
    if type(cell).project is not Cell.project:
        x = cell.project(u)
        if steps is not None:
            x = x.expand(steps, *x.shape[1:])
        return _run(cell, x, (None, None), state, precision=precision, only_last=only_last)
    input_bias = cell.input_bias
    lead = input_bias.shape[:-1]
    if lead and u.shape[1:-2] != lead:
        u = u.expand(len(u), *lead, *u.shape[-2:])
    of_input = (cell.input_weight, input_bias)
    return _run(cell, u, of_input, state, precision=precision, steps=steps, only_last=only_last)


def _run(
    cell: Cell[Any],
    x: Tensor,
    of_input: tuple[Tensor | None, Tensor | None],
    state: Any,
    *,
    precision: str,
    steps: int | None = None,
    only_last: bool,
) -> Any:
    """The states over inputs ``x (time, ..., n, any)`` with the weight and the bias ``of_input``, or projected ones."""
    from multistable.scan.kernels import recurrence

    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    weights = weights_of(cell)
    reason = _unfit(cell, x, weights)
    if reason is not None:
        raise ValueError(f"the fused time loop cannot run: {reason}")
    try:
        form, weights, members = _prepared(cell, weights, x.dim() - 3)
    except RefusedError as refused:
        raise ValueError(f"the fused time loop cannot run: {_refusal(cell, refused)}") from refused
    fields = () if state is None else tuple(_expanded(cell, x, state))
    *lead, n, _ = x.shape[1:]
    as_rows = math.prod(lead) != members  # weights that all recurrences share: each is some rows more
    if as_rows:
        x = x.reshape(len(x), -1, x.shape[-1])
        fields = tuple(field.reshape(-1, field.shape[-1]) for field in fields)
    run = recurrence.only_last if only_last else recurrence.all_states
    prepared = tuple(form.program.prepare(list(weights.values())))
    states = run(form, precision, x, *of_input, prepared, fields, steps=steps)
    return cell.State(*(field.unflatten(-2, (*lead, n)) if as_rows else field for field in states))


def _refusal(cell: Cell[Any], reason: RefusedError) -> str:
    return f"{type(cell).__name__} has no fused loop: {reason}"


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


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
