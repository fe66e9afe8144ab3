"""Long short-term memory (appendix A of the paper)."""

import math
from typing import Any, NamedTuple

from torch import Tensor, sigmoid, tanh
from torch.nn import Parameter

from multistable.arguments import truth_value
from multistable.cells import initial
from multistable.cells.base import Cell, KeepGate


class HiddenAndMemory(NamedTuple):
    """The state [h, c] of an LSTM: its output and its memory."""

    h: Tensor
    c: Tensor


class LSTM(Cell[HiddenAndMemory]):
    """LSTM with PyTorch's initial weights; columns of the weights in the order f, i, r (output gate), c.

    PyTorch has two bias vectors, which are added. With ``recurrent_bias=True`` both are parameters, so that their sum
    moves twice as far in a step of Adam. Otherwise the cell has one, drawn as the sum of the two.
    """

    State = HiddenAndMemory
    torch_kind, torch_gates = "LSTM", (1, 0, 3, 2)
    added_gates = 4
    keep_gate = KeepGate(0, input=1)
    recurrent_matrices = 4
    recurrent_bias: Tensor | None

    def __init__(self, input_size: int, hidden_size: int, *, recurrent_bias: bool = False, **factory: Any) -> None:
        super().__init__(input_size, hidden_size)
        bound = 1 / math.sqrt(hidden_size)
        self.input_weight = initial.uniform(input_size, 4 * hidden_size, bound=bound, **factory)
        self.recurrent_weight = initial.uniform(hidden_size, 4 * hidden_size, bound=bound, **factory)
        first, second = (initial.uniform(4 * hidden_size, bound=bound, **factory) for _ in range(2))
        both = truth_value("recurrent_bias", recurrent_bias)
        self.bias = first if both else Parameter(first.detach() + second.detach())
        self.recurrent_bias = second if both else None

    def step(self, projected: Tensor, state: HiddenAndMemory) -> HiddenAndMemory:
        f, i, r, c = (projected + state.h @ self.recurrent_weight).chunk(4, dim=-1)
        memory = sigmoid(f) * state.c + sigmoid(i) * tanh(c)
        return HiddenAndMemory(sigmoid(r) * tanh(memory), memory)
