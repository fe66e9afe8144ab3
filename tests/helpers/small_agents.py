"""Agents whose training takes a moment, and what interrupts it."""

import torch

import multistable as ms
from multistable.rl import DRQN, AgentConfig, Maze, Settings, TMaze, input_size
from multistable.training import Callback

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


def small_agent(**changes):
    return AgentConfig(**SMALL | changes)


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


class StopError(Exception):
    """What interrupts a training in a test."""


class StopAt(Callback):
    """Interrupts a training at one of its events."""

    def __init__(self, event, number):
        self.event, self.number = event, number

    def at(self, event, number):
        if (event, number) == (self.event, self.number):
            raise StopError

    def on_warmup_step(self, configs, step):
        self.at("warmup", step.step)

    def on_step(self, configs, epoch, step):
        self.at("episode", epoch)

    def on_epoch(self, configs, metrics):
        self.at("evaluation", metrics[0]["episode"])
