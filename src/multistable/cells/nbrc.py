"""Neuromodulated bistable recurrent cell (appendix A of the paper)."""

from typing import Any

from torch import Tensor, sigmoid, tanh

from multistable.cells import initial
from multistable.cells.base import Cell, Hidden, KeepGate


class NBRC(Cell[Hidden]):
    """NBRC; columns of the weights in the order c, a, h (the recurrent matrix: c, a)."""

    State = Hidden
    keep_gate = KeepGate(0)
    recurrent_matrices = 2

    def __init__(self, input_size: int, hidden_size: int, **factory: Any) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = initial.glorot(input_size, hidden_size, gates=3, **factory)
        self.recurrent_weight = initial.glorot(hidden_size, hidden_size, gates=2, **factory)
        self.bias = initial.constant(3 * hidden_size, value=0.0, **factory)

    def step(self, projected: Tensor, state: Hidden) -> Hidden:
        c_u, a_u, h_u = projected.chunk(3, dim=-1)
        c_h, a_h = (state.h @ self.recurrent_weight).chunk(2, dim=-1)
        c = sigmoid(c_u + c_h)
        a = 1 + tanh(a_u + a_h)
        return Hidden(c * state.h + (1 - c) * tanh(h_u + a * state.h))
