"""The tasks of agents that are runs: which process is played, as a dataclass with a name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from multistable.arguments import positive_integer, positive_number
from multistable.registry import Registry
from multistable.rl import cards
from multistable.rl.cartpole import CartPole
from multistable.rl.passive_tmaze import PassiveTMaze
from multistable.rl.pomdp import POMDP
from multistable.rl.tmaze import TMaze
from multistable.setting import TASK, about, check_settings, documented, setting, unchanged


@dataclass(frozen=True)
class AgentTask(ABC):
    """What agents play. A task is a frozen dataclass of this class, whose fields are its settings."""

    paper_sizes: ClassVar[Mapping[str, int]] = {"num_layers": 2, "hidden_size": 256}
    """The paper's network for agents."""

    def __post_init__(self) -> None:
        check_settings(self)

    @abstractmethod
    def process(self, device: torch.device | str, dtype: torch.dtype) -> POMDP:
        """The process that agents play."""

    @property
    def horizon(self) -> int:
        """H, after which episodes are truncated."""
        return self.process("cpu", torch.float32).horizon

    @property
    def length(self) -> int:
        """The time steps that something has to be remembered; those of an episode where that is not said."""
        return self.horizon


@documented
@dataclass(frozen=True)
class Maze(AgentTask):
    """The T-Maze (appendix D): a corridor of length L, and a turn at its end that the first observation told."""

    L: int = field(metadata=about("Length of the corridor.", positive_integer, TASK))

    @property
    def length(self) -> int:
        """L, the time steps that the first observation has to be remembered."""
        return self.L

    def process(self, device: torch.device | str, dtype: torch.dtype) -> TMaze:
        return TMaze(self.L, device=device, dtype=dtype)


@documented
@dataclass(frozen=True)
class PassiveMaze(AgentTask):
    """The passive T-Maze: a corridor that passes by itself, and a turn at its end that the first observation told."""

    L: int = field(metadata=about("Length of the corridor.", positive_integer, TASK))
    noise: float = setting(1.0, "Standard deviation of the noise.", unchanged(positive_number), TASK)

    @property
    def length(self) -> int:
        """L, the time steps that the first observation has to be remembered."""
        return self.L

    def process(self, device: torch.device | str, dtype: torch.dtype) -> PassiveTMaze:
        return PassiveTMaze(self.L, noise=self.noise, device=device, dtype=dtype)


@dataclass(frozen=True)
class RepeatFirst(AgentTask):
    """POPGym's RepeatFirst: 52 cards are seen one by one, and the suit of the first is to be named at every step."""

    def process(self, device: torch.device | str, dtype: torch.dtype) -> cards.RepeatFirst:
        return cards.RepeatFirst(device=device, dtype=dtype)


@documented
@dataclass(frozen=True)
class RepeatPrevious(AgentTask):
    """POPGym's RepeatPrevious: 52 cards are seen one by one, and the suit of one of the last is to be named."""

    back: int = setting(4, "Which of the last cards is named, 1 for the one just seen.", positive_integer, TASK)

    def process(self, device: torch.device | str, dtype: torch.dtype) -> cards.RepeatPrevious:
        return cards.RepeatPrevious(self.back, device=device, dtype=dtype)


@dataclass(frozen=True)
class MaskedCartPole(AgentTask):
    """CartPole without its velocities: a pole is to be balanced, of which only positions are seen."""

    def process(self, device: torch.device | str, dtype: torch.dtype) -> CartPole:
        return CartPole(device=device, dtype=dtype)


PROCESSES: Registry[type[AgentTask]] = Registry(
    "task",
    "multistable.processes",
    {
        "tmaze": Maze,
        # Beyond the paper.
        "passive-tmaze": PassiveMaze,
        "popgym-repeat-first": RepeatFirst,
        "popgym-repeat-previous": RepeatPrevious,
        "masked-cartpole": MaskedCartPole,
    },
    accepts=lambda kind: isinstance(kind, type) and issubclass(kind, AgentTask),
)
"""The tasks of agents by name."""
