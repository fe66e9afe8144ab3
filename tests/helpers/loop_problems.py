"""Random problems for the fused loop on the CPU: cells with leading dimensions, inputs, states."""

import torch
from torch import Tensor

from cells_of_others import OTHERS
from multistable.cells import CELLS, GRU, Cell
from multistable.cells.elman import Elman

MAKE = {name: CELLS[name] for name in CELLS.names()} | {kind.__name__: kind for kind in OTHERS}
MAKE["gru with recurrent bias"] = lambda inputs, hidden: GRU(inputs, hidden, recurrent_bias=True)
MAKE["relu"] = lambda inputs, hidden: Elman(inputs, hidden, nonlinearity="relu")


def weights_of(cell: Cell) -> dict[str, Tensor]:
    return {name: weight for name, weight in cell._parameters.items() if weight is not None}


def make(kind: str, hidden: int, leading: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> Cell:
    """A cell whose weights are leaves with random values, ``leading`` recurrences of it.

    In float32 sums have the same size for every ``hidden``, so that rounding does not grow in time.
    """
    cell = MAKE[kind](2, hidden)
    size = 0.7 if dtype == torch.float64 else 0.7 / hidden**0.5
    return cell.bind(
        {
            name: (size * torch.randn(*leading, *weight.shape, dtype=torch.float64)).to(dtype).requires_grad_()
            for name, weight in cell.named_parameters()
        }
    )


def problem(cell: Cell, steps: int, n: int, leading: tuple[int, ...] = (), constant: bool = False):
    """Inputs ``u`` and an initial state, leaves both, and the function from ``u`` to projected inputs."""
    dtype = cell.bias.dtype
    u = torch.randn(1 if constant else steps, *leading, n, 2, dtype=dtype, requires_grad=True)
    state = cell.State(
        *(torch.randn(*leading, n, cell.hidden_size, dtype=dtype, requires_grad=True) for _ in cell.State._fields)
    )
    return u, state, lambda: cell.project(u).expand(steps, *leading, n, -1)
