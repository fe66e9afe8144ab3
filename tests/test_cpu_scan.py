"""The fused loop on the CPU against the reference: same states, same gradients, for every cell."""

import pytest
import torch
from torch import Tensor

from multistable.cells import CELLS, GRU, Cell
from multistable.scan import cpu, reference

KINDS = [*CELLS, "gru with recurrent bias"]
RTOL, ATOL = 1e-10, 1e-12


def make(kind: str, hidden: int, leading: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> Cell:
    """A cell whose weights are leaves with random values, ``leading`` recurrences of it."""
    cell = CELLS[kind](2, hidden) if kind in CELLS else GRU(2, hidden, recurrent_bias=True)
    weights = {
        name: (0.7 * torch.randn(*leading, *weight.shape, dtype=dtype)).requires_grad_()
        for name, weight in cell.named_parameters()
    }
    return cell.bind(weights)


def problem(cell: Cell, steps: int, n: int, leading: tuple[int, ...] = (), constant: bool = False):
    """Inputs ``u`` and an initial state, leaves both, and the function from ``u`` to projected inputs."""
    dtype = cell.bias.dtype
    u = torch.randn(1 if constant else steps, *leading, n, 2, dtype=dtype, requires_grad=True)
    state = cell.State(
        *(torch.randn(*leading, n, cell.hidden_size, dtype=dtype, requires_grad=True) for _ in cell.State._fields)
    )
    return u, state, lambda: cell.project(u).expand(steps, *leading, n, -1)


def check(cell: Cell, u: Tensor, state, project) -> None:
    inputs = [u, *state, *cell._parameters.values()]
    inputs = [tensor for tensor in inputs if tensor is not None]
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


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch):
    """Memory that is read before it is written shows as NaN."""
    torch.manual_seed(0)
    new_empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *args, **kw: new_empty(*args, **kw).fill_(torch.nan))


@pytest.mark.parametrize("constant", [False, True], ids=["varying", "constant"])
@pytest.mark.parametrize("leading", [(), (1,), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_states_and_gradients(kind, leading, constant):
    for steps, n, hidden in [(1, 1, 1), (1, 5, 16), (2, 1, 3), (2, 5, 1), (17, 1, 16), (17, 5, 3), (17, 5, 16)]:
        cell = make(kind, hidden, leading)
        check(cell, *problem(cell, steps, n, leading, constant))


@pytest.mark.parametrize("at_once", [1, 40, 10_000])
@pytest.mark.parametrize("kind", KINDS)
def test_slopes_found_for_any_number_of_steps_at_once(kind, at_once, monkeypatch):
    monkeypatch.setattr(cpu.loop, "AT_ONCE", at_once)
    cell = make(kind, 3)
    check(cell, *problem(cell, 17, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_strides_as_they_come(kind):
    cell = make(kind, 4, (3,))
    u = torch.randn(5, 3, 7, 2, dtype=torch.float64).transpose(0, 2).requires_grad_()  # time, recurrences, n
    weights = {
        name: weight.detach().mT.contiguous().mT if weight.dim() > 2 else weight
        for name, weight in cell._parameters.items()
        if weight is not None
    }
    cell = cell.bind({name: weight.detach().requires_grad_() for name, weight in weights.items()})
    state = cell.State(
        *(torch.randn(4, 5, 3, dtype=torch.float64).permute(2, 1, 0).requires_grad_() for _ in cell.State._fields)
    )
    check(cell, u, state, lambda: cell.project(u))


@pytest.mark.parametrize("kind", KINDS)
def test_one_set_of_weights_for_many_recurrences(kind):
    cell = make(kind, 3)
    check(cell, *problem(cell, 4, 5, (2, 3)))


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind):
    cell = make(kind, 2)
    u, state, _ = problem(cell, 3, 2)
    weights = {name: weight for name, weight in cell._parameters.items() if weight is not None}

    def states(u: Tensor, *tensors: Tensor):
        fields = len(cell.State._fields)
        bound = cell.bind(dict(zip(weights, tensors[fields:], strict=True)))
        return tuple(cpu.scan(bound, bound.project(u), tensors[:fields]))

    assert torch.autograd.gradcheck(states, (u, *state, *weights.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_some_inputs_from_some_outputs(kind):
    cell = make(kind, 3)
    u, state, project = problem(cell, 4, 5)
    for field in range(len(state)):
        for wanted in (u, state[-1], cell.recurrent_weight):
            fused, plain = (
                torch.autograd.grad(module.scan(cell, project(), state)[field][-1].sum(), wanted, retain_graph=True)
                for module in (cpu, reference)
            )
            torch.testing.assert_close(fused, plain, rtol=RTOL, atol=ATOL)
    frozen = cell.bind({name: weight.detach() for name, weight in cell._parameters.items() if weight is not None})
    fused, plain = (
        torch.autograd.grad(module.scan(frozen, project().detach(), state)[0].sum(), state[0])
        for module in (cpu, reference)
    )
    torch.testing.assert_close(fused, plain, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("kind", KINDS)
def test_backward_twice_through_a_retained_graph(kind):
    cell = make(kind, 3)
    _, state, project = problem(cell, 4, 5)
    loss = cpu.scan(cell, project(), state)[0].square().sum()
    first = torch.autograd.grad(loss, cell.recurrent_weight, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, cell.recurrent_weight), first, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_raise(kind):
    cell = make(kind, 3)
    u, state, project = problem(cell, 2, 2)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(cpu.scan(cell, project(), state)[0].sum(), u, create_graph=True)


@pytest.mark.parametrize("kind", KINDS)
def test_states_changed_before_backward_raise(kind):
    cell = make(kind, 3)
    u, state, project = problem(cell, 2, 2)
    states = cpu.scan(cell, project(), state)
    loss = states[0].sum()
    with torch.no_grad():
        states[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, u)


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision(kind):
    cell = make(kind, 16, dtype=torch.float32)
    _, state, project = problem(cell, 17, 5)
    for fused, plain in zip(cpu.scan(cell, project(), state), reference.scan(cell, project(), state), strict=True):
        assert fused.dtype == torch.float32
        torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_are_left_alone(kind):
    cell = make(kind, 3)
    _, state, project = problem(cell, 4, 5)
    projected = project()
    arguments = [projected, *state, cell.recurrent_weight]
    before = [tensor.detach().clone() for tensor in arguments]
    cpu.last(cell, projected, state)
    cpu.scan(cell, projected, state)[0].sum().backward()
    torch.testing.assert_close([tensor.detach() for tensor in arguments], before, rtol=0, atol=0)


def test_keeps_nothing_for_backward_without_gradients(monkeypatch):
    rooms = []
    room_to_keep = cpu.loop._room_to_keep
    monkeypatch.setattr(cpu.loop, "_room_to_keep", lambda scan, steps: rooms.append(steps) or room_to_keep(scan, steps))
    cell = make("gru", 3)
    _, state, project = problem(cell, 17, 5)
    cpu.scan(cell, project(), state)
    with torch.no_grad():
        cpu.scan(cell, project(), state)
    cpu.last(cell, project(), state)
    assert rooms == [17, 1, 1]


class OtherEquations(GRU):
    def step(self, projected, state):
        return super().step(2 * projected, state)


def test_supported_says_why_not():
    cell = make("gru", 3)
    projected = torch.zeros(2, 5, 9, dtype=torch.float64)
    assert cpu.supported(cell, projected) is None
    assert "OtherEquations" in cpu.supported(OtherEquations(2, 3), projected)
    assert "float64" in cpu.supported(cell, projected.float())
    assert "bfloat16" in cpu.supported(cell, projected.bfloat16())
    assert "meta" in cpu.supported(cell, projected.to("meta"))
    with torch.autocast("cpu"):
        assert "autocast" in cpu.supported(cell, projected)
    with pytest.raises(ValueError, match="OtherEquations"):
        cpu.scan(OtherEquations(2, 3), projected, cell.zero_state(projected[0]))
    with pytest.raises(ValueError, match="state h must be"):
        cpu.scan(cell, projected, cell.zero_state(projected[0].float()))
