"""The identity as the recurrent matrix, with zero biases: IRNN (Le et al., 2015)."""

import torch

from multistable.dynamics.prepare.drawn import Drawn, New
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.sequences import SequenceSet
from multistable.networks.gates import Gates


def draw(gates: Gates, draws: Draws, data: SequenceSet) -> New:
    """W_h = I and b = 0: without input a unit with ReLU keeps what it has. Nothing is drawn."""
    (matrix,) = gates.matrices()
    yield matrix, torch.eye(matrix.shape[-1], dtype=torch.float64, device="cpu").expand(matrix.shape)
    for bias in (bias for of_gate in gates.biases() for bias in of_gate):
        yield bias, 0.0


identity = Drawn(
    "identity",
    needs="one recurrent matrix and no gate (Elman is the cell of torch.nn.RNN)",
    fits=lambda cell: cell.recurrent_matrices == 1 and cell.keep_gate is None,
    draw=draw,
)
