"""The fused loop on the CPU against the reference: same states, same gradients, for every cell that it knows."""

import pytest
import torch
from torch import Tensor

from multistable.cells import CELLS, GRU, Cell
from multistable.scan import cpu, reference

KINDS = [*(name for name, kind in CELLS.items() if kind.step in cpu.EQUATIONS), "gru with recurrent bias"]
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


def test_it_knows_the_cells_of_the_paper():
    assert {"lstm", "chrono", "gru", "mgu", "brc", "nbrc"} <= set(KINDS)


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
    monkeypatch.setattr(cpu.base, "AT_ONCE", at_once)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_backward_twice_through_a_retained_graph(kind, dtype):
    cell = make(kind, 3, dtype=dtype)
    u, state, project = problem(cell, 4, 5)
    loss = cpu.scan(cell, project(), state)[0].square().sum()
    first = torch.autograd.grad(loss, [cell.recurrent_weight, u], retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, [cell.recurrent_weight, u]), first, rtol=0, atol=0)


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


@pytest.fixture(params=["torch", "numba"])
def path(request, monkeypatch):
    """The operations of PyTorch, and the compiled formulas, which float32 takes where numba is installed."""
    if request.param == "torch":
        monkeypatch.setattr(cpu, "compiled_equations", dict)
    else:
        pytest.importorskip("numba")
        assert len(cpu.compiled_equations()) >= 5  # those of the paper
    return request.param


def single(kind: str, hidden: int, leading: tuple[int, ...] = ()) -> Cell:
    """A cell in float32 whose sums have the same size for every ``hidden``, so that rounding does not grow in time."""
    cell = make(kind, hidden, leading, torch.float32)
    return cell.bind({name: (w / hidden**0.5).detach().requires_grad_() for name, w in weights_of(cell).items()})


def weights_of(cell: Cell) -> dict[str, Tensor]:
    return {name: weight for name, weight in cell._parameters.items() if weight is not None}


def error(actual: Tensor, wanted: Tensor) -> float:
    return ((actual.double() - wanted).abs().max() / wanted.abs().max()).item()


@pytest.mark.parametrize("constant", [False, True], ids=["varying", "constant"])
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_single_precision(kind, leading, constant, path):
    """Against the reference in float64: a few units in the last place, 6e-8, for each of the steps."""
    for steps, n, hidden in [(1, 1, 1), (1, 5, 16), (2, 1, 3), (2, 5, 1), (17, 1, 33), (17, 5, 16), (17, 5, 33)]:
        cell = single(kind, hidden, leading)
        u, state, project = problem(cell, steps, n, leading, constant)
        u64, *state64 = (tensor.detach().double().requires_grad_() for tensor in (u, *state))
        cell64 = cell.bind({name: w.detach().double().requires_grad_() for name, w in weights_of(cell).items()})
        projected = cell64.project(u64).expand(steps, *leading, n, -1)
        expected = reference.scan(cell64, projected, cell.State(*state64))
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
def test_single_precision_with_strides_and_some_gradients(kind, path):
    cell = single(kind, 5)
    u = torch.randn(4, 7, 2).transpose(0, 1).requires_grad_()
    state = cell.State(*(torch.randn(5, 4).mT.requires_grad_() for _ in cell.State._fields))
    for field in range(len(state)):
        for wanted in (u, state[0], cell.recurrent_weight):
            fused, plain = (
                torch.autograd.grad(module.scan(cell, cell.project(u), state)[field].mT[..., 1:].sum(), wanted)
                for module in (cpu, reference)
            )
            torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_two_calls_are_one_to_the_bit(kind, path):
    """A step is a function of the state alone, however many are taken at once."""
    cell = single(kind, 48)
    _, state, project = problem(cell, 17, 5)
    with torch.no_grad():
        projected = project()
        whole = cpu.last(cell, projected, state)
        parts = cpu.last(cell, projected[6:], cpu.last(cell, projected[:6], state))
    assert all(map(torch.equal, whole, parts))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_stays_visible_in_its_row(kind, path):
    cell = single(kind, 33)
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
    pytest.importorskip("numba")
    cell = single("brc", 37)
    _, state, project = problem(cell, 17, 5)
    projected = project().detach()
    with torch.no_grad():
        whole = cpu.scan(cell, projected, state).h
        for columns in (slice(0, 5), slice(16, 37), slice(36, 37)):
            w = cell.recurrent_weight.unflatten(-1, (2, -1))[:, columns].flatten()
            part = CELLS["brc"](2, len(w) // 2)
            part = part.bind({**weights_of(part), "recurrent_weight": w})
            x = projected.unflatten(-1, (3, -1))[..., columns].flatten(-2)
            assert torch.equal(cpu.scan(part, x, part.State(state.h[:, columns])).h, whole[..., columns])
        for rows in (slice(0, 1), slice(2, 5)):
            assert torch.equal(cpu.scan(cell, projected[:, rows], cell.State(state.h[rows])).h, whole[:, rows])


def test_threads_change_nothing(monkeypatch):
    pytest.importorskip("numba")
    from multistable.scan.cpu import compiled

    cell = single("brc", 5, (3,))
    u, state, project = problem(cell, 17, 4, (3,))

    def run():
        states = cpu.scan(cell, project(), state)
        return states.h, *torch.autograd.grad(states.h.square().sum(), [u, state.h, cell.recurrent_weight])

    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    alone = run()
    monkeypatch.setattr(compiled, "WORTH_A_THREAD", 1)
    assert all(map(torch.equal, alone, run()))


def test_which_equations_are_taken(monkeypatch):
    pytest.importorskip("numba")
    assert "compiled" not in cpu._equations(make("gru", 3), torch.zeros(2, 5, 9, dtype=torch.float64)).__module__
    plain = set()
    for threads in (1, 2, 16):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        for n in (5, 20_000):
            for kind in ("gru", "mgu", "brc"):
                equations = cpu._equations(make(kind, 3, dtype=torch.float32), torch.zeros(1, n, 9))
                if "compiled" not in equations.__module__:
                    plain.add((threads, n, kind))
    assert plain == {(2, 20_000, "mgu"), (16, 20_000, "mgu"), (16, 20_000, "gru")}


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
