"""Three ways to use a recurrence of your own: a cell, a registered cell, and any module.

Run: python examples/your_own_cell.py

On the command line, in this folder: multistable train copy --T 20 --cell your_own_cell:Leaky

The paper's warmup, Algorithm 3, does not always succeed on networks this small. The seed below is one with which all
four do; with each of the seeds 1 to 3 at least one of the four fails, and warmup says so. The default warmup
depends less on luck, but the stack of two layers resists it: see docs/reference/warmup.md.
"""

from typing import Any

import torch
from torch import Tensor, nn

import multistable as ms
from multistable.cells import initial


class Leaky(ms.Cell[ms.Hidden]):
    """h_t = (1 - a) h_{t-1} + a tanh(W_u u_t + W_h h_{t-1} + b), with a rate a for each unit."""

    def __init__(self, input_size: int, hidden_size: int, **factory: Any) -> None:
        super().__init__(input_size, hidden_size)
        self.input_weight = initial.glorot(input_size, hidden_size, gates=1, **factory)
        self.recurrent_weight = initial.orthogonal(hidden_size, gates=1, **factory)
        self.bias = initial.constant(hidden_size, value=0.0, **factory)
        self.rate = initial.constant(hidden_size, value=0.0, **factory)

    def step(self, projected: Tensor, state: ms.Hidden) -> ms.Hidden:
        """One time step; W_u u_t + b comes in as ``projected``."""
        a = torch.sigmoid(self.rate).unsqueeze(-2)
        return ms.Hidden((1 - a) * state.h + a * torch.tanh(projected + state.h @ self.recurrent_weight))


class AnyModule(nn.Module):
    """A module that knows nothing of this library: (input, state) -> (output, state), None for the initial state."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, hidden_size)
        self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, u: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One time step, ``u (n, input_size)``."""
        pre = self.input(u) if h is None else self.input(u) + self.recurrent(h)
        h = torch.tanh(pre)
        return h, h


def main() -> None:
    """Measure and warm up each of them."""
    torch.manual_seed(13)
    sequences = torch.randn(20, 200, 1)
    ms.CELLS["leaky"] = Leaky  # from here on it has a name, as "gru" has
    networks: dict[str, nn.Module] = {
        "a stack of two layers": ms.RNN(Leaky, 1, 32, num_layers=2),
        "double layers": ms.RNN("leaky", 1, 64, double=True),
        "two at once": ms.Ensemble([ms.RNN("leaky", 1, 32) for _ in range(2)]),
        "any module": AnyModule(1, 32),
    }
    for name, network in networks.items():
        before = ms.measure(network, sequences).vaa
        history = ms.warmup(network, sequences, algorithm="paper", batch_size=64)
        after = ms.measure(network, sequences).vaa
        print(f"{name}: VAA {before} -> {after} ({history.outcome})")


if __name__ == "__main__":
    main()
