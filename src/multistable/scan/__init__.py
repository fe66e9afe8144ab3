"""The time loop: one entry point for every cell, the plain loop as the reference, fused loops beside it."""

from typing import Any

from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan.choice import Choice, advance, choose, engine, settle

__all__ = ["Choice", "choose", "engine", "scan"]


def scan(cell: Cell[Any], u: Tensor, state: Any = None, *, only_last: bool = False) -> Any:
    """Advance ``cell`` over a whole sequence of inputs.

    An input that is constant in time, made with ``u.expand(time, ...)``, costs one product instead of one a step,
    unless its gradient is wanted.

    Args:
        u: inputs, ``(time, ..., n, input_size)`` with ``time >= 1``; ``...`` are the cell's leading dimensions.
        state: the state before the first step, each field ``(..., n, hidden_size)``; zero when not given.
        only_last: return the state after the last step alone, without gradient; no other is stored.

    Returns:
        ``cell.State`` after each step, each field ``(time, ..., n, hidden_size)``; without time if ``only_last``.
    """
    if len(u) == 0:
        raise ValueError("sequences must have at least one time step, got length 0")
    constant = u.stride(0) == 0 and not u.requires_grad
    return (settle if only_last else advance)(cell, u[:1] if constant else u, state, len(u))
