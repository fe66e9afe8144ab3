"""The states of all layers of a network: one by one, and together as one vector."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from multistable.networks.layers import LayerState

States = list[LayerState]
"""The state of a network: one entry for each layer."""


def map_states(change: Callable[..., Tensor], *states: Sequence[LayerState]) -> States:
    """``change`` applied to every tensor of one or more states of the same structure."""

    def cell_state(*fields: Any) -> Any:
        changed = [change(*tensors) for tensors in zip(*fields, strict=True)]
        return fields[0]._make(changed) if hasattr(fields[0], "_make") else tuple(changed)

    return [tuple(cell_state(*cells) for cells in zip(*layer, strict=True)) for layer in zip(*states, strict=True)]


def at_time(states: Sequence[LayerState], index: Tensor | int) -> States:
    """States ``(..., n, d)`` at one time step, or each at its own, ``index (..., n)``, taken from states over time."""
    if isinstance(index, int):
        return map_states(lambda x: x[index], states)
    where = index.unsqueeze(0).unsqueeze(-1)
    return map_states(lambda x: x.gather(0, where.expand(1, *x.shape[1:])).squeeze(0), states)


def rows_of(x: Tensor, index: Tensor) -> Tensor:
    """Some rows ``(..., k)`` of ``(..., n, d)``."""
    return x.gather(-2, index.unsqueeze(-1).expand(*index.shape, x.shape[-1]))


def flat(states: Sequence[LayerState]) -> Tensor:
    """The whole state as one vector ``(..., n, d)``: layer by layer, and [h, c] for LSTM."""
    return torch.cat([field for layer in states for cell in layer for field in cell], dim=-1)


def divided(x: Tensor, like: Sequence[LayerState]) -> States:
    """The inverse of :func:`flat`: whole states ``(..., n, d)`` as the states of each layer, as ``like`` are made."""
    parts = iter(x.split([field.shape[-1] for layer in like for cell in layer for field in cell], dim=-1))
    return map_states(lambda _: next(parts), like)
