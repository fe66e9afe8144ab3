"""The time loop on the CPU: the numbers of ``reference``, from buffers made once and written in place.

``loop`` has the buffers, the products and the gradient, for every cell of which a program can be made. ``passes`` runs
what stands between products: where llvmlite is installed (the extra ``cpu``) as machine code that ``compiled`` makes
of the program, with a tanh that is many times faster than PyTorch's; else as operations of PyTorch.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from multistable.cells.base import Cell
from multistable.scan.cpu import loop
from multistable.scan.cpu.passes import compiler_of_passes
from multistable.scan.program import RefusedError, weights_of
from multistable.scan.program.members import Members, program_of_members

__all__ = ["compiler_of_passes", "last", "prepared", "scan", "transformed"]


def prepared(cell: Cell[Any], x: Tensor) -> Members:
    """What this loop takes to advance ``cell`` over inputs, projected or not; ``RefusedError`` where it cannot."""
    weights = weights_of(cell)
    reason = unfit(x, weights)
    if reason is not None:
        raise RefusedError(reason)
    return program_of_members(cell, weights, x.dim() - 3)


def transformed() -> str | None:
    """Why nothing that only knows its gradient can be computed inside a transform of ``torch.func``."""
    if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
        return "the fused loop on the CPU has gradients alone, not the transforms of torch.func"
    return None


def unfit(projected: Tensor, weights: dict[str, Tensor]) -> str | None:
    """Why these tensors cannot be computed with here."""
    reason = transformed()
    if reason is not None:
        return reason
    if projected.numel() == 0:
        return f"the input must not be empty, got {tuple(projected.shape)}"
    for name, tensor in (("input", projected), *weights.items()):
        if tensor.device.type != "cpu":
            return f"the fused loop on the CPU needs tensors on the CPU, got the {name} on {tensor.device}"
        if tensor.dtype not in (torch.float32, torch.float64):
            return f"the fused loop on the CPU needs float32 or float64, got the {name} in {tensor.dtype}"
        if tensor.dtype != projected.dtype:
            return f"the fused loop needs one dtype, got the input in {projected.dtype}, the {name} in {tensor.dtype}"
    return None


def scan(
    cell: Cell[Any], projected: Tensor, state: Any, steps: int | None = None, members: Members | None = None
) -> Any:
    """All states of ``cell``, as ``reference.scan`` gives them; first derivatives only.

    Args:
        projected: projected inputs, ``(time, ..., n, gates * hidden_size)``, or ``(1, ...)`` for an input that is
            constant over ``steps`` steps. One made constant with ``expand`` is not copied out either.
        state: the state before the first step, each field ``(..., n, hidden_size)``.
        steps: how many time steps to take, where the input does not tell.
        members: what :func:`prepared` returns for this call, if it is known.

    Returns:
        The state after each step, each field ``(time, ..., n, hidden_size)``.
    """
    steps = len(projected) if steps is None else steps
    shape = (steps, *projected.shape[1:-1], cell.hidden_size)
    states = loop.all_states(_flat(cell, projected, state, steps, members))
    return cell.State(*(_shaped(field, *shape) for field in states))


@torch.no_grad()
def last(
    cell: Cell[Any], projected: Tensor, state: Any, steps: int | None = None, members: Members | None = None
) -> Any:
    """The state after the last step alone, without gradient: what a long stabilisation needs.

    Arguments as for :func:`scan`; each field of the result is ``(..., n, hidden_size)``. Memory does not grow
    with time when the input is constant.
    """
    shape = (*projected.shape[1:-1], cell.hidden_size)
    steps = len(projected) if steps is None else steps
    states = loop.last_state(_flat(cell, projected, state, steps, members))
    return cell.State(*(field.reshape(shape) for field in states))


def _flat(cell: Cell[Any], projected: Tensor, state: Any, steps: int, members: Members | None) -> loop.Arguments:
    """The arguments of the loop: leading dimensions as one, ``(N,)``, or as more rows where weights have none."""
    try:
        members = prepared(cell, projected) if members is None else members
    except RefusedError as refused:
        raise ValueError(str(refused)) from refused
    reason = unfit(projected, members.weights)  # a cell may project its input to anything
    if reason is not None:
        raise ValueError(reason)
    for name, field in zip(cell.State._fields, state, strict=True):
        if (field.dtype, field.device) != (projected.dtype, projected.device):
            raise ValueError(
                f"state {name} must be {projected.dtype} on {projected.device} as the input is, "
                f"got {field.dtype} on {field.device}"
            )
    _, *leading, n, columns = projected.shape
    program = members.program
    if columns != program.lanes * program.hidden:
        raise ValueError(f"projected inputs must have {program.lanes * program.hidden} columns, got {columns}")
    flat = [members.number] if members.number != 1 else []
    rows = math.prod(leading) * n // members.number
    # Steps that share their memory are one step, taken many times.
    different = projected[:1] if projected.stride(0) == 0 and len(projected) > 1 else projected
    shape = (*leading, n, cell.hidden_size)
    return loop.Arguments(
        program,
        steps,
        _shaped(different, len(different), *flat, rows, columns),
        tuple(_shaped(_expanded(field, *shape), *flat, rows, cell.hidden_size) for field in state),
        members.prepared(),
    )


def _expanded(tensor: Tensor, *shape: int) -> Tensor:
    return tensor if tensor.shape == shape else tensor.expand(shape)


def _shaped(tensor: Tensor, *shape: int) -> Tensor:
    """A view that changes nothing is work for autograd all the same."""
    return tensor if tensor.shape == shape else tensor.reshape(shape)
