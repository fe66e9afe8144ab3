"""Double layers in place of those of an existing model."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

import multistable as ms
from models import FEATURES, TIME, UNITS, Classifier, N, Translator, numbers, tokens


class Even(Classifier):
    def __init__(self, kind=nn.LSTM, **options):
        super().__init__(kind)
        self.rnn = kind(FEATURES, 6, 2, batch_first=True, dropout=0.3, **options)
        self.readout = nn.Linear(12 if self.rnn.bidirectional else 6, 2)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_model_runs_as_before_and_is_warmed_up_in_one_half(kind, bidirectional):
    model = Even(kind, bidirectional=bidirectional)
    before = model.rnn
    rest = copy.deepcopy(model.readout.state_dict())
    shape = model(tokens()).shape
    assert ms.doubled(model) is model
    assert model(tokens()).shape == shape
    assert all(torch.equal(value, rest[name]) for name, value in model.readout.state_dict().items())
    same = ("input_size", "hidden_size", "num_layers", "batch_first", "dropout", "bidirectional", "bias", "training")
    assert all(getattr(model.rnn, name) == getattr(before, name) for name in same)
    packed = pack_padded_sequence(numbers(N, TIME, FEATURES), torch.arange(N) % TIME + 1, True, enforce_sorted=False)
    state = before(packed)[1]
    for given in (None, state):
        for ours, theirs in zip(model.rnn(packed, given), before(packed, given), strict=True):
            pairs = [(ours, theirs)] if isinstance(ours, torch.Tensor) else zip(ours, theirs, strict=True)
            assert all(getattr(a, "shape", None) == getattr(b, "shape", None) for a, b in pairs)
    weights = copy.deepcopy(dict(model.rnn.named_parameters()))
    with pytest.warns(ms.WarmupWarning):
        ms.warmup(model, tokens(), algorithm="paper", steps=2, batch_size=8, max_stabilisation=5)
    changed = {name for name, p in model.rnn.named_parameters() if not torch.equal(p, weights[name])}
    assert changed == {name for name in weights if "warmed" in name}


def test_a_recurrence_itself_and_one_that_is_used_twice():
    double = ms.doubled(nn.GRU(3, 4, dtype=torch.float64), generator=torch.Generator().manual_seed(0))
    assert isinstance(double, ms.RNN)
    assert isinstance(double.layers[0], ms.Double)
    assert double(torch.zeros(2, 3, 3, dtype=torch.float64))[0].shape == (2, 3, 4)
    again = ms.doubled(nn.GRU(3, 4, dtype=torch.float64), generator=torch.Generator().manual_seed(0))
    assert all(torch.equal(a, b) for a, b in zip(double.parameters(), again.parameters(), strict=True))
    model = nn.ModuleDict({"one": nn.LSTM(3, 4), "frozen": nn.GRU(3, 4).requires_grad_(False).eval()})
    model["other"] = model["one"]
    ms.doubled(nn.Sequential(nn.DataParallel(model)))
    assert model["one"] is model["other"]
    assert isinstance(model["one"], ms.RNN)
    assert not any(p.requires_grad for p in model["frozen"].parameters())
    assert model["one"].training
    assert not model["frozen"].training


@pytest.mark.parametrize(
    ("cell", "options"), [("gru", {"recurrent_bias": True}), ("lstm", {}), ("mgu", {}), ("nbrc", {})]
)
def test_an_rnn_of_ours(cell, options):
    network = ms.RNN(cell, 3, 4, 2, batch_first=True, dropout=0.5, bidirectional=True, dtype=torch.float64, **options)
    double = ms.doubled(network.eval())
    assert all(isinstance(way, ms.Double) for layer in double.layers for way in layer.directions)
    half = double.layers[0].onward.warmed
    assert type(half) is type(network.layers[0].onward.cell)
    assert half.hidden_size == 2
    assert getattr(half, "recurrent_bias", None) is None or options
    assert not options or half.recurrent_bias is not None
    same = ("input_size", "hidden_size", "num_layers", "batch_first", "dropout", "bidirectional", "bias", "training")
    assert all(getattr(double, name) == getattr(network, name) for name in same)
    x = torch.zeros(2, 3, 3, dtype=torch.float64)
    assert double(x)[0].shape == network(x)[0].shape


def test_an_rnn_of_ours_that_cannot_be_doubled():
    with pytest.raises(ValueError, match=r"must have single layers of one kind of cell .*, got GRU and GRU$"):
        ms.doubled(ms.RNN("gru", 3, 4, double=True))
    with pytest.raises(ValueError, match="must be of cells that keep their options to be replaced, got ChronoLSTM"):
        ms.doubled(ms.RNN("chrono", 3, 4))
    with pytest.raises(ValueError, match="hidden_size of the model must be even"):
        ms.doubled(ms.RNN("gru", 3, 5))


def test_what_cannot_be_replaced_is_an_error_before_anything_is():
    class Own(nn.GRU):
        def forward(self, x):
            return super().forward(x)

    hooked = nn.GRU(3, 4)
    hooked.register_forward_hook(lambda *call: None)
    cases = {
        "hidden_size of rnn must be even, double layers have two halves, got 5": nn.LSTM(3, UNITS),
        "with a projection": nn.LSTM(3, 4, proj_size=2),
        "with parametrised weights": parametrizations.weight_norm(nn.GRU(3, 4), "weight_hh_l0"),
        "with hooks": hooked,
        "with a forward of its own": Own(3, 4),
    }
    for message, module in cases.items():
        model = nn.ModuleDict({"first": nn.GRU(3, 4), "rnn": module})
        with pytest.raises(ValueError, match=message):
            ms.doubled(model)
        assert isinstance(model["first"], nn.GRU)
    with pytest.raises(
        TypeError, match=r"Linear has no torch.nn.LSTM, GRU or RNN and no ms.RNN that could be replaced"
    ):
        ms.doubled(nn.Linear(3, 4))
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got int"):
        ms.doubled(3)
    with pytest.raises(ValueError, match="hidden_size of encoder must be even"):
        ms.doubled(Translator())
