"""The time loop, written plainly: what every faster version is compared with."""

from typing import Any

import torch
from torch import Tensor

from multistable.cells.base import Cell


def scan(cell: Cell[Any], projected: Tensor, state: Any) -> Any:
    """All states of ``cell``.

    Args:
        projected: projected inputs, ``(time, ..., n, any)``.
        state: the state before the first step, each field ``(..., n, hidden_size)``.

    Returns:
        The state after each step, each field ``(time, ..., n, hidden_size)``.
    """
    states = []
    for projected_t in projected:
        state = cell.checked_step(projected_t, state)
        states.append(state)
    return cell.State(*(torch.stack(field) for field in zip(*states, strict=True)))


def only_last(cell: Cell[Any], projected: Tensor, state: Any) -> Any:
    """The state after the last step, each field ``(..., n, hidden_size)``; arguments as for :func:`scan`."""
    for projected_t in projected:
        state = cell.checked_step(projected_t, state)
    return state
