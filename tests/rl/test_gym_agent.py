"""Environments of Gymnasium, played and learnt from by the same DRQN."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

import multistable as ms
from multistable.rl import DRQN, Evaluator, Settings, TMaze, greedy_policy, input_size, watch
from multistable.rl.environment import TMazeEnv
from multistable.rl.gym_agent import GymPOMDP

SETTINGS = Settings(capacity=60, target_period=2, gradient_steps=3, batch_size=5)


class Recall(gymnasium.Env):
    """Observe a bit, wait, then say which it was; the space's first action is not 0, and steps are noisy vectors."""

    def __init__(self, wait=2):
        self.wait = wait
        self.action_space = spaces.Discrete(2, start=5)
        self.observation_space = spaces.Box(-10, 10, (2,), dtype=np.float64)

    def observe(self):
        shown = 2 * self.bit - 1 if self.t == 0 else 0
        return np.array([shown, self.np_random.normal()])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bit, self.t = int(self.np_random.integers(2)), 0
        self.seed_given = seed
        return self.observe(), {}

    def step(self, action):
        assert action in (5, 6)
        self.t += 1
        over = self.t > self.wait
        return self.observe(), float(over and action - 5 == self.bit), over, False, {}


class SeededTMaze(TMazeEnv):
    """Takes its layout from its seed as the batched mazes take it from a draw."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options={"layout": "up" if seed < 2**30 else "down"})


def networks(pomdp, seeds, hidden=6):
    make = torch.Generator().manual_seed
    return [ms.RNN("gru", input_size(pomdp), hidden, generator=make(seed), dtype=pomdp.dtype) for seed in seeds]


def test_the_t_maze_of_gymnasium_trains_exactly_as_the_batched_one():
    trained = []
    for pomdp in (
        TMaze(3, dtype=torch.float64),
        GymPOMDP(lambda: SeededTMaze(3), horizon=9, exploration=(1 / 2, 1 / 6, 1 / 6, 1 / 6), dtype=torch.float64),
    ):
        agents = DRQN(pomdp, networks(pomdp, [0, 1]), seeds=[0, 1], settings=SETTINGS)
        losses = [episode.loss for episode in agents.train(6)]
        trained.append((losses, [p.detach() for p in agents.network.parameters()]))
    assert_close(*trained, rtol=1e-12, atol=1e-14)


def test_observations_actions_and_ends_of_a_box_environment():
    pomdp = GymPOMDP(Recall, horizon=10, dtype=torch.float64)
    assert (pomdp.actions, pomdp.observation_size, pomdp.exploration) == (2, 2, (0.5, 0.5))
    draws = torch.tensor([[0.1], [0.6]], dtype=torch.float64)
    state, observation = pomdp.reset(draws)
    plain = [Recall(), Recall()]
    first = [env.reset(seed=int(draw * 2**31))[0] for env, draw in zip(plain, draws, strict=True)]
    assert np.array_equal(observation[:, 0].numpy(), np.stack(first))
    for t in range(3):
        state, observation, reward, terminated, ended = pomdp.step(state, torch.tensor([[0], [1]]))
        results = [env.step(action) for env, action in zip(plain, (5, 6), strict=True)]
        assert np.array_equal(observation[:, 0].numpy(), np.stack([r[0] for r in results]))
        assert reward[:, 0].tolist() == [r[1] for r in results]
        assert terminated[:, 0].tolist() == ended[:, 0].tolist() == [t == 2] * 2


def test_an_environment_whose_episode_is_over_is_not_stepped():
    steps = []

    class Counting(Recall):
        def step(self, action):
            steps.append(self.wait)
            return super().step(action)

    waits = iter([1, 4])
    pomdp = GymPOMDP(lambda: Counting(next(waits)), horizon=10)
    state, _ = pomdp.reset(torch.rand(2, 1))
    for _ in range(8):
        state, *_ = pomdp.step(state, torch.zeros(2, 1, dtype=torch.long))
    assert (steps.count(1), steps.count(4)) == (2, 5)


def test_an_action_that_there_is_not_is_refused_before_any_environment_is_stepped():
    steps = []

    class Counting(Recall):
        def step(self, action):
            steps.append(action)
            return super().step(action)

    pomdp = GymPOMDP(Counting, horizon=10)
    state, _ = pomdp.reset(torch.rand(2, 1))
    with pytest.raises(ValueError, match=r"action must be integers of 0 to 1, got 2$"):
        pomdp.step(state, torch.tensor([[0], [2]]))
    assert steps == []


def test_a_time_limit_truncates_and_is_no_terminal_state():
    pomdp = GymPOMDP(lambda: gymnasium.wrappers.TimeLimit(Recall(wait=8), 3), horizon=10)
    state, _ = pomdp.reset(torch.rand(1, 1))
    ends = []
    for _ in range(3):
        state, _, _, terminated, ended = pomdp.step(state, torch.zeros(1, 1, dtype=torch.long))
        ends.append((bool(terminated), bool(ended)))
    assert ends == [(False, False), (False, False), (False, True)]
    agents = DRQN(pomdp, networks(pomdp, [0]), seeds=[0], settings=SETTINGS)
    agents.fill()
    slots = agents.replay.stored().slots
    assert not agents.replay.terminal.gather(1, slots).any()
    assert int(agents.replay.times.gather(1, slots).max()) == 2


def test_an_agent_learns_to_recall():
    pomdp = GymPOMDP(Recall, horizon=4)
    settings = Settings(capacity=500, target_period=5, lr=5e-3)
    agents = DRQN(pomdp, networks(pomdp, [0, 1], hidden=12), seeds=[0, 1], settings=settings)
    evaluations = list(watch(agents, 120, evaluate_every=60))
    assert max(evaluations[0].returns) < 0.9
    assert evaluations[-1].returns == [1.0, 1.0]
    assert evaluations[-1].optimal is None


def test_evaluation_plays_the_same_starts_each_time():
    pomdp = GymPOMDP(Recall, horizon=4)
    agents = DRQN(pomdp, networks(pomdp, [0, 1]), seeds=[0, 1], settings=SETTINGS)
    evaluator = Evaluator(agents, starts=5)
    assert evaluator.evaluate() == evaluator.evaluate()


def test_cartpole_by_its_name():
    pomdp = GymPOMDP("CartPole-v1")
    assert (pomdp.horizon, pomdp.actions, pomdp.observation_size) == (500, 2, 4)
    agents = DRQN(pomdp, networks(pomdp, [0, 1]), seeds=[0, 1], settings=SETTINGS)
    for episode in agents.train(3):
        assert torch.equal(episode.returns, episode.lengths.float())
        assert episode.loss.isfinite().all()
    pomdp.close()


@pytest.mark.parametrize(("arguments", "message"), [
    ({}, "horizon must be given"),
    ({"horizon": 5, "exploration": (0.5,)}, "exploration must be 2 probabilities that sum to 1"),
    ({"horizon": 5, "exploration": (math.nan, 1.0)}, "exploration must be 2 probabilities that sum to 1, got .nan"),
    ({"horizon": 5, "discount": 1.5}, r"discount must lie in \[0, 1\], got 1.5"),
])  # fmt: skip
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GymPOMDP(Recall, **arguments)


def test_environments_with_other_actions_are_refused():
    with pytest.raises(ValueError, match="the action space must be Discrete, got Box"):
        GymPOMDP("Pendulum-v1")


def test_a_policy_of_indices_is_not_given_vectors():
    pomdp = GymPOMDP(Recall, horizon=4)
    policy = greedy_policy(DRQN(pomdp, networks(pomdp, [0]), seeds=[0], settings=SETTINGS), 0)
    with pytest.raises(TypeError, match=r"a policy takes observations as indices, .* got \(1, 2\) of torch.float32"):
        policy(torch.zeros(1, 2), None)


def test_an_environment_that_is_no_process_is_pointed_to_what_makes_it_one():
    environment = gymnasium.make("CartPole-v1")
    message = "pomdp must be a POMDP, .*, got .*CartPole-v1.*; multistable.rl.gym_agent.GymPOMDP makes one"
    with pytest.raises(TypeError, match=message):
        input_size(environment)
    with pytest.raises(TypeError, match=message):
        DRQN(environment, [ms.RNN("gru", 6, 4)], seeds=[0])
