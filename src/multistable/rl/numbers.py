"""Random numbers of processes that compute on tensors: all of an episode follow from one draw.

The generator is that of Park and Miller (1988): s <- 48271 s mod (2^31 - 1).
"""

import torch
from torch import Tensor

MODULUS = 2**31 - 1
MULTIPLIER = 48271


def seeded(draws: Tensor) -> Tensor:
    """The generator's state for ``draws (...)`` from U(0, 1)."""
    return (draws * (MODULUS - 1)).long() + 1


def following(state: Tensor) -> Tensor:
    """The state after each of ``state (...)``."""
    return state * MULTIPLIER % MODULUS


def uniforms(draws: Tensor, count: int) -> Tensor:
    """So many numbers from U(0, 1) that follow from each of ``draws (...)``: ``(..., count)`` in float64."""
    states, state = [], seeded(draws.double())
    for _ in range(count):
        state = following(state)
        states.append(state)
    return torch.stack(states, dim=-1).double() / MODULUS
