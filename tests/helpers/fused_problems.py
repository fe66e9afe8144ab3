"""Random problems for the fused time loop: on a GPU where there is one, else in Triton's interpreter."""

import pytest
import torch

from multistable.cells import CELLS
from multistable.scan import fused, reference

pytest.importorskip("triton")

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
NAMES = ["lstm", "gru", "mgu", "brc", "nbrc"]
TOLERANCE = {"ieee": 1e-5, "tf32": 2e-2}


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    """Fill memory with NaN before the kernels write it."""
    new_empty = torch.Tensor.new_empty

    def poisoned(*arguments, **options):
        tensor = new_empty(*arguments, **options)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)


def make(name, hidden, lead=(), *, seed=0, inputs=3, **options):
    """A cell with the given leading dimensions whose weights are large enough for every gate to matter."""
    generator = torch.Generator().manual_seed(seed)
    cell = CELLS[name](inputs, hidden, **options)
    weights = {
        key: torch.randn(*lead, *value.shape, generator=generator, dtype=torch.float64).to(DEVICE)
        * (1.0 if value.dim() == 1 else hidden**-0.5)
        for key, value in cell.named_parameters()
    }
    return cell, weights


def run(scan, cell, weights, projected, state, upstream, **options):
    """States and the gradients of everything, under the given upstream gradients."""
    weights = {key: value.detach().clone().requires_grad_() for key, value in weights.items()}
    projected = projected.detach().clone().requires_grad_()
    state = cell.State(*(x.detach().clone().requires_grad_() for x in state))
    states = scan(cell.bind(weights), projected, state, **options)
    recurrent = {key: value for key, value in weights.items() if key.startswith("recurrent")}
    inputs = [projected, *state, *recurrent.values()]
    grads = torch.autograd.grad(states, inputs, upstream)
    names = ["projected", *(f"initial {field}" for field in cell.State._fields), *recurrent]
    return states, dict(zip(names, grads, strict=True))


def problem(name, time, batch, hidden, lead=(), *, seed=0, **options):
    cell, weights = make(name, hidden, lead, seed=seed, **options)
    generator = torch.Generator().manual_seed(seed + 1)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE)

    gates = cell.bias.shape[-1] // hidden
    projected = draw(time, *lead, batch, gates * hidden)
    state = cell.State(*(draw(*lead, batch, hidden) for _ in cell.State._fields))
    upstream = [draw(time, *lead, batch, hidden) for _ in cell.State._fields]
    return cell, weights, projected, state, upstream


def single(value):
    """The same value in float32."""
    if isinstance(value, dict):
        return {key: single(x) for key, x in value.items()}
    if isinstance(value, torch.Tensor):
        return value.float()
    return type(value)(*map(single, value)) if hasattr(value, "_fields") else [single(x) for x in value]


def map_single(parts):
    cell, *rest = parts
    return cell, *map(single, rest)


def relative_error(value, expected):
    return ((value.double() - expected).norm() / expected.norm().clamp_min(1e-30)).item()


def check(name, time, batch, hidden, lead=(), *, precision="ieee", tolerance=None, **options):
    """States and gradients of a random problem agree with the reference."""
    tolerance = tolerance or TOLERANCE[precision]
    cell, *double = problem(name, time, batch, hidden, lead, **options)
    expected, expected_grads = run(reference.scan, cell, *double)
    states, grads = run(fused.scan, cell, *map(single, double), precision=precision)
    assert type(states) is type(expected)
    errors = {field: relative_error(*pair) for field, *pair in zip(states._fields, states, expected, strict=True)}
    errors |= {key: relative_error(grads[key], expected_grads[key]) for key in expected_grads}
    for key, value in zip(states._fields, states, strict=True):
        assert value.shape == expected[0].shape, key
    bad = {key: error for key, error in errors.items() if not error < tolerance}
    assert not bad, bad
