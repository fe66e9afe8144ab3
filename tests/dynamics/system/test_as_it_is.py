"""Modules that do more than their weights say are called as they are; nothing of theirs is passed over."""

import pytest
import torch
from torch import nn

import multistable as ms
from generators import generator
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.system import studying
from multistable.dynamics.system.whole_states import at_time
from networks import FEATURES, state_after

HOOKS = ["forward hook", "forward pre-hook", "own forward", "global pre-hook", "global hook", "own call"]


def halved(output):
    """The output of a recurrence of ``torch.nn``, or of a cell, with half of the state."""
    if isinstance(output, torch.Tensor):
        return 0.5 * output
    return output[0], tuple(0.5 * field for field in output[1]) if isinstance(output[1], tuple) else 0.5 * output[1]


@pytest.fixture
def changed(request):
    """A function that changes what a call of a module does, in one of the ways that PyTorch has; undone at the end."""
    handles = []

    def change(module, how):
        if how == "forward hook":
            module.register_forward_hook(lambda module, args, output: halved(output))
        elif how == "forward pre-hook":
            module.register_forward_pre_hook(lambda module, args: (2 * args[0], *args[1:]))
        elif how == "own forward":
            forward = module.forward
            module.forward = lambda *args: halved(forward(*args))
        elif how == "global pre-hook":
            pre_hook = nn.modules.module.register_module_forward_pre_hook
            handles.append(pre_hook(lambda other, args: (2 * args[0], *args[1:]) if other is module else None))
        elif how == "global hook":
            hook = nn.modules.module.register_module_forward_hook
            handles.append(hook(lambda other, args, output: halved(output) if other is module else None))
        elif how == "own call":
            module.__class__ = type(
                "Own", (type(module),), {"__call__": lambda m, *a: halved(nn.Module.__call__(m, *a))}
            )

    yield change
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("how", HOOKS)
@pytest.mark.parametrize("make", [nn.GRU, nn.LSTM, nn.GRUCell, nn.LSTMCell, ms.GRU, lambda *n: ms.RNN("gru", *n)])
def test_hooks_and_forwards_of_ones_own_count(changed, how, make):
    rnn = make(FEATURES, 4).double()
    changed(rnn, how)
    x = torch.randn(6, 5, FEATURES, dtype=torch.float64, generator=generator())
    lengths = torch.tensor([1, 2, 3, 4, 6])
    listed = [x[:length, i] for i, length in enumerate(lengths)]
    times = Draws(generator()).times(lengths)
    expected = torch.stack([state_after(rnn, u[:t]) for u, t in zip(listed, times, strict=True)])
    torch.testing.assert_close(ms.reachable_states(rnn, listed, generator=generator()), expected)
    assert ms.backends(rnn) == ["module"]


@pytest.mark.parametrize("how", [*HOOKS, "backward hook"])
@pytest.mark.parametrize("convert", [ms.from_torch, ms.to_torch])
def test_a_conversion_does_not_drop_what_it_cannot_copy(changed, how, convert):
    rnn = nn.GRU(FEATURES, 4) if convert is ms.from_torch else ms.RNN("gru", FEATURES, 4)
    if how == "backward hook":
        rnn.register_full_backward_hook(lambda *_: None)
    changed(rnn, how)
    with pytest.raises(TypeError, match=r"only weights are copied, no hooks .*, got a (GRU|RNN|Own) with some"):
        convert(rnn)


@pytest.mark.parametrize("how", HOOKS)
def test_what_must_be_taken_apart_is_refused(changed, how):
    double = ms.RNN("gru", FEATURES, 4, double=True)
    ensemble = ms.Ensemble([ms.RNN("gru", FEATURES, 4) for _ in range(2)])
    for rnn in (double, ensemble):
        changed(rnn, how)
        with pytest.raises(TypeError, match="rnn must have no hooks and no forward of its own"):
            ms.measure(rnn, torch.randn(6, 5, FEATURES))


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
def test_a_warmup_sees_hooks_too():
    rnn, calls = nn.GRU(FEATURES, 4), []
    rnn.register_forward_hook(lambda *_: calls.append(1))
    before = rnn.weight_hh_l0.clone()
    ms.warmup(rnn, torch.randn(6, 5, FEATURES), steps=1, max_stabilisation=2)
    assert calls
    assert not torch.equal(rnn.weight_hh_l0, before)


class InPlace(nn.Module):
    """A leaky network that keeps its state in one buffer of its own, updates it in place, and doubles its input."""

    def __init__(self, input_size, hidden_size, steps=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(input_size + hidden_size, hidden_size, generator=generator()))
        self.register_buffer("h", torch.zeros(1, 0, hidden_size))
        self.steps = steps

    @torch.no_grad()
    def forward(self, x, state=None):
        n = x.shape[-2]
        if self.h.shape[1] != n:
            self.h = x.new_zeros(1, n, self.h.shape[2])
        h = self.h.zero_() if state is None else state
        for u in x.unsqueeze(0) if self.steps else x:
            u.mul_(2)
            h.mul_(0.5).add_(torch.tanh(torch.cat([u, h[0]], dim=-1) @ self.weight))
        return h[0], h


@pytest.mark.parametrize("steps", [False, True])
def test_states_that_are_updated_in_place_are_those_of_their_step(steps):
    rnn = InPlace(FEATURES, 4, steps).double()
    x = torch.randn(70, 60, FEATURES, dtype=torch.float64, generator=generator())
    kept = x.clone()
    found = ms.reachable_states(rnn, x, generator=generator())
    assert torch.equal(x, kept)
    times = Draws(generator()).times(torch.full((60,), 70))
    for index in range(60):
        state, u = None, x[: times[index], index : index + 1].clone()
        for u_t in u:
            _, state = rnn(u_t if steps else u_t.unsqueeze(0), state)
        torch.testing.assert_close(found[index], state[0, 0])
    for function in (ms.measure, ms.lyapunov):
        settings = {"batches": 2, "batch_size": 8, "stabilisation": 50}
        assert function(rnn, x, **settings, generator=generator()) == function(
            rnn, x, **settings, generator=generator()
        )


def test_a_state_that_is_given_on_is_not_updated_in_place():
    rnn, x = InPlace(FEATURES, 4), torch.randn(7, 5, FEATURES, generator=generator())
    with studying(rnn, x) as (system, _):
        (((state,),),) = states = at_time(system.advance(x), -1)
        before = state.clone()
        system.advance(x, states)
        system.only_last(x, states)
    assert torch.equal(state, before)


class Reservoir(nn.Module):
    """An echo state network: nothing is learnt, so its weights are buffers."""

    def __init__(self, units=64):
        super().__init__()
        self.register_buffer("weight", torch.randn(units, units, generator=generator()) * 0.9 / units**0.5)
        self.register_buffer("input", torch.randn(1, units, generator=generator()))

    def forward(self, x, state=None):
        h = x.new_zeros(x.shape[1], len(self.weight)) if state is None else state
        for u in x:
            h = torch.tanh(u @ self.input + h @ self.weight)
        return h, h


def test_a_network_of_buffers_is_measured_in_float32_under_autocast():
    rnn, x = Reservoir(), torch.randn(20, 64, 1, generator=generator())
    settings = {"batches": 2, "stabilisation": 300}
    plain = ms.measure(rnn, x, **settings, generator=generator())
    states = ms.reachable_states(rnn, x, generator=generator())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ms.measure(rnn, x, **settings, generator=generator()) == plain
        assert torch.equal(ms.reachable_states(rnn, x, generator=generator()), states)


def test_a_network_of_half_precision_buffers_is_measured_in_float32():
    rnn, x = Reservoir().bfloat16(), torch.randn(20, 64, 1, generator=generator())
    settings = {"batches": 2, "stabilisation": 300}
    half = ms.measure(rnn, x, **settings, generator=generator())
    assert half == ms.measure(rnn.float(), x, **settings, generator=generator())


def test_a_complex_state_is_refused():
    class Rotation(nn.Module):
        def forward(self, x, state=None):
            h = torch.ones(x.shape[1], 1, dtype=torch.complex64) if state is None else state
            return x, h * 1j

    with pytest.raises(TypeError, match="the state must be of real numbers"):
        ms.measure(Rotation(), torch.randn(6, 5, FEATURES))
