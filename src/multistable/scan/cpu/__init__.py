"""The time loop on the CPU: the numbers of ``reference``, from buffers made once and written in place.

``base`` has the time loop, ``equations`` the formulas of each cell as operations of PyTorch, ``loop`` the buffers and
the gradient, written once for all. Where numba is installed (the extra ``cpu``), ``compiled`` advances float32: the
formulas of a step in one pass (``pointwise``), with a tanh that is many times faster than PyTorch's.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan.cpu import loop
from multistable.scan.cpu.base import Equations
from multistable.scan.cpu.equations import EQUATIONS

__all__ = ["last", "scan", "supported"]

SPREAD_BY_PYTORCH = 32_768
"""Elements above which PyTorch's passes use all threads, see ``Equations.few_threads``."""


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


def scan(cell: Cell[Any], projected: Tensor, state: Any, steps: int | None = None) -> Any:
    """All states of ``cell``, as ``reference.scan`` gives them; first derivatives only.

    Args:
        projected: projected inputs, ``(time, ..., n, gates * hidden_size)``, or ``(1, ...)`` for an input that is
            constant over ``steps`` steps. One made constant with ``expand`` is not copied out either.
        state: the state before the first step, each field ``(..., n, hidden_size)``.
        steps: how many time steps to take, where the input does not tell.

    Returns:
        The state after each step, each field ``(time, ..., n, hidden_size)``.
    """
    steps = len(projected) if steps is None else steps
    shape = (steps, *projected.shape[1:-1], cell.hidden_size)
    states = loop.all_states(_flat(cell, projected, state, steps))
    return cell.State(*(_shaped(field, *shape) for field in states))


@torch.no_grad()
def last(cell: Cell[Any], projected: Tensor, state: Any, steps: int | None = None) -> Any:
    """The state after the last step alone, without gradient: what a long stabilisation needs.

    Arguments as for :func:`scan`; each field of the result is ``(..., n, hidden_size)``. Memory does not grow
    with time when the input is constant.
    """
    shape = (*projected.shape[1:-1], cell.hidden_size)
    states = loop.last_state(_flat(cell, projected, state, len(projected) if steps is None else steps))
    return cell.State(*(field.reshape(shape) for field in states))


@cache
def compiled_equations() -> dict[type[Equations], type[Equations]]:
    """The compiled equations by those of PyTorch; empty without numba."""
    try:
        from multistable.scan.cpu import compiled
    except (ImportError, RuntimeError):  # not installed; or no folder in which numba may keep what it compiles
        return {}
    return compiled.EQUATIONS


def _equations(cell: Cell[Any], projected: Tensor) -> type[Equations]:
    """The fastest equations for this input."""
    plain = EQUATIONS[type(cell).step]
    elements = math.prod(projected.shape[1:-1]) * cell.hidden_size
    spread = elements > SPREAD_BY_PYTORCH and torch.get_num_threads() > plain.few_threads
    if projected.dtype != torch.float32 or spread:
        return plain
    return compiled_equations().get(plain, plain)


def _weights(cell: Cell[Any]) -> dict[str, Tensor]:
    """The recurrent weights by name: the matrix, or the vector of BRC, and the recurrent bias that a GRU may have."""
    weights: dict[str, Any] = {"recurrent_weight": cell.recurrent_weight}
    if EQUATIONS[type(cell).step].may_have_bias:  # a search for what is not there takes a module long
        weights["candidate_bias"] = cell.candidate_bias
    return {name: weight for name, weight in weights.items() if weight is not None}


def _flat(cell: Cell[Any], projected: Tensor, state: Any, steps: int) -> loop.Arguments:
    """The arguments of the loop: leading dimensions as one, ``(N,)``, or none where there is one recurrence."""
    reason = supported(cell, projected)
    if reason is not None:
        raise ValueError(reason)
    for name, field in zip(cell.State._fields, state, strict=True):
        if (field.dtype, field.device) != (projected.dtype, projected.device):
            raise ValueError(
                f"state {name} must be {projected.dtype} on {projected.device} as the input is, "
                f"got {field.dtype} on {field.device}"
            )
    _, *leading, n, columns = projected.shape
    recurrences = math.prod(leading)
    flat = [recurrences] if recurrences != 1 else []
    # Steps that share their memory are one step, taken many times.
    different = projected[:1] if projected.stride(0) == 0 and len(projected) > 1 else projected
    equations = _equations(cell, projected)
    weights = []
    for weight, dim in zip(_weights(cell).values(), (equations.weight_dim, 1), strict=False):
        own = weight.shape[-dim:]
        weights.append(_shaped(_expanded(weight, *leading, *own), *flat, *own))
    return loop.Arguments(
        equations,
        steps,
        _shaped(different, len(different), *flat, n, columns),
        tuple(_shaped(_expanded(field, *leading, n, cell.hidden_size), *flat, n, cell.hidden_size) for field in state),
        tuple(weights),
    )


def _expanded(tensor: Tensor, *shape: int) -> Tensor:
    return tensor if tensor.shape == shape else tensor.expand(shape)


def _shaped(tensor: Tensor, *shape: int) -> Tensor:
    """A view that changes nothing is work for autograd all the same."""
    return tensor if tensor.shape == shape else tensor.reshape(shape)
