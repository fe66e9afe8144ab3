"""Keyboard interrupts that follow each other: parameters, modes and flags are as before, whenever the second comes."""

import io
import signal
import sys
import threading

import pytest
import torch
from torch import nn

import multistable as ms
from generators import generator
from global_state import global_state
from multistable.dynamics.system import interrupts
from networks import FEATURES, Leaky

# When the second interrupt comes: after so many calls and returns that follow the first failure.
WHEN = [*range(1, 30), *range(32, 80, 6), *range(90, 300, 25)]


class Interrupting:
    """Sends an interrupt at the given calls and returns of the interpreter, counted from when it starts."""

    def __init__(self, when):
        self.when, self.count = when, 0

    def start(self):
        sys.setprofile(self)

    def __call__(self, frame, event, argument):
        self.count += 1
        if self.count in self.when:
            signal.raise_signal(signal.SIGINT)


def warmed_up(rnn, fail, when):
    """A warmup that fails after its second step, and is interrupted then; where the interpreter allows, in between."""
    interrupting = Interrupting(when)

    def on_step(step):
        if step.step == 2:
            interrupting.start()
            fail()

    x = torch.randn(6, 12, FEATURES, generator=generator())
    try:
        ms.warmup(rnn, x, batch_size=8, max_stabilisation=2, on_step=on_step, generator=generator())
    finally:
        sys.setprofile(None)


def fail():
    raise RuntimeError("the watcher fails")


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("failing", "error"), [(interrupt, KeyboardInterrupt), (fail, (RuntimeError, KeyboardInterrupt))]
)
@pytest.mark.parametrize("make", [nn.GRU, Leaky])
def test_a_warmup_that_is_interrupted_again_and_again_changes_nothing(make, failing, error):
    rnn = make(FEATURES, 3)
    for p in rnn.parameters():
        p.grad = torch.ones_like(p)
    values, gradients = [p.clone() for p in rnn.parameters()], [p.grad for p in rnn.parameters()]
    before, handler = global_state(), signal.getsignal(signal.SIGINT)
    for when in (*({k} for k in WHEN), set(range(1, 10_000))):
        try:
            warmed_up(rnn, failing, when)
        except error:
            pass
        else:
            raise AssertionError("the warmup did not end")
        assert all(torch.equal(p, value) for p, value in zip(rnn.parameters(), values, strict=True)), when
        assert all(p.grad is gradient for p, gradient in zip(rnn.parameters(), gradients, strict=True)), when
        assert all(module.training for module in rnn.modules()), when
        assert global_state() == before, when
        assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
def test_an_interrupt_at_the_end_of_a_warmup_leaves_modes_and_flags_as_before(monkeypatch):
    """The last thing that a warmup does before it puts things back is to show how it ended."""

    class Shown(io.StringIO):
        def write(self, text):
            if "WarmupHistory" in text:
                interrupting.start()
            return super().write(text)

    rnn, x, ends = nn.GRU(FEATURES, 3), torch.randn(6, 12, FEATURES, generator=generator()), set()
    rnn.weight_hh_l0.grad = gradient = torch.ones_like(rnn.weight_hh_l0)
    before, handler = global_state(), signal.getsignal(signal.SIGINT)
    for when in WHEN:
        interrupting = Interrupting({when})
        monkeypatch.setattr(sys, "stderr", Shown())
        values = [p.clone() for p in rnn.parameters()]
        try:
            ms.warmup(rnn, x, steps=1, max_stabilisation=2, progress=True, generator=generator())
            ends.add("completed")
        except KeyboardInterrupt:
            same = all(torch.equal(p, value) for p, value in zip(rnn.parameters(), values, strict=True))
            ends.add("undone" if same else "completed")
        finally:
            sys.setprofile(None)
        assert all(module.training for module in rnn.modules()), when
        assert rnn.weight_hh_l0.grad is gradient
        assert global_state() == before, when
        assert signal.getsignal(signal.SIGINT) is handler
    assert ends == {"undone", "completed"}


@pytest.mark.parametrize("function", [ms.measure, ms.attractors, ms.lyapunov, ms.reachable_states])
def test_a_measure_that_is_interrupted_again_and_again_changes_nothing(function):
    class Interrupted(Leaky):
        def forward(self, x, state=None):
            if x.shape[1] > 3:
                interrupting.start()
                interrupt()
            return super().forward(x, state)

    rnn = Interrupted(FEATURES, 3)
    before, handler = global_state(), signal.getsignal(signal.SIGINT)
    for when in (*({k} for k in WHEN[::2]), set(range(1, 10_000))):
        interrupting = Interrupting(when)
        with pytest.raises(KeyboardInterrupt):
            function(rnn, torch.randn(6, 12, FEATURES, generator=generator()))
        sys.setprofile(None)
        assert all(module.training for module in rnn.modules()), when
        assert global_state() == before
        assert signal.getsignal(signal.SIGINT) is handler


def test_an_interrupt_that_someone_catches_does_not_end_the_call_nor_hide_the_next(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now[0])
    caught = []

    def on_step(step):
        now[0] += 60
        try:
            interrupt()
        except KeyboardInterrupt:
            caught.append(step.step)
        if step.step == 3:
            now[0] += 60
            interrupt()

    with pytest.raises(KeyboardInterrupt):
        ms.warmup(nn.GRU(FEATURES, 3), torch.randn(6, 12, FEATURES), max_stabilisation=2, on_step=on_step)
    assert caught == [1, 2, 3]


def test_a_handler_of_the_users_own_is_called_each_time_and_stays():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        own = signal.getsignal(signal.SIGINT)
        with pytest.warns(ms.WarmupWarning):
            ms.warmup(nn.GRU(FEATURES, 3), torch.randn(6, 12, FEATURES), steps=2, on_step=lambda _: interrupt())
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [1, 1]


def test_a_call_in_another_thread_installs_no_handler():
    handler, result = signal.getsignal(signal.SIGINT), []

    def run():
        result.append(ms.reachable_states(nn.GRU(FEATURES, 3), torch.randn(6, 12, FEATURES)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert len(result[0]) == 12
    assert signal.getsignal(signal.SIGINT) is handler
