"""The configuration of the training of an agent: everything that its result depends on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from multistable.arguments import positive_integer
from multistable.registry import Registry
from multistable.rl.drqn import Settings
from multistable.rl.tmaze import TMaze
from multistable.setting import TASK, TRAINING, about, again, check_settings, documented, setting
from multistable.training.config import VERSIONS
from multistable.training.settings import Config, Version, by_warmup


@documented
@dataclass(frozen=True)
class Maze:
    """The T-Maze (appendix D): a corridor of length L, and a turn at its end that the first observation told."""

    L: int = field(metadata=about("Length of the corridor.", positive_integer, TASK))

    paper_sizes: ClassVar[Mapping[str, int]] = {"num_layers": 2, "hidden_size": 256}
    """The paper's network for the task."""

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def length(self) -> int:
        """L, the time steps that the first observation has to be remembered."""
        return self.L

    @property
    def horizon(self) -> int:
        """H, after which episodes are truncated."""
        return TMaze(self.L).horizon

    def process(self, device: torch.device | str, dtype: torch.dtype) -> TMaze:
        """The process that agents play."""
        return TMaze(self.L, device=device, dtype=dtype)


PROCESSES: Registry[type[Maze]] = Registry(
    "task",
    "multistable.processes",
    {"tmaze": Maze},
    accepts=lambda kind: isinstance(kind, type) and issubclass(kind, Maze),
)
"""The tasks of agents by name."""

OF_AGENTS = ("classic", "warmup", "double", "double-classic")


@documented
@dataclass(frozen=True)
class AgentConfig(Config):
    """The training of one agent by DRQN (Algorithm 4); the defaults are the paper's.

    The sequences of the warmup and the measure are the histories of the replay buffer.
    """

    unit: ClassVar[str] = "episode"
    tasks: ClassVar[Registry[type[Maze]]] = PROCESSES
    unnamed: ClassVar[Mapping[str, Any]] = Maze.paper_sizes

    task: Maze = field(metadata=about("The process that is played."))
    vaa_every: int = again(Config, "vaa_every", default=100)
    episodes: int = setting(2000, "Episodes of an agent; the paper does not say how many.", positive_integer, TRAINING)
    evaluate_every: int = setting(
        20, "Episodes between two evaluations of the greedy policy.", positive_integer, TRAINING
    )
    capacity: int = again(Settings, "capacity")
    target_period: int = again(Settings, "target_period")
    gradient_steps: int = again(Settings, "gradient_steps")
    epsilon: float = again(Settings, "epsilon")
    reward_input: bool = again(Settings, "reward_input")
    max_norm: float | None = again(Settings, "max_norm")
    averaged_episodes: int | None = again(Settings, "averaged_episodes")
    advantage_learning: float = again(Settings, "advantage_learning")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vaa_every % self.evaluate_every:
            raise ValueError(
                f"vaa_every must be a multiple of evaluate_every = {self.evaluate_every}, got {self.vaa_every}"
            )
        sizes = (["vaa_batch_size"] if self.vaa_every else []) + (["warmup_batch_size"] if by_warmup(self) else [])
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
            averaged_episodes=self.averaged_episodes,
            advantage_learning=self.advantage_learning,
            keep=self.keep,
        )

    @classmethod
    def versions(cls) -> Mapping[str, Version]:
        """The versions by name."""
        return {name: VERSIONS[name] for name in OF_AGENTS}

    @property
    def input_size(self) -> int:
        """The size of the previous action, the observation and, if asked for, the previous reward together."""
        return TMaze.actions + TMaze.observation_size + self.reward_input

    @property
    def output_size(self) -> int:
        """The number of actions: the network has a value for each."""
        return TMaze.actions

    @property
    def duration(self) -> int:
        """The number of episodes."""
        return self.episodes

    @property
    def recorded_every(self) -> int:
        """Each evaluation."""
        return self.evaluate_every

    def goes_with(self) -> "AgentConfig":
        """The settings that agents trained in one launch must share: all but the seed, k and the warmup."""
        return replace(self, seed=0, version="double-classic" if self.kind.double else "classic", target=1.0)
