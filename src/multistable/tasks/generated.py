"""The base of tasks whose sequences are drawn: numbers to remember and to give back."""

from abc import abstractmethod

import torch
from torch import Tensor

from multistable.tasks.base import Data, Device, Split, Task, check_answers

SEQUENCES = 40_000
"""Size of the learning set and of the test set in the paper."""


class GeneratedTask(Task):
    """A task of one output that gives numbers back at its last time steps.

    The learning set and the test set have the same distribution, and differ in the state of the generator.
    """

    output_size = 1
    loss_name = "squared error"

    @property
    @abstractmethod
    def answers(self) -> int:
        """How many of the last time steps have a target."""

    @abstractmethod
    def draw(self, n: int, generator: torch.Generator) -> Data:
        """``n`` sequences in float32 on the generator's device; targets ``(n, answers)``."""

    def data_of(
        self, split: Split, n: int | None, generator: torch.Generator, device: Device, dtype: torch.dtype
    ) -> Data:
        """40,000 sequences by default; targets ``(n, answers)``."""
        inputs, targets = self.draw(SEQUENCES if n is None else n, generator)
        return Data(inputs.to(device, dtype), targets.to(device, dtype))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Squared error of the last outputs, mean over the answers and the batch.

        ``outputs (time, ..., n, 1)``, of which only the last ``answers`` time steps are read, and
        ``targets (..., n, answers)`` to ``(...)``.
        """
        last = outputs[-self.answers :].squeeze(-1).movedim(0, -1)
        check_answers(outputs, targets, (outputs.shape[-2], self.answers))
        return (last - targets).square().mean((-2, -1))

    def accuracy(self, outputs: Tensor, targets: Tensor) -> None:
        """``None``: a real number is near its target, not right or wrong."""
        return
