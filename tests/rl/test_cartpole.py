"""Masked CartPole against Gymnasium's, one cart at a time."""

import math

import gymnasium
import numpy as np
import pytest
import torch

from multistable.rl.cartpole import CartPole

LIMITS = np.array([2.4, 12 * 2 * math.pi / 360])


@pytest.fixture
def env():
    made = gymnasium.make("CartPole-v1")
    made.reset(seed=0)
    return made


@pytest.mark.parametrize("pushes", [lambda t: 0, lambda t: 1, lambda t: t // 2 % 2, lambda t: (7 * t * t) % 3 % 2])
def test_an_episode_is_that_of_gymnasium(pushes, env):
    pomdp = CartPole(dtype=torch.float64)
    state, seen = pomdp.reset(torch.tensor([0.3, 0.8], dtype=torch.float64))
    env.unwrapped.state = state[1].numpy().copy()
    assert seen[1].numpy() * LIMITS == pytest.approx(env.unwrapped.state[[0, 2]], abs=1e-15)
    for t in range(pomdp.horizon):
        _, reward, fallen, cut, _ = env.step(pushes(t))
        state, seen, rewards, terminated, ended = pomdp.step(state, torch.tensor([1, pushes(t)]))
        assert state[1].numpy() == pytest.approx(env.unwrapped.state, abs=1e-12)
        assert seen[1].numpy() * LIMITS == pytest.approx(env.unwrapped.state[[0, 2]], abs=1e-12)
        assert (rewards[1].item(), terminated[1].item(), ended[1].item()) == (reward, fallen, fallen)
        if fallen or cut:
            break
    assert fallen
    assert 5 < t < 400


def test_an_episode_that_is_over_stays_as_it_is():
    """Gymnasium's goes on to fall, up to infinity: what is seen after the end must stay finite."""
    pomdp = CartPole()
    state, _ = pomdp.reset(torch.tensor([0.5]))
    for _ in range(20):
        before = state
        state, seen, reward, terminated, _ = pomdp.step(state, torch.tensor([1]))
    assert torch.equal(state, before)
    assert (reward.item(), terminated.item()) == (0.0, True)
    assert seen.abs().max() < 2


def test_initial_states_are_those_of_gymnasium():
    state, seen = CartPole().reset(torch.rand(4000, generator=torch.Generator().manual_seed(0)))
    assert state.shape == (4000, 4)
    assert (seen.shape, seen.dtype) == ((4000, 2), torch.float32)
    assert state.abs().max() <= 0.05
    # Of a uniform distribution: mean 0 and variance 0.1^2 / 12, with four standard deviations of each over 4,000.
    variance = 0.1**2 / 12
    assert state.mean(dim=0).abs().max() < 4 * (variance / 4000) ** 0.5
    assert (state.var(dim=0) - variance).abs().max() < 4 * variance * (0.8 / 4000) ** 0.5
    assert torch.corrcoef(state.T).fill_diagonal_(0).abs().max() < 4 / 4000**0.5


def test_who_balances_to_the_end_in_every_episode_is_optimal():
    lengths = torch.tensor([[500, 500], [500, 499]])
    assert CartPole().optimal(lengths.float(), lengths).tolist() == [True, False]
