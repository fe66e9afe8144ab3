"""The fused loop on the CPU against the reference: same states, same gradients, whatever the cell."""

import pytest
import torch
from torch import Tensor

from loop_problems import ATOL, MAKE, RTOL, check, make, problem, weights_of
from multistable.cells import GRU
from multistable.cells.elman import Elman
from multistable.scan import cpu, reference
from multistable.scan.cpu import passes
from multistable.scan.program import RefusedError

KINDS = ["lstm", "gru", "gru with recurrent bias", "mgu", "brc", "nbrc", "relu"]
"""Each has other stages: fields, weights of units, products, what is saved and what is written over."""

OTHERS = ["FastGRNN", "LightGRU", "LEM", "MinimalRNN", "SLSTM"]
"""Numbers for the network, sums over units, products after products and before, whole numbers of lanes to save."""

FEW = ["lstm", "gru with recurrent bias", "mgu", "brc"]


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch):
    """Memory that is read before it is written shows as NaN."""
    torch.manual_seed(0)
    new_empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *args, **kw: new_empty(*args, **kw).fill_(torch.nan))


@pytest.fixture(params=["torch", "llvmlite"])
def path(request, monkeypatch):
    """Passes in operations of PyTorch, and compiled."""
    if request.param == "torch":
        monkeypatch.setattr(passes, "compiler_of_passes", lambda: None)
    else:
        pytest.importorskip("llvmlite")
        assert cpu.compiler_of_passes() is not None
    return request.param


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_states_and_gradients(kind, path):
    """One recurrence and many, of odd sizes, under a changing and a constant input."""
    for steps, n, hidden, leading, constant in [
        (1, 1, 1, (), False),
        (17, 5, 16, (), True),
        (2, 1, 3, (1,), False),
        (17, 5, 3, (3,), False),
        (3, 1, 16, (2, 3), True),
    ]:
        cell = make(kind, hidden, leading)
        check(cell, *problem(cell, steps, n, leading, constant))


@pytest.mark.parametrize("kind", [*FEW, "FastGRNN"])
def test_one_set_of_weights_for_many_recurrences(kind):
    cell = make(kind, 3)
    check(cell, *problem(cell, 4, 5, (2, 3)))


def test_shared_weights_of_the_size_of_the_leading_dimension():
    """Three recurrences of three units and three inputs share one network; they are not three of them."""
    cell = Elman(3, 3, dtype=torch.float64)
    u = torch.randn(4, 3, 5, 3, dtype=torch.float64, requires_grad=True)
    state = cell.State(torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True))
    check(cell, u, state, lambda: cell.project(u))


@pytest.mark.parametrize("kind", FEW)
def test_strides_as_they_come(kind):
    cell = make(kind, 4, (3,))
    u = torch.randn(5, 3, 7, 2, dtype=torch.float64).transpose(0, 2).requires_grad_()  # time, recurrences, n
    weights = {
        name: weight.detach().mT.contiguous().mT if weight.dim() > 2 else weight.detach()
        for name, weight in weights_of(cell).items()
    }
    cell = cell.bind({name: weight.requires_grad_() for name, weight in weights.items()})
    state = cell.State(
        *(torch.randn(4, 5, 3, dtype=torch.float64).permute(2, 1, 0).requires_grad_() for _ in cell.State._fields)
    )
    check(cell, u, state, lambda: cell.project(u))


@pytest.mark.parametrize("kind", FEW)
def test_gradients_of_some_inputs_from_some_outputs(kind):
    cell = make(kind, 3)
    u, state, project = problem(cell, 4, 5)
    for field in range(len(state)):
        for wanted in (u, state[-1], cell.recurrent_weight):
            fused, plain = (
                torch.autograd.grad(module.scan(cell, project(), state)[field].mT[-1, 1:].sum(), wanted)
                for module in (cpu, reference)
            )
            torch.testing.assert_close(fused, plain, rtol=RTOL, atol=ATOL)
    frozen = cell.bind({name: weight.detach() for name, weight in weights_of(cell).items()})
    fused, plain = (
        torch.autograd.grad(module.scan(frozen, project().detach(), state)[0].sum(), state[0])
        for module in (cpu, reference)
    )
    torch.testing.assert_close(fused, plain, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("kind", FEW)
def test_backward_twice_through_a_retained_graph(kind):
    cell = make(kind, 3)
    u, state, project = problem(cell, 4, 5)
    loss = cpu.scan(cell, project(), state)[0].square().sum()
    first = torch.autograd.grad(loss, [cell.recurrent_weight, u], retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, [cell.recurrent_weight, u]), first, rtol=0, atol=0)


def test_second_derivatives_raise():
    cell = make("gru", 3)
    u, state, project = problem(cell, 2, 2)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(cpu.scan(cell, project(), state)[0].sum(), u, create_graph=True)


def test_states_changed_before_backward_raise():
    cell = make("gru", 3)
    u, state, project = problem(cell, 2, 2)
    states = cpu.scan(cell, project(), state)
    loss = states[0].sum()
    with torch.no_grad():
        states[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, u)


def error(actual: Tensor, wanted: Tensor) -> float:
    return ((actual.double() - wanted).abs().max() / wanted.abs().max()).item()


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_single_precision(kind):
    """Against the reference in float64: a few units in the last place, 6e-8, for each of the steps."""
    for steps, n, hidden, leading in [(2, 5, 1, ()), (17, 5, 33, ()), (17, 5, 16, (2, 3))]:
        cell = make(kind, hidden, leading, torch.float32)
        u, state, project = problem(cell, steps, n, leading)
        u64, *state64 = (tensor.detach().double().requires_grad_() for tensor in (u, *state))
        cell64 = cell.bind({name: w.detach().double().requires_grad_() for name, w in weights_of(cell).items()})
        expected = reference.scan(cell64, cell64.project(u64), cell64.State(*state64))
        upstream = [torch.randn_like(field) for field in expected]
        wanted = torch.autograd.grad(expected, [u64, *state64, *weights_of(cell64).values()], upstream)
        states = cpu.scan(cell, project(), state)
        inputs = [u, *state, *weights_of(cell).values()]
        gradients = torch.autograd.grad(states, inputs, [field.float() for field in upstream])
        assert all(field.dtype == torch.float32 for field in (*states, *gradients))
        assert max(map(error, states, expected)) < 2e-6
        assert max(map(error, gradients, wanted)) < 1e-5
        with torch.no_grad():
            without = cpu.scan(cell, project(), state)
            last = cpu.last(cell, project(), state)
        # To the bit only where rows are aligned: the products of PyTorch's library depend on that.
        atol = 0 if kind == "brc" or hidden % 16 == 0 else 2e-6
        for field, same, end in zip(states, without, last, strict=True):
            torch.testing.assert_close(same, field, rtol=0, atol=atol)
            torch.testing.assert_close(end, field[-1], rtol=0, atol=atol)


@pytest.mark.parametrize("kind", KINDS)
def test_two_calls_are_one_to_the_bit(kind):
    """A step is a function of the state alone, however many are taken at once."""
    cell = make(kind, 48, (), torch.float32)
    _, state, project = problem(cell, 17, 5)
    with torch.no_grad():
        projected = project()
        whole = cpu.last(cell, projected, state)
        parts = cpu.last(cell, projected[6:], cpu.last(cell, projected[:6], state))
    assert all(map(torch.equal, whole, parts))


@pytest.mark.parametrize("kind", [*FEW, "relu", "SLSTM", "LightGRU"])
def test_what_is_not_finite_stays_visible_in_its_row(kind, path):
    cell = make(kind, 33, (), torch.float32)
    _, state, project = problem(cell, 3, 5)
    with torch.no_grad():
        projected = project().clone()
        whole = cpu.scan(cell, projected, state)
        projected[1, 2] = torch.nan
        projected[0, 3] = torch.inf
        states = cpu.scan(cell, projected, state)
        plain = reference.scan(cell, projected, state)
    for field, expected, unharmed in zip(states, plain, whole, strict=True):
        assert field[1:, 2].isnan().all()
        assert torch.equal(field.isnan(), expected.isnan())
        assert torch.equal(field[:, [0, 1, 4]], unharmed[:, [0, 1, 4]])


def test_a_unit_does_not_depend_on_its_place():
    """In a full vector, and in what is left at the end of a row; on one thread and on many."""
    pytest.importorskip("llvmlite")
    cell = make("brc", 37, (), torch.float32)
    _, state, project = problem(cell, 17, 5)
    projected = project().detach()
    with torch.no_grad():
        whole = cpu.scan(cell, projected, state).h
        for columns in (slice(0, 5), slice(16, 37), slice(36, 37)):
            w = cell.recurrent_weight.unflatten(-1, (2, -1))[:, columns].flatten()
            part = MAKE["brc"](2, len(w) // 2)
            part = part.bind({**weights_of(part), "recurrent_weight": w})
            x = projected.unflatten(-1, (3, -1))[..., columns].flatten(-2)
            assert torch.equal(cpu.scan(part, x, part.State(state.h[:, columns])).h, whole[..., columns])
        for rows in (slice(0, 1), slice(2, 5)):
            assert torch.equal(cpu.scan(cell, projected[:, rows], cell.State(state.h[rows])).h, whole[:, rows])


@pytest.mark.parametrize("kind", ["brc", "ParaGRU", "gru"])
def test_threads_change_nothing(kind, monkeypatch):
    pytest.importorskip("llvmlite")
    cell = make(kind, 16, (3,), torch.float32)
    u, state, project = problem(cell, 17, 4, (3,))

    def run():
        states = cpu.scan(cell, project(), state)
        return states.h, *torch.autograd.grad(states.h.square().sum(), [u, state.h, *weights_of(cell).values()])

    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    alone = run()
    monkeypatch.setattr(passes, "WORTH_A_THREAD", 64)
    assert all(map(torch.equal, alone, run()))


def test_who_runs_a_pass(monkeypatch):
    """PyTorch, where it has many threads and there are many elements."""
    pytest.importorskip("llvmlite")
    cell, interpreted = make("gru", 3), []
    plain = passes._interpreted
    monkeypatch.setattr(passes, "_interpreted", lambda *args: interpreted.append((threads, n)) or plain(*args))
    for threads in (1, 2, 16):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        for n in (5, 20_000):
            cpu.last(cell, torch.zeros(1, n, 9, dtype=torch.float64), [torch.zeros(n, 3, dtype=torch.float64)])
    assert interpreted == [(16, 20_000)]


@pytest.mark.parametrize("kind", FEW)
def test_arguments_are_left_alone(kind):
    cell = make(kind, 3)
    _, state, project = problem(cell, 4, 5)
    projected = project()
    arguments = [projected, *state, *weights_of(cell).values()]
    before = [tensor.detach().clone() for tensor in arguments]
    cpu.last(cell, projected, state)
    cpu.scan(cell, projected, state)[0].sum().backward()
    torch.testing.assert_close([tensor.detach() for tensor in arguments], before, rtol=0, atol=0)


def test_saves_nothing_for_backward_without_gradients(monkeypatch):
    rooms = []
    advance = cpu.loop._advance

    def counted(*arguments, **options):
        rooms.append(advance(*arguments, **options))
        return rooms[-1]

    monkeypatch.setattr(cpu.loop, "_advance", counted)
    cell = make("mgu", 3)
    _, state, project = problem(cell, 17, 5)
    cpu.scan(cell, project(), state)
    with torch.no_grad():
        cpu.scan(cell, project(), state)
    cpu.last(cell, project(), state)
    assert [(len(saved), *map(len, operands.values())) for saved, operands in rooms] == [(17, 17), (1, 1), (1, 1)]


class Halved(GRU):
    def step(self, projected, state):
        return type(state)(torch.cat([state.h[..., 2:], state.h[..., :2]], -1))


def test_what_this_loop_cannot_do_is_said():
    cell = make("gru", 3)
    projected = torch.zeros(2, 5, 9, dtype=torch.float64)
    cpu.prepared(cell, projected)
    halved = Halved(2, 3).double()
    for given, x, reason in (
        (halved, projected, "^Halved has no fused loop: its step takes columns 2 to 3"),
        (cell, projected.float(), "float64"),
        (cell, projected.bfloat16(), "bfloat16"),
        (cell, projected.to("meta"), "meta"),
    ):
        with pytest.raises(RefusedError, match=reason):
            cpu.prepared(given, x)
    with pytest.raises(ValueError, match="Halved has no fused loop"):
        cpu.scan(halved, projected, halved.zero_state(projected[0]))
    with pytest.raises(ValueError, match="state h must be"):
        cpu.scan(cell, projected, cell.zero_state(projected[0].float()))
    with pytest.raises(ValueError, match="must have 9 columns, got 6"):
        cpu.scan(cell, projected[..., :6], cell.zero_state(projected[0]))
