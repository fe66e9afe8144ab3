"""The bases of tasks whose sequences are drawn: those that ask for numbers, and those that ask for classes."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from multistable.arguments import positive_integer
from multistable.setting import TASK, about
from multistable.tasks.base import Data, Device, Split, Task, check_answers
from multistable.tasks.scores import log_loss, right, squared_error

SEQUENCES = 40_000
"""Size of the learning set and of the test set in the paper."""


@dataclass(frozen=True)
class GeneratedTask(Task):
    """A task that answers at its last time steps.

    The learning set and the test set have the same distribution, and differ in the state of the generator.
    """

    T: int = field(metadata=about("Time steps of a sequence.", positive_integer, TASK))

    @property
    def length(self) -> int:
        return self.T

    @abstractmethod
    def draw(self, n: int, generator: torch.Generator) -> Data:
        """``n`` sequences on the generator's device, inputs in float32; targets ``(n, ...)`` as the loss reads them."""

    def data_of(
        self, split: Split, n: int | None, generator: torch.Generator, device: Device, dtype: torch.dtype
    ) -> Data:
        """40,000 sequences by default."""
        inputs, targets = self.draw(SEQUENCES if n is None else n, generator)
        return Data(inputs.to(device, dtype), targets.to(device, dtype if targets.is_floating_point() else None))


class Numbers(GeneratedTask):
    """A task that asks for numbers: ``targets (..., n, answers * output_size)``, those of a time step together."""

    output_size = 1
    loss_name = "squared error"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Squared error of the last outputs, mean over the answers and the batch.

        ``outputs (time, ..., n, output_size)``, of which only the last ``answers`` time steps are read, to ``(...)``.
        """
        check_answers(outputs, targets, (outputs.shape[-2], self.answers * self.output_size))
        return squared_error(outputs[-self.answers :], targets)

    def accuracy(self, outputs: Tensor, targets: Tensor) -> None:
        """``None``: a real number is near its target, not right or wrong."""
        return


class Classes(GeneratedTask):
    """A task that asks for one of ``output_size`` equally likely classes at a time: ``targets (..., n, answers)``."""

    loss_name = "log loss (nats)"

    @property
    def guessing(self) -> float:
        """The loss of giving every class the same probability."""
        return math.log(self.output_size)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Negative log likelihood of the classes under the softmax of the last outputs, mean over answers and batch.

        ``outputs (time, ..., n, output_size)``, of which only the last ``answers`` time steps are read, to ``(...)``.
        """
        check_answers(outputs, targets, (outputs.shape[-2], self.answers))
        return log_loss(outputs[-self.answers :], targets)

    def accuracy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The share of answers whose class has the highest output, for the shapes of :meth:`loss`."""
        check_answers(outputs, targets, (outputs.shape[-2], self.answers))
        return right(outputs[-self.answers :], targets)


def one_hot(tokens: Tensor, size: int) -> Tensor:
    """Tokens ``(...)`` from 0 on as vectors ``(..., size)`` with a 1 at the place of the token."""
    zeros = torch.zeros(*tokens.shape, size, device=tokens.device)
    return zeros.scatter_(-1, tokens.unsqueeze(-1), 1.0)


def distinct_times(many: int, end: int, n: int, generator: torch.Generator) -> Tensor:
    """Times t_1 < ... < t_many below ``end``, counted from 0, for ``n`` sequences: ``(many, n)``.

    Floyd's algorithm makes every set equally likely without a permutation of all time steps.
    """
    device = generator.device
    times = torch.empty(0, n, device=device, dtype=torch.int64)
    for last in range(end - many, end):
        time = torch.randint(last + 1, (1, n), generator=generator, device=device)
        taken = (times == time).any(0, keepdim=True)
        times = torch.cat([times, torch.where(taken, last, time)])
    return times.sort(0).values


def at_least(name: str, value: int, least: int, room: str) -> None:
    """Raise unless a setting is large enough; ``room`` says for what."""
    if value < least:
        raise ValueError(f"{name} must be at least {least}, for {room}, got {value}")
