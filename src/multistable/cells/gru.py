"""Gated recurrent unit (appendix A of the paper)."""

from typing import Any

from torch import Tensor, sigmoid, tanh

from multistable.arguments import truth_value
from multistable.cells import initial
from multistable.cells.base import Cell, Hidden, KeepGate


class GRU(Cell[Hidden]):
    """GRU; columns of the weights in the order z, r, h.

    ``recurrent_bias=True`` adds the second bias vector of ``torch.nn.GRU``, which the paper does not have. For z and r
    it is added to the first bias; for the candidate it is inside the product with r, as in r * (W_hh h + b_hh).
    """

    State = Hidden
    torch_kind, torch_gates = "GRU", (1, 0, 2)
    casts_to_state = True
    added_gates = 2
    keep_gate = KeepGate(0)
    recurrent_matrices = 3
    recurrent_bias: Tensor | None

    def __init__(self, input_size: int, hidden_size: int, *, recurrent_bias: bool = False, **factory: Any) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = initial.glorot(input_size, hidden_size, gates=3, **factory)
        self.recurrent_weight = initial.orthogonal(hidden_size, gates=3, **factory)
        self.bias = initial.constant(3 * hidden_size, value=0.0, **factory)
        both = truth_value("recurrent_bias", recurrent_bias)
        self.recurrent_bias = initial.constant(3 * hidden_size, value=0.0, **factory) if both else None

    @property
    def candidate_bias(self) -> Tensor | None:
        """b_hh, the bias of the candidate's product with the state, ``(..., hidden_size)``."""
        return None if self.recurrent_bias is None else self.recurrent_bias[..., self.added_columns :]

    def step(self, projected: Tensor, state: Hidden) -> Hidden:
        z_u, r_u, h_u = projected.chunk(3, dim=-1)
        z_h, r_h, h_h = (state.h @ self.recurrent_weight).chunk(3, dim=-1)
        b_hh = self.candidate_bias
        if b_hh is not None:
            h_h = h_h + b_hh.unsqueeze(-2)
        z = sigmoid(z_u + z_h)
        r = sigmoid(r_u + r_h)
        return Hidden(z * state.h + (1 - z) * tanh(h_u + r * h_h))
