"""Products on the matrix units, in TF32 or three for one: on a GPU, or from the source of the kernels on the CPU."""

import importlib
import sys
from dataclasses import replace

import pytest
import torch

import gluon_on_cpu
from fused_problems import (
    DEVICE,
    HAS_GPU,
    NAMES,
    check,
    map_single,
    poisoned_memory,  # noqa: F401
    problem,
    relative_error,
    run,
    single,
)
from multistable.cells import CELLS
from multistable.scan import fused, reference
from multistable.scan.kernels import gpu, project
from multistable.scan.kernels import plan as plans
from multistable.scan.kernels.form import form_of
from multistable.scan.kernels.plan import plan
from multistable.scan.program import program_of

ON_MATRIX_UNITS = ["lstm", "gru", "mgu", "nbrc"]
# How many times the error of the plain loop in float32 that of three products may be. Matrix units may cut sums off
# where others round them: a model that does comes to 2 times.
PRECISE = 4 if HAS_GPU else 2
# Time, rows, units, networks, multiprocessors. A program alone: one step; units and rows that do not fill their tiles.
MATRIX_CASES = [(1, 5, 16, 3, 4), (3, 17, 24, 2, 4)]
# Groups of programs, each with one tile; with several tiles, and programs with more units; of 10 to 19 programs.
MATRIX_CASES += [(4, 33, 128, 2, 8), (3, 20, 256, 1, 132), (4, 33, 200, 2, 9), (2, 5, 300, 1, 132)]
# Several tiles of one step each: exchanges for one tile follow at once on those for another.
MATRIX_CASES += [(1, 33, 200, 2, 9)]
if HAS_GPU:
    MATRIX_CASES += [(30, 32, 128, 20, 132), (30, 32, 256, 20, 132), (30, 33, 512, 3, 132), (8, 200, 256, 7, 132)]
    # Several warps with the same elements, which must not overtake each other; in one step nothing else holds them.
    MATRIX_CASES += [(30, 32, 512, 1, 132), (1, 100, 300, 1, 132)]

# A program alone has all units of a row, or several share them: with two fields, one, and two products a step.
alone_and_in_groups = pytest.mark.parametrize(
    ("name", "hidden", "processors"),
    [("lstm", 48, 4), ("gru", 256, 9), ("mgu", 48, 4), ("mgu", 256, 9), ("nbrc", 48, 4)],
)


@pytest.fixture(autouse=not HAS_GPU)
def products_rounded_once(monkeypatch):
    """Triton's interpreter takes products by NumPy, which may give the same row other last digits in another place."""
    interpreter = importlib.import_module("triton.runtime.interpreter")

    def create_dot(self, a, b, d, *options):
        product = a.data.astype(float) @ b.data.astype(float)
        return interpreter.TensorHandle(product.astype(d.data.dtype) + d.data, d.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


@pytest.mark.parametrize("name", NAMES)
def test_products_in_tf32(name):
    check(name, 2, 9, 16, (2,), precision="tf32")


@pytest.mark.skipif(not HAS_GPU, reason="many programs need a GPU")
@pytest.mark.parametrize("hidden", [16, 128, 256])
@pytest.mark.parametrize("name", NAMES)
def test_many_networks_in_tf32(name, hidden):
    check(name, 5, 33, hidden, (64,), precision="tf32")


@pytest.fixture
def matrix_units(monkeypatch):
    """A function that sets how many multiprocessors there are, all with matrix units, to be used with few rows, too."""
    capacity = gpu.capacity
    if HAS_GPU:
        if not capacity(torch.device("cuda", 0))["matrix_units"]:
            pytest.skip("needs a GPU with matrix units for TF32")
    else:
        monkeypatch.setattr(gpu, "matrix_kernels", gluon_on_cpu.kernels)

    def use(processors):
        def changed(device):
            own = capacity(device)
            if device.type == "cuda":
                return {**own, "processors": min(processors, own["processors"])}
            return {"processors": processors, "shared_memory": 232_448, "matrix_units": True}

        monkeypatch.setattr(gpu, "capacity", changed)

    plan.cache_clear()
    monkeypatch.setattr(plans, "ROWS_FOR_MATRIX", 0)
    yield use
    plan.cache_clear()


@pytest.mark.parametrize(("time", "rows", "hidden", "networks", "processors"), MATRIX_CASES)
@pytest.mark.parametrize("name", ON_MATRIX_UNITS)
def test_on_the_matrix_units(name, time, rows, hidden, networks, processors, matrix_units):
    """On a GPU, or the source of the kernels on the CPU."""
    matrix_units(processors)
    assert division_of(name, networks, rows, hidden, "tf32").matrix
    check(name, time, rows, hidden, (networks,), precision="tf32", tolerance=2e-3 if time < 10 else None)


def test_a_recurrent_bias_on_the_matrix_units(matrix_units):
    matrix_units(4)
    check("gru", 2, 17, 48, (2,), precision="tf32", tolerance=2e-3, recurrent_bias=True)


@pytest.mark.parametrize(
    ("inputs", "precision", "error", "hidden", "processors"),
    [(3, "tf32", 2e-3, 24, 4), (3, "tf32x3", 1e-5, 200, 9), (40, "tf32x3", 1e-6, 24, 4)],
)
@pytest.mark.parametrize("name", ON_MATRIX_UNITS)
@torch.no_grad()
def test_the_bias_of_the_input_is_added_on_the_way(name, hidden, processors, inputs, precision, error, matrix_units):
    """The bias of each network, in units that do not fill their tile: by the kernels, or by three products for one."""
    matrix_units(processors)
    cell, weights, _, state, _ = problem(name, 3, 17, hidden, (2,), inputs=inputs)
    u = torch.randn(3, 2, 17, inputs, dtype=torch.float64, device=DEVICE)
    expected = reference.scan(cell.bind(weights), cell.bind(weights).project(u), state)
    arguments = cell.bind(single(weights)), single(u), single(state)
    states = fused.scan_input(*arguments, precision=precision)
    for value, exact in zip(states, expected, strict=True):
        assert relative_error(value, exact) < error
    for value, last in zip(states, fused.scan_input(*arguments, precision=precision, only_last=True), strict=True):
        assert torch.equal(value[-1], last)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e8])
@pytest.mark.parametrize("bias", [False, True])
def test_three_products_with_the_input_are_as_precise_as_float32(bias, size):
    """Small numbers and large, rows and inputs that do not fill a tile; a row is the same, however many there are."""
    u = torch.randn(5, 2, 40, 33, device=DEVICE).mT * size
    weight, offset = torch.randn(2, 150, 40, device=DEVICE).mT, size * torch.randn(2, 150, device=DEVICE)
    offset = offset if bias else None
    assert project.way_of(u, weight, halves=True) == "thrice"
    assert project.way_of(u, weight, halves=False) == "matrix"
    product, _ = project.project(u, weight, offset, 150, 0, "thrice")
    exact = u.double() @ weight.double() + (0 if offset is None else offset[:, None])
    assert relative_error(product, exact) < 3e-7
    for part in (u[:1], u[3:]):
        again, _ = project.project(part, weight, offset, 150, 0, "thrice")
        assert torch.equal(again, product[:1] if len(part) == 1 else product[3:])


@pytest.mark.parametrize("inputs", [3, 40])
@torch.no_grad()
def test_steps_are_the_same_however_many_are_taken_at_once(inputs, matrix_units):
    """Over an input of each step, and over one for all: the early end of a stabilisation relies on it."""
    matrix_units(9)
    cell, weights, _, state, _ = map_single(problem("gru", 4, 17, 200, (2,), inputs=inputs))
    cell, u = cell.bind(weights), torch.randn(4, 2, 17, inputs, device=DEVICE)
    at_once = fused.scan_input(cell, u, state, precision="tf32x3", only_last=True)
    before = fused.scan_input(cell, u[:3], state, precision="tf32x3", only_last=True)
    assert torch.equal(fused.scan_input(cell, u[3:], before, precision="tf32x3", only_last=True).h, at_once.h)
    at_once = fused.scan_input(cell, u[:1], state, precision="tf32x3", steps=4, only_last=True)
    before = fused.scan_input(cell, u[:1], state, precision="tf32x3", steps=3)
    before = cell.State(*(field[-1] for field in before))
    assert torch.equal(fused.scan_input(cell, u[:1], before, precision="tf32x3", only_last=True).h, at_once.h)


@alone_and_in_groups
def test_the_matrix_units_give_the_same_again(name, hidden, processors, matrix_units):
    """Twice the same; without a gradient; and the last state where no other is kept."""
    matrix_units(processors)
    cell, weights, projected, state, upstream = map_single(problem(name, 1, 17, hidden, (2,)))
    projected = projected.expand(5, *projected.shape[1:])
    upstream = [x.expand(5, *x.shape[1:]) for x in upstream]
    results = [run(fused.scan, cell, weights, projected, state, upstream, precision="tf32") for _ in range(2)]
    for x, y in zip(*(tuple(states) + tuple(grads.values()) for states, grads in results), strict=True):
        assert torch.equal(x, y)
    last = fused.scan(cell.bind(weights), projected, state, precision="tf32", only_last=True)
    kept = fused.scan(cell.bind(weights), projected, state, precision="tf32")
    for x, y, z in zip(last, kept, results[0][0], strict=True):
        assert torch.equal(x, y[-1])
        assert relative_error(y, z.double()) < 1e-6


@alone_and_in_groups
def test_a_row_that_is_not_finite_leaves_the_others_alone(name, hidden, processors, matrix_units):
    """Whatever its bits: programs that share a row send each other numbers with bits of their own in them."""
    matrix_units(processors)
    cell, weights, projected, state, upstream = map_single(problem(name, 4, 17, hidden, (2,)))
    expected, expected_grads = run(fused.scan, cell, weights, projected, state, upstream, precision="tf32")
    projected[1, :, 3] = float("nan")
    upstream[0][2, :, 5] = float("inf")
    states, grads = run(fused.scan, cell, weights, projected, state, upstream, precision="tf32")
    assert states.h[1:, :, 3].isnan().all()
    assert not grads["projected"][:3, :, 5].isfinite().any()
    others = [row for row in range(17) if row not in (3, 5)]
    assert torch.equal(states.h[:, :, others], expected.h[:, :, others])
    assert torch.equal(grads["projected"][:, :, others], expected_grads["projected"][:, :, others])


def errors_of(cell, double):
    """Of the states in each precision, and of the plain loop in float32."""
    exact = reference.scan(cell.bind(double[0]), *double[1:3])
    weights, projected, state = map(single, double[:3])
    states = {each: fused.scan(cell.bind(weights), projected, state, precision=each) for each in ("tf32x3", "tf32")}
    states["plain"] = reference.scan(cell.bind(weights), projected, state)
    return {each: max(map(relative_error, value, exact)) for each, value in states.items()}


def division_of(name, networks, rows, hidden, precision, *, backward=True):
    form = form_of(program_of(CELLS[name](3, hidden)))
    return gpu.plan_for(form, torch.empty(0, device=DEVICE).device, networks, rows, precision, backward=backward)


@pytest.mark.parametrize(("time", "rows", "hidden", "networks", "processors"), MATRIX_CASES)
@pytest.mark.parametrize("name", ON_MATRIX_UNITS)
@torch.no_grad()
def test_three_products_are_as_precise_as_float32(name, time, rows, hidden, networks, processors, matrix_units):
    """In emulation both are 0.6 to 1.5e-7 away from float64, and one product in TF32 is 1e-4."""
    matrix_units(processors)
    assert division_of(name, networks, rows, hidden, "tf32x3", backward=False).halves
    cell, *double = problem(name, time, rows, hidden, (networks,))
    errors = errors_of(cell, double)
    assert errors["tf32x3"] < PRECISE * errors["plain"]
    assert errors["tf32"] > 50 * PRECISE * errors["plain"], "the matrix units do not round: this test proves nothing"


@pytest.mark.parametrize("size", [2.0**-12, 2.0**6])
@torch.no_grad()
def test_three_products_of_small_and_of_large_numbers(size, matrix_units):
    """What half precision does not reach in small numbers is kept in larger ones; large ones are within its range."""
    matrix_units(9)
    assert division_of("gru", 2, 17, 200, "tf32x3", backward=False).halves
    cell, weights, projected, state, upstream = problem("gru", 1, 17, 200, (2,), recurrent_bias=True)
    double = [weights, 0 * projected, cell.State(state.h * size), upstream]
    double[0]["recurrent_weight"] /= size if size > 1 else 1
    double[0]["recurrent_bias"] *= 0
    errors = errors_of(cell, double)
    assert errors["tf32x3"] < PRECISE * errors["plain"]


@torch.no_grad()
def test_numbers_beyond_half_precision_are_seen(matrix_units):
    matrix_units(4)
    cell, weights, projected, state, _ = map_single(problem("gru", 1, 17, 48, (2,)))
    expected = fused.scan(cell.bind(weights), projected, state, precision="tf32x3")
    state.h[0, 3] *= 1e6
    states = fused.scan(cell.bind(weights), projected, state, precision="tf32x3")
    assert states.h[0, 0, 3].isnan().all()
    assert torch.equal(states.h[:, :, 4:], expected.h[:, :, 4:])


@torch.no_grad()
def test_a_recurrent_bias_beside_three_products(matrix_units):
    matrix_units(4)
    assert division_of("gru", 2, 17, 48, "tf32x3", backward=False).halves
    cell, *double = problem("gru", 2, 17, 48, (2,), recurrent_bias=True)
    errors = errors_of(cell, double)
    assert errors["tf32x3"] < PRECISE * errors["plain"]


@alone_and_in_groups
@torch.no_grad()
def test_three_products_are_a_function_of_the_state(name, hidden, processors, matrix_units):
    """The same bits again, in whatever turn of the exchanges a step is, and whoever has a row.

    So a stabilisation may take a state that is back to the bit for one that will always come back.
    """
    matrix_units(processors)
    assert division_of(name, 2, 20, hidden, "tf32x3", backward=False).halves
    cell, weights, projected, state, _ = map_single(problem(name, 1, 20, hidden, (2,)))
    cell = cell.bind(weights)

    def after(steps, state, projected=projected):
        constant = projected[:1].expand(steps, *projected.shape[1:])
        return fused.scan(cell, constant, state, precision="tf32x3", only_last=True)

    kept = fused.scan(cell, projected.expand(5, *projected.shape[1:]), state, precision="tf32x3")
    expected = [x[-1] for x in kept]
    for states in (after(5, state), after(5, state), after(3, after(2, state))):
        for x, y in zip(states, expected, strict=True):
            assert torch.equal(x, y)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    moved = after(5, type(state)(*(x[:, order] for x in state)), projected[:, :, order])
    for x, y in zip(moved, expected, strict=True):
        assert torch.equal(x, y[:, order])


@pytest.mark.parametrize(("hidden", "processors"), [(48, 4), (256, 9)])
@torch.no_grad()
def test_three_products_with_a_row_that_is_not_finite(hidden, processors, matrix_units):
    """Whatever its bits: programs that share a row send each other numbers with a bit of their own in them."""
    matrix_units(processors)
    assert division_of("gru", 2, 17, hidden, "tf32x3", backward=False).halves
    cell, weights, projected, state, _ = map_single(problem("gru", 4, 17, hidden, (2,)))
    expected = fused.scan(cell.bind(weights), projected, state, precision="tf32x3")
    projected[1, :, 3] = float("nan")
    projected[2, :, 5] = float("inf")
    states = fused.scan(cell.bind(weights), projected, state, precision="tf32x3")
    assert states.h[1:, :, 3].isnan().all()
    others = [row for row in range(17) if row not in (3, 5)]
    assert torch.equal(states.h[:, :, others], expected.h[:, :, others])


@pytest.mark.parametrize("name", ON_MATRIX_UNITS)
def test_three_products_have_no_gradient(name, matrix_units):
    """Where one is needed products are plain float32, to the bit."""
    matrix_units(4)
    parts = map_single(problem(name, 2, 5, 24, (2,)))
    results = [run(fused.scan, *parts, precision=precision) for precision in ("tf32x3", "ieee")]
    for x, y in zip(*(tuple(states) + tuple(grads.values()) for states, grads in results), strict=True):
        assert torch.equal(x, y)
    with torch.no_grad():
        without = fused.scan(parts[0].bind(parts[1]), *parts[2:4], precision="tf32x3")
    assert not torch.equal(without.h, results[0][0].h)


@pytest.mark.parametrize(("version", "missing"), [("3.5.1", {}), ("3.6.0", {"triton.experimental": None})], ids=str)
def test_without_gluon_there_are_no_matrix_units(version, missing, monkeypatch):
    """In a Triton that is too old, and in one that does not have it where it was."""
    monkeypatch.setattr("triton.__version__", version)
    monkeypatch.delitem(sys.modules, "multistable.scan.kernels.matrix", raising=False)
    for name, module in missing.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert gpu.matrix_kernels.__wrapped__() is None


@pytest.mark.parametrize("change", [{"matrix_units": False}, {"shared_memory": 65_536}, {"hidden": 1024}], ids=str)
def test_tf32_is_allowed_and_not_demanded(change):
    """Where the matrix units cannot serve, products are plain float32."""
    case = {"hidden": 256, "gates": 3, "members": 64, "rows": 32, "processors": 132, "shared_memory": 232_448}
    case |= {"matrix_units": True, "precision": "tf32"}
    assert plan(**case).matrix
    assert not plan(**case | change).matrix


@pytest.mark.parametrize(
    "change",
    [{"backward": True}, {"rows": 1, "members": 1}, {"matrix_units": False}, {"shared_memory": 49_152},
     {"hidden": 1024}, {"precision": "ieee"}],
    ids=str,
)  # fmt: skip
def test_three_products_where_no_backward_pass_follows(change):
    """Divided as in TF32; else, products are plain float32, divided as such."""
    case = {"hidden": 256, "gates": 3, "members": 10, "rows": 320, "processors": 44, "shared_memory": 232_448}
    case |= {"matrix_units": True, "precision": "tf32x3", "backward": False}
    chosen = plan(**case)
    assert chosen.halves
    assert chosen == replace(plan(**case | {"precision": "tf32"}), halves=True)
    assert plan(**case | change) == plan(**case | {"precision": "ieee"} | change | {"precision": "ieee"})
    assert not plan(**case | change).matrix
