"""A step as data: the interpreter against autograd of the plain loop, the stages, and what is refused."""

import gc
import threading
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import multistable as ms
from loop_problems import MAKE, make, problem, weights_of
from multistable.scan import program as program_module
from multistable.scan import reference, scan
from multistable.scan.program import Program, program_of
from multistable.scan.program.stages import Stages
from own_cells import CellOfModules, OneMatrix


@pytest.mark.parametrize("leading", [(), (3,)], ids=["one", "three"])
@pytest.mark.parametrize("kind", MAKE)
def test_the_interpreter_computes_states_and_gradients(kind, leading):
    torch.manual_seed(0)
    cell = make(kind, 3, leading)
    u, state, project = problem(cell, 4, 5, leading)
    weights = list(weights_of(cell).values())
    expected = reference.scan(cell, project(), state)
    upstream = [torch.randn_like(field) for field in expected]
    wanted = torch.autograd.grad(expected, [u, *state, *weights], upstream, allow_unused=True)

    program, projected = program_of(cell, None, leading), project()
    prepared = program.prepare(weights)
    given = [weight.detach() for weight in prepared]
    steps, now = [], [field.detach() for field in state]
    for x in projected.detach():
        now, values = program.step(x, now, given)
        steps.append((now, values))
    for field, plain in zip(zip(*(states for states, _ in steps), strict=True), expected, strict=True):
        torch.testing.assert_close(torch.stack(field), plain)
    of_state = [torch.zeros_like(field) for field in state]
    of_input, of_weights = [], [torch.zeros_like(weight) for weight in given]
    for t in reversed(range(len(steps))):
        above = [up[t] + later for up, later in zip(upstream, of_state, strict=True)]
        of_x, of_state, parts = program.step_back(above, steps[t][1], given)
        of_input.insert(0, of_x)
        of_weights = [total + part for total, part in zip(of_weights, parts, strict=True)]
    found = torch.autograd.grad(
        [projected, *(weight for weight in prepared if weight.requires_grad)],
        [u, *weights],
        [torch.stack(of_input), *of_weights],
        allow_unused=True,
    )
    for actual, plain in zip((found[0], *of_state, *found[1:]), wanted, strict=True):
        torch.testing.assert_close(0 if actual is None else actual, 0 if plain is None else plain)


class Turned(ms.GRU):
    """A cell that turns its matrix, which no window on it can."""

    def step(self, projected, state):
        turned = torch.cat([part.mT for part in self.recurrent_weight.chunk(3, dim=-1)], dim=-1)
        h = projected + state.h @ turned
        return ms.Hidden(sum(h.chunk(3, dim=-1)))


class Above(ms.GRU):
    """A cell whose matrix is that of its weights where they are above zero, and there alone."""

    def step(self, projected, state):
        h = projected + state.h @ self.recurrent_weight.relu()
        return ms.Hidden(sum(h.chunk(3, dim=-1)))


class Scaled(ms.GRU):
    """A cell with a number that has no columns."""

    def __init__(self, input_size, hidden_size, **options):
        super().__init__(input_size, hidden_size, **options)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def step(self, projected, state):
        h = projected + state.h @ self.recurrent_weight
        return ms.Hidden(self.scale[..., None, None] * sum(h.chunk(3, dim=-1)))


@pytest.mark.parametrize("leading", [(), (3,)], ids=["one", "three"])
@pytest.mark.parametrize("kind", MAKE)
def test_windows_have_what_is_prepared(kind, leading):
    cell = make(kind, 3, leading)
    weights = list(weights_of(cell).values())
    program = program_of(cell, None, leading)
    prepared = program.prepare(weights)
    if program.windows is not None:
        assert program.sources == tuple(dict.fromkeys(window.weight for window in program.windows))
        for (place, start, stop), expected in zip(program.windows, prepared, strict=True):
            assert torch.equal(weights[place][..., start:stop].flatten(), expected.flatten())


@pytest.mark.parametrize("leading", [(), (3,)], ids=["one", "three"])
def test_which_parts_of_weights_a_step_reads(leading):
    def windows(cell):
        weights = {name: torch.randn((*leading, *weight.shape)) for name, weight in cell.named_parameters()}
        return program_of(cell.bind(weights), None, leading).windows

    assert windows(ms.GRU(2, 4, recurrent_bias=True)) == ((1, 0, 12), (3, 8, 12))
    assert windows(ms.MGU(2, 4)) == ((1, 0, 4), (1, 4, 8))
    assert windows(ms.LSTM(2, 4)) == ((1, 0, 16),)
    assert windows(Turned(2, 4)) is None
    assert windows(Above(2, 4)) is None
    assert windows(Scaled(2, 4)) is None


def test_what_is_prepared_is_freed_after_its_last_use():
    """A cycle would hold it, on a GPU too, until Python next looks for cycles."""
    cell = Turned(2, 4)
    program, weights = program_of(cell), [weight.detach() for weight in cell.parameters()]
    program.prepare(weights)
    gc.collect()
    gc.disable()
    try:
        prepared = weakref.ref(program.prepare(weights)[0])
        assert prepared() is None
    finally:
        gc.enable()


def stages(kind: str) -> Stages:
    return Stages(program_of(MAKE[kind](2, 4)), gradient=True)


@pytest.mark.parametrize(
    ("kind", "products", "passes", "saved", "gradients", "in_place"),
    [
        ("lstm", 1, 1, 5, 4, True),
        ("gru", 1, 1, 4, 4, True),
        ("mgu", 2, 2, 2, 2, False),
        ("brc", 0, 1, 3, 3, True),
        ("nbrc", 1, 1, 3, 3, True),
        ("relu", 1, 1, 1, 1, True),
        ("LEM", 2, 2, 4, 4, False),
        ("CoRNN", 2, 1, 2, 1, True),
    ],
)
def test_stages_are_as_few_as_by_hand(kind, products, passes, saved, gradients, in_place):
    """Products, the passes forward and back, the lanes that are saved and those of gradients."""
    found = stages(kind)
    assert len(found.program.products) == products
    assert [len(found.forward), len(found.backward)] == [passes] * 2
    assert (found.width, len(found.gradients), found.in_place) == (saved, gradients, in_place)


def test_gradients_of_a_product_lie_side_by_side():
    """In a GRU those of the input are z, r, h, and those of the product z, r and that of the candidate."""
    (window,) = stages("gru").windows
    assert (stages("gru").of_x, window.start, window.order) == (1, 0, (2, 0, 1))


def test_without_a_gradient_no_more_is_saved_than_products():
    for kind, width in (("lstm", 4), ("gru", 3), ("mgu", 2), ("brc", 0)):
        assert Stages(program_of(MAKE[kind](2, 4)), gradient=False).width == width


def test_cells_that_differ_in_an_option_have_programs_of_their_own():
    tanh, relu = (MAKE["relu"](2, 3) for _ in range(2))
    tanh.nonlinearity = "tanh"
    assert program_of(tanh) is not program_of(relu)
    assert program_of(relu) is program_of(MAKE["relu"](2, 3))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_program_is_made_wherever_it_is_first_needed(context):
    """And the global random state is as before."""
    cell, state = MAKE["lstm"](2, 29), torch.get_rng_state()
    program_module._programs.clear()
    with context():
        program_of(cell)
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_in_modules_inside():
    cell = CellOfModules(2, 5)
    assert ms.check(cell)["float64"].keys() >= {"gradient of recall.weight", "gradient of read.bias"}


def same_as_plain(cell):
    u = torch.randn(4, 3, 2)
    with ms.engine(backend="reference"):
        plain = scan(cell, u).h
    with ms.engine(backend="fused"):
        torch.testing.assert_close(scan(cell, u).h, plain)
    return plain


def test_what_changes_after_the_first_call_is_seen(monkeypatch):
    """The mode, an option of a module inside, True in place of 1, attributes of the class, old and new, a global
    function, and what a function of the class has enclosed."""

    class Scaled(nn.Module):
        factor = 0.5

        def forward(self, x):
            return self.factor * x

    def enclosing(factor):
        def times(x):
            return factor * x

        def change(value):
            nonlocal factor
            factor = value

        return times, change

    times, change_factor = enclosing(0.7)

    class Changing(OneMatrix):
        shift = 0.1
        functions = (times,)

        def step(self, projected, state):
            h = self.inside(shape_of(projected + state.h @ self.W)) + self.shift + getattr(self, "more", 0.0)
            h = self.functions[0](h)
            return ms.Hidden(h * (0.5 if self.training else 1) * (2 if self.flag is True else 1))

    cell = Changing(None)
    cell.inside, cell.flag = Scaled(), 1
    same_as_plain(cell)
    for change in (
        cell.eval,
        lambda: setattr(cell.inside, "factor", 0.9),
        lambda: setattr(cell, "flag", True),
        lambda: setattr(Changing, "shift", 0.3),
        lambda: setattr(Changing, "more", 0.2),
        lambda: change_factor(0.4),
        lambda: monkeypatch.setitem(globals(), "shape_of", torch.sigmoid),
    ):
        change()
        same_as_plain(cell)


def shape_of(x):
    return torch.tanh(x)


def test_recording_leaves_the_cell_alone_in_every_thread():
    cell = OneMatrix(lambda cell, x, h: torch.tanh(3 * x + h @ cell.W))
    before, u, results = dict(cell._parameters), torch.randn(4, 3, 2), []
    threads = [threading.Thread(target=lambda: results.append(scan(cell, u).h)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(torch.equal(result, results[0]) for result in results)
    assert all(cell._parameters[name] is weight for name, weight in before.items())


def test_no_sequences_give_no_states():
    assert ms.RNN("gru", 2, 4)(torch.zeros(5, 0, 2))[0].shape == (5, 0, 4)


OPERATIONS = {
    "a vector of its own": lambda cell, x, h: torch.tanh(x + h @ cell.W) * torch.linspace(0.1, 0.9, 5),
    "a high power": lambda cell, x, h: torch.tanh(x + h @ cell.W) ** 18,
    "numbers that are true": lambda cell, x, h: torch.where(torch.logical_and(h, x), h, x + h @ cell.W),
    "comparisons": lambda cell, x, h: (x > h) * h + (x <= 0.1) * x + torch.where((x < h) | (h >= 0), x, 0.3),
    "bounds": lambda cell, x, h: x.clamp(-0.5, 0.5) + torch.maximum(x, h) - torch.minimum(h, x).clamp(min=-1),
    "powers": lambda cell, x, h: (
        (x.abs() + 0.1) ** 1.7 + h**3 - (h * h + 1) ** -0.5 + torch.sqrt(x * x + 1) + x.square()
    ),
    "exponentials": lambda cell, x, h: torch.exp(-x.abs()) + torch.expm1(-h.abs()) + torch.log(h * h + 0.3),
    "softplus": lambda cell, x, h: functional.softplus(3 * x) + functional.logsigmoid(h) + torch.log1p(x * x),
    "activations": lambda cell, x, h: (
        functional.silu(x) + functional.elu(h) + functional.leaky_relu(x) + torch.relu(-h)
    ),
    "quotients": lambda cell, x, h: 1 / (1 + h * h) + x / (2 + h.abs()) - torch.reciprocal(h * h + 1) - x.sign() * h,
    "constants": lambda cell, x, h: (
        torch.ones_like(h) * x + torch.tensor(0.5) * h + x.new_zeros(x.shape) + torch.ones(1) * h
    ),
    "buffers": lambda cell, x, h: x + cell.buffer * h + cell.buffer.sigmoid(),
    "detach": lambda cell, x, h: x * h.detach() + (h @ cell.W).detach(),
    "temporaries in place": lambda cell, x, h: (x + h @ cell.W).tanh_() * cell.w,
    "layer norm": lambda cell, x, h: functional.layer_norm(x + h @ cell.W, (5,), cell.w, cell.w),
    "layer norm of the state": lambda cell, x, h: functional.layer_norm(h, (5,)) @ cell.W + x,
    "a product twice": lambda cell, x, h: x + torch.tanh(torch.tanh(h @ cell.W) @ cell.W) @ cell.W,
    "a product of several": lambda cell, x, h: x + torch.cat([h, x], -1) @ torch.cat([cell.W, cell.W.mT], 0),
    "linear": lambda cell, x, h: functional.linear(h, cell.W, cell.w) + x,
    "matrices made of weights": lambda cell, x, h: x + h @ (cell.W - cell.W.mT - 0.1 * torch.eye(5)),
    "the input as it is": lambda cell, x, h: x,
    "nothing of the input": lambda cell, x, h: h * cell.w,
    "a product that nobody needs": lambda cell, x, h: x + 0 * (h @ cell.W),
}


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "interpreted"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr("multistable.scan.cpu.passes.compiler_of_passes", lambda: None)
    torch.manual_seed(0)
    function = OPERATIONS[name]
    ms.check(OneMatrix(lambda cell, x, h: torch.tanh(function(cell, x, h))))


@pytest.mark.parametrize("name", ["exp", "expm1", "log", "log1p", "sqrt", "tanh", "sigmoid"])
def test_functions_are_precise_wherever_they_are_defined(name):
    """In units of the last place, but for sigmoid, which is precise to that of 1; at the ends to the bit."""
    pytest.importorskip("llvmlite")
    program = program_of(OneMatrix(lambda cell, x, h: getattr(torch, name)(x), 1, 1))
    for dtype, units in ((torch.float32, 8), (torch.float64, 6)):
        end = torch.finfo(dtype).max
        spread = torch.cat([torch.logspace(-40, 38, 5_001, dtype=torch.float64), torch.linspace(1e-9, 120, 5_001)])
        special = torch.tensor([0, torch.inf, -torch.inf, torch.nan, 1, -1, end], dtype=torch.float64)
        x = torch.cat([spread, -spread, special]).to(dtype)
        y, exact = applied(program, x), getattr(torch, name)(x.double())
        assert torch.equal(y.isnan(), exact.isnan())
        limit = torch.finfo(dtype).max
        assert torch.equal(y.isinf(), (exact.abs() > limit) | exact.isinf())
        finite = exact.isfinite() & y.isfinite()
        size = torch.ones_like(exact) if name == "sigmoid" else exact.abs().clamp_min(torch.finfo(dtype).tiny)
        unit = size * torch.finfo(dtype).eps
        assert ((y.double() - exact).abs()[finite] / unit[finite]).max() < units


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_not_a_number_is_not_bounded(turned):
    pytest.importorskip("llvmlite")
    for bound in (torch.maximum, torch.minimum):
        cell = OneMatrix(lambda cell, x, h, bound=bound: torch.relu(bound(h, x) if turned else bound(x, h)), 1, 1)
        y = applied(program_of(cell), torch.tensor([torch.nan, 1.0]))
        assert y[0].isnan()
        assert y[1] == (1 if bound is torch.maximum else 0)


def applied(program: Program, x: Tensor) -> Tensor:
    """What the compiled step makes of projected inputs."""
    from multistable.scan.cpu import loop

    state = (x.new_zeros(len(x), 1),)
    weights = tuple(weight.to(x.dtype) for weight in program.prepare([]))
    return loop.last_state(loop.Arguments(program, 1, x[None, :, None], state, weights))[0][:, 0]
