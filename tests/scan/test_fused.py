"""The fused time loop against the reference in float64: on a GPU where there is one, else in Triton's interpreter."""

from itertools import product

import pytest
import torch

from fused_problems import (
    DEVICE,
    HAS_GPU,
    NAMES,
    TOLERANCE,
    check,
    map_single,
    poisoned_memory,  # noqa: F401
    problem,
    relative_error,
    run,
    single,
)
from multistable import scan as time_loop
from multistable.cells import GRU
from multistable.scan import choice, engine, fused, reference
from multistable.scan.kernels import project, way_back
from multistable.scan.kernels.plan import plan
from multistable.scan.program import RefusedError

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
    monkeypatch.setattr(way_back, "PARTS", 3)
    monkeypatch.setattr(way_back, "NUMBERS_OF_A_PART", 2 * 2 * 3 * 16)
    check("mgu", time, 3, 16, (2,))


@pytest.mark.parametrize("name", NAMES)
def test_no_more_is_saved_than_blocks_and_states(name):
    """Beside the weights, and whether the input is given or its projection."""
    cell, weights, projected, state, _ = map_single(problem(name, 6, 3, 16, (2,)))
    weights = {key: weight.requires_grad_() for key, weight in weights.items()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes() // 4
        return tensor

    states = 6 * 2 * 3 * 16
    blocks = {"lstm": 4, "gru": 4, "mgu": 2, "brc": 3, "nbrc": 3}[name] * states
    fields = len(state) * states * 7 // 6
    outside = sum(weight.numel() for weight in weights.values())
    for scan, x in ((fused.scan, projected), (fused.scan_input, torch.randn(6, 2, 3, 3, device=DEVICE))):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            results = scan(cell.bind(weights), x, state)
        assert blocks + fields <= sum(kept.values()) <= blocks + fields + outside + x[..., :3].numel()
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


@pytest.mark.parametrize(("lead", "shared"), [((), False), ((3,), True), ((2, 2), False)], ids=str)
@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_projection_is_overwritten_and_its_gradients_are_right(name, few, shared, lead, monkeypatch):
    """From the input on, with gradients of the input, its weight and its bias; one input for all, or one for each.

    By a matrix product, or by the kernel for few inputs.
    """
    monkeypatch.setattr(project, "MANY_NUMBERS", 0 if few else 2**40)
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


@pytest.mark.parametrize("wanted", [("bias", "recurrent_bias"), ("bias",), ("recurrent_bias",)], ids="+".join)
@pytest.mark.parametrize("lead", [(), (2, 2)], ids=["one", "two by two"])
@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_both_biases_have_their_gradients(name, lead, wanted):
    """Those of an LSTM are added; those of a GRU for two gates alone, the third is inside the product."""
    cell, weights, *_ = problem(name, 3, 2, 16, lead, recurrent_bias=True)
    u = torch.randn(3, *lead, 2, 3, dtype=torch.float64, device=DEVICE)
    results = []

    def plain(bound, u):
        x = bound.project(u)
        return reference.scan(bound, x, bound.zero_state(x[0]))

    for scan, change in ((plain, lambda x: x), (fused.scan_input, single)):
        leaves = {key: change(value).detach().clone().requires_grad_(key in wanted) for key, value in weights.items()}
        states = scan(cell.bind(leaves), change(u))
        results.append([*states, *torch.autograd.grad(states[0].square().sum(), [leaves[key] for key in wanted])])
    for value, expected in zip(results[1], results[0], strict=True):
        assert relative_error(value, expected) < TOLERANCE["ieee"]


@pytest.mark.parametrize("inputs", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_a_few_inputs_are_projected_in_one_pass(bias, inputs, monkeypatch):
    """More rows, columns and steps than a program has, none a multiple; room for more columns; any strides."""
    monkeypatch.setattr(project, "MANY_NUMBERS", 0)
    monkeypatch.setattr(project, "STEPS_OF_A_SUM", 3)
    u = torch.randn(33, 2, 5, 2 * inputs, device=DEVICE).transpose(0, 2)[..., ::2]
    weight, offset = torch.randn(2, 150, inputs, device=DEVICE).mT, torch.randn(2, 150, device=DEVICE)
    assert project.way_of(u, weight, halves=False) == "few"
    result, room = project.project(u, weight, offset if bias else None, 200, 10, "few")
    expected = u @ weight + offset[:, None] if bias else u @ weight
    assert torch.allclose(result, expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(room[..., 10:160].transpose(0, 1), result)
    assert room[..., :10].isnan().all()
    assert room[..., 160:].isnan().all()
    grads = torch.randn(2, 5 * 33, 200, device=DEVICE)[..., 10:160]
    of_weight, of_bias = project.gradients_of_weight(u, grads, "few", bias=bias)
    of_product = grads.unflatten(1, (5, 33)).transpose(0, 1)
    assert torch.allclose(of_weight, torch.einsum("tnbi,tnbo->nio", u, of_product), rtol=1e-5, atol=1e-5)
    assert (of_bias is not None) == bias
    if bias:
        assert torch.allclose(of_bias, of_product.sum((0, 2)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("wanted", ["input_weight", "bias", "recurrent_weight"])
@pytest.mark.parametrize("name", ["gru", "brc"])
def test_the_gradient_of_one_weight_alone_is_the_same(name, wanted, few, monkeypatch):
    monkeypatch.setattr(project, "MANY_NUMBERS", 0 if few else 2**40)
    cell, weights, _, state, upstream = map_single(problem(name, 3, 2, 16, (2,)))
    u = torch.randn(3, 2, 2, 3, device=DEVICE)
    grads = []
    for names in ([wanted], list(weights)):
        leaves = {key: weight.detach().clone().requires_grad_(key in names) for key, weight in weights.items()}
        states = fused.scan_input(cell.bind(leaves), u, state)
        grads.append(torch.autograd.grad(states, leaves[wanted], upstream)[0])
    assert torch.equal(*grads)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("only_last", [False, True])
@torch.no_grad()
def test_the_engine_has_the_kernels_project_the_input(only_last, constant, monkeypatch):
    """As it does on a GPU: all states or the last, of an input of each step or one for all."""
    monkeypatch.setattr(choice, "_chosen", lambda cell, u: ("triton", "", None))
    cell, weights, _, state, _ = map_single(problem("gru", 4, 3, 16, (2,)))
    bound, u = cell.bind(weights), torch.randn(4, 2, 3, 3, device=DEVICE)
    u = u[:1].expand_as(u) if constant else u
    states = time_loop.scan(bound, u, state, only_last=only_last)
    expected = reference.scan(bound, bound.project(u), state)
    assert torch.allclose(states.h, expected.h[-1] if only_last else expected.h, atol=1e-5)


@pytest.mark.parametrize("lead", [(), (2, 3)], ids=["one", "two by three"])
def test_a_recurrent_bias_has_its_place_and_its_gradient(lead):
    check("gru", 3, 2, 48, lead, recurrent_bias=True)


def test_a_chrono_lstm_is_an_lstm():
    check("chrono", 3, 2, 16)


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


@pytest.mark.parametrize("name", NAMES)
def test_only_the_last_state_is_that_where_a_scan_ends(name):
    cell, weights, projected, state, _ = map_single(problem(name, 1, 3, 48, (2,)))
    for steps in (1, 6):
        constant = projected.expand(steps, *projected.shape[1:])
        expected = fused.scan(cell.bind(weights), constant, state)
        last = fused.scan(cell.bind(weights), constant, state, only_last=True)
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


class Noisy(GRU):
    def step(self, projected, state):
        return super().step(projected + torch.randn_like(projected), state)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cell, x: (cell, x.half()), "float32"),
        (lambda cell, x: (cell, x.double()), "float32"),
        (lambda cell, x: (Noisy(3, 16), x), "Noisy has no fused loop"),
        (lambda cell, x: (GRU(3, 2000), x), "1024"),
        (lambda cell, x: (cell, x[:0]), "empty"),
    ],
)
def test_what_the_kernels_cannot_do_is_said(change, reason):
    cell, _, projected, state, _ = map_single(problem("gru", 2, 2, 16))
    cell, projected = change(cell.to(DEVICE), projected)
    with pytest.raises(RefusedError, match=reason):
        fused.prepared(cell.to(DEVICE), projected)
    with pytest.raises(ValueError, match=reason):
        fused.scan(cell, projected, state)


def test_autocast_changes_nothing():
    cell, u = GRU(3, 16).to(DEVICE), torch.randn(4, 2, 3, device=DEVICE)
    with engine(backend="fused"):
        expected = time_loop.scan(cell, u.bfloat16().float())
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            states = time_loop.scan(cell, u.bfloat16())
    assert states.h.dtype == torch.float32
    assert torch.equal(states.h, expected.h)


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


@pytest.mark.parametrize("gates", [2, 3, 4])
def test_a_plan_covers_all_units_rows_and_members(gates):
    hidden_sizes, members, rows = (1, 16, 48, 128, 256, 300, 512, 1024), (1, 3, 64, 500), (1, 33, 200)
    for h, r, n, processors, precision in product(hidden_sizes, members, rows, (1, 20, 132), ("ieee", "tf32")):
        p = plan(
            hidden=h, gates=gates, members=r, rows=n, processors=processors,
            shared_memory=232_448, matrix_units=True, precision=precision,
        )  # fmt: skip
        assert (p.splits - 1) * p.units < h <= p.units * p.splits
        assert p.span <= p.rows
        assert p.parts * 32 >= p.inputs
        if p.splits == 1:
            assert p.groups == r * -(-n // p.span)
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
