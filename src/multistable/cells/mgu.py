"""Minimal gated unit (appendix A of the paper)."""

from typing import Any

from torch import Tensor, sigmoid, tanh

from multistable.cells import initial
from multistable.cells.base import Cell, Hidden, KeepGate


class MGU(Cell[Hidden]):
    """MGU; columns of the weights in the order f, h."""

    State = Hidden
    keep_gate = KeepGate(0, sign=-1)
    recurrent_matrices = 2

    def __init__(self, input_size: int, hidden_size: int, **factory: Any) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = initial.glorot(input_size, hidden_size, gates=2, **factory)
        self.recurrent_weight = initial.glorot(hidden_size, hidden_size, gates=2, **factory)
        self.bias = initial.constant(2 * hidden_size, value=0.0, **factory)

    def step(self, projected: Tensor, state: Hidden) -> Hidden:
        f_u, h_u = projected.chunk(2, dim=-1)
        W_fh, W_hh = self.recurrent_weight.chunk(2, dim=-1)
        f = sigmoid(f_u + state.h @ W_fh)
        candidate = tanh(h_u + (f * state.h) @ W_hh)
        return Hidden(f * candidate + (1 - f) * state.h)
