"""Double layers: two halves side by side, their states, and which of them is warmed up."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

import multistable as ms
from multistable.networks import Double
from multistable.scan import scan
from numpy_cells import fields, normal
from own_cells import CellOfModules, LeakyCell
from small_networks import HIDDEN, INPUT, TIME, N, make, random_state

TIGHT = {"rtol": 1e-11, "atol": 1e-13}
PAIRS = [(name, name) for name in ms.CELLS] + [
    ("gru", "lstm"),
    ("lstm", "mgu"),
    ("brc", "nbrc"),
    ("chrono", "lstm"),
]
FEW_PAIRS = [("gru", "gru"), ("lstm", "lstm"), ("gru", "lstm"), ("lstm", "mgu")]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_double_layer_is_its_halves_side_by_side(pair):
    rnn = make(pair, 2, double=True)
    u = normal(TIME, N, INPUT).requires_grad_()
    wanted = [u, *rnn.parameters()]

    output, end = rnn(u)

    inputs, ends = u, []
    for layer in rnn.layers:
        halves = [scan(half, inputs) for half in (layer.warmed, layer.transient)]
        inputs = torch.cat([half.h for half in halves], dim=-1)
        ends.append(halves)
    assert_close(output, inputs, **TIGHT)
    assert_close(torch.autograd.grad(output.square().sum(), wanted, retain_graph=True),
                 torch.autograd.grad(inputs.square().sum(), wanted, retain_graph=True), **TIGHT)  # fmt: skip
    for name, field in zip(("h", "c"), fields(end), strict=False):
        expected = [[getattr(half, name)[-1] for half in halves if name in half._fields] for halves in ends]
        assert_close(field, torch.stack([torch.cat(layer, dim=-1) for layer in expected]), **TIGHT)


@pytest.mark.parametrize("pair", FEW_PAIRS, ids="-".join)
def test_a_state_before_a_double_layer_is_the_states_of_its_halves(pair):
    rnn = make(pair, 1, double=True)
    x, layer = normal(TIME, N, INPUT), rnn.layers[0]
    halves = [
        half.State(*(0.5 * normal(N, HIDDEN // 2, seed=s) for s in range(8 * i, 8 * i + len(half.State._fields))))
        for i, half in enumerate(layer.cells)
    ]
    output, _ = rnn(x, rnn.pack_state([halves]))
    expected = [scan(half, x, state).h for half, state in zip(layer.cells, halves, strict=True)]
    assert_close(output, torch.cat(expected, dim=-1), **TIGHT)


@pytest.mark.parametrize(("pair", "widths"), [
    (("gru", "lstm"), [HIDDEN, HIDDEN // 2]),
    (("lstm", "gru"), [HIDDEN, HIDDEN // 2]),
    (("lstm", "chrono"), [HIDDEN, HIDDEN]),
    (("gru", "brc"), [HIDDEN]),
], ids=str)  # fmt: skip
def test_the_state_of_halves_of_different_cells(pair, widths):
    rnn = make(pair, 2, double=True)
    _, end = rnn(normal(TIME, N, INPUT))
    assert [tuple(field.shape) for field in fields(end)] == [(2, N, width) for width in widths]
    assert isinstance(end, tuple) is (len(widths) > 1)


@pytest.mark.parametrize("cell", [*FEW_PAIRS, LeakyCell], ids=str)
def test_states_survive_packing_and_unpacking(cell):
    rnn = make(cell, 2, double=True)
    state = random_state(rnn)
    unpacked = rnn.unpack_state(state)
    assert_close(rnn.pack_state(unpacked), state, rtol=0, atol=0)
    for layer, layer_state in zip(rnn.layers, unpacked, strict=True):
        for half, half_state in zip(layer.cells, layer_state, strict=True):
            assert isinstance(half_state, half.State)
            assert all(field.shape == (N, half.hidden_size) for field in half_state)


def test_the_first_half_is_the_one_to_warm_up():
    layer = make(("gru", "lstm"), double=True).layers[0]
    assert layer.warmable.cells == (layer.warmed,)
    assert isinstance(layer.warmed, ms.CELLS["gru"])
    assert isinstance(layer.transient, ms.CELLS["lstm"])
    single = make("gru").layers[0]
    assert single.warmable.cells == (single.cell,)


@pytest.mark.parametrize("cell", [("gru", "lstm"), "gru+lstm", ["gru", ms.LSTM]], ids=str)
def test_a_pair_makes_every_layer_a_double_layer(cell):
    draws = [torch.Generator().manual_seed(3) for _ in range(2)]
    pair, double = (
        ms.RNN(cell, 2, 4, 2, generator=draws[0]),
        ms.RNN(("gru", "lstm"), 2, 4, 2, double=True, generator=draws[1]),
    )
    for layer in pair.layers:
        assert isinstance(layer, Double)
        assert [type(half) for half in layer.cells] == [ms.GRU, ms.LSTM]
    assert all(torch.equal(a, b) for a, b in zip(pair.parameters(), double.parameters(), strict=True))


@pytest.mark.parametrize(
    "pair",
    [(partial(LeakyCell, leak=0.1), partial(LeakyCell, leak=0.9)), (CellOfModules, CellOfModules)],
    ids=["options", "weights-in-submodules"],
)
def test_halves_of_one_class_keep_their_own(pair):
    rnn = make(pair, double=True)
    x = normal(TIME, N, INPUT)
    assert_close(rnn(x)[0], torch.cat([scan(half, x).h for half in rnn.layers[0].cells], dim=-1), **TIGHT)


def test_halves_must_read_the_same_input():
    gru = ms.CELLS["gru"]
    with pytest.raises(ValueError, match="read the same input, got input_size 2 and 3"):
        Double(gru(2, 4), gru(3, 4))
