"""What attractors remember, and what they survive, on systems of which it is known."""

import math

import pytest
import torch
from torch import nn

import multistable as ms
from generators import generator
from multistable.dynamics.measure.memory import bits_about


class Corners(nn.Module):
    """Each unit goes half of the way to its sign; it begins at the first input."""

    def forward(self, x, state=None):
        h = x[0] if state is None else state
        for _ in x:
            h = (h + torch.where(h > 0, 1.0, -1.0)) / 2
        return h, h


def settled(n, m, **choices):
    states = torch.randn(n, m, generator=generator())
    return states, ms.attractors(Corners(), states=states, inputs=torch.zeros(1, m), stabilisation=60, **choices)


@pytest.mark.parametrize("m", [1, 3])
def test_corners_carry_a_bit_for_each_sign_and_none_about_chance(m):
    states, found = settled(4000, m)
    assert found.bits(states > 0) == pytest.approx(m, abs=0.01)
    assert found.bits((states > 0)[:, 0]) == pytest.approx(1, abs=0.01)
    chance = torch.randint(0, 8, (4000,), generator=generator(1))
    assert found.bits(chance) == pytest.approx(0, abs=0.005)


def test_the_bias_of_few_samples_is_taken_away():
    """Of 400 states and chance, the counts alone give 49 / 800 nats."""
    values = []
    for seed in range(40):
        labels = torch.randint(0, 8, (400,), generator=generator(seed))
        chance = torch.randint(0, 8, (400,), generator=generator(100 + seed))
        both = torch.bincount(labels * 8 + chance, minlength=64).double() / 400
        joint = both.reshape(8, 8)
        parts = joint * (joint / (joint.sum(0) * joint.sum(1, keepdim=True))).log2()
        values.append((parts.nan_to_num().sum().item(), bits_about(labels, chance)))
    counts, corrected = torch.tensor(values).mean(dim=0).tolist()
    assert counts == pytest.approx(49 / 800 / math.log(2), rel=0.1)
    assert corrected < 0.015


def test_targets_are_of_the_sequences_that_the_states_come_from():
    x = torch.randn(1, 50, 1, generator=generator())
    found = ms.attractors(Corners(), x, inputs="zero", stabilisation=60, batches=20, generator=generator())
    assert found.labels.shape == (640,)
    signs = (x[0] > 0)[found.origins]
    p = signs.double().mean().item()
    entropy = -p * math.log2(p) - (1 - p) * math.log2(1 - p)
    assert found.bits(signs) == pytest.approx(entropy, abs=0.01)


def test_times_are_those_at_which_the_states_were_taken():
    """A network that counts its steps, and forgets them only once its input is constant."""

    class Count(nn.Module):
        def forward(self, x, state=None):
            h = torch.zeros_like(x[0]) if state is None else state
            return h, h + (x > 0).sum(dim=0)

    x = torch.ones(30, 50, 1)
    found = ms.attractors(Count(), x, inputs="zero", stabilisation=60, generator=generator())
    assert torch.equal(found.starts.squeeze(-1), found.times.float())
    assert len(found) == len(found.times.unique())


def test_what_noise_a_memory_survives_is_half_the_distance_of_the_attractors():
    """From -1 and 1 the basin ends at 0: beyond a length of 1, displacements in half of all directions cross it."""
    _, found = settled(400, 1)
    shares = found.returning([0.5, 0.99, 1.01, 3.0], generator=generator())
    assert shares == [1.0, 1.0, pytest.approx(0.5, abs=0.1), pytest.approx(0.5, abs=0.1)]
    assert found.returning(0.5) == 1.0


def test_what_ends_nowhere_has_not_come_back():
    """Above 0 states go to 1, the only attractor; below it they slide down for ever."""

    class Ledge(nn.Module):
        def forward(self, x, state=None):
            h = x[0] if state is None else state
            for _ in x:
                h = torch.where(h > 0, (h + 1) / 2, h - 1)
            return h, h

    found = ms.attractors(Ledge(), states=torch.rand(400, 1), inputs=torch.zeros(1, 1), stabilisation=60)
    assert (len(found), found.moving) == (1, 0.0)
    shares = found.returning([0.9, 3.0], stabilisation=60, generator=generator())
    assert shares == [1.0, pytest.approx(0.5, abs=0.1)]


def test_of_several_units_each_may_cross():
    """In three dimensions a displacement of length 2 crosses the plane of a unit where its part of it exceeds 1."""
    _, found = settled(4000, 3)
    part = torch.randn(100_000, 3, generator=generator(5))
    signed = 2 * part / part.norm(dim=-1, keepdim=True)
    expected = (signed > -1).all(dim=-1).double().mean().item()
    assert found.returning(2.0, generator=generator()) == pytest.approx(expected, abs=0.03)


def test_members_are_told_as_alone():
    members = [ms.RNN("nbrc", 1, 3, generator=generator(seed)) for seed in range(2)]
    states = torch.rand(40, 3, generator=generator()) * 2 - 1
    together = ms.attractors(ms.Ensemble(members), states=states, inputs="zero", stabilisation=500)
    alone = [ms.attractors(rnn, states=states, inputs="zero", stabilisation=500) for rnn in members]
    assert together.bits([states > 0] * 2) == pytest.approx([found.bits(states > 0) for found in alone], abs=1e-9)
    options = {"noise": 0.3, "stabilisation": 500}
    own = [found.returning(**options, generator=generator()) for found in alone]
    assert together.returning(**options, generator=generator(0))[0] == own[0]


def test_what_cannot_be_asked():
    _, found = settled(10, 1)
    with pytest.raises(ValueError, match=r"targets must be \(10,\) or \(10, m\), got shape \(9,\)"):
        found.bits(torch.zeros(9))
    with pytest.raises(ValueError, match=r"noise must be a positive number, got -1"):
        found.returning(-1)
