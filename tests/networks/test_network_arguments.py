"""What networks refuse, and how they say so."""

import re
from functools import partial, wraps

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import multistable as ms
from numpy_cells import normal
from small_networks import HIDDEN, INPUT, TIME, N, make, random_state

CHOICES = ", ".join(ms.CELLS)
BAD_ARGUMENTS = [
    (("grru", 2, 4), {}, f"cell must be one of {CHOICES} or module:Class, got 'grru'"),
    ((("gru", "grru"), 2, 4), {"double": True}, f"cell must be one of {CHOICES} or module:Class, got 'grru'"),
    ((("gru", "lstm"), 2, 5), {}, "hidden_size must be even.*got 5"),
    (("gru+grru", 2, 4), {}, f"cell must be one of {CHOICES} or module:Class, got 'grru'"),
    ((("gru", "lstm", "mgu"), 2, 4), {"double": True}, "one cell, or a pair of cells for double layers, got 3"),
    (("gru+lstm+mgu", 2, 4), {}, "one cell, or a pair of cells for double layers, got 3"),
    (("gru", 2, 5), {"double": True}, "hidden_size must be even.*got 5"),
    (("gru", 2, 2.0), {"double": True}, "hidden_size must be a positive integer, got 2.0"),
    (("gru", 2, 4, 0), {}, "num_layers must be a positive integer, got 0"),
    (("gru", 2, 4, -1), {}, "num_layers must be a positive integer, got -1"),
    (("gru", 2, 4, 1.5), {}, "num_layers must be a positive integer, got 1.5"),
    (("gru", 0, 4), {}, "input_size must be a positive integer, got 0"),
    (("gru", 0, 4), {"double": True}, "input_size must be a positive integer, got 0"),
    (("gru", 2, 0), {}, "hidden_size must be a positive integer, got 0"),
    (("gru", 2, 0), {"double": True}, "hidden_size must be a positive integer, got 0"),
    (("gru", 2**63, 4), {}, "input_size must be a positive integer up to 2147483647, got 9223372036854775808"),
    (("gru", 2, 4, 2**63), {}, "num_layers must be a positive integer up to 2147483647, got 9223372036854775808"),
    (("gru", 2, 4), {"double": 0.5}, "double must be true or false, got 0.5"),
    (("gru", 2, 4), {"batch_first": "no"}, "batch_first must be true or false, got 'no'"),
    (("gru", 2, 4), {"recurrent_bias": "no"}, "recurrent_bias must be true or false, got 'no'"),
    (("gru", 2, 4), {"device": "gpu"}, "device must be one that PyTorch has here, such as 'cpu', got 'gpu'"),
    (("gru", 2, 4), {"device": []}, r"device must be one that PyTorch has here, such as 'cpu', got \[\]"),
    (("gru", 2, 4), {"dtype": torch.int64}, "dtype must be a floating-point type .*, got torch.int64"),
    (
        ("brc", 2, 4),
        {"dtype": torch.complex64},
        "dtype must be a floating-point type .*, got torch.complex64",
    ),
    (
        ("gru", 2, 4),
        {"dtype": np.float32},
        "dtype must be a floating-point type .*, got <class 'numpy.float32'>",
    ),
    (("chrono", 2, 4), {"t_max": float("inf")}, "t_max must be a positive number, got inf"),
]


@pytest.mark.parametrize(("arguments", "options", "message"), BAD_ARGUMENTS, ids=str)
def test_bad_arguments_are_named_in_the_error(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        ms.RNN(*arguments, **options)


def test_parts_that_are_none_are_named():
    with pytest.raises(TypeError, match=r"transient must be a Cell, got None"):
        ms.Double(ms.GRU(2, 4), None)
    with pytest.raises(ValueError, match=r"warmed and transient must have weights of one type on one device"):
        ms.Double(ms.GRU(2, 4), ms.GRU(2, 4, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"members must be a list of ms.RNN networks, got 3"):
        ms.Ensemble(3)
    with pytest.raises(TypeError, match=r"cell must be a name .* or a Cell class, got"):
        ms.RNN(ms.Cell, 2, 4)


def test_weights_of_half_precision_are_drawn():
    weight = ms.RNN("gru", 2, 4, dtype=torch.bfloat16).layers[0].cell.recurrent_weight.float()
    for gate in weight.chunk(weight.shape[1] // 4, dim=1):
        assert torch.allclose(gate @ gate.T, torch.eye(4), atol=0.05)


class Tuned(ms.CELLS["chrono"]):
    """Hands on what it does not name."""

    def __init__(self, *sizes, gain=1.0, **others):
        super().__init__(*sizes, **others)


def plain_mgu(inputs, units, gain=1.0):
    return ms.CELLS["mgu"](inputs, units)


@pytest.mark.parametrize(
    ("cell", "option", "taken"),
    [
        ("gru", "proj_size", "the cell GRU .* it takes: recurrent_bias"),
        ("lstm", "proj_size", "the cell LSTM .* it takes: recurrent_bias"),
        (("gru", "chrono"), "t_max", "the cell GRU .* it takes: recurrent_bias"),
        (partial(ms.CELLS["chrono"], t_max=50), "tmax", "it takes: t_max"),
        (Tuned, "tmax", "the cell Tuned .* it takes: gain, t_max"),
        (plain_mgu, "biases", "the cell plain_mgu .* it takes: gain"),
        (partial(lambda kind, inputs, units, gain=1.0: None, "mgu"), "biases", "it takes: gain$"),
    ],
)
def test_an_option_that_the_cell_does_not_take_is_refused(cell, option, taken):
    with pytest.raises(TypeError, match=f"takes no argument '{option}'") as refused:
        ms.RNN(cell, 1, 4, double=True, **{option: False})
    assert re.search(taken, str(refused.value))


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("gru", {"recurrent_bias": True}),
        (Tuned, {"gain": 2.0, "t_max": 50}),
        (plain_mgu, {"gain": 2.0}),
        (lambda *sizes, **any_option: ms.CELLS["mgu"](*sizes), {"anything": 1}),
        (lambda inputs, units, /, gain=1.0: plain_mgu(inputs, units), {"gain": 2.0}),
        (wraps(plain_mgu)(lambda *sizes, **others: plain_mgu(*sizes)), {"more": 1}),
        (partial(lambda kind, inputs, units, gain=1.0: ms.CELLS[kind](inputs, units), "mgu"), {"gain": 2.0}),
    ],
)
def test_options_that_a_cell_takes_are_accepted(cell, options):
    assert ms.RNN(cell, 1, 4, **options).hidden_size == 4


@pytest.mark.parametrize("generator", [None, torch.Generator()])
def test_cells_of_pytorch_are_refused(generator):
    with pytest.raises(TypeError, match=r"cell must be a name \(lstm, .*\) or a Cell class, got .*GRUCell"):
        ms.RNN(nn.GRUCell, 1, 4, generator=generator)
    with pytest.raises(TypeError, match=r"cell must be a name .* or a Cell class, got GRU"):
        ms.RNN(ms.CELLS["gru"](1, 4), 1, 4, generator=generator)
    with pytest.raises(TypeError, match="cell must make a Cell, got one that makes a GRUCell"):
        ms.RNN(lambda *sizes, **_: nn.GRUCell(*sizes), 1, 4, generator=generator)


@pytest.mark.parametrize(("double", "units"), [(False, 4), (True, 2)])
@pytest.mark.parametrize("more", [(0, 1), (1, 0)], ids=["hidden_size", "input_size"])
def test_a_cell_of_other_sizes_than_asked_for_is_refused(double, units, more):
    asked = f"cell must .* input_size = 2 and hidden_size = {units}"
    with pytest.raises(ValueError, match=f"{asked}, got .*_size = {2 + more[0]} and .*_size = {units + more[1]}$"):
        ms.RNN(lambda inputs, units: ms.CELLS["gru"](inputs + more[0], units + more[1]), 2, 4, double=double)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("cell", [(), 5, None], ids=str)
def test_what_is_no_cell_is_refused(cell, double):
    with pytest.raises((TypeError, ValueError), match="cell must be"):
        ms.RNN(cell, 2, 4, double=double)


def test_a_cell_without_a_step_is_told_what_it_needs():
    class WithoutStep(ms.Cell):
        pass

    with pytest.raises(TypeError, match=r"a Cell class that defines step\(projected, state\), got .*WithoutStep"):
        ms.RNN(WithoutStep, 2, 4)
    with pytest.raises(TypeError, match=r"cell must be a name .* or a Cell class, got .*Cell"):
        ms.RNN(ms.Cell, 2, 4)


@pytest.mark.parametrize(
    ("cell", "shape"), [("gru", (TIME, N, INPUT + 1)), ("lstm", (TIME, INPUT + 1)), ("gru", (TIME, N, 1))], ids=str
)
def test_an_input_with_the_wrong_features_is_refused(cell, shape):
    with pytest.raises(ValueError, match=f"input_size = {INPUT} features, got {shape[-1]}"):
        make(cell)(normal(*shape))


def test_a_packed_input_with_the_wrong_features_is_refused():
    with pytest.raises(ValueError, match=f"input_size = {INPUT} features, got 3"):
        make()(pack_sequence([normal(4, 3)]))


def test_a_vector_is_refused():
    with pytest.raises(ValueError, match=r"input must be.*got shape \(2,\)"):
        make()(normal(INPUT))


@pytest.mark.parametrize(("batch_first", "double"), [(False, False), (True, True)])
def test_a_sequence_of_length_zero_is_refused(batch_first, double):
    with pytest.raises(ValueError, match=r"length 0|time"):
        make(batch_first=batch_first, double=double)(normal(*((N, 0) if batch_first else (0, N)), INPUT))


@pytest.mark.parametrize(("cell", "state", "message"), [
    ("lstm", normal(1, N, HIDDEN), r"the state must be \(h, c\).*1 layers.*got shapes \[\(1, 3, 4\)\]"),
    ("gru", (normal(1, N, HIDDEN), normal(1, N, HIDDEN)), r"the state must be \(h\).*got shapes"),
    ("gru", normal(2, N, HIDDEN), r"1 layers first, got shapes \[\(2, 3, 4\)\]"),
    ("gru", normal(1, N, HIDDEN + 1), "state 'h' must have 4 units, got 5"),
    ("lstm", (normal(1, N, HIDDEN), normal(1, N, HIDDEN - 1)), "state 'c' must have 4 units, got 3"),
], ids=["no-memory", "memory-too-many", "layers", "units", "units-of-memory"])  # fmt: skip
def test_a_state_of_the_wrong_form_is_refused(cell, state, message):
    with pytest.raises(ValueError, match=message):
        make(cell)(normal(TIME, N, INPUT), state)


@pytest.mark.parametrize(("cell", "double"), [("gru", False), ("lstm", True)])
@pytest.mark.parametrize("n", [1, N + 1])
def test_a_state_of_another_batch_size_is_refused(cell, double, n):
    rnn = make(cell, double=double)
    with pytest.raises(ValueError, match="state"):
        rnn(normal(TIME, N, INPUT), random_state(rnn, n))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("sizes", [(5, 1), (1, 5), (1, 1)])
def test_no_part_of_a_state_is_broadcast(sizes, double):
    rnn = make("lstm", double=double)
    state = tuple(normal(1, n, HIDDEN) for n in sizes)
    for x in (normal(TIME, 5, INPUT), pack_sequence([normal(TIME, INPUT)] * 5)):
        with pytest.raises(ValueError, match=r"state must have the batch dimensions of the input, \(5,\), got \(1,\)"):
            rnn(x, state)


@pytest.mark.parametrize("sizes", [(5, 1), (1, 5), (1, 1), (5,), (5, 5, 5)])
def test_no_part_of_the_state_of_a_cell_is_broadcast(sizes):
    state = tuple(normal(n, HIDDEN) for n in sizes)
    with pytest.raises(
        ValueError, match=r"the state must be \(h, c\), each with the batch dimensions \(5,\), got shapes"
    ):
        ms.LSTM(INPUT, HIDDEN).double()(normal(5, INPUT), state)


def test_a_batched_state_with_one_sequence_is_refused():
    rnn = make("gru")
    with pytest.raises(ValueError, match="state"):
        rnn(normal(TIME, INPUT), normal(1, N, HIDDEN))


@pytest.mark.parametrize("made", [make, lambda: make(bidirectional=True), lambda: ms.GRU(INPUT, HIDDEN).double()])
def test_what_is_no_tensor_is_named(made):
    rnn, x = made(), normal(TIME, N, INPUT)
    for thing, given in ((None, "NoneType"), ([[1.0]], "list"), (np.zeros((TIME, N, INPUT)), "ndarray")):
        with pytest.raises(TypeError, match=f"the input must be a tensor, got {given}"):
            rnn(thing)
    for state, message in (
        (3, "the state must be a tensor or a tuple of tensors, got int"),
        ("h", "the state must be a tensor or a tuple of tensors, got str"),
        ([1, 2], "each part of the state must be a tensor, got int"),
    ):
        with pytest.raises(TypeError, match=message):
            rnn(x, state)
    with pytest.raises(ValueError, match=r"the state must be .*, got shapes \[\(\)\]"):
        rnn(x, torch.zeros((), dtype=x.dtype))
