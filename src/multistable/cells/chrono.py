"""The chrono-initialised LSTM (Tallec and Ollivier, 2018), the paper's second baseline."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from multistable.arguments import positive_number
from multistable.cells import initial
from multistable.cells.lstm import LSTM


class ChronoLSTM(LSTM):
    """An LSTM with forget biases b_f = log U(1, t_max - 1), input biases b_i = -b_f, and no other bias.

    The second bias vector (``recurrent_bias=True``) starts at zero: drawn twice, the biases would be twice as large.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        t_max: float = 600,
        recurrent_bias: bool = False,
        **factory: Any,
    ) -> None:
        if not (t_max := positive_number("t_max", t_max)) > 2:
            raise ValueError(f"t_max must be greater than 2, got {t_max!r}")
        super().__init__(input_size, hidden_size, recurrent_bias=recurrent_bias, **factory)
        if self.recurrent_bias is not None:
            self.recurrent_bias = Parameter(torch.zeros_like(self.recurrent_bias))
        b_f = initial.chrono_bias(hidden_size, t_max, **factory)
        no_bias: Tensor = torch.zeros_like(b_f)
        self.bias = Parameter(torch.cat([b_f, -b_f, no_bias, no_bias]))
