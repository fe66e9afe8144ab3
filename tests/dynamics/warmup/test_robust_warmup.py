"""A warmup to attractors that draw states back after noise."""

import itertools
import math
import warnings

import pytest
import torch
from torch import nn

import multistable as ms
from multistable.dynamics.warmup import robust, run_warmup
from multistable.dynamics.warmup.robust import CORNER, TURNED, Bits, units_of_a_bit


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


SEQUENCES = torch.randn(20, 200, 1, generator=generator(1))


@pytest.fixture(autouse=True)
def short_measure(monkeypatch):
    """The true VAA is not what these tests are about."""
    monkeypatch.setattr(run_warmup, "FINAL_STABILISATION", 100)
    monkeypatch.setattr(robust, "SETTLING", 200)


def warmed(rnn, x=SEQUENCES, size=True, **settings):
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        return ms.warmup(rnn, x, robust=size, **{"generator": generator()} | settings)


def gru(units, seed=0, **more):
    return ms.RNN("gru", 1, units, generator=generator(seed), **more)


# Bits


@pytest.mark.parametrize(("units", "noise"), [(16, 0.3), (32, 0.2), (32, 0.5), (100, 0.5), (64, 0.8)])
def test_noise_seldom_turns_a_bit_and_one_unit_fewer_would_be_too_few(units, noise):
    def turned(each):
        means = CORNER + noise * torch.randn(20_000, units // each, each, generator=generator()).mean(dim=-1)
        return float((means < 0).any(dim=-1).double().mean())

    each = units_of_a_bit(units, noise)
    assert turned(each) < 1.3 * TURNED
    assert each == 1 or turned(each - 1) > 0.9 * TURNED


def test_no_more_units_than_there_are_tell_a_bit():
    assert units_of_a_bit(4, 100.0) == 4
    assert Bits(4, 100.0).number == 1
    assert units_of_a_bit(1, 0.01) == 1


@pytest.mark.parametrize(("units", "noise"), [(6, 0.1), (9, 0.5), (11, 0.6)])
def test_the_nearest_corner_is_found_among_all_that_bits_have(units, noise):
    bits = Bits(units, noise)
    all_bits = torch.tensor(list(itertools.product([-CORNER, CORNER], repeat=bits.number)))
    corners = torch.stack([all_bits[:, i % bits.number] for i in range(units)], dim=-1)
    x = torch.randn(3, 50, units, generator=generator())
    nearest = corners[torch.cdist(x, corners).argmin(dim=-1)]
    assert torch.equal(bits.corner(x), nearest)


# What it does


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_states_come_back_to_several_attractors_after_it_and_to_one_before(kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        rnn = kind(1, 24)
    settings = {"stabilisation": 300, "steps": 300, "batches": 5}
    before = ms.robustness(rnn, SEQUENCES, **settings, generator=generator(9))
    history = warmed(rnn, steps=300, lr=3e-2, batch_size=32)
    after = ms.robustness(rnn, SEQUENCES, **settings, generator=generator(9))
    assert before.vaa == pytest.approx(1 / 32)
    assert after.returned > 0.6
    assert after.returned_changing > 0.6
    assert after.vaa > 5 / 32
    assert after.vaa_changing > 4 / 32
    assert len(history) == 300
    assert history.robustness.noise == 0.2


def test_the_history_judges_by_the_shares_that_came_back(monkeypatch):
    """Bars are on the lower of constant and changing input, for shares and for places."""
    for shares, outcome in (
        ((0.96, 0.3, 0.99, 0.3), "multistable"),
        ((0.94, 0.3, 0.99, 0.3), "frail"),
        ((0.99, 0.3, 0.94, 0.3), "frail"),
        ((0.99, 0.2, 0.99, 0.3), "frail"),
        ((0.99, 0.3, 0.99, 0.2), "frail"),
    ):
        monkeypatch.setattr(robust, "robustness_of", lambda *_, s=shares: ms.Robustness(*s, 1.0, 0.2, 32))
        history = warmed(gru(4), steps=1)
        assert history.outcome == outcome
        assert history.multistable == (outcome == "multistable")
        assert "after noise of 0.2" in str(history)


def test_a_network_that_does_not_get_there_is_told_of():
    with pytest.warns(ms.WarmupWarning, match=r"robust \(frail\): after noise of 0.3, 100% .* to 1 and 1 attractors"):
        history = ms.warmup(gru(6), SEQUENCES, robust=0.3, steps=2, generator=generator())
    assert history.outcome == "frail"
    assert not history.verified


def test_a_member_of_an_ensemble_is_told_of_by_its_number():
    members = ms.Ensemble([gru(4, seed) for seed in range(2)])
    with pytest.warns(ms.WarmupWarning) as told:
        history = ms.warmup(members, SEQUENCES, robust=True, steps=1, generator=generator())
    assert [f"of member {index} robust" in str(warning.message) for index, warning in enumerate(told)] == [True, True]
    assert history.outcome == ["frail", "frail"]


def test_members_are_warmed_up_as_if_alone():
    members, alone = ([ms.RNN("lstm", 1, 5, 2, generator=generator(seed)) for seed in range(3)] for _ in range(2))
    ensemble = ms.Ensemble(members)
    together = warmed(ensemble, size=0.4, steps=3, generator=[generator(10 + i) for i in range(3)])
    for index, (rnn, member) in enumerate(zip(alone, ensemble.unstack(), strict=True)):
        history = warmed(rnn, size=0.4, steps=3, generator=generator(10 + index))
        for mine, its in zip(rnn.parameters(), member.parameters(), strict=True):
            assert torch.allclose(mine, its, atol=1e-5)
        assert history.robustness.returned == pytest.approx(together.robustness.returned[index], abs=0.02)


def test_only_the_half_to_warm_up_changes():
    rnn = gru(8, double=True)
    (layer,) = rnn.layers
    transient = [p.detach().clone() for p in layer.transient.parameters()]
    first = [p.detach().clone() for p in layer.warmed.parameters()]
    warmed(rnn, steps=2)
    assert all(torch.equal(p, before) for p, before in zip(layer.transient.parameters(), transient, strict=True))
    assert not any(torch.equal(p, before) for p, before in zip(layer.warmed.parameters(), first, strict=True))


@pytest.mark.parametrize("inputs", ["zero", "data", [[0.5], [-1.0]]])
def test_it_learns_under_the_inputs_that_it_is_given(inputs, monkeypatch):
    seen = []
    drawn = robust._inputs
    monkeypatch.setattr(robust, "_inputs", lambda *given: seen.append(drawn(*given)) or seen[-1])
    warmed(gru(4), SEQUENCES.round(), inputs=inputs, steps=5)
    accepted = {"zero": {0.0}, "data": set(SEQUENCES.round().flatten().tolist())}.get(str(inputs), {0.5, -1.0})
    for u in seen:
        assert set(u.flatten().tolist()) <= accepted
    if inputs != "zero":
        assert any((u[0, -20:] != u[-1, -20:]).any() for u in seen)  # those near the end change
        assert all((u[:, :64] == u[0, :64]).all() for u in seen)


def test_units_that_a_module_of_another_kind_has_are_warmed_up():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.input, self.recurrent = nn.Linear(1, 5), nn.Linear(5, 5)

        def forward(self, x, h=None):
            h = x.new_zeros(x.shape[1], 5) if h is None else h
            out = []
            for u in x:
                h = torch.tanh(self.input(u) + self.recurrent(h))
                out.append(h)
            return torch.stack(out), h

    rnn = Own()
    before = rnn.recurrent.weight.detach().clone()
    history = warmed(rnn, steps=3)
    assert not torch.equal(before, rnn.recurrent.weight)
    assert len(history) == 3


def test_time_ends_it():
    history = warmed(gru(4), minutes=1e-4)
    assert len(history) < 1000
    assert history.time_was_up


# What is refused


@pytest.mark.parametrize("size", [0, -0.1, math.nan, math.inf, "0.2", None, [0.2]])
def test_sizes_that_are_none(size):
    with pytest.raises((TypeError, ValueError), match="robust must be a positive number"):
        ms.warmup(gru(4), SEQUENCES, robust=size)


@pytest.mark.parametrize("algorithm", ["paper", "reliable"])
def test_other_algorithms_do_not_have_it(algorithm):
    with pytest.raises(ValueError, match=f"robust must be False with algorithm='{algorithm}', got True"):
        ms.warmup(gru(4), SEQUENCES, robust=True, algorithm=algorithm)


def test_a_wanted_vaa_does_not_go_with_it():
    with pytest.raises(ValueError, match=r"target must be at least 0.95 with robust=0.1, .* got 0.5"):
        ms.warmup(gru(4), SEQUENCES, robust=0.1, target=0.5)
