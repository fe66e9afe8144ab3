"""How many states come back after noise, where it can be known: latches, a continuum, a single attractor."""

import math

import pytest
import torch

import multistable as ms
from generators import generator
from multistable.dynamics.measure import noise as of_noise

GAIN = 2.0
PLACE = 0.9575040240772687
"""The attractors of h = tanh(2 h) are at this and its negative; 0 is between them."""


class Latches(ms.Cell):
    """Units that know nothing of each other, h_t = tanh(2 h_{t-1} + w u_t): two attractors each."""

    State = ms.Hidden

    def __init__(self, input_size, hidden_size, push=0.0, **factory):
        super().__init__(input_size, hidden_size)
        self.gain = torch.nn.Parameter(torch.full((hidden_size,), GAIN))
        self.push = torch.nn.Parameter(torch.full((hidden_size,), push))

    def project(self, u):
        return u * self.push

    def step(self, projected, state):
        return ms.Hidden(torch.tanh(self.gain * state.h + projected))


class Still(Latches):
    """h_t = h_{t-1}: every state is at rest, none draws others back."""

    def step(self, projected, state):
        return ms.Hidden(state.h + 0 * (self.gain + projected))


def corners(units):
    return torch.cartesian_prod(*[torch.tensor([-0.9, 0.9])] * units).reshape(-1, units)


def found(cell, states, noise, **settings):
    settings = {"inputs": torch.zeros(1), "stabilisation": 100, "steps": 100, "generator": generator()} | settings
    return ms.robustness(cell, states=states, noise=noise, **settings)


def test_m_latches_have_two_to_the_m_attractors_that_draw_back():
    for m in (1, 3, 6):
        result = found(Latches(1, m), corners(m), 0.05)
        assert (result.returned, result.vaa, result.told, result.n) == (1.0, 1.0, 1.0, 2**m)
        assert (result.returned_changing, result.vaa_changing) == (1.0, 1.0)


@pytest.mark.parametrize("noise", [0.4, 0.8])
def test_the_share_that_comes_back_is_that_of_no_latch_being_turned(noise):
    batches = 200
    result = found(Latches(1, 4), corners(4), noise, batches=batches)
    expected = (1 - math.erfc(PLACE / noise / math.sqrt(2)) / 2) ** 4
    error = math.sqrt(expected * (1 - expected) / (16 * batches))
    assert 0.1 < expected < 0.99
    assert abs(result.returned - expected) < 4 * error
    # The states that come back are at attractors of their own, all others at those of others.
    assert result.vaa == pytest.approx(result.returned)


def test_states_that_begin_at_one_attractor_count_as_one():
    result = found(Latches(1, 3), corners(3).repeat(4, 1), 0.05)
    assert result.returned == 1.0
    assert result.vaa == pytest.approx(8 / 32)
    # Four states share each attractor, so none is told from the other three.
    assert result.told == pytest.approx(8 / 32)


def test_on_a_continuum_nothing_comes_back_and_states_far_apart_are_told():
    states = torch.randn(20, 4, generator=generator())
    result = found(Still(1, 4), states, 0.05)
    assert (result.returned, result.vaa, result.returned_changing, result.vaa_changing) == (0.0, 0.0, 0.0, 0.0)
    near, far = (found(Still(1, 4), scale * states, 0.05).told for scale in (0.01, 100))
    assert near < 0.3 < result.told
    assert far == 1.0


def test_a_state_that_is_moved_from_one_of_two_places_to_the_other_is_not_told():
    batches, noise = 300, 0.8
    result = found(Still(1, 1), torch.tensor([[-0.5], [0.5]]), noise, batches=batches)
    stayed = 1 - math.erfc(0.5 / noise / math.sqrt(2)) / 2
    assert abs(result.told - stayed) < 4 * math.sqrt(stayed * (1 - stayed) / (2 * batches))


def test_with_one_attractor_all_come_back_to_it():
    rnn, x = torch.nn.GRU(1, 8), torch.randn(20, 40, 1, generator=generator())
    result = ms.robustness(rnn, x, stabilisation=500, generator=generator())
    assert (result.returned, result.returned_changing) == (1.0, 1.0)
    assert result.vaa == result.vaa_changing == result.told == pytest.approx(1 / 32)


def test_a_brc_whose_units_are_bistable_has_two_attractors_for_each():
    brc = ms.BRC(1, 5)
    with torch.no_grad():
        brc.input_weight.zero_()
        brc.recurrent_weight.zero_()
        brc.bias[5:10] = 1.0  # a = 1 + tanh(1): two attractors
    result = found(brc, corners(5), 0.1, inputs="normal")
    assert (result.returned, result.vaa, result.returned_changing, result.vaa_changing) == (1.0, 1.0, 1.0, 1.0)
    with torch.no_grad():
        brc.bias[5:10] = -1.0  # a = 1 - tanh(1): one
    result = found(brc, corners(5), 0.1, inputs="normal")
    assert (result.returned, result.vaa) == (1.0, 1 / 32)


def test_inputs_that_turn_latches_are_seen_only_where_they_change():
    """Weak inputs leave them where they are; strong ones push all states to one path."""
    for push, places in ((0.02, 1.0), (5.0, 1 / 8)):
        cell = Latches(1, 3, push=push)
        result = found(cell, corners(3), 0.05, inputs="normal")
        assert result.returned_changing == 1.0
        assert result.vaa_changing == pytest.approx(places)
    result = found(Latches(1, 3, push=5.0), corners(3), 0.05, inputs="zero")
    assert result.vaa_changing == 1.0


class Trace(Latches):
    """h_t = h_{t-1} / 2 + u_t tells which inputs came last."""

    def step(self, projected, state):
        return ms.Hidden(state.h / 2 + projected + 0 * self.gain)


@pytest.mark.parametrize(("inputs", "batches"), [("normal", 3), ([[-1.0], [1.0]], 2), ([[-1.0], [1.0]], 4)])
def test_inputs_that_change_do_so_in_each_batch_also_after_a_window(monkeypatch, inputs, batches):
    seen = []
    shares = of_noise._shares
    monkeypatch.setattr(of_noise, "_shares", lambda *after: seen.append(after) or shares(*after))
    steps = of_noise.WINDOW + 10
    found(Trace(1, 2, push=1.0), torch.zeros(5, 2), 0.1, inputs=inputs, batches=batches, steps=steps)
    (constant, *_), (changing, noisy, _) = seen
    assert torch.allclose(changing, noisy)
    assert changing.shape == (batches, 5, 2)
    assert ((changing - constant).abs() > 1e-3).all()
    # All states of a batch read the same.
    assert (changing == changing[:, :1, :1]).all()
    assert len(changing[:, 0, 0].unique()) == (batches if inputs == "normal" else 2)


def test_a_member_of_an_ensemble_is_measured_as_if_alone():
    members = [ms.RNN("nbrc", 1, 6, generator=generator(seed)) for seed in range(3)]
    x = torch.randn(10, 30, 1, generator=generator())
    settings = {"batches": 2, "batch_size": 8, "stabilisation": 60, "steps": 60}
    together = ms.robustness(ms.Ensemble(members), x, **settings, generator=[generator(10 + i) for i in range(3)])
    for index, member in enumerate(members):
        alone = ms.robustness(member, x, **settings, generator=generator(10 + index))
        for name in ("returned", "vaa", "returned_changing", "vaa_changing", "told"):
            assert getattr(together, name)[index] == pytest.approx(getattr(alone, name), abs=1e-9)


@pytest.mark.parametrize(("noise", "told"), [(0, "0"), (-1, "-1"), (math.nan, "nan"), ("0.2", "'0.2'"), (None, "None")])
def test_noise_is_a_positive_number(noise, told):
    with pytest.raises((TypeError, ValueError), match=f"noise must be a positive number, got {told}"):
        ms.robustness(torch.nn.GRU(1, 3), torch.randn(5, 8, 1), noise=noise)
