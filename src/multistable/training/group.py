"""What the run loop asks of runs that are trained together, whatever their kind."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from multistable.dynamics.prepare import Preparation
from multistable.dynamics.warmup import WarmupDivergedError, WarmupStep, WarmupWarning
from multistable.training.settings import Config
from multistable.training.store import Checkpoint

AnyConfig = TypeVar("AnyConfig", bound=Config)

PREPARED = "prepared"
"""The outcome of a preparation that is no warmup: nothing judges it."""

OnWarmupStep = Callable[[Sequence[Any], WarmupStep], None]
"""Called with the configurations of the runs that are warmed up, and the step."""

OnStep = Callable[[int, int], None]
"""Called with the epoch or episode that is under way, and the number of the gradient step in it."""

Columns = Mapping[str, Sequence[Any] | None]
"""The recorded quantities by name: a value for each run, or ``None`` for a quantity that is not measured this time."""


class Group(ABC, Generic[AnyConfig]):
    """R runs of one kind and architecture that are trained together. Each run is exactly what it would be alone.

    A group has the mathematics: data, weights, optimisers, scores. The run loop has the folders, and writes down what
    a group tells.

    Args:
        configs: of runs that :meth:`Config.goes_with` says can be trained together.
        device: where to train them.
    """

    def __init__(self, configs: Sequence[AnyConfig], device: torch.device) -> None:
        self.configs = list(configs)
        self.shared = self.configs[0]
        self.device = device

    @property
    @abstractmethod
    def steps(self) -> int:
        """The gradient steps of an epoch or episode that callbacks hear of."""

    @property
    @abstractmethod
    def done(self) -> int:
        """How many epochs or episodes are over."""

    @abstractmethod
    def initialise(self, on_step: OnWarmupStep) -> list[dict[str, Any] | None]:
        """Draw the initial weights and warm up the runs that ask for it. Returns the course of each one's warmup."""

    @abstractmethod
    def restore(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Go on from checkpoints of all runs after the same epoch or episode."""

    @abstractmethod
    def advance(self, on_step: OnStep) -> None:
        """Train up to the next epoch or episode at which something is recorded."""

    @abstractmethod
    def measure(self, stepping: float) -> Columns:
        """The values to record now.

        Among them is ``passed_over``, how many gradients of each run were not finite since the last time.

        Args:
            stepping: the seconds that training, or the first weights, took since the last time.
        """

    @abstractmethod
    def warn(self, passed_over: Sequence[int]) -> None:
        """Warn of the runs that passed gradients over; it is called after the runs have been written down."""

    @abstractmethod
    def checkpoint(self, run: int) -> Checkpoint:
        """The checkpoint from which one of the runs can go on."""

    @abstractmethod
    def results(self, metrics: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """The results of each run after training, but for its warmup; ``metrics`` are the rows recorded of each."""

    @abstractmethod
    def weights(self, run: int) -> dict[str, Tensor]:
        """The weights that are kept of one of the runs, by the names of a :class:`Model`."""

    def records(self, run: int) -> list[dict[str, Any]]:
        """What has been recorded of the attractors of one of the runs."""
        return []

    def cost(self, metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Entries on the cost of a run for its record, besides those of every kind."""
        return {}

    def warm_up(self, members: list[int], on_step: OnWarmupStep) -> list[dict[str, Any]]:
        """Warm up some of the runs together, in place. Returns the course of each one's warmup.

        A network that diverges keeps its initial weights, and the others are warmed up without it.
        """
        try:
            # The course of a warmup tells whether the network became multistable.
            with warnings.catch_warnings(action="ignore", category=WarmupWarning):
                return self._warm_up(members, on_step)
        except WarmupDivergedError as error:
            if len(members) == 1:
                return [{"outcome": "diverged", "reason": str(error)}]
            return [self.warm_up([member], on_step)[0] for member in members]

    @abstractmethod
    def _warm_up(self, members: list[int], on_step: OnWarmupStep) -> list[dict[str, Any]]:
        """Warm up some of the runs, or raise :class:`WarmupDivergedError` and leave all weights as they were."""

    @staticmethod
    def prepared(done: Preparation, together: int) -> dict[str, Any]:
        """What a run has of a preparation that is no warmup, in place of its course."""
        return {
            "outcome": PREPARED,
            "reason": f"by {done.method}",
            "seconds": round(done.seconds, 3),
            "together": together,
        }

    @property
    def warmup_options(self) -> dict[str, Any]:
        """The arguments of ``ms.warmup`` that all runs of the group share."""
        return {
            "algorithm": self.shared.warmup_algorithm,
            "robust": self.shared.warmup_robust or False,
            "progress": False,  # which the commands show in their own way
            "steps": self.shared.most_warmup_steps,
            "batch_size": self.shared.warmup_batch_size,
            "lr": self.shared.warmup_learning_rate,
            "max_stabilisation": self.shared.max_stabilisation,
            "increment": self.shared.increment,
            "eps": self.shared.eps,
        }

    @property
    def measure_options(self) -> dict[str, Any]:
        """The arguments of ``ms.measure`` that all runs of the group share."""
        return {
            "batches": self.shared.vaa_batches,
            "batch_size": self.shared.vaa_batch_size,
            "stabilisation": self.shared.stabilisation,
            "eps": self.shared.eps,
        }


def first_and_last(name: str, metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first and the last value of a quantity that is not measured every time, as results have them."""
    values = [row[name] for row in metrics if name in row] or [None]
    return {f"initial_{name}": values[0], f"final_{name}": values[-1]}
