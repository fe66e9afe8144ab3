"""Fixed points, cycles and what never comes back, on systems of which it is known."""

import math

import pytest
import torch
from torch import nn

import multistable as ms
from generators import generator
from multistable.dynamics.measure.fixed_points_and_cycles import periods
from networks import FEATURES, FEW_FORMS, at_rest_and_restless, in_layout, make

SIZES = {"batches": 2, "batch_size": 8, "stabilisation": 300, "longest": 100}


class Rotation(nn.Module):
    """Turns by an angle each step; every radius tends to 1, at ``rate``."""

    def __init__(self, angle, rate=0.5):
        super().__init__()
        turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        self.register_buffer("turn", torch.tensor(turn))
        self.rate = rate

    def forward(self, x, state=None):
        h = x[0] if state is None else state
        for _ in x:
            radius = h.norm(dim=-1, keepdim=True)
            h = h @ self.turn * (radius + self.rate * (1 - radius)) / radius
        return h, h


class Slide(nn.Module):
    """Moves by the same little way at each step."""

    def __init__(self, way):
        super().__init__()
        self.way = way

    def forward(self, x, state=None):
        h = (x[0] if state is None else state) + self.way * len(x)
        return h.expand(len(x), *h.shape), h


def found(rnn, features=2, **settings):
    x = torch.randn(6, 20, features, generator=generator())
    return ms.attractors(rnn, x, generator=generator(), **SIZES | settings)


@pytest.mark.parametrize("period", [2, 3, 7, 60, 100])
def test_a_cycle_has_the_period_of_its_equation(period):
    result = found(Rotation(2 * math.pi / period))
    assert result.state_periods.unique().tolist() == [period]
    assert (result.fixed_points, result.cycles, result.moving) == (0.0, 1.0, 0.0)


def test_a_period_longer_than_was_looked_for_is_not_found():
    assert found(Rotation(2 * math.pi / 101)).moving == 1.0
    assert found(Rotation(2 * math.pi / 101), longest=101).cycles == 1.0


def test_a_cycle_that_is_walked_in_steps_shorter_than_the_tolerance_is_no_fixed_point():
    """A thousand steps of 0.006 around a circle, where all within 0.02 is the same."""
    result = found(Rotation(2 * math.pi / 1000), longest=1500, eps=0.02)
    assert result.cycles == 1.0
    wrong = (result.state_periods - 1000).abs() * 2 * math.pi / 1000
    assert wrong.max() <= 0.02


def test_what_turns_by_an_irrational_angle_never_comes_back():
    assert found(Rotation(math.pi * (math.sqrt(5) - 1))).moving == 1.0


def test_a_state_that_approaches_its_fixed_point_still_moves():
    """|x_t - x*| halves every 69 steps: from a distance of about 1 it takes a thousand steps to be within eps."""
    assert found(Rotation(0.0, rate=0.01), stabilisation=10).moving == 1.0
    assert found(Rotation(0.0, rate=0.01), stabilisation=2000).fixed_points == 1.0


def test_drift_is_told_from_rest_once_it_exceeds_the_tolerance():
    """Followed for 200 steps, with a tolerance of 1e-4."""
    assert found(Slide(1e-6)).moving == 1.0
    assert found(Slide(1e-7)).fixed_points == 1.0


def test_networks_that_settle_are_at_fixed_points_though_rounding_moves_them():
    rnn = ms.RNN("gru", 2, 64, generator=generator())
    x = torch.randn(20, 40, 2, generator=generator())
    result = ms.attractors(rnn, x, batches=3, generator=generator())
    assert result.state_periods.shape == (3, 32)
    assert result.fixed_points == 1.0


def test_each_state_has_a_period_of_its_own():
    """Distances after 1 to 8 steps: at rest, of period 2, of period 3, never back, back once by chance, gone."""
    near, far = 0.0, 1.0
    distances = torch.tensor(
        [
            [near] * 8,
            [far, near] * 4,
            [far, far, near, far, far, near, far, far],
            [far] * 8,
            [far, near, far, far, far, far, far, far],
            [far, far, far, math.nan, math.inf, far, far, math.nan],
        ]
    )
    assert periods(distances.T, 1e-4).tolist() == [1, 2, 3, 0, 0, 0]


@pytest.mark.parametrize("kind", FEW_FORMS)
def test_every_kind_of_network_can_be_asked(kind):
    rnn = make(kind)
    x = torch.randn(12, 20, FEATURES, generator=generator())
    result = ms.attractors(rnn, in_layout(rnn, x), generator=generator(), **SIZES)
    assert result.state_periods.shape == (2, 8)
    assert result.fixed_points + result.cycles + result.moving == pytest.approx(1)


def test_members_of_an_ensemble_are_told_as_alone():
    """One that rests, and one that large weights keep moving."""
    members = at_rest_and_restless(generator)
    x = torch.randn(15, 40, 1, generator=generator())
    together = ms.attractors(ms.Ensemble(members), x, generator=[generator(0), generator(1)], **SIZES)
    assert together.state_periods.shape == (2, 2, 8)
    assert together.fixed_points == [1.0, 0.0]
    for seed, member in enumerate(members):
        alone = ms.attractors(member, x, generator=generator(seed), **SIZES)
        assert alone.fixed_points == together.fixed_points[seed]
        assert alone.moving == together.moving[seed]
