"""The simple recurrent cell of ``torch.nn.RNN``: not in the paper, here so that its networks can be studied."""

from typing import Any

from torch import Tensor, relu, tanh

from multistable.cells import initial
from multistable.cells.base import Cell, Hidden


class Elman(Cell[Hidden]):
    """h_t = tanh(W_u u_t + W_h h_{t-1} + b), or ReLU in place of tanh.

    ``recurrent_bias=True`` adds the second bias vector of ``torch.nn.RNN``.
    """

    State = Hidden

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        nonlinearity: str = "tanh",
        recurrent_bias: bool = False,
        **factory: Any,
    ) -> None:
        super().__init__(input_size, hidden_size)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity
        self.input_weight = initial.glorot(input_size, hidden_size, gates=1, **factory)
        self.recurrent_weight = initial.orthogonal(hidden_size, gates=1, **factory)
        self.bias = initial.constant(hidden_size, value=0.0, **factory)
        self.recurrent_bias = initial.constant(hidden_size, value=0.0, **factory) if recurrent_bias else None

    def step(self, projected: Tensor, state: Hidden) -> Hidden:
        activation = tanh if self.nonlinearity == "tanh" else relu
        return Hidden(activation(projected + state.h @ self.recurrent_weight))
