"""How far back targets reach, of sequences where this is known."""

import pytest
import torch

from multistable.dynamics.advise import windows
from multistable.dynamics.advise.material import Answers
from multistable.dynamics.advise.windows import Window, window

N, T = 1200, 32


@pytest.fixture(autouse=True)
def shorter(monkeypatch):
    """The reader is trained for half as long, which is enough for so short sequences."""
    monkeypatch.setattr(windows, "STEPS", 200)


def found(u, values, lengths=None, classes=0, every_step=False):
    lengths = torch.full((len(u),), u.shape[1]) if lengths is None else lengths
    return window(u, lengths, Answers(values, classes, every_step), torch.Generator().manual_seed(0))


@pytest.fixture
def u():
    return torch.randn(N, T, 1, generator=torch.Generator().manual_seed(1))


def test_a_number_five_steps_before_the_end(u):
    of_five = found(u, u[:, -5])
    assert of_five.lengths == [2, 4, 8, 16, 32]
    assert (of_five.nearest, of_five.needed) == (8, 8)
    assert max(of_five.scores[:2]) < 0.05 < 0.9 < min(of_five.scores[2:])


def test_a_number_nine_steps_before_each_step(u):
    values = torch.full((N, T, 1), torch.nan)
    values[:, 8:] = u[:, :-8]
    of_nine = found(u, values, every_step=True)
    assert (of_nine.nearest, of_nine.needed) == (16, 16)


def test_the_first_steps_of_sequences_of_different_lengths(u):
    lengths = torch.randint(20, T + 1, (N,), generator=torch.Generator().manual_seed(2))
    u = u * (torch.arange(T) < lengths.unsqueeze(-1)).unsqueeze(-1)
    of_first = found(u, (u[:, 0, 0] > 0).long(), lengths, classes=2)
    assert of_first.nearest == 32
    assert of_first.scores[-1] > 0.5


def test_what_is_nearer_helps_to_find_what_is_far(u):
    of_sum = found(u, u.sum(dim=1))
    assert of_sum.nearest in (4, 8)
    assert of_sum.needed == 32
    assert of_sum.scores == sorted(of_sum.scores)


def test_chance(u):
    of_chance = found(u, torch.randn(N, 1, generator=torch.Generator().manual_seed(3)))
    assert of_chance.nearest is None
    assert of_chance.needed is None


def test_too_few_sequences_and_targets_that_are_all_the_same(u):
    assert found(u[:200], u[:200, 0]) is None
    assert found(u, torch.ones(N, 1)) is None


def test_what_is_clear():
    """Of losses that are written down: 0 for a perfect reader, 1 for guessing."""
    guessing = torch.ones(100, dtype=torch.float64)
    noise = torch.linspace(-1, 1, 100, dtype=torch.float64)
    rising = Window.of([2, 4, 8], torch.stack([guessing, 0.5 * guessing, 0 * guessing]), guessing)
    assert (rising.nearest, rising.needed, rising.scores) == (4, 8, [0.0, 0.5, 1.0])
    falling = Window.of([2, 4, 8], torch.stack([0 * guessing, 0.5 * guessing, 2 * guessing]), guessing)
    assert (falling.nearest, falling.needed, falling.scores) == (2, 2, [1.0, 1.0, 1.0])
    within_error = Window.of([2, 4], torch.stack([0.8 + noise, 0.8 + noise]), guessing)
    assert within_error.errors[0] == pytest.approx(noise.std().item() / 10)
    assert within_error.nearest == 2
    assert Window.of([2, 4], torch.stack([0.9 + noise, 0.9 + noise]), guessing).nearest is None
