"""Orthogonal recurrent matrices, which neither shrink nor stretch the state (Saxe et al., 2014)."""

import torch

from multistable.dynamics.prepare.drawn import Drawn, New
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.sequences import SequenceSet
from multistable.networks.gates import Gates


def draw(gates: Gates, draws: Draws, data: SequenceSet) -> New:
    """A random orthogonal matrix for each gate, of the uniform (Haar) distribution."""
    for matrix in gates.matrices():
        q, r = torch.linalg.qr(draws.normal(*matrix.shape[-2:]))
        # With the signs of the diagonal of R, Q is uniform (Mezzadri, 2007).
        yield matrix, q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


orthogonal = Drawn(
    "orthogonal",
    needs="square recurrent matrices (Cell.recurrent_matrices)",
    fits=lambda cell: cell.recurrent_matrices > 0,
    draw=draw,
)
