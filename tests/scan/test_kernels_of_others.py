"""The kernels that are made from the steps of other papers' cells: on a GPU where there is one, else interpreted."""

import pytest
import torch

from cells_of_others import OTHERS, LightGRU
from fused_problems import DEVICE, HAS_GPU, TOLERANCE, poisoned_memory, relative_error  # noqa: F401
from multistable.scan import fused, reference
from multistable.scan.program import RefusedError

# Units that fill no tile: what stands beyond the last one of a cell that divides by a state is not finite.
SIZES = [(2, 3, 5), (63, 33, 128), (5, 40, 200)] if HAS_GPU else [(2, 3, 5)]
PRECISIONS = ["ieee", "tf32"] if HAS_GPU else ["ieee"]


def results(scan, cell, u, state, upstream):
    """States and the gradients of the input, of the state and of all weights, by name."""
    leaves = {"input": u, **state._asdict()}
    leaves = {name: leaf.detach().clone().requires_grad_() for name, leaf in leaves.items()}
    states = scan(cell, leaves["input"], cell.State(*(leaves[field] for field in state._fields)))
    leaves |= dict(cell.named_parameters())
    found = torch.autograd.grad(states, [*leaves.values()], upstream, allow_unused=True)
    gradients = zip(leaves.items(), found, strict=True)
    return states._asdict() | {
        f"gradient of {name}": torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in gradients
    }


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")  # what stands beyond the last unit
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("time", "rows", "hidden"), SIZES)
@pytest.mark.parametrize("kind", [kind for kind in OTHERS if kind is not LightGRU], ids=lambda kind: kind.__name__)
def test_states_and_gradients_are_those_of_the_reference(kind, time, rows, hidden, precision):
    draw = torch.Generator().manual_seed(0)
    cell = kind(3, hidden, generator=draw).to(DEVICE)
    u = torch.randn(time, rows, 3, generator=draw).to(DEVICE)
    state = cell.State(*(torch.randn(rows, hidden, generator=draw).to(DEVICE) for _ in cell.State._fields))
    upstream = [torch.randn(time, rows, hidden, generator=draw).to(DEVICE) for _ in state]

    found = results(lambda *given: fused.scan_input(*given, precision=precision), cell, u, state, upstream)
    in_float64 = [cell.State(*(field.double() for field in state)), [gradient.double() for gradient in upstream]]
    exact = results(
        lambda cell, u, state: reference.scan(cell, cell.project(u), state), cell.double(), u.double(), *in_float64
    )
    errors = {name: relative_error(found[name], exact[name]) for name in exact}
    assert not {name: error for name, error in errors.items() if not error < TOLERANCE[precision]}


def test_a_sum_over_units_has_no_kernel():
    cell = LightGRU(3, 8).to(DEVICE)
    with pytest.raises(RefusedError, match="sums over units"):
        fused.prepared(cell, torch.randn(2, 3, 3, device=DEVICE))
