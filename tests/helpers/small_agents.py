"""Agents whose training takes a moment."""

import torch

import multistable as ms
from multistable.rl import DRQN, AgentConfig, Maze, PassiveMaze, Settings, TMaze, input_size

# In float64: the compiled loop of float32 takes seconds to load.
SMALL = {
    "task": Maze(2),
    "cell": "gru",
    "hidden_size": 6,
    "num_layers": 1,
    "episodes": 5,
    "evaluate_every": 2,
    "vaa_every": 4,
    "capacity": 40,
    "target_period": 3,
    "gradient_steps": 2,
    "batch_size": 5,
    "vaa_batches": 2,
    "vaa_batch_size": 4,
    "stabilisation": 50,
    "warmup_steps": 3,
    "warmup_batch_size": 8,
    "max_stabilisation": 10,
    "dtype": "float64",
}


UPDATES = {"algorithm": "ppo", "copies": 2, "passes": 2, "minibatches": 2, "episodes": 6}


def small_agent(**changes):
    return AgentConfig(**SMALL | changes)


def small_ppo(**changes):
    return small_agent(**{"task": PassiveMaze(3)} | UPDATES | changes)


SETTINGS = Settings(capacity=60, target_period=2, gradient_steps=3, batch_size=5)


def make_agents(seeds, *, length=3, cell="gru", hidden=6, layers=1, settings=SETTINGS, warm=False, dtype=torch.float64):
    maze = TMaze(length, dtype=dtype)
    size = input_size(maze, reward_input=settings.reward_input)
    networks = [
        ms.RNN(cell, size, hidden, layers, generator=torch.Generator().manual_seed(seed), dtype=dtype) for seed in seeds
    ]
    return DRQN(maze, networks, seeds=seeds, warm=warm, settings=settings)


def run(agents, episodes):
    return list(agents.train(episodes))
