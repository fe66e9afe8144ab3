"""The simple recurrent cell of ``torch.nn.RNN``. Not in the paper: it lets networks of that kind be studied."""

from typing import Any

from torch import Tensor, relu, tanh

from multistable.arguments import truth_value
from multistable.cells import initial
from multistable.cells.base import Cell, Hidden


class Elman(Cell[Hidden]):
    """h_t = tanh(W_u u_t + W_h h_{t-1} + b), or ReLU in place of tanh.

    ``recurrent_bias=True`` adds the second bias vector of ``torch.nn.RNN``.
    """

    State = Hidden
    torch_gates = (0,)
    added_gates = 1
    recurrent_matrices = 1
    recurrent_bias: Tensor | None

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
        both = truth_value("recurrent_bias", recurrent_bias)
        self.recurrent_bias = initial.constant(hidden_size, value=0.0, **factory) if both else None

    @property
    def torch_kind(self) -> str:
        """``torch.nn`` has one for each activation."""
        return f"RNN_{self.nonlinearity.upper()}"

    def step(self, projected: Tensor, state: Hidden) -> Hidden:
        activation = tanh if self.nonlinearity == "tanh" else relu
        return Hidden(activation(projected + state.h @ self.recurrent_weight))
