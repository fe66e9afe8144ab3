"""The time loop on the CPU: the numbers of ``reference``, from buffers made once and written in place.

``equations`` has the formulas of each cell, ``loop`` the time loop and its gradient, written once for all.
"""

from typing import Any

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan.cpu import loop
from multistable.scan.cpu.equations import EQUATIONS

__all__ = ["last", "scan", "supported"]


def supported(cell: Cell[Any], projected: Tensor) -> str | None:
    """Why this time loop cannot advance ``cell`` over ``projected`` inputs; None when it can."""
    if type(cell).step not in EQUATIONS:
        return f"{type(cell).__name__} has equations that the fused loop on the CPU does not know"
    if torch.is_autocast_enabled("cpu"):
        return "the fused loop on the CPU does not follow torch.autocast"
    for name, tensor in (("input", projected), *_weights(cell).items()):
        if tensor.device.type != "cpu":
            return f"the fused loop on the CPU needs tensors on the CPU, got the {name} on {tensor.device}"
        if tensor.dtype not in (torch.float32, torch.float64):
            return f"the fused loop on the CPU needs float32 or float64, got the {name} in {tensor.dtype}"
        if tensor.dtype != projected.dtype:
            return f"the fused loop needs one dtype, got the input in {projected.dtype}, the {name} in {tensor.dtype}"
    return None


def scan(cell: Cell[Any], projected: Tensor, state: Any) -> Any:
    """All states of ``cell``, as ``reference.scan`` gives them; first derivatives only.

    Args:
        projected: projected inputs, ``(time, ..., n, gates * hidden_size)``. An input that is constant in time,
            made with ``expand``, is never copied out.
        state: the state before the first step, each field ``(..., n, hidden_size)``.

    Returns:
        The state after each step, each field ``(time, ..., n, hidden_size)``.
    """
    shape = (*projected.shape[:-1], cell.hidden_size)
    states = loop.all_states(_flat(cell, projected, state))
    return cell.State(*(field.reshape(shape) for field in states))


@torch.no_grad()
def last(cell: Cell[Any], projected: Tensor, state: Any) -> Any:
    """The state after the last step alone, without gradient: what a long stabilisation needs.

    Arguments as for :func:`scan`; each field of the result is ``(..., n, hidden_size)``. Memory does not grow
    with time when the input is constant.
    """
    shape = (*projected.shape[1:-1], cell.hidden_size)
    states = loop.last_state(_flat(cell, projected, state))
    return cell.State(*(field.reshape(shape) for field in states))


def _weights(cell: Cell[Any]) -> dict[str, Tensor]:
    weights = {"recurrent_weight": cell.recurrent_weight, "recurrent_bias": getattr(cell, "recurrent_bias", None)}
    return {name: tensor for name, tensor in weights.items() if isinstance(tensor, Tensor)}


def _flat(cell: Cell[Any], projected: Tensor, state: Any) -> loop.Arguments:
    """The arguments of the loop: leading dimensions as one, ``(N,)``, or as none where there is one recurrence."""
    reason = supported(cell, projected)
    if reason is not None:
        raise ValueError(reason)
    for name, field in zip(cell.State._fields, state, strict=True):
        if field.dtype != projected.dtype or field.device != projected.device:
            raise ValueError(
                f"state {name} must be {projected.dtype} on {projected.device} like the input, "
                f"got {field.dtype} on {field.device}"
            )
    steps, *leading, n, columns = projected.shape
    recurrences = (leading_size,) if (leading_size := torch.Size(leading).numel()) != 1 else ()
    # Time steps that share memory are one step, used over and over.
    different = projected[:1] if projected.stride(0) == 0 else projected
    equations = EQUATIONS[type(cell).step]

    def flat(weight: Tensor) -> Tensor:
        own = weight.shape[-equations.weight_dim :] if weight is cell.recurrent_weight else weight.shape[-1:]
        return weight.expand(*leading, *own).reshape(*recurrences, *own)

    return loop.Arguments(
        equations,
        steps,
        different.reshape(len(different), *recurrences, n, columns),
        tuple(field.expand(*leading, n, -1).reshape(*recurrences, n, cell.hidden_size) for field in state),
        tuple(flat(weight) for weight in _weights(cell).values()),
    )
