"""A warmup with a time budget ends when its time is up, and says how good the network is then."""

import math

import pytest
from torch import nn

import multistable as ms
from networks import FEATURES, remembering
from warming import copy_sequences, generator, pushes, zero


class Clock:
    """Time that goes on by a second each time it is asked."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


@pytest.mark.usefixtures("short_verification")
@pytest.mark.parametrize("algorithm", ["paper", "fast"])
def test_a_warmup_ends_when_its_time_is_up_and_says_how_good_it_is(algorithm, monkeypatch):
    monkeypatch.setattr("time.monotonic", Clock())
    rnn = zero(nn.GRU(FEATURES, 4))
    with pytest.warns(ms.WarmupWarning, match=r"the time was up"):
        history = ms.warmup(
            rnn, copy_sequences(9, 40, FEATURES), algorithm=algorithm, minutes=1, batch_size=8, generator=generator()
        )
    assert 1 < len(history) < 60
    assert history.time_was_up
    assert history.vaa == pytest.approx(1 / 32)
    assert "VAA 0.031" in str(history)
    assert "the time was up" in str(history)


@pytest.mark.usefixtures("short_verification")
def test_a_network_that_is_multistable_when_the_time_is_up_is_verified(monkeypatch):
    monkeypatch.setattr("time.monotonic", clock := Clock())

    def late(step):
        clock.now += 4250.0 * (step.step == 3)

    settings = {"minutes": 100, "lr": 1e-6, "max_stabilisation": 5, "batch_size": 64, "generator": generator()}
    history = ms.warmup(remembering(), pushes(), on_step=late, **settings)
    assert len(history) == 3
    assert history.time_was_up
    assert history.verified
    assert history.vaa > 0.95


@pytest.mark.usefixtures("short_verification")
def test_what_is_measured_when_the_time_is_up_does_not_pass(monkeypatch):
    """However good it looks: it is told after how many steps."""
    monkeypatch.setattr("time.monotonic", clock := Clock())

    def late(step):
        clock.now += 1e6

    settings = {"minutes": 1, "lr": 1e-6, "max_stabilisation": 5, "batch_size": 64, "generator": generator()}
    with pytest.warns(ms.WarmupWarning, match="time was up, and VAA was measured after 60 steps only"):
        history = ms.warmup(remembering(), pushes(), on_step=late, **settings)
    assert not history.verified
    assert history.vaa > 0.95
    assert history.vaa_after == 60
    assert "after 60 steps, all that the time allowed" in str(history)


def test_a_budget_is_a_positive_number_of_minutes():
    for minutes in (0, -1, math.nan):
        with pytest.raises(ValueError, match="minutes must be a positive number"):
            ms.warmup(nn.GRU(1, 4), copy_sequences(5, 8), minutes=minutes)
