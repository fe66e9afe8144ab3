"""The time loop of any cell as one kernel launch, on a GPU, through Triton.

The same signature and the same results as ``reference.scan``, for every cell of which a program can be made. The
kernels load late: Triton is not a dependency of this library, the CUDA builds of PyTorch bring it.
"""

import importlib.util
import math
import os
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan.program import RefusedError, weights_of
from multistable.scan.program.members import Members, program_of_members

PRECISIONS = ("ieee", "tf32x3", "tf32")
"""How precisely products with the recurrent matrix are computed: float32, almost float32, and TF32.

Almost float32 is the sum of three products in half precision; it applies to the products with the input as well. With
the other two, products with the input follow PyTorch's own setting.
"""

MAX_HIDDEN = 1024


class OfInput(NamedTuple):
    """The weights that the product with the input takes.

    Attributes:
        weight: ``(..., in, gates * hidden_size)``.
        bias: ``(..., gates * hidden_size)``.
        second: like ``bias``, of which the first ``columns`` are added to it; or None.
    """

    weight: Tensor
    bias: Tensor
    second: Tensor | None
    columns: int


def prepared(cell: Cell[Any], x: Tensor) -> Members:
    """What the kernels take to advance ``cell`` over inputs, projected or not; ``RefusedError`` where they cannot."""
    from multistable.scan.kernels.form import form_of

    weights = weights_of(cell)
    reason = _unfit(cell, x, weights)
    if reason is not None:
        raise RefusedError(reason)
    members = program_of_members(cell, weights, x.dim() - 3)
    try:
        form_of(members.program)
    except RefusedError as refused:
        raise RefusedError(f"{type(cell).__name__} has no fused loop: {refused}") from refused
    return members


def _unfit(cell: Cell[Any], projected: Tensor, weights: dict[str, Tensor]) -> str | None:
    """Why these tensors cannot be computed with here."""
    if cell.hidden_size > MAX_HIDDEN:
        return f"the kernels take at most {MAX_HIDDEN} hidden units, got {cell.hidden_size}"
    if not has_triton():
        return "Triton is not installed"
    if not projected.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the kernels run on a CUDA device, got {projected.device}"
    device = projected.device
    for tensor in (projected, *weights.values()):
        if tensor.dtype != torch.float32:
            return f"the kernels compute in float32, got {tensor.dtype}"
        if tensor.device != device:
            return f"the cell is on {tensor.device}, its input on {device}"
    if projected.numel() == 0:
        return f"the input must not be empty, got {tuple(projected.shape)}"
    return None


def scan(
    cell: Cell[Any],
    projected: Tensor,
    state: Any,
    *,
    precision: str = "ieee",
    only_last: bool = False,
    members: Members | None = None,
) -> Any:
    """All states of ``cell``, or only the last.

    Second derivatives raise: ``reference.scan`` has them.

    Args:
        projected: projected inputs, ``(time, ..., n, gates * hidden_size)``; an input constant in time may have
            stride 0 there.
        state: the state before the first step, each field ``(..., n, hidden_size)``.
        precision: the least precision of the recurrent products, one of ``PRECISIONS``.
        only_last: return the state after the last step alone, without gradient; no other is stored.
        members: what :func:`prepared` returns for this call, if it is known.

    Returns:
        The state after each step, each field ``(time, ..., n, hidden_size)``; without time if ``only_last``.
    """
    return _run(cell, projected, None, state, precision=precision, only_last=only_last, members=members)


def scan_input(
    cell: Cell[Any],
    u: Tensor,
    state: Any = None,
    *,
    precision: str = "ieee",
    steps: int | None = None,
    only_last: bool = False,
    members: Members | None = None,
) -> Any:
    """``scan`` of ``cell.project(u)``, in half the memory: the recurrence overwrites the projected input.

    Args:
        u: inputs, ``(time, ..., n, input_size)``; leading dimensions may be 1 where the cell has more.
        state: the state before the first step, each field ``(..., n, hidden_size)``; zero if not given.
        precision: as for :func:`scan`.
        steps: the number of steps, if ``u (1, ...)`` is one input for all of them; only without a gradient.
        only_last: as for :func:`scan`.
        members: what :func:`prepared` returns for this call, if it is known.
    """
    if type(cell).project is not Cell.project:
        x = cell.project(u)
        if steps is not None:
            x = x.expand(steps, *x.shape[1:])
        return _run(cell, x, None, state, precision=precision, only_last=only_last)
    second = cell.added_bias if type(cell).input_bias is Cell.input_bias else None
    bias = cell.input_bias if second is None else cell.bias
    of_input = OfInput(cell.input_weight, bias, second, cell.added_columns)
    lead = bias.shape[:-1]
    if lead and u.shape[1:-2] != lead:
        u = u.expand(len(u), *lead, *u.shape[-2:])
    return _run(cell, u, of_input, state, precision=precision, steps=steps, only_last=only_last, members=members)


def _run(
    cell: Cell[Any],
    x: Tensor,
    of_input: OfInput | None,
    state: Any,
    *,
    precision: str,
    steps: int | None = None,
    only_last: bool,
    members: Members | None = None,
) -> Any:
    """The states over inputs ``x (time, ..., n, any)`` with the weights ``of_input``, or projected ones."""
    from multistable.scan.kernels import recurrence
    from multistable.scan.kernels.form import form_of

    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    try:
        members = prepared(cell, x) if members is None else members
    except RefusedError as reason:
        raise ValueError(f"the fused time loop cannot run: {reason}") from reason
    fields = () if state is None else tuple(_expanded(cell, x, state))
    *lead, n, _ = x.shape[1:]
    as_rows = math.prod(lead) != members.number  # weights that all recurrences share: each is some rows more
    if as_rows:
        x = x.reshape(len(x), -1, x.shape[-1])
        fields = tuple(field.reshape(-1, field.shape[-1]) for field in fields)
    run = recurrence.only_last if only_last else recurrence.all_states
    states = run(form_of(members.program), precision, x, of_input, members.sources(), fields, steps=steps)
    return cell.State(*([field.unflatten(-2, (*lead, n)) for field in states] if as_rows else states))


@cache
def has_triton() -> bool:
    """Whether Triton can be imported; it is searched for once."""
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
