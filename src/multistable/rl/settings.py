"""The parameters of Algorithm 4."""

from dataclasses import dataclass
from typing import Any

from multistable import arguments
from multistable.arguments import positive_integer, share, truth_value
from multistable.setting import (
    TRAINING,
    again,
    check_settings,
    documented,
    optional,
    positive_number,
    setting,
    unchanged,
)
from multistable.training.settings import Config


def _norm(name: str, value: Any) -> float:
    return arguments.positive_number(name, value)  # 1 and 1.0 are one run, with one name.


@documented
@dataclass(frozen=True)
class Settings:
    """The parameters of Algorithm 4, the paper's by default; the process adds its horizon, exploration and discount."""

    capacity: int = setting(8192, "Transitions of the replay buffer (N).", positive_integer)
    target_period: int = setting(20, "Episodes between two updates of the target network (C).", positive_integer)
    gradient_steps: int = setting(10, "Gradient steps after each episode (I).", positive_integer)
    epsilon: float = setting(0.2, "The exploration rate.", unchanged(share))
    lr: float = setting(1e-3, "The learning rate of Adam (alpha).", positive_number)
    batch_size: int = setting(32, "Transitions of a gradient step (B).", positive_integer)
    reward_input: bool = setting(False, "Add the previous reward to the inputs (a_{t-1}, o_t).", truth_value)
    max_norm: float | None = setting(
        None,
        "The largest norm of an agent's gradient; a longer gradient is shortened to it (Pascanu et al., 2013).",
        optional(_norm),
        TRAINING,
        unless_given="no limit",
    )
    averaged_episodes: int | None = setting(
        None,
        "Episodes over which the weights of the greedy policy are a running mean (Polyak and Juditsky, 1992).",
        optional(positive_integer),
        TRAINING,
        unless_given="the weights as they are",
    )
    advantage_learning: float = setting(
        0.0,
        "Share of what an action misses that its target misses too, which widens the gaps between values (Bellemare et "
        "al., 2016).",
        share,
        TRAINING,
    )
    keep: bool = again(Config, "keep")

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def inputs(self) -> dict[str, bool]:
        """What is read beside the observation, as :func:`input_size` and players take it."""
        return {"action_input": True, "reward_input": self.reward_input}

    @property
    def histories(self) -> dict[str, int]:
        """How many histories there are to choose a batch from, by the names of the batches in runs."""
        return {"vaa_batch_size": self.capacity, "warmup_batch_size": self.capacity}
