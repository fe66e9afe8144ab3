"""The fused time loop against the reference in float64: on a GPU where there is one, else in Triton's interpreter."""
# ruff: noqa: E402

import os

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it once, when it is first imported.

pytest.importorskip("triton")

import gluon_on_cpu
from multistable import scan as time_loop
from multistable.cells import CELLS, GRU
from multistable.cells.elman import Elman
from multistable.scan import engine, fused, reference
from multistable.scan.kernels import plan as plans
from multistable.scan.kernels import recurrence
from multistable.scan.kernels.plan import plan

DEVICE = "cuda" if HAS_GPU else "cpu"
NAMES = ["lstm", "gru", "mgu", "brc", "nbrc"]
TOLERANCE = {"ieee": 1e-5, "tf32x3": 1e-5, "tf32": 2e-2}


@pytest.fixture(autouse=True)
def _few_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _poisoned_memory(monkeypatch):
    """Memory that the kernels are to write holds NaN before."""
    new_empty = torch.Tensor.new_empty

    def poisoned(*arguments, **options):
        tensor = new_empty(*arguments, **options)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)


def make(name, hidden, lead=(), *, seed=0, **options):
    """A cell with the given leading dimensions whose weights are large enough for every gate to matter."""
    generator = torch.Generator().manual_seed(seed)
    cell = CELLS[name](3, hidden, **options)
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
    """The same in float32, on the device under test."""
    if isinstance(value, dict):
        return {key: single(x) for key, x in value.items()}
    if isinstance(value, torch.Tensor):
        return value.float()
    return type(value)(*map(single, value)) if hasattr(value, "_fields") else [single(x) for x in value]


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
    assert not bad


if HAS_GPU:
    SIZES = [(t, b, h) for t in (1, 2, 63) for b in (1, 33) for h in (1, 16, 48, 128, 256, 512)]
else:
    SIZES = [(1, 1, 1), (63, 1, 16), (2, 1, 128), (2, 33, 1), (2, 3, 48)]
# The interpreter runs one program after the other: many networks on small problems only.
CASES = [(*size, lead) for size in SIZES for lead in ((), (3,)) if HAS_GPU or not lead or size[0] * size[1] <= 40]


@pytest.mark.parametrize(("time", "batch", "hidden", "lead"), CASES)
@pytest.mark.parametrize("name", NAMES)
def test_states_and_gradients_are_those_of_the_reference(name, time, batch, hidden, lead):
    check(name, time, batch, hidden, lead)


@pytest.mark.parametrize("time", [1, 2, 4, 7])
def test_an_mgu_goes_back_in_parts(time, monkeypatch):
    """In one, two and three parts, of equal and of different lengths."""
    monkeypatch.setattr(recurrence, "PARTS", 3)
    monkeypatch.setattr(recurrence, "STEPS_OF_A_PART", 2)
    check("mgu", time, 3, 16, (2,))


@pytest.mark.parametrize("name", NAMES)
def test_no_more_is_kept_than_slots_and_states(name):
    """Beside the weights, and whether the input is given or its projection."""
    cell, weights, projected, state, _ = map_single(problem(name, 6, 3, 16, (2,)))
    weights = {key: weight.requires_grad_() for key, weight in weights.items()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes() // 4
        return tensor

    states = 6 * 2 * 3 * 16
    slots = {"lstm": 4, "gru": 4, "mgu": 2, "brc": 3, "nbrc": 3}[name] * states
    fields = len(state) * states * 7 // 6
    outside = sum(weight.numel() for weight in weights.values())
    for scan, x in ((fused.scan, projected), (fused.scan_input, torch.randn(6, 2, 3, 3, device=DEVICE))):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            results = scan(cell.bind(weights), x, state)
        assert slots + fields <= sum(kept.values()) <= slots + fields + outside + x[..., :3].numel()
        assert all(field.requires_grad for field in results)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_that_is_not_given_is_zero(name):
    cell, weights, _, state, upstream = map_single(problem(name, 3, 2, 16, (2,)))
    u = torch.randn(3, 2, 2, 3, device=DEVICE)
    weights = {key: weight.requires_grad_() for key, weight in weights.items()}
    results = []
    for given in (None, cell.State(*map(torch.zeros_like, state))):
        states = fused.scan_input(cell.bind(weights), u, given)
        results.append([*states, *torch.autograd.grad(states, list(weights.values()), upstream)])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("lead", [(), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_projection_is_overwritten_and_its_gradients_are_right(name, shared, lead):
    """From the input on, with gradients of the input, its weight and its bias; one input for all, or one for each."""
    cell, weights, _, state, upstream = problem(name, 4, 3, 16, lead)
    generator = torch.Generator().manual_seed(5)
    own = (1,) * len(lead) if shared else lead
    u = torch.randn(4, *own, 3, 3, generator=generator, dtype=torch.float64).to(DEVICE)

    def plain(bound, u, state):
        return reference.scan(bound, bound.project(u), state)

    results = []
    for scan, change in ((plain, lambda x: x), (fused.scan_input, single)):
        leaf = change(u).detach().clone().requires_grad_()
        leaves = {key: value.detach().clone().requires_grad_() for key, value in change(weights).items()}
        states = scan(cell.bind(leaves), leaf, change(state))
        results.append([*states, *torch.autograd.grad(states, [leaf, *leaves.values()], change(upstream))])
    for value, expected in zip(results[1], results[0], strict=True):
        assert value.shape == expected.shape
        assert relative_error(value, expected) < TOLERANCE["ieee"]


@pytest.mark.parametrize("lead", [(), (2, 3)], ids=["one", "two by three"])
def test_a_recurrent_bias_has_its_place_and_its_gradient(lead):
    check("gru", 3, 2, 48, lead, recurrent_bias=True)


def test_a_chrono_lstm_is_an_lstm():
    check("chrono", 3, 2, 16)


@pytest.mark.parametrize("name", NAMES)
def test_products_in_tf32(name):
    check(name, 2, 9, 16, (2,), precision="tf32")
    check(name, 2, 2, 16, precision="tf32x3")


@pytest.mark.skipif(not HAS_GPU, reason="many programs need a GPU")
@pytest.mark.parametrize("hidden", [16, 128, 256])
@pytest.mark.parametrize("name", NAMES)
def test_many_networks_in_tf32(name, hidden):
    check(name, 5, 33, hidden, (64,), precision="tf32")


ON_MATRIX_UNITS = ["lstm", "gru", "mgu", "nbrc"]
# Time, rows, units, networks, multiprocessors. A program alone: one step; units and rows that do not fill their tiles.
MATRIX_CASES = [(1, 5, 16, 3, 4), (3, 17, 24, 2, 4)]
# Groups of programs, each with one tile; with several tiles, and programs with more units; of 10 to 19 programs.
MATRIX_CASES += [(4, 33, 128, 2, 8), (3, 20, 256, 1, 132), (4, 33, 200, 2, 9), (2, 5, 300, 1, 132)]
if HAS_GPU:
    MATRIX_CASES += [(30, 32, 128, 20, 132), (30, 32, 256, 20, 132), (30, 33, 512, 3, 132), (8, 200, 256, 7, 132)]


@pytest.fixture
def matrix_units(monkeypatch):
    """A function that sets how many multiprocessors there are, all with matrix units, to be used with few rows, too."""
    capacity = recurrence.capacity
    if HAS_GPU:
        if not capacity(torch.device("cuda", 0))["matrix_units"]:
            pytest.skip("needs a GPU with matrix units for TF32")
    else:
        monkeypatch.setattr(recurrence, "_matrix", gluon_on_cpu.kernels)

    def use(processors):
        def changed(device):
            own = capacity(device)
            if device.type == "cuda":
                return {**own, "processors": min(processors, own["processors"])}
            return {"processors": processors, "shared_memory": 232_448, "matrix_units": True}

        monkeypatch.setattr(recurrence, "capacity", changed)

    plan.cache_clear()
    monkeypatch.setattr(plans, "ROWS_FOR_MATRIX", 0)
    yield use
    plan.cache_clear()


@pytest.mark.parametrize(("time", "rows", "hidden", "networks", "processors"), MATRIX_CASES)
@pytest.mark.parametrize("name", ON_MATRIX_UNITS)
def test_on_the_matrix_units(name, time, rows, hidden, networks, processors, matrix_units):
    """On a GPU, or the source of the kernels on the CPU."""
    matrix_units(processors)
    like = torch.empty(0, device=DEVICE)
    division = recurrence._plan(recurrence.KINDS[name], like, networks, rows, hidden, "tf32")
    assert division.matrix
    check(name, time, rows, hidden, (networks,), precision="tf32", tolerance=2e-3 if time < 10 else None)


def test_a_recurrent_bias_on_the_matrix_units(matrix_units):
    matrix_units(4)
    check("gru", 2, 17, 48, (2,), precision="tf32", tolerance=2e-3, recurrent_bias=True)


@pytest.mark.parametrize(("hidden", "processors"), [(48, 4), (256, 9)])
@pytest.mark.parametrize("name", ON_MATRIX_UNITS)
def test_the_matrix_units_give_the_same_again(name, hidden, processors, matrix_units):
    """Twice the same; without a gradient; and the last state where no other is kept."""
    matrix_units(processors)
    cell, weights, projected, state, upstream = map_single(problem(name, 1, 17, hidden, (2,)))
    projected = projected.expand(5, *projected.shape[1:])
    upstream = [x.expand(5, *x.shape[1:]) for x in upstream]
    results = [run(fused.scan, cell, weights, projected, state, upstream, precision="tf32") for _ in range(2)]
    for x, y in zip(*(tuple(states) + tuple(grads.values()) for states, grads in results), strict=True):
        assert torch.equal(x, y)
    last = fused.settle(cell.bind(weights), projected[0], state, 5, precision="tf32")
    kept = fused.scan(cell.bind(weights), projected, state, precision="tf32")
    for x, y, z in zip(last, kept, results[0][0], strict=True):
        assert torch.equal(x, y[-1])
        assert relative_error(y, z.double()) < 1e-6


@pytest.mark.parametrize("change", [{"matrix_units": False}, {"shared_memory": 65_536}, {"hidden": 1024}], ids=str)
def test_tf32_is_allowed_and_not_demanded(change):
    """Where the matrix units cannot serve, products are plain float32."""
    case = {"hidden": 256, "gates": 3, "networks": 64, "rows": 32, "processors": 132, "shared_memory": 232_448}
    case |= {"matrix_units": True, "precision": "tf32"}
    assert plan(**case).matrix
    assert not plan(**case | change).matrix


@pytest.mark.parametrize("name", NAMES)
def test_an_input_constant_in_time_is_not_copied(name):
    cell, weights, projected, state, upstream = problem(name, 5, 2, 16, (2,))

    def constant(scan):
        def run_constant(bound, once, state, **options):
            return scan(bound, once.expand(5, *once.shape[1:]), state, **options)

        return run_constant

    expected, expected_grads = run(constant(reference.scan), cell, weights, projected[:1], state, upstream)
    arguments = map(single, (weights, projected[:1], state, upstream))
    states, grads = run(constant(fused.scan), cell, *arguments)
    assert relative_error(states[0], expected[0]) < TOLERANCE["ieee"]
    assert relative_error(grads["projected"], expected_grads["projected"]) < TOLERANCE["ieee"]


def test_strides_are_taken_as_they_come():
    cell, weights, projected, state, upstream = map_single(problem("gru", 4, 3, 16, (2,)))
    expected, expected_grads = run(fused.scan, cell, weights, projected, state, upstream)
    turned = projected.transpose(0, 2).contiguous().transpose(0, 2)
    doubled = torch.stack([upstream[0], upstream[0]], dim=-1)[..., 0]
    turned_state = cell.State(state.h.transpose(0, 1).contiguous().transpose(0, 1))
    leaf = turned.detach().requires_grad_()
    states = fused.scan(cell.bind(weights), leaf, turned_state)
    (grad,) = torch.autograd.grad(states, leaf, [doubled])
    assert torch.equal(states.h, expected.h)
    assert torch.equal(grad, expected_grads["projected"])


def map_single(parts):
    cell, *rest = parts
    return cell, *map(single, rest)


@pytest.mark.parametrize("name", NAMES)
def test_settle_ends_where_a_scan_ends(name):
    cell, weights, projected, state, _ = map_single(problem(name, 1, 3, 48, (2,)))
    for steps in (1, 6):
        expected = fused.scan(cell.bind(weights), projected.expand(steps, *projected.shape[1:]), state)
        last = fused.settle(cell.bind(weights), projected[0], state, steps)
        for x, y in zip(last, expected, strict=True):
            assert torch.equal(x, y[-1])


@pytest.mark.parametrize("name", NAMES)
def test_without_a_gradient_the_states_are_the_same(name):
    cell, weights, projected, state, _ = map_single(problem(name, 4, 3, 48, (2,)))
    projected.requires_grad_()
    expected = fused.scan(cell.bind(weights), projected, state)
    with torch.no_grad():
        states = fused.scan(cell.bind(weights), projected, state)
    for x, y in zip(states, expected, strict=True):
        assert relative_error(x, y.double()) < 1e-6
        assert not x.requires_grad


def test_a_graph_that_is_kept_gives_the_same_gradients_again():
    cell, weights, projected, state, upstream = map_single(problem("lstm", 3, 2, 16))
    projected.requires_grad_()
    states = fused.scan(cell.bind(weights), projected, state)
    (first,) = torch.autograd.grad(states, projected, upstream, retain_graph=True)
    (second,) = torch.autograd.grad(states, projected, upstream)
    assert torch.equal(first, second)


def test_a_gradient_of_one_field_alone():
    cell, weights, projected, state, upstream = problem("lstm", 3, 2, 16)
    leaf = projected.clone().requires_grad_()
    (expected,) = torch.autograd.grad(reference.scan(cell.bind(weights), leaf, state).c, leaf, upstream[1])
    weights, projected, state, upstream = map(single, (weights, projected, state, upstream))
    projected.requires_grad_()
    (grad,) = torch.autograd.grad(fused.scan(cell.bind(weights), projected, state).c, projected, upstream[1])
    assert relative_error(grad, expected) < TOLERANCE["ieee"]


def test_second_derivatives_raise():
    cell, weights, projected, state, upstream = map_single(problem("gru", 2, 2, 16))
    projected.requires_grad_()
    states = fused.scan(cell.bind(weights), projected, state)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(states, projected, upstream, create_graph=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cell, x: (cell, x.half()), "float32"),
        (lambda cell, x: (cell, x.double()), "float32"),
        (lambda cell, x: (Elman(3, 16), x[..., :16]), "no kernel for Elman"),
        (lambda cell, x: (GRU(3, 2000), x), "1024"),
        (lambda cell, x: (cell, x[:0]), "empty"),
    ],
)
def test_what_the_kernels_cannot_do_is_said(change, reason):
    cell, _, projected, state, _ = map_single(problem("gru", 2, 2, 16))
    cell, projected = change(cell.to(DEVICE), projected)
    assert reason in fused.supported(cell.to(DEVICE), projected)
    with pytest.raises(ValueError, match=reason):
        fused.scan(cell, projected, state)


def test_autocast_is_turned_away():
    """By every way in; left to itself, the engine takes the plain loop, which follows PyTorch's rules."""
    cell = GRU(3, 16).to(DEVICE)
    u = torch.randn(4, 2, 3, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        projected = cell.project(u)
        state = cell.zero_state(projected[0])
        for x in (u, projected):
            assert "autocast" in fused.supported(cell, x)
        for scan, x in ((fused.scan, projected), (fused.scan_input, u)):
            with pytest.raises(ValueError, match="autocast"):
                scan(cell, x, state)
        with engine(backend="fused"), pytest.raises(RuntimeError, match="autocast"):
            time_loop.scan(cell, u)
        assert time_loop.choose(cell, u).name == "reference"
        states = time_loop.scan(cell, u)
        expected = reference.scan(cell, projected, state)
    assert torch.equal(states.h, expected.h)
    assert fused.supported(cell, u) is None


def test_a_backward_pass_inside_autocast_is_the_same():
    cell, weights, _, state, upstream = map_single(problem("mgu", 3, 2, 16))
    leaves = [weight.requires_grad_() for weight in weights.values()]
    states = fused.scan_input(cell.bind(weights), torch.randn(3, 2, 3, device=DEVICE), state)
    expected = torch.autograd.grad(states, leaves, upstream, retain_graph=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        grads = torch.autograd.grad(states, leaves, upstream)
    assert all(map(torch.equal, grads, expected))


def test_an_unknown_precision_is_an_error():
    cell, _, projected, state, _ = map_single(problem("gru", 2, 2, 16))
    with pytest.raises(ValueError, match="precision must be one of ieee, tf32x3, tf32"):
        fused.scan(cell.to(DEVICE), projected, state, precision="fp8")


@pytest.mark.parametrize("hidden", [1, 16, 48, 128, 256, 300, 512, 1024])
@pytest.mark.parametrize("gates", [2, 3, 4])
def test_a_plan_covers_all_units_rows_and_networks(gates, hidden):
    for networks in (1, 3, 64, 500):
        for rows in (1, 33, 200):
            for processors in (1, 20, 132):
                for precision in ("ieee", "tf32"):
                    p = plan(
                        hidden=hidden, gates=gates, networks=networks, rows=rows, processors=processors,
                        shared_memory=232_448, matrix_units=True, precision=precision,
                    )  # fmt: skip
                    assert p.units * p.splits >= hidden
                    assert (p.splits - 1) * p.units < hidden
                    assert p.span <= p.rows
                    assert p.parts * 32 >= p.inputs
                    if p.splits == 1:
                        assert p.groups == networks * -(-rows // p.span)
                    else:
                        assert p.groups * p.splits <= processors * 2


@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU with 40 GB")
@pytest.mark.parametrize("name", ["gru", "brc"])
def test_offsets_beyond_32_bits(name):
    """A long sequence at once, and in two parts that are each within 31 bits, give the same."""
    time, batch, hidden = 2200, 512, 512
    cell, weights, projected, state, _ = map_single(problem(name, 1, batch, hidden))
    bound = cell.bind(weights)

    def run_parts(*lengths):
        once, h = projected.clone().requires_grad_(), state
        total = 0.0
        for length in lengths:
            states = fused.scan(bound, once.expand(length, *once.shape[1:]), h)
            h = cell.State(states.h[-1])
            total = total + states.h.sum() / (batch * hidden)
        (grad,) = torch.autograd.grad(total, once)
        return h.h.detach(), grad

    last, grad = run_parts(time)
    expected_last, expected_grad = run_parts(time // 2, time // 2)
    assert torch.equal(last, expected_last)
    assert torch.isfinite(grad).all()
    assert relative_error(grad, expected_grad.double()) < 1e-3


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_gpu_that_is_not_the_current_one():
    cell, weights, projected, state, _ = map_single(problem("gru", 3, 2, 16))
    here = fused.scan(cell.bind(weights), projected, state).h
    there = {key: value.to("cuda:1") for key, value in weights.items()}
    states = fused.scan(cell.bind(there), projected.to("cuda:1"), cell.State(state.h.to("cuda:1")))
    assert torch.equal(states.h.to(DEVICE), here)
