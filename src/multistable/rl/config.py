"""What the training of an agent is: everything that its result depends on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from multistable.arguments import positive_integer
from multistable.rl.drqn import Settings
from multistable.rl.tmaze import TMaze
from multistable.tasks import make_task, name_of
from multistable.training.config import VERSIONS
from multistable.training.settings import Config, Version


@dataclass(frozen=True)
class Maze:
    """The T-Maze (appendix D): a corridor of length L, and a turn at its end that the first observation told."""

    L: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "L", positive_integer("L", self.L))

    @property
    def length(self) -> int:
        """L, the time steps that the first observation has to be remembered."""
        return self.L

    @property
    def horizon(self) -> int:
        """H, after which episodes are truncated."""
        return TMaze(self.L).horizon

    def process(self, device: torch.device | str, dtype: torch.dtype) -> TMaze:
        """What is played."""
        return TMaze(self.L, device=device, dtype=dtype)


PROCESSES: dict[str, type[Maze]] = {"tmaze": Maze}
"""What agents can be trained on, by name."""

OF_AGENTS = ("classic", "warmup", "double", "double-classic")


@dataclass(frozen=True)
class AgentConfig(Config):
    """The training of one agent by DRQN (Algorithm 4); the defaults are the paper's.

    Args:
        task: the process that is played.
        hidden_size: units of a layer.
        num_layers: how many layers.
        vaa_every: measure VAA before training and after every so many episodes, a multiple of ``evaluate_every``; 0 for
            never.
        episodes: E; the paper does not say how many.
        evaluate_every: episodes between two evaluations of the greedy policy.
        capacity: N, the transitions of the replay buffer.
        target_period: C, the episodes between two updates of the target network.
        gradient_steps: I, after each episode.
        epsilon: the exploration rate.
        reward_input: add the previous reward to the inputs.
        max_norm: the largest norm of the agent's gradient, see :class:`Settings`; ``None`` for no limit.

    The others are those of :class:`Config`; the sequences of the warmup and the measure are the histories of the
    replay buffer.
    """

    unit: ClassVar[str] = "episode"

    task: Maze
    hidden_size: int = 256
    num_layers: int = 2
    vaa_every: int = 100
    episodes: int = 2000
    evaluate_every: int = 20
    capacity: int = 8192
    target_period: int = 20
    gradient_steps: int = 10
    epsilon: float = 0.2
    reward_input: bool = False
    max_norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("episodes", self.episodes)
        positive_integer("evaluate_every", self.evaluate_every)
        if self.vaa_every % self.evaluate_every:
            raise ValueError(
                f"vaa_every must be a multiple of evaluate_every = {self.evaluate_every}, got {self.vaa_every}"
            )
        _ = self.settings
        if self.max_norm is not None:
            object.__setattr__(self, "max_norm", float(self.max_norm))  # 1 and 1.0 are one run, with one name.
        sizes = (["vaa_batch_size"] if self.vaa_every else []) + (["warmup_batch_size"] if self.kind.warmed else [])
        for name in sizes:
            if getattr(self, name) > self.capacity:
                raise ValueError(f"{name} must not exceed the capacity, {self.capacity}, got {getattr(self, name)}")

    @property
    def settings(self) -> Settings:
        """The parameters of Algorithm 4."""
        return Settings(
            capacity=self.capacity,
            target_period=self.target_period,
            gradient_steps=self.gradient_steps,
            epsilon=self.epsilon,
            lr=self.learning_rate,
            batch_size=self.batch_size,
            reward_input=self.reward_input,
            max_norm=self.max_norm,
        )

    @classmethod
    def versions(cls) -> Mapping[str, Version]:
        """What ``version`` may be."""
        return {name: VERSIONS[name] for name in OF_AGENTS}

    @property
    def task_name(self) -> str:
        """The name that the process is registered by."""
        return name_of(self.task, PROCESSES)

    @classmethod
    def make_task(cls, name: str, settings: dict[str, Any], data: Path | str | None = None) -> Maze:
        """A process by its name and settings; it reads no ``data``."""
        return make_task(name, settings, data, PROCESSES)

    @property
    def input_size(self) -> int:
        """The previous action, the observation and, where asked for, the previous reward."""
        return TMaze.actions + TMaze.observation_size + self.reward_input

    @property
    def output_size(self) -> int:
        """A value for each action."""
        return TMaze.actions

    @property
    def duration(self) -> int:
        """The episodes."""
        return self.episodes

    def goes_with(self) -> "AgentConfig":
        """What agents must share to be trained in one launch: all but the seed, k and the warmup."""
        return replace(self, seed=0, version="double-classic" if self.kind.double else "classic", target=1.0)
