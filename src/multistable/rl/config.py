"""The configuration of the training of an agent: everything that its result depends on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar

import torch

from multistable.arguments import positive_integer
from multistable.registry import Registry
from multistable.rl.agent_tasks import PROCESSES, AgentTask
from multistable.rl.drqn import DRQN
from multistable.rl.pomdp import POMDP, input_size
from multistable.rl.ppo import PPO, PPOSettings
from multistable.rl.settings import Settings
from multistable.setting import TRAINING, about, again, documented, one_of, setting
from multistable.training.config import VERSIONS
from multistable.training.settings import Config, Version, by_warmup


@dataclass(frozen=True)
class Algorithm:
    """How agents learn.

    Attributes:
        agents: the class of the agents, which is called with a process, networks, seeds and settings.
        settings: the dataclass of its parameters; the settings of a run have the same names.
        histories: what limits how many histories there are for a measure or a warmup.
        more_outputs: of the network, beside one for each action.
    """

    agents: type[DRQN] | type[PPO]
    settings: type[Settings] | type[PPOSettings]
    histories: str
    more_outputs: int = 0


ALGORITHMS = {
    "drqn": Algorithm(DRQN, Settings, "the capacity"),
    "ppo": Algorithm(PPO, PPOSettings, "the episodes that are played for it", more_outputs=1),
}
"""By the names that runs have for them."""

ELSEWHERE = {"lr": "learning_rate"}
"""What runs call a parameter that has another name there."""


def by(algorithm: str) -> Callable[[Any], bool]:
    """Whether agents learn by this algorithm: some settings matter to such agents alone."""
    return lambda run: run.algorithm == algorithm


_of_drqn = partial(again, Settings, matters=by("drqn"))
_of_ppo = partial(again, PPOSettings, matters=by("ppo"))

OF_AGENTS = ("classic", "warmup", "double", "double-classic")


@documented
@dataclass(frozen=True)
class AgentConfig(Config):
    """The training of one agent by DRQN (Algorithm 4), with the paper's defaults, or by PPO.

    The sequences of the warmup and the measure are the histories of the replay buffer, or those of episodes that a PPO
    plays for them.
    """

    unit: ClassVar[str] = "episode"
    tasks: ClassVar[Registry[type[AgentTask]]] = PROCESSES
    unnamed: ClassVar[Mapping[str, Any]] = AgentTask.paper_sizes

    task: AgentTask = field(metadata=about("The process that is played."))
    algorithm: str = setting(
        "drqn",
        "How an agent learns: drqn (Algorithm 4) or ppo (Schulman et al., 2017).",
        one_of(ALGORITHMS),
        TRAINING,
    )
    batch_size: int = again(Config, "batch_size", matters=by("drqn"))
    vaa_every: int = again(Config, "vaa_every", default=100)
    episodes: int = setting(2000, "Episodes of an agent; the paper does not say how many.", positive_integer, TRAINING)
    evaluate_every: int = setting(
        20, "Episodes between two evaluations of the greedy policy.", positive_integer, TRAINING
    )
    capacity: int = _of_drqn("capacity")
    target_period: int = _of_drqn("target_period")
    gradient_steps: int = _of_drqn("gradient_steps")
    epsilon: float = _of_drqn("epsilon")
    reward_input: bool = again(Settings, "reward_input")
    max_norm: float | None = again(Settings, "max_norm", unless_given="no limit, or 0.5 with ppo")
    averaged_episodes: int | None = _of_drqn("averaged_episodes")
    advantage_learning: float = _of_drqn("advantage_learning")
    copies: int = _of_ppo("copies", default=20, panel=TRAINING)
    passes: int = _of_ppo("passes")
    minibatches: int = _of_ppo("minibatches")
    clip: float = _of_ppo("clip")
    trace: float = _of_ppo("trace")
    value_weight: float = _of_ppo("value_weight")
    entropy_weight: float = _of_ppo("entropy_weight")
    action_input: bool = _of_ppo("action_input")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vaa_every % self.evaluate_every:
            raise ValueError(
                f"vaa_every must be a multiple of evaluate_every = {self.evaluate_every}, got {self.vaa_every}"
            )
        if self.algorithm == "ppo":
            self._check_updates()
        self._check_histories()

    def _check_updates(self) -> None:
        """Raise unless a PPO can be looked at between whole updates."""
        _ = self.settings  # An error for copies that cannot be divided.
        for name in ("evaluate_every", "episodes"):
            if getattr(self, name) % self.copies:
                raise ValueError(f"{name} must be a multiple of copies = {self.copies}, got {getattr(self, name)}")
        if self.keep:
            raise ValueError("keep must be False with the algorithm ppo, got True")

    def _check_histories(self) -> None:
        """Raise unless there are enough histories for the measure and the warmup."""
        wanted = {"vaa_batch_size": bool(self.vaa_every), "warmup_batch_size": by_warmup(self)}
        for name, most in self.settings.histories.items():
            if wanted[name] and getattr(self, name) > most:
                what = ALGORITHMS[self.algorithm].histories
                raise ValueError(f"{name} must not exceed {what}, {most}, got {getattr(self, name)}")

    @property
    def settings(self) -> Any:
        """The parameters of the algorithm: :class:`Settings` or :class:`PPOSettings`."""
        kind = ALGORITHMS[self.algorithm].settings
        given = {entry.name: getattr(self, ELSEWHERE.get(entry.name, entry.name)) for entry in fields(kind)}
        return kind(**{name: value for name, value in given.items() if value is not None})

    @property
    def process(self) -> POMDP:
        """What is played, on the CPU."""
        return self.task.process("cpu", getattr(torch, self.dtype))

    @classmethod
    def versions(cls) -> Mapping[str, Version]:
        """The versions by name."""
        return {name: VERSIONS[name] for name in OF_AGENTS}

    @property
    def input_size(self) -> int:
        """The size of what is read together: the observation, and the previous action and reward where asked for."""
        return input_size(self.process, **self.settings.inputs)

    @property
    def output_size(self) -> int:
        """A value of each action, or its logit, and the value of the state where the algorithm has one."""
        return self.process.actions + ALGORITHMS[self.algorithm].more_outputs

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
