"""The passive T-Maze against its definition, one maze at a time, and the Gymnasium environment against it."""

import itertools
import re
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from torch.testing import assert_close

import multistable as ms
from multistable.rl import DRQN, PassiveTMaze, Settings, input_size
from multistable.rl.environment import PASSIVE_ID, PassiveTMazeEnv

ONE_HOT = {"up": [1, 0, 0, 0], "down": [0, 1, 0, 0], "corridor": [0, 0, 1, 0], "junction": [0, 0, 0, 1]}


def definition(length, cue, actions):
    """What is seen and gained in one maze: observations, rewards, and after which steps it is over."""
    seen = [cue] + ["corridor"] * (length - 1) + ["junction"]
    rewards = [0.0] * length + [float(("up", "down")[actions[length]] == cue)]
    return [ONE_HOT[name] for name in seen], rewards, [False] * length + [True]


@pytest.mark.parametrize("length", [1, 2, 5])
def test_an_episode_is_as_defined_whatever_is_done_in_the_corridor(length):
    maze = PassiveTMaze(length, dtype=torch.float64)
    assert maze.horizon == length + 1
    for (draw, cue), actions in itertools.product(
        ((0.3, "up"), (0.5, "down")), itertools.product((0, 1), repeat=length + 1)
    ):
        seen, rewards, over = definition(length, cue, actions)
        state, observation = maze.reset(torch.tensor(draw))
        for t, action in enumerate(actions):
            assert observation.tolist() == seen[t]
            state, observation, reward, terminated, ended = maze.step(state, torch.tensor(action))
            assert (reward.item(), terminated.item(), ended.item()) == (rewards[t], over[t], over[t])
        assert maze.step(state, torch.tensor(0)).reward == 0
        assert maze.step(state, torch.tensor(1)).reward == 0


def played(maze, draws):
    """The observations of episodes from ``draws (n,)``, ``(L + 1, n, features)``."""
    state, observation = maze.reset(draws)
    seen = [observation]
    for _ in range(maze.length):
        state, observation, *_ = maze.step(state, torch.zeros(len(draws), dtype=torch.long))
        seen.append(observation)
    return torch.stack(seen)


def test_noise_is_normal_and_follows_from_the_draw_alone():
    maze, draws = PassiveTMaze(40, noise=2.0, dtype=torch.float64), torch.rand(500, dtype=torch.float64)
    seen = played(maze, draws)
    assert_close(seen[..., :4], played(PassiveTMaze(40, dtype=torch.float64), draws))
    assert torch.equal(seen, played(maze, draws))
    noise = (seen[..., 4] / 2).flatten()
    assert len(noise.unique()) > 0.99 * len(noise)
    # Six standard errors of the first four moments of as many normal numbers.
    for power, moment, spread in ((1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        assert abs(noise.pow(power).mean() - moment) < 6 * spread / len(noise) ** 0.5
    side = torch.where(draws < 0.5, -1.0, 1.0).double()
    by_time = noise.view(41, 500)
    for other in (by_time[1:].flatten(), side.expand(40, -1).flatten()):
        assert abs(torch.corrcoef(torch.stack([by_time[:-1].flatten(), other]))[0, 1]) < 6 / 20000**0.5


@pytest.mark.parametrize(("noise", "starts"), [(0.0, 2), (0.5, 20)])
def test_policies_are_judged_by_episodes_with_both_cues(noise, starts):
    maze = PassiveTMaze(3, noise=noise)
    draws = torch.tensor(maze.starts)
    assert (len(draws), (draws < 0.5).sum().item()) == (starts, starts // 2)
    lengths = torch.full((starts,), 4)
    assert maze.optimal(torch.ones(2, starts), lengths).tolist() == [True, True]
    assert not maze.optimal(torch.ones(starts).index_fill(0, torch.tensor([1]), 0), lengths)


def test_drqn_plays_it_too():
    maze = PassiveTMaze(3, noise=1.0, dtype=torch.float64)
    settings = Settings(capacity=20, gradient_steps=1, batch_size=4)
    agents = DRQN(maze, [ms.RNN("gru", input_size(maze), 4, dtype=torch.float64)], seeds=[0], settings=settings)
    assert [episode.lengths.item() for episode in agents.train(2)] == [4, 4]


def test_other_arguments_are_refused():
    for arguments, message in (
        ({"length": 0}, "length must be a positive integer, got 0"),
        ({"length": 3, "noise": -1}, "noise must be a positive number, got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            PassiveTMaze(**arguments)
    maze = PassiveTMaze(3)
    with pytest.raises(ValueError, match=re.escape("action must be integers of 0 to 1 (up, down), got 2")):
        maze.step(maze.reset(torch.tensor([0.1]))[0], torch.tensor([2]))


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_environment_is_the_maze(noise):
    env = gymnasium.make(PASSIVE_ID, length=4, noise=noise)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # normal numbers have no bounds
        check_env(env.unwrapped, skip_render_check=True)
    cues = set()
    for seed, action in itertools.product(range(8), (0, 1)):
        observation, _ = env.reset(seed=seed)
        maze = PassiveTMaze(4, noise=noise)
        draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).random()
        state, seen = maze.reset(torch.tensor(draw, dtype=torch.float64))
        cues.add(draw < 0.5)
        for _ in range(5):
            assert np.array_equal(observation, seen.numpy() if noise else seen.argmax().numpy())
            state, seen, reward, ended, _ = maze.step(state, torch.tensor(action))
            observation, *rest = env.step(np.int64(action))
            assert rest == [reward.item(), ended.item(), False, {}]
        assert ended
    assert len(cues) == 2


def test_the_environment_takes_a_cue_and_refuses_others():
    env = PassiveTMazeEnv(2, noise=1.0)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset must be called before step"):
        env.step(np.int64(0))
    for index, cue in enumerate(("up", "down")):
        for seed in range(4):
            assert env.reset(seed=seed, options={"cue": cue})[0][index] == 1
    with pytest.raises(ValueError, match=r"options\['cue'\] must be 'up' or 'down', got 'left'"):
        env.reset(options={"cue": "left"})
    with pytest.raises(ValueError, match=r"action must be one of 0, 1 \(up, down\), got .*2"):
        env.step(np.int64(2))
