"""Cells as users write them."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

import multistable as ms


class Traces(NamedTuple):
    h: Tensor
    slow: Tensor


class LeakyCell(ms.Cell):
    """A user's own cell: a leaky unit whose output sees a slow trace of the input; two fields of state."""

    State = Traces

    def __init__(self, input_size: int, hidden_size: int, *, leak: float = 0.3, generator=None, **factory) -> None:
        super().__init__(input_size, hidden_size)
        self.leak = leak
        self.input_weight = nn.Parameter(torch.randn(input_size, hidden_size, generator=generator, **factory))
        self.recurrent_weight = nn.Parameter(torch.randn(hidden_size, hidden_size, generator=generator, **factory))
        self.bias = nn.Parameter(torch.zeros(hidden_size, **factory))

    def step(self, projected: Tensor, state: Traces) -> Traces:
        slow = (1 - self.leak) * state.slow + self.leak * projected
        return Traces(torch.tanh(slow + state.h @ self.recurrent_weight), slow)


class Affine(nn.Module):
    """W_u u + b with leading dimensions, as a module of its own."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(input_size, hidden_size, dtype=torch.float64))
        self.bias = nn.Parameter(torch.randn(hidden_size, dtype=torch.float64))

    def forward(self, u: Tensor) -> Tensor:
        return u @ self.weight + self.bias.unsqueeze(-2)


class CellOfModules(ms.Cell):
    """A user's own cell that keeps its weights in submodules."""

    State = ms.CELLS["gru"].State

    def __init__(self, input_size: int, hidden_size: int, **_) -> None:
        super().__init__(input_size, hidden_size)
        self.read = Affine(input_size, hidden_size)
        self.recall = Affine(hidden_size, hidden_size)

    def project(self, u: Tensor) -> Tensor:
        return self.read(u)

    def step(self, projected: Tensor, state):
        return self.State(torch.tanh(projected + self.recall(state.h)))


class OneMatrix(ms.Cell):
    """A cell whose step is an expression of x, h, W, w and a state ``State(h)``."""

    def __init__(self, function, inputs=2, hidden=5) -> None:
        super().__init__(inputs, hidden)
        self.function = function
        self.input_weight = nn.Parameter(torch.randn(inputs, hidden))
        self.bias = nn.Parameter(torch.randn(hidden))
        self.W = nn.Parameter(torch.randn(hidden, hidden))
        self.w = nn.Parameter(torch.randn(hidden))
        self.register_buffer("buffer", torch.randn(hidden))

    def step(self, projected, state):
        return ms.Hidden(self.function(self, projected, state.h))
