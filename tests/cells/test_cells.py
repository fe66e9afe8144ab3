"""Every cell of the registry against the paper's equations in NumPy, and what holds for every time loop."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

import multistable as ms
from multistable.scan import scan
from numpy_cells import NUMPY_CELLS, complex_step_gradients, normal, with_random_weights
from own_cells import LeakyCell

CASES = [pytest.param(name, {}, id=name) for name in ms.CELLS]
CASES += [pytest.param(name, {"recurrent_bias": True}, id=f"{name}-recurrent_bias") for name in ("gru", "lstm")]
every_cell = pytest.mark.parametrize(("name", "options"), CASES)
one_field_and_two = pytest.mark.parametrize(("name", "options"), [("gru", {}), ("lstm", {})])


def make(name: str, options: dict, input_size: int = 2, hidden_size: int = 3, seed: int = 0) -> ms.Cell:
    cell = ms.CELLS[name](input_size, hidden_size, dtype=torch.float64, **options)
    return with_random_weights(cell, seed)


def random_state(cell: ms.Cell, *shape: int, seed: int = 10):
    return cell.State(*(0.5 * normal(*shape, cell.hidden_size, seed=seed + i) for i in range(len(cell.State._fields))))


def random_weights(cell: ms.Cell, leading: tuple[int, ...], seed: int = 20) -> dict[str, Tensor]:
    return {
        name: (0.7 * normal(*leading, *p.shape, seed=seed + i)).requires_grad_()
        for i, (name, p) in enumerate(cell.named_parameters())
    }


def weighted_sum(states) -> Tensor:
    """A number that depends on every entry of every field, each with its own random weight."""
    return sum((field * normal(*field.shape, seed=30 + i)).sum() for i, field in enumerate(states))


def to_numpy(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}


def test_every_registered_cell_has_its_equations_in_numpy():
    assert set(NUMPY_CELLS) == set(ms.CELLS)


@every_cell
def test_weights_are_those_of_the_paper(name, options):
    cell, counterpart = make(name, options), NUMPY_CELLS[name]
    weights = to_numpy(dict(cell.named_parameters()))
    wanted = set(counterpart.packed) - (set() if options else {"recurrent_bias"})
    assert set(weights) == wanted
    for tensor_name, tensor in counterpart.unpack(weights).items():
        columns = {"u": (2,), "h": (3,)}[tensor_name[-1]] if tensor_name.startswith("W_") else ()
        assert tensor.shape == (3, *columns), tensor_name


@every_cell
@settings(deadline=None, derandomize=True, max_examples=15)
@given(
    time=st.integers(1, 6),
    n=st.integers(1, 3),
    input_size=st.integers(1, 3),
    hidden_size=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_all_states_agree_with_numpy(name, options, time, n, input_size, hidden_size, seed):
    cell = make(name, options, input_size, hidden_size, seed)
    u, before = 2 * normal(time, n, input_size, seed=seed), random_state(cell, n, seed=seed + 1)

    states = scan(cell, u, before)

    expected = NUMPY_CELLS[name].run(to_numpy(dict(cell.named_parameters())), u.numpy(), to_numpy(before._asdict()))
    assert states._fields == NUMPY_CELLS[name].fields
    for field, value in states._asdict().items():
        np.testing.assert_allclose(value.detach().numpy(), expected[field], rtol=1e-11, atol=1e-13)


@every_cell
def test_all_gradients_agree_with_numpy(name, options):
    cell = make(name, options)
    u, before = normal(5, 2, 2), random_state(cell, 2)
    weights = dict(cell.named_parameters())
    variables = {"u": u, **{f"state.{k}": v for k, v in before._asdict().items()}, **weights}
    for tensor in variables.values():
        tensor.requires_grad_()
    counterpart = NUMPY_CELLS[name]
    upstream = {f: normal(5, 2, 3, seed=30 + i).numpy() for i, f in enumerate(counterpart.fields)}

    def objective(arrays):
        states = counterpart.run(
            {k: arrays[k] for k in weights}, arrays["u"], {f: arrays[f"state.{f}"] for f in counterpart.fields}
        )
        return sum((states[f] * upstream[f]).sum() for f in counterpart.fields)

    gradients = torch.autograd.grad(weighted_sum(scan(cell, u, before)), list(variables.values()))

    expected = complex_step_gradients(objective, to_numpy(variables))
    for (variable, gradient), wanted in zip(zip(variables, gradients, strict=True), expected.values(), strict=True):
        assert np.abs(wanted).max() > 1e-3, variable
        np.testing.assert_allclose(gradient.numpy(), wanted, rtol=1e-10, atol=1e-13, err_msg=variable)


@every_cell
@pytest.mark.parametrize(("leading", "shared_input"), [((3,), True), ((2, 3), False)], ids=str)
def test_leading_dimensions_are_separate_recurrences(name, options, leading, shared_input):
    cell = make(name, options)
    weights = random_weights(cell, leading)
    u = normal(4, *([1] * len(leading) if shared_input else leading), 2, 2).requires_grad_()
    before = random_state(cell, *leading, 2)

    states = scan(cell.bind(weights), u, before)
    gradients = torch.autograd.grad(weighted_sum(states), [u, *weights.values()])

    u_of_all = u.expand(4, *leading, 2, 2)
    apart = {
        index: scan(
            cell.bind({k: w[index] for k, w in weights.items()}),
            u_of_all[(slice(None), *index)].clone(),
            [field[index] for field in before],
        )
        for index in itertools.product(*(range(size) for size in leading))
    }
    together = [
        torch.stack([x[i] for x in apart.values()], dim=1).unflatten(1, leading) for i in range(len(cell.State._fields))
    ]
    for field, value, expected in zip(states._fields, states, together, strict=True):
        assert value.shape == (4, *leading, 2, 3), field
        assert_close(value, expected, rtol=1e-12, atol=1e-12)
    assert_close(
        gradients,
        torch.autograd.grad(weighted_sum(together), [u, *weights.values()]),
        rtol=1e-12,
        atol=1e-12,
    )


@every_cell
def test_calling_a_cell_is_one_step(name, options):
    cell = make(name, options)
    u, state = normal(6, 2, 2), random_state(cell, 2)
    states = scan(cell, u, state)
    for t in range(6):
        output, state = cell(u[t], state)
        assert isinstance(state, cell.State)
        assert output is state.h
        assert_close(state, cell.State(*(field[t] for field in states)), rtol=1e-12, atol=1e-12)


@one_field_and_two
def test_a_plain_tuple_is_a_state(name, options):
    cell = make(name, options)
    u, state = normal(1, 2, 2), random_state(cell, 2)
    assert_close(cell(u[0], tuple(state))[1], cell(u[0], state)[1], rtol=0, atol=0)
    assert_close(scan(cell, u, tuple(state)), scan(cell, u, state), rtol=0, atol=0)


@every_cell
def test_the_initial_state_is_zero(name, options):
    cell, leading = make(name, options), (2,)
    cell = cell.bind(random_weights(cell, leading))
    # One batch of inputs for all: the state has the leading dimensions of the weights all the same.
    u = normal(4, *(1 for _ in leading), 2, 2)
    zero = cell.State(*(torch.zeros(*leading, 2, 3, dtype=torch.float64) for _ in cell.State._fields))
    assert_close(cell.zero_state(cell.project(u)[0]), zero, rtol=0, atol=0)
    assert_close(scan(cell, u), scan(cell, u, zero), rtol=0, atol=0)
    assert_close(cell(u[0]), cell(u[0], zero), rtol=0, atol=0)


@every_cell
def test_constant_input_is_the_repeated_input(name, options):
    cell, leading = make(name, options), (2,)
    weights = random_weights(cell, leading)
    cell = cell.bind(weights)
    u, before = normal(*leading, 2, 2).requires_grad_(), random_state(cell, *leading, 2)
    variables = [u, *(field.requires_grad_() for field in before), *weights.values()]

    constant = scan(cell, u.expand(5, *u.shape), before)
    repeated = scan(cell, u.repeat(5, *(1 for _ in u.shape)), before)

    assert_close(constant, repeated, rtol=1e-12, atol=1e-12)
    assert_close(
        torch.autograd.grad(weighted_sum(constant), variables),
        torch.autograd.grad(weighted_sum(repeated), variables),
        rtol=1e-11,
        atol=1e-12,
    )


@one_field_and_two
def test_gradient_of_an_expanded_input_is_each_time_steps_own(name, options):
    cell = make(name, options)
    once = normal(1, 2, 2)
    repeated = once.repeat(5, 1, 1).requires_grad_()
    (expected,) = torch.autograd.grad(weighted_sum(scan(cell, repeated)), repeated)
    leaf = once.expand(5, 2, 2).requires_grad_()
    view = once.clone().requires_grad_().expand(5, 2, 2)
    for constant in (leaf, view):
        (gradient,) = torch.autograd.grad(weighted_sum(scan(cell, constant)), constant)
        assert_close(gradient, expected, rtol=1e-11, atol=1e-12)


def test_constant_input_is_projected_once(monkeypatch):
    cell = make("gru", {})
    lengths = []
    project = cell.project
    monkeypatch.setattr(cell, "project", lambda u: lengths.append(len(u)) or project(u))
    scan(cell, normal(1, 2, 2).expand(50, 2, 2))
    assert lengths == [1]


@one_field_and_two
def test_two_scans_in_sequence_are_one(name, options):
    cell = make(name, options)
    u, before = normal(7, 2, 2), random_state(cell, 2)
    first = scan(cell, u[:3], before)
    second = scan(cell, u[3:], [field[-1] for field in first])
    whole = scan(cell, u, before)
    joined = cell.State(*(torch.cat(fields) for fields in zip(first, second, strict=True)))
    assert_close(joined, whole, rtol=1e-12, atol=1e-12)


@one_field_and_two
def test_bind_uses_the_given_tensors_and_leaves_the_cell_alone(name, options):
    cell = make(name, options)
    before = to_numpy(dict(cell.named_parameters()))
    weights = random_weights(cell, ())
    scan(cell.bind(weights), normal(3, 2, 2))[0].sum().backward()
    assert all(weight.grad is not None for weight in weights.values())
    for parameter_name, parameter in cell.named_parameters():
        assert parameter.grad is None
        np.testing.assert_array_equal(parameter.detach().numpy(), before[parameter_name])


@pytest.mark.parametrize(("sizes", "message"), [
    ((0, 3), "input_size must be a positive integer, got 0"),
    ((2, -1), "hidden_size must be a positive integer, got -1"),
    ((2.5, 3), "input_size must be a positive integer, got 2.5"),
])  # fmt: skip
def test_sizes_that_are_not_positive_integers_are_refused(sizes, message):
    for cell in ms.CELLS.values():
        with pytest.raises(ValueError, match=message):
            cell(*sizes)


@pytest.mark.parametrize("name", ["gru", "lstm", "chrono"])
def test_whether_there_is_a_second_bias_is_a_truth_value(name):
    with pytest.raises(ValueError, match="recurrent_bias must be true or false, got 'no'"):
        ms.CELLS[name](2, 3, recurrent_bias="no")


@pytest.mark.parametrize(("t_max", "accepted"), [(2, "greater than 2"), (float("nan"), "a positive number")])
def test_chrono_refuses_a_t_max_without_time_scales(t_max, accepted):
    with pytest.raises(ValueError, match=f"t_max must be {accepted}, got {t_max}"):
        ms.CELLS["chrono"](2, 3, t_max=t_max)


def test_an_unknown_option_is_named_in_the_error():
    for cell in ms.CELLS.values():
        with pytest.raises(TypeError, match="colour"):
            cell(2, 3, colour="red")


class Remembers(ms.Cell):
    """A user's own cell that happens to call a weight of its step ``recurrent_bias``."""

    def __init__(self, input_size, hidden_size, **factory):
        super().__init__(input_size, hidden_size)
        self.input_weight, self.bias = nn.Parameter(torch.ones(input_size, hidden_size)), nn.Parameter(torch.zeros(3))
        self.recurrent_bias = nn.Parameter(torch.ones(hidden_size))

    def step(self, projected, state):
        return ms.Hidden(projected + self.recurrent_bias.unsqueeze(-2) * state.h)


def test_only_a_cell_that_says_so_adds_a_second_bias_to_its_input():
    cell = Remembers(2, 3)
    assert torch.equal(cell.project(torch.zeros(1, 2)), torch.zeros(1, 3))


def test_a_sequence_of_length_zero_is_refused():
    with pytest.raises(ValueError, match=r"length 0|time"):
        scan(make("gru", {}), torch.zeros(0, 2, 2, dtype=torch.float64))


@pytest.mark.parametrize(("double", "dtype"), [(False, torch.float64), (True, torch.int64)])
def test_an_input_of_another_type_than_the_weights_is_refused(double, dtype):
    x = torch.zeros(5, 3, 2, dtype=dtype)
    with pytest.raises(TypeError, match=f"the input must be in torch.float32, as the weights are, got {dtype}"):
        ms.RNN("gru", 2, 4, double=double)(x)
    ensemble = ms.Ensemble([ms.RNN("lstm", 2, 4) for _ in range(2)])
    with pytest.raises(TypeError, match=f"torch.float32, as the weights are, got {dtype}"):
        ensemble(x)


def test_autocast_takes_an_input_of_another_type():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = ms.RNN("gru", 2, 4)(torch.zeros(5, 3, 2, dtype=torch.bfloat16))
    assert output.shape == (5, 3, 4)


class OfTensors(LeakyCell):
    """Its step returns the output in place of the state."""

    def step(self, projected, state):
        return super().step(projected, state).h


@pytest.mark.parametrize("time", [1, 3])
def test_a_step_that_returns_no_state_is_told(time):
    match = r"OfTensors.step must return a state, Traces\(h, slow\), got Tensor"
    x = torch.zeros(time, 3, 2)
    with pytest.raises(TypeError, match=match):
        ms.RNN(OfTensors, 2, 4)(x)
    with pytest.raises(TypeError, match=match):
        OfTensors(2, 4)(x[0])
    with pytest.raises(TypeError, match=match):
        ms.measure(OfTensors(2, 4), x, batch_size=3)


def test_a_name_that_no_cell_has_is_told_with_those_there_are():
    with pytest.raises(KeyError, match=r"cell must be one of lstm, chrono, gru, .*, got 'grru'"):
        ms.CELLS["grru"]
