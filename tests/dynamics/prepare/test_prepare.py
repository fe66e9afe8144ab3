"""One call for all methods: what it takes, what it returns, and what it leaves alone."""

import inspect

import pytest
import torch
from torch import nn

import multistable as ms
from global_state import global_state
from multistable.dynamics.prepare.methods import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
INPUT = 2
QUICK = {"warmup": {"steps": 2}, "paper": {"steps": 2}, "flossing": {"steps": 2}}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sequences(n=6, length=8):
    return torch.randn(length, n, INPUT, generator=generator(9))


def fitting(method):
    return nn.RNN(INPUT, 4) if method == "identity" else nn.LSTM(INPUT, 4)


class Model(nn.Module):
    """Two recurrent parts; the encoder reads what a linear layer made."""

    def __init__(self):
        super().__init__()
        self.embed, self.encoder, self.decoder = nn.Linear(INPUT, 3), nn.GRU(3, 4), nn.LSTM(4, 4)

    def forward(self, x, flip=False):
        return self.decoder(self.encoder(self.embed(x.flip(0) if flip else x))[0])


@pytest.mark.parametrize("method", METHODS)
def test_each_method_changes_recurrent_weights_alone_and_nothing_else(method):
    torch.manual_seed(0)
    model = nn.ModuleDict({"rnn": fitting(method), "head": nn.Linear(4, 1)})
    model.forward = lambda x: model["head"](model["rnn"](x)[0])
    rnn = model["rnn"].train()
    rnn.bias_ih_l0.grad = torch.ones_like(rnn.bias_ih_l0)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    outside, identities = global_state(), [id(weight) for weight in model.parameters()]
    done = ms.prepare(model, sequences(), method=method, **QUICK.get(method, {}))
    assert (global_state(), [id(weight) for weight in model.parameters()]) == (outside, identities)
    assert rnn.training
    assert torch.equal(rnn.bias_ih_l0.grad, torch.ones_like(rnn.bias_ih_l0))
    assert rnn.weight_hh_l0.grad is None
    assert all(weight.requires_grad for weight in model.parameters())
    assert (done.method, done.seconds > 0) == (method, True)
    different = [name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])]
    assert list(done.changed) == different
    assert all(name.startswith("rnn.") for name in different)
    assert bool(different) == (method != "none")
    assert f"{method}: changed" in str(done)


@pytest.mark.parametrize("method", ["warmup", "paper"])
def test_the_warmups_are_those_of_warmup(method):
    networks = [nn.GRU(INPUT, 4) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    done = ms.prepare(networks[0], sequences(), method=method, steps=3, generator=generator())
    algorithm = {"warmup": {}, "paper": {"algorithm": "paper"}}[method]
    history = ms.warmup(networks[1], sequences(), steps=3, generator=generator(), **algorithm)
    assert all(torch.equal(a, b) for a, b in zip(*(network.parameters() for network in networks), strict=True))
    assert torch.equal(done.history.vaa_star, history.vaa_star)


def test_warmup_is_the_default_method():
    assert inspect.signature(ms.prepare).parameters["method"].default == "warmup"


def test_parts_of_a_model_are_prepared_as_they_are_warmed_up():
    torch.manual_seed(0)
    done = ms.prepare(Model(), sequences(), method="orthogonal")
    assert done.changed == ("encoder.weight_hh_l0", "decoder.weight_hh_l0")
    assert ms.prepare(Model(), sequences(), method="orthogonal", part="decoder").changed == ("decoder.weight_hh_l0",)
    flipped = ms.prepare(
        Model(), sequences(), method="flossing", steps=1, forward=lambda model, batch: model(batch, flip=True)
    )
    assert set(flipped.history) == {"encoder", "decoder"}
    assert flipped.history["encoder"].exponents.shape == (1, 4)


def test_of_several_parts_none_changes_where_one_does_not_fit():
    model = nn.Sequential()
    model.first, model.second = nn.RNN(INPUT, 4), nn.LSTM(4, 4)
    model.forward = lambda x: model.second(model.first(x)[0])
    before = [weight.detach().clone() for weight in model.parameters()]
    with pytest.raises(ValueError, match=r"'identity' is for cells .*got LSTM") as failure:
        ms.prepare(model, sequences(), method="identity")
    assert "in the part 'second'" in failure.value.__notes__[0]
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_errors_name_the_method_and_its_options():
    rnn = nn.GRU(INPUT, 4)
    with pytest.raises(ValueError, match=r"method must be one of 'warmup', 'paper', .*'none', got 'other'"):
        ms.prepare(rnn, sequences(), method="other")
    for method, option, message in [
        ("orthogonal", "t_max", "method 'orthogonal' takes no option 't_max': it takes no options"),
        ("chrono", "steps", "method 'chrono' takes no option 'steps': it takes t_max"),
        ("paper", "algorithm", "method 'paper' takes no option 'algorithm': it takes inputs, "),
        ("none", "steps", "method 'none' takes no option 'steps'"),
    ]:
        with pytest.raises(TypeError, match=message):
            ms.prepare(rnn, sequences(), method=method, **{option: 3})
    with pytest.raises(TypeError, match=r"rnn must be a torch.nn.Module, got int"):
        ms.prepare(3, sequences(), method="none")
    for method in METHODS:
        with pytest.raises(ValueError, match="sequences must be finite"):
            ms.prepare(fitting(method), sequences().fill_(torch.nan), method=method)
