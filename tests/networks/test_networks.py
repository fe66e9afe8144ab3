"""Stacks, and the conventions of ``torch.nn.GRU``."""

import io
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence
from torch.testing import assert_close

import multistable as ms
from multistable.scan import scan
from numpy_cells import entry, fields, normal, with_random_weights
from own_cells import LeakyCell
from small_networks import HIDDEN, INPUT, TIME, N, make, random_state

TIGHT = {"rtol": 1e-11, "atol": 1e-13}


@pytest.mark.parametrize(("cell", "num_layers"), [*((cell, 2) for cell in ms.CELLS), ("gru", 1), ("lstm", 3)])
def test_a_stack_is_its_cells_one_after_the_other_at_each_time_step(cell, num_layers):
    rnn = make(cell, num_layers)
    x = normal(TIME, N, INPUT)

    states = [None] * num_layers
    outputs = []
    for u in x:
        for i, layer in enumerate(rnn.layers):
            u, states[i] = layer.cell(u, states[i])
        outputs.append(u)

    output, end = rnn(x)
    assert_close(output, torch.stack(outputs), **TIGHT)
    for field, values in zip(fields(end), zip(*states, strict=True), strict=True):
        assert_close(field, torch.stack(values), **TIGHT)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_advance_gives_all_states_of_all_layers(cell):
    rnn = make(cell, 2, batch_first=True)
    u, before = normal(TIME, N, INPUT), random_state(rnn)
    output, states = rnn.advance(u, before)
    for i, layer in enumerate(rnn.layers):
        expected = scan(layer.cell, u, [field[i] for field in fields(before)])
        assert_close(states[i], (expected,), **TIGHT)
        u = expected.h
    assert_close(output, u, **TIGHT)


def test_sizes():
    rnn = make("gru", 3, input_size=5, hidden_size=6, double=True)
    assert (rnn.input_size, rnn.hidden_size, rnn.num_layers) == (5, 6, 3)
    assert [layer.input_size for layer in rnn.layers] == [5, 6, 6]
    assert [c.hidden_size for layer in rnn.layers for c in layer.cells] == [3] * 6


@pytest.mark.parametrize(
    ("cell", "kind", "double", "num_layers"),
    [("gru", nn.GRU, False, 2), ("lstm", nn.LSTM, False, 1), ("lstm", nn.LSTM, True, 2), ("mgu", nn.GRU, True, 1)],
)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("shape", [(TIME, N, INPUT), (TIME, INPUT), (1, 1, INPUT)], ids=str)
def test_shapes_are_those_of_torch(cell, kind, double, batch_first, shape, num_layers):
    ours = make(cell, num_layers, double=double, batch_first=batch_first)
    theirs = kind(INPUT, HIDDEN, num_layers, batch_first=batch_first, dtype=torch.float64)
    x = normal(*shape)
    output, end = ours(x)
    expected_output, expected_end = theirs(x)
    assert output.shape == expected_output.shape
    assert type(end) is type(expected_end)
    assert [field.shape for field in fields(end)] == [field.shape for field in fields(expected_end)]
    again, _ = ours(x, end)
    assert again.shape == output.shape


@pytest.mark.parametrize(("cell", "double"), [("gru", False), ("lstm", True)])
def test_batch_first_swaps_the_layout_of_input_and_output_only(cell, double):
    time_first = make(cell, 2, double=double)
    batch_first = make(cell, 2, double=double, batch_first=True)
    batch_first.load_state_dict(time_first.state_dict())
    x, before = normal(TIME, N, INPUT), random_state(time_first)
    output, end = time_first(x, before)
    other_output, other_end = batch_first(x.transpose(0, 1), before)
    assert_close(other_output.transpose(0, 1), output, **TIGHT)
    assert_close(other_end, end, **TIGHT)


@pytest.mark.parametrize(("cell", "double"), [("gru", False), ("lstm", True)])
@pytest.mark.parametrize("batch_first", [False, True])
def test_one_sequence_without_a_batch_dimension(cell, double, batch_first):
    rnn = make(cell, 2, double=double, batch_first=batch_first)
    x, before = normal(TIME, INPUT), random_state(rnn, n=1)
    output, end = rnn(x, entry(before, 0))
    batched_output, batched_end = rnn(x.unsqueeze(0 if batch_first else 1), before)
    assert_close(output, batched_output.squeeze(0 if batch_first else 1), **TIGHT)
    assert_close(end, entry(batched_end, 0), **TIGHT)
    assert output.shape == (TIME, HIDDEN)


@pytest.mark.parametrize(
    ("cell", "double"),
    [("gru", False), ("lstm", True), (LeakyCell, False), (("gru", "lstm"), True), (("brc", "nbrc"), True)],
    ids=str,
)
def test_two_halves_of_a_sequence_are_one_pass(cell, double):
    rnn = make(cell, 2, double=double)
    x, before = normal(7, N, INPUT), random_state(rnn)
    first, middle = rnn(x[:3], before)
    second, end = rnn(x[3:], middle)
    assert_close((torch.cat([first, second]), end), rnn(x, before), **TIGHT)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_no_state_is_a_zero_state(cell):
    rnn = make(cell, 2)
    x, state = normal(TIME, N, INPUT), random_state(rnn)
    zero = tuple(torch.zeros_like(field) for field in fields(state))
    assert_close(rnn(x), rnn(x, zero if len(zero) > 1 else zero[0]), rtol=0, atol=0)


@pytest.mark.parametrize("cell", ["brc", "lstm"])
def test_a_constant_input_is_the_repeated_input(cell):
    rnn = make(cell, 2, double=True, batch_first=True)
    x = normal(N, 1, INPUT)
    constant, repeated = rnn(x.expand(N, TIME, INPUT)), rnn(x.repeat(1, TIME, 1))
    assert_close(constant, repeated, **TIGHT)
    weights = list(rnn.parameters())
    assert_close(
        torch.autograd.grad(constant[0].square().sum(), weights),
        torch.autograd.grad(repeated[0].square().sum(), weights),
        **TIGHT,
    )


def check_packed(rnn: ms.RNN, sequences: list[Tensor], packed: PackedSequence) -> None:
    """Each sequence of ``packed`` has the output and final state it has alone."""
    before = random_state(rnn, n=len(sequences))
    output, end = rnn(packed, before)
    assert isinstance(output, PackedSequence)
    assert torch.equal(output.batch_sizes, packed.batch_sizes)
    for ours, given_indices in (
        (output.sorted_indices, packed.sorted_indices),
        (output.unsorted_indices, packed.unsorted_indices),
    ):
        assert ours is given_indices or torch.equal(ours, given_indices)
    padded, lengths = pad_packed_sequence(output)
    for i, sequence in enumerate(sequences):
        # A network that is batch_first or not reads one sequence in the same layout.
        own_output, own_end = rnn(sequence, entry(before, i))
        assert lengths[i] == len(sequence)
        assert_close(padded[: len(sequence), i], own_output, **TIGHT)
        assert_close(entry(end, i), own_end, **TIGHT)


@pytest.mark.parametrize(("cell", "double"), [("gru", False), ("lstm", True), (("gru", "lstm"), True)], ids=str)
@pytest.mark.parametrize("lengths", [(5, 3, 3, 1), (2, 4, 1, 4, 3), (3,)], ids=str)
def test_packed_sequences(cell, double, lengths):
    # batch_first is about tensors: a packed sequence is the same for both.
    rnn = make(cell, 2, double=double, batch_first=len(lengths) > 4)
    sequences = [normal(t, INPUT, seed=i) for i, t in enumerate(lengths)]
    check_packed(rnn, sequences, pack_sequence(sequences, enforce_sorted=False))
    if sorted(lengths, reverse=True) == list(lengths):
        check_packed(rnn, sequences, pack_sequence(sequences))


@settings(deadline=None, derandomize=True, max_examples=25)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=8), sort=st.booleans())
def test_packed_sequences_of_any_lengths(lengths, sort):
    lengths = sorted(lengths, reverse=True) if sort else lengths
    sequences = [normal(t, INPUT, seed=i) for i, t in enumerate(lengths)]
    check_packed(make("lstm"), sequences, pack_sequence(sequences, enforce_sorted=sort))


def test_packed_sequences_whose_equal_lengths_are_in_another_order():
    sequences = [normal(3, INPUT, seed=i) for i in range(4)]
    order = torch.tensor([2, 0, 3, 1])
    data = torch.stack([sequences[i] for i in order], dim=1).flatten(0, 1)
    packed = PackedSequence(data, torch.tensor([4, 4, 4]), order, order.argsort())
    assert_close(pad_packed_sequence(packed)[0][:, 0], sequences[0], rtol=0, atol=0)
    check_packed(make("gru"), sequences, packed)


def test_the_gradient_of_a_packed_sequence_is_that_of_its_sequences():
    rnn = make("gru", 2)
    sequences = [normal(t, INPUT, seed=t).requires_grad_() for t in (2, 5, 3)]
    output, end = rnn(pack_sequence(sequences, enforce_sorted=False))
    wanted = [*sequences, *rnn.parameters()]
    packed = torch.autograd.grad(output.data.square().sum() + end.sum(), wanted)
    alone = torch.autograd.grad(sum(rnn(s)[0].square().sum() + rnn(s)[1].sum() for s in sequences), wanted)
    assert_close(packed, alone, **TIGHT)


@pytest.mark.parametrize(("double", "parts"), [(False, ["cell"]), (True, ["warmed", "transient"])])
def test_names_of_the_weights(double, parts):
    names = ("input_weight", "recurrent_weight", "bias")
    wanted = {f"layers.{i}.{part}.{name}" for i in range(2) for part in parts for name in names}
    assert set(make("gru", 2, double=double).state_dict()) == wanted


@pytest.mark.parametrize(("cell", "double"), [("brc", False), ("lstm", True)])
def test_weights_are_plain_tensors_that_load_into_another_network(cell, double):
    rnn = make(cell, 2, double=double)
    weights = rnn.state_dict()
    assert all(type(value) is Tensor for value in weights.values())

    file = io.BytesIO()
    torch.save(weights, file)
    file.seek(0)
    other = ms.RNN(cell, INPUT, HIDDEN, 2, double=double, dtype=torch.float64)
    x = normal(TIME, N, INPUT)
    assert not torch.equal(other(x)[0], rnn(x)[0])
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert_close(other(x), rnn(x), rtol=0, atol=0)


def test_options_reach_every_cell():
    rnn = make("gru", 2, double=True, recurrent_bias=True)
    assert all(half.recurrent_bias.shape == (3 * HIDDEN // 2,) for layer in rnn.layers for half in layer.cells)
    assert "layers.1.transient.recurrent_bias" in rnn.state_dict()
    assert not any("recurrent_bias" in name for name in make("gru", 2).state_dict())


@pytest.mark.parametrize("spec", [LeakyCell, partial(LeakyCell, leak=0.3), lambda i, h, **o: LeakyCell(i, h, **o)])
def test_a_users_own_cell_in_a_network(spec):
    rnn = make(spec, 2)
    x = normal(TIME, N, INPUT)
    output, (h, slow) = rnn(x)

    expected = x
    for i, layer in enumerate(rnn.layers):
        own, trace, past = (
            [],
            torch.zeros(N, HIDDEN, dtype=torch.float64),
            torch.zeros(N, HIDDEN, dtype=torch.float64),
        )
        for u in expected:
            trace = 0.7 * trace + 0.3 * (u @ layer.cell.input_weight + layer.cell.bias)
            past = torch.tanh(trace + past @ layer.cell.recurrent_weight)
            own.append(past)
        expected = torch.stack(own)
        assert_close((h[i], slow[i]), (past, trace), **TIGHT)
    assert_close(output, expected, **TIGHT)


@pytest.mark.parametrize("cell", [LeakyCell, (LeakyCell, "lstm")], ids=["twice", "beside-lstm"])
def test_a_users_own_cell_in_an_ensemble_of_double_layers(cell):
    members = [with_random_weights(make(cell, 2, double=True), seed) for seed in range(3)]
    x = normal(TIME, N, INPUT)
    output, end = ms.Ensemble(members)(x)
    for r, member in enumerate(members):
        own_output, own_end = member(x)
        assert_close(output[:, r], own_output, **TIGHT)
        assert_close(tuple(field[:, r] for field in end), own_end, **TIGHT)


def test_the_options_of_a_users_own_cell():
    assert make(LeakyCell, 2, leak=0.9).layers[1].cell.leak == 0.9


@pytest.mark.parametrize("cell", list(ms.CELLS))
def test_parametrised_weights_are_those_that_they_stand_for(cell):
    """A network as it was before ``weight_norm``: the same outputs, and gradients for length and direction."""
    rnn, plain = (make(cell, num_layers=1).double() for _ in range(2))
    plain.load_state_dict(rnn.state_dict())
    for layer in rnn.layers:
        nn.utils.parametrizations.weight_norm(layer.cell, "recurrent_weight")
    x = normal(TIME, N, INPUT)
    outputs = rnn(x)[0]
    assert_close(outputs, plain(x)[0])
    outputs.square().sum().backward()
    assert all(parameter.grad is not None for parameter in rnn.parameters())
