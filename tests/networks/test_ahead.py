"""Compiling before the first call."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import multistable as ms
from global_state import global_state
from multistable.scan import program


def padded():
    return torch.full((5, 3, 2), torch.nan)


def packed():
    return pack_sequence([torch.randn(4, 2), torch.randn(2, 2)])


def called(network, x):
    output = network(x)[0]
    output = output.data if isinstance(output, PackedSequence) else output
    return torch.autograd.grad(output.sum(), list(network.parameters()))


@pytest.mark.parametrize("inputs", [padded, packed])
@pytest.mark.parametrize("cell", ["gru", "mgu"])
def test_a_first_call_finds_all_that_it_needs(cell, inputs, monkeypatch):
    """In an inference mode too, in which nothing has a gradient."""
    network, x = ms.RNN(cell, 2, 37, 2), inputs()
    program._programs.clear()
    with torch.inference_mode():
        ms.precompile(network, x)
    monkeypatch.setattr(program, "_made", None)
    called(network, x)


def test_both_ways_are_taken_under_the_present_settings(monkeypatch):
    taken = []
    monkeypatch.setattr(
        "multistable.scan.choice.cpu.loop.all_states",
        lambda scan, plain=ms.scan.choice.cpu.loop.all_states: taken.append(torch.is_grad_enabled()) or plain(scan),
    )
    network = ms.RNN("gru", 2, 4)
    ms.precompile(network, padded())
    assert taken == [False, True]
    with ms.engine(backend="reference"):
        ms.precompile(network, padded())
    assert len(taken) == 2


def test_nothing_is_changed():
    network = ms.RNN("gru", 2, 4, 2, dropout=0.5)
    network.layers[0].cell.bias.requires_grad_(False)
    called_hooks = []
    network.register_forward_hook(lambda *_: called_hooks.append(1))
    kept = network.layers[1].cell.bias.grad = torch.ones(12)
    state, weights = global_state(), [p.clone() for p in network.parameters()]
    ms.precompile(network, padded())
    assert global_state() == state
    assert network.training
    assert [p.grad is kept for p in network.parameters() if p.grad is not None] == [True]
    assert torch.equal(kept, torch.ones(12))
    assert all(map(torch.equal, weights, network.parameters()))
    assert not called_hooks


def test_an_ensemble_and_a_network_without_gradients():
    networks = [ms.RNN("gru", 2, 4).requires_grad_(False) for _ in range(2)]
    ms.precompile(networks[0], padded())
    ms.precompile(ms.Ensemble(networks), padded())


def test_other_modules_are_refused():
    with pytest.raises(TypeError, match=r"network must be an ms.RNN or an ms.Ensemble, got GRU"):
        ms.precompile(nn.GRU(2, 4), padded())
