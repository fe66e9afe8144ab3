"""The time loop: one entry point for every cell."""

from typing import Any

from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan import reference

__all__ = ["scan"]


def scan(cell: Cell[Any], u: Tensor, state: Any = None) -> Any:
    """Advance ``cell`` over a whole sequence of inputs and return all its states.

    An input that is constant in time, made with ``u.expand(time, ...)``, costs one product instead of one a step,
    unless its gradient is wanted.

    Args:
        u: inputs, ``(time, ..., n, input_size)`` with ``time >= 1``; ``...`` are the cell's leading dimensions.
        state: the state before the first step, each field ``(..., n, hidden_size)``; zero when not given.

    Returns:
        ``cell.State`` after each step, each field ``(time, ..., n, hidden_size)``.
    """
    if len(u) == 0:
        raise ValueError("sequences must have at least one time step, got length 0")
    if u.stride(0) == 0 and not u.requires_grad:
        once = cell.project(u[:1])
        projected = once.expand(len(u), *once.shape[1:])
    else:
        projected = cell.project(u)
    state = cell.zero_state(projected[0]) if state is None else cell.State(*state)
    return reference.scan(cell, projected, state)
