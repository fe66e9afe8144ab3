"""Random problems for the fused loop on the CPU: cells with leading dimensions, inputs, states, and their check."""

import torch
from torch import Tensor

from cells_of_others import OTHERS
from multistable.cells import CELLS, GRU, Cell
from multistable.cells.elman import Elman
from multistable.scan import cpu, reference

MAKE = {name: CELLS[name] for name in CELLS.names()} | {kind.__name__: kind for kind in OTHERS}
MAKE["gru with recurrent bias"] = lambda inputs, hidden: GRU(inputs, hidden, recurrent_bias=True)
MAKE["relu"] = lambda inputs, hidden: Elman(inputs, hidden, nonlinearity="relu")

RTOL, ATOL = 1e-10, 1e-12


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


def check(cell: Cell, u: Tensor, state, project) -> None:
    """The fused loop on the CPU computes the states and gradients of the reference, in float64."""
    inputs = [u, *state, *weights_of(cell).values()]
    expected = reference.scan(cell, project(), state)
    upstream = [torch.randn_like(field) for field in expected]
    states = cpu.scan(cell, project(), state)
    assert type(states) is cell.State
    gradients = torch.autograd.grad(states, inputs, upstream)
    expected_gradients = torch.autograd.grad(expected, inputs, upstream)
    for actual, wanted in zip((*states, *gradients), (*expected, *expected_gradients), strict=True):
        torch.testing.assert_close(actual, wanted, rtol=RTOL, atol=ATOL)
    with torch.no_grad():
        without = cpu.scan(cell, project(), state)
        last = cpu.last(cell, project(), state)
    for field, end, wanted in zip(without, last, expected, strict=True):
        torch.testing.assert_close(field, wanted, rtol=RTOL, atol=ATOL)
        torch.testing.assert_close(end, wanted[-1], rtol=RTOL, atol=ATOL)
