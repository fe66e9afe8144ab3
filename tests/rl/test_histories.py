"""What agents of any kind see, for a warmup and a measure in one line."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import multistable as ms
from multistable.dynamics.system.models import each_part
from multistable.rl import collect
from multistable.rl.environment import PassiveTMazeEnv, TMazeEnv

QUICK = {"algorithm": "paper", "steps": 2, "batch_size": 4, "max_stabilisation": 4, "progress": False}


class Counts(gymnasium.Env):
    """Observations count the steps of all episodes; episodes are terminated, or truncated, in turn."""

    def __init__(self):
        self.observation_space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-9, 9, (1, 2))})
        self.action_space = spaces.Discrete(3)
        self.seeds, self.actions, self.steps, self.episodes = [], [], 0, 0

    def seen(self):
        return {"a": self.steps % 2, "b": np.full((1, 2), self.steps, dtype=np.float32)}

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.episodes += 1
        self.age = 0
        return self.seen(), {}

    def step(self, action):
        self.actions.append(action)
        self.steps += 1
        self.age += 1
        over = self.age == 3
        return self.seen(), 0.0, over and self.episodes % 2 == 0, over and self.episodes % 2 == 1, {}


class Agent(nn.Module):
    """An encoder, a recurrent part that is called step by step, and a policy."""

    def __init__(self):
        super().__init__()
        self.encoder, self.rnn, self.policy = nn.Linear(4, 3), nn.GRUCell(3, 5), nn.Linear(5, 4)
        self.read = []

    def act(self, observation, memory):
        x = self.encoder(torch.eye(4)[int(observation)].unsqueeze(0))
        self.read.append(x.detach()[0])
        memory = self.rnn(x, memory)
        return self.policy(memory).argmax(dim=-1).numpy()[0], memory


def test_episodes_are_the_observations_acted_on():
    env, told = Counts(), []

    def act(observation, memory):
        memory = 0 if memory is None else memory + 1
        told.append((int(observation["b"][0, 0]), memory))
        return 2, memory

    episodes = collect(env, act, steps=8, seed=7)
    assert [len(episode) for episode in episodes] == [3, 3, 2]
    assert told == [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1), (5, 2), (6, 0), (7, 1)]
    steps = torch.arange(8.0)
    one_hot = torch.eye(2)[steps.long() % 2]
    assert torch.equal(torch.cat(episodes), torch.cat([one_hot, steps.view(-1, 1).expand(-1, 2)], dim=1))
    assert env.seeds == [7, None, None, None]
    assert env.actions == [2] * 8


def test_random_actions_follow_from_the_seed_and_leave_the_environment_its_own():
    played = []
    for seed in (1, 1, 2):
        env = Counts()
        env.action_space.seed(5)
        collect(env, steps=30, seed=seed)
        played.append(env.actions)
        own = spaces.Discrete(3, seed=5)
        assert [env.action_space.sample() for _ in range(5)] == [own.sample() for _ in range(5)]
    assert played[0] == played[1] != played[2]


def test_a_network_is_warmed_up_on_what_it_will_read():
    rnn, env = nn.GRU(5, 4).double(), PassiveTMazeEnv(6, noise=1.0)  # the loop of float32 is compiled, which takes long
    with pytest.warns(ms.WarmupWarning):  # two steps are not enough
        history = ms.warmup(rnn, collect(env, steps=140), **QUICK)
    assert len(history) == 2


def test_the_recurrent_part_of_any_agent_is_warmed_up_while_it_plays():
    agent, env = Agent(), TMazeEnv(2)
    found = each_part(
        lambda network, data, turn: data,
        agent,
        [env],
        forward=lambda model, env: collect(env, model.act, steps=60),
    )
    lengths = [len(episode) for episode in collect(TMazeEnv(2), Agent().act, steps=1)]
    assert lengths == [1]
    assert found.lengths.sum() == 60
    u, _ = found.select(torch.arange(len(found)))
    read = torch.stack(agent.read[:60])
    whole = torch.cat([u[: int(length), index] for index, length in enumerate(found.lengths)])
    assert torch.equal(whole, read)
    before = [p.clone() for p in agent.parameters()]
    with pytest.warns(ms.WarmupWarning):
        ms.warmup(agent, [env], forward=lambda model, env: collect(env, model.act, steps=60), **QUICK)
    changed = [not torch.equal(a, b) for a, b in zip(before, agent.parameters(), strict=True)]
    assert changed == [False] * 2 + [True] * 4 + [False] * 2


def test_other_arguments_are_refused():
    with pytest.raises(TypeError, match="environment must be a Gymnasium environment, got str"):
        collect("CartPole-v1")
    with pytest.raises(TypeError, match="environment must be a single environment, got 2 in a vector"):
        collect(gymnasium.make_vec("CartPole-v1", num_envs=2))
    with pytest.raises(ValueError, match="steps must be a positive integer, got 0"):
        collect(Counts(), steps=0)
    with pytest.raises(TypeError, match="act must be"):
        collect(Counts(), act=3)
