"""The LSTM of ``torch.nn`` whose output is projected to fewer units."""

from typing import Any

from torch import Tensor, sigmoid, tanh

from multistable.arguments import positive_integer
from multistable.cells import initial
from multistable.cells.lstm import LSTM, HiddenAndMemory


class ProjectedLSTM(LSTM):
    """LSTM whose output is a product with a matrix, W_hr h_t, which is also what the next step reads.

    The state is [h, c] with ``projected_size`` entries of h and ``hidden_size`` of c; ``torch.nn.LSTM`` calls the first
    ``proj_size``.
    """

    recurrent_matrices = 0  # what it reads of the step before is not as large as what it keeps

    def __init__(self, input_size: int, hidden_size: int, projected_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        factory = {name: value for name, value in options.items() if name != "recurrent_bias"}
        self.projected_size = positive_integer("projected_size", projected_size)
        bound = 1 / hidden_size**0.5
        self.recurrent_weight = initial.uniform(projected_size, 4 * hidden_size, bound=bound, **factory)
        self.projection = initial.uniform(hidden_size, projected_size, bound=bound, **factory)

    def zero_state(self, projected: Tensor) -> HiddenAndMemory:
        sizes = (self.projected_size, self.hidden_size)
        return HiddenAndMemory(*(projected.new_zeros(*projected.shape[:-1], size) for size in sizes))

    def step(self, projected: Tensor, state: HiddenAndMemory) -> HiddenAndMemory:
        f, i, r, c = (projected + state.h @ self.recurrent_weight).chunk(4, dim=-1)
        memory = sigmoid(f) * state.c + sigmoid(i) * tanh(c)
        return HiddenAndMemory((sigmoid(r) * tanh(memory)) @ self.projection, memory)
