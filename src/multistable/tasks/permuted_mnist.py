"""The base of the two tasks on permuted images: the permutation, the sets, the loss and the accuracy."""

from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from multistable.setting import TASK, about
from multistable.tasks import mnist
from multistable.tasks.base import Data, Device, Split, Task, check_answers

PIXELS = 28 * 28


def permutation() -> np.ndarray:
    """The order of the pixels ``(784,)`` in which all images are shown, from the paper's footnote.

    It is that of ``np.random.seed(42); np.random.permutation(28 * 28)``, without the global generator.
    """
    return np.random.RandomState(42).permutation(PIXELS)


@dataclass(frozen=True)
class PermutedMNIST(Task):
    """A task that shows permuted images of digits and asks for the digit at the last time step.

    The content of its files is verified, so tasks that differ in nothing but the folder of these are equal.
    """

    data: Path | str | None = field(
        default=None,
        compare=False,
        kw_only=True,
        metadata=about(
            "Folder of the four MNIST files.", panel=TASK, unless_given=f"{mnist.VARIABLE}, or a download", parsed=Path
        ),
    )

    output_size = 10
    loss_name = "log loss (nats)"
    answers = 1

    @abstractmethod
    def sequences(self, images: Tensor) -> Tensor:
        """Permuted images ``(784, n)`` to inputs ``(time, n, input_size)``."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Negative log likelihood of the digit under the softmax of the last output, mean over the batch.

        ``outputs (time, ..., n, 10)``, of which only the last time step is read, and ``targets (..., n)`` to ``(...)``.
        """
        check_answers(outputs, targets, (outputs.shape[-2],))
        scores = functional.log_softmax(outputs[-1], -1)
        digits = targets.expand(scores.shape[:-1]).unsqueeze(-1)
        return -scores.gather(-1, digits).squeeze(-1).mean(-1)

    def accuracy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The share of digits with the highest last output, for the shapes of :meth:`loss`."""
        check_answers(outputs, targets, (outputs.shape[-2],))
        return (outputs[-1].argmax(-1) == targets).to(outputs.dtype).mean(-1)

    def check_files(self) -> None:
        """Raise unless the four files of MNIST are there or can be downloaded."""
        for split in mnist.FILES:
            mnist.load(split, self.data)

    def data_of(
        self, split: Split, n: int | None, generator: torch.Generator, device: Device, dtype: torch.dtype
    ) -> Data:
        """MNIST's own images in their own order, or ``n`` of them in random order; targets ``(n,)``, 0 to 9."""
        images, labels = mnist.load(split, self.data)
        if n is not None:
            if n > len(images):
                raise ValueError(f"n must not exceed the {len(images)} images of the {split} set, got {n}")
            order = torch.randperm(len(images), generator=generator, device=generator.device)[:n].cpu().numpy()
            images, labels = images[order], labels[order]
        permuted = torch.from_numpy(images.reshape(-1, PIXELS).T[permutation()])
        # Moved as bytes, a quarter of the size of float32.
        inputs = self.sequences(permuted.to(device).to(dtype) / 255)
        return Data(inputs, torch.from_numpy(labels.astype(np.int64)).to(device))
