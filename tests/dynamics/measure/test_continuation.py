"""Attractors along paths of which it is known what happens on the way."""

import itertools
import math

import pytest
import torch
from torch import nn

import multistable as ms
from bistable_units import FOLD, units
from generators import generator

STATES = torch.linspace(-0.97, 0.97, 40, dtype=torch.float64).unsqueeze(-1)


def test_through_two_folds_one_attractor_appears_and_the_other_disappears():
    path = torch.linspace(-0.8, 0.8, 33, dtype=torch.float64)
    found = ms.continuation(units(0.0), states=STATES, inputs=path)
    inside = [abs(u) < FOLD for u in path.tolist()]
    assert found.counts == [2 if bistable else 1 for bistable in inside]
    first, last = inside.index(True), len(inside) - inside[::-1].index(True)
    # The lower one is there from the beginning; the upper one splits from it, and takes what is left of it in the end.
    assert found.changes == [ms.Change(first, 1, True, 0), ms.Change(last, 0, False, 1)]
    assert found.portraits[-1].ids == [1]
    assert (found.fractions > 0).sum(dim=0).tolist() == [last, len(path) - first]
    torch.testing.assert_close(found.fractions.sum(dim=-1), torch.ones(33, dtype=torch.float64))
    lower = found.fractions[first:last, 0]
    assert (lower.diff() <= 0).all()
    assert torch.equal(found.path.squeeze(-1), path)


def test_saddles_are_followed_from_fold_to_fold():
    """Three points between the folds, each of which goes on in the next step; at a fold two of them meet."""
    path = torch.linspace(-0.5, 0.5, 11, dtype=torch.float64)
    found = ms.continuation(units(0.0), states=STATES, inputs=path).fixed_points()
    assert [len(points) for points in found] == [3 if abs(u) < FOLD else 1 for u in path.tolist()]
    for before, after in itertools.pairwise(found):
        if len(before) == len(after) == 3:
            heights = after.points[after.labels[:3]].squeeze(-1)
            assert heights.argsort().tolist() == before.points.squeeze(-1).argsort().tolist()
            assert after.kinds[int(after.labels[2])] == before.kinds[2] == "repellor"


def test_over_networks_one_attractor_splits_in_two_and_both_merge_again():
    slopes = [0.5, 0.8, 1.2, 1.5, 1.2, 0.8]
    found = ms.continuation([units(0.0, slope=slope) for slope in slopes], states=STATES, inputs=torch.tensor([1e-3]))
    assert found.counts == [1, 1, 2, 2, 2, 1]
    appears, disappears = found.changes
    assert (appears.step, appears.appears, appears.other) == (2, True, 0)
    assert (disappears.step, disappears.appears) == (5, False)
    assert {disappears.id, disappears.other} == {0, 1}
    ends = [set(part.ids) for part in found.portraits]
    assert ends[2] == ends[3] == ends[4] == {0, 1}


def test_states_of_sequences_are_those_of_the_same_time_steps_at_each_step():
    """A network that holds its first input: the shares cannot change."""

    class Hold(nn.Module):
        def forward(self, x, state=None):
            h = x[0].sign() if state is None else state
            return h, h

    x = torch.randn(4, 50, 1, generator=generator())
    draws = generator(3)
    before = draws.get_state()
    found = ms.continuation([Hold(), Hold(), Hold()], x, inputs=torch.zeros(1), batch_size=20, generator=draws)
    assert (found.fractions == found.fractions[0]).all()
    assert torch.equal(draws.get_state(), before)
    assert found.changes == []
    assert len(ms.continuation(Hold(), x, inputs=torch.zeros(2, 1)).steps[0].labels) == 50


def test_what_ends_at_rest_may_begin_to_move():
    """From a network that rests to one that turns, nothing is left, and nothing takes its place."""

    class Turn(nn.Module):
        def __init__(self, angle):
            super().__init__()
            self.turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])

        def forward(self, x, state=None):
            h = x[0] if state is None else state
            for _ in x:
                h = (h / h.norm(dim=-1, keepdim=True)) @ self.turn.to(h)
            return h, h

    states = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    found = ms.continuation([Turn(0.0), Turn(2.4)], states=states, inputs=torch.zeros(1, 2), stabilisation=50)
    assert found.counts == [2, 0]
    assert found.changes == [ms.Change(1, 0, False, None), ms.Change(1, 1, False, None)]


def test_what_cannot_be_followed():
    rnn = nn.GRU(2, 3)
    with pytest.raises(ValueError, match=r"inputs must be one, or one for each of 3 networks, got 2"):
        ms.continuation([rnn] * 3, states=torch.zeros(2, 3), inputs=torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"got an empty list"):
        ms.continuation([], states=torch.zeros(2, 3))
    with pytest.raises(TypeError, match=r"got an Ensemble"):
        ms.continuation(ms.Ensemble([ms.RNN("gru", 1, 2)]), states=torch.zeros(2, 2))
