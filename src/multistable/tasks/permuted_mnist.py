"""The base of the tasks on permuted images: the permutation, the sets, the loss and the accuracy."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from multistable.setting import TASK, about
from multistable.tasks import mnist
from multistable.tasks.base import Data, Device, Split, Task, check_answers
from multistable.tasks.scores import log_loss, right

SIDE = 28
PIXELS = SIDE * SIDE


def permutation(pixels: int = PIXELS) -> np.ndarray:
    """The order of the pixels ``(pixels,)`` in which all images are shown, from the paper's footnote.

    It is that of ``np.random.seed(42); np.random.permutation(28 * 28)``, without the global generator.
    """
    return np.random.RandomState(42).permutation(pixels)


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

    input_size = 1
    output_size = 10
    guessing = math.log(output_size)  # nearly: the digits are not quite equally frequent
    loss_name = "log loss (nats)"
    answers = 1

    def shown(self, images: np.ndarray) -> np.ndarray:
        """What is shown of images ``(n, 28, 28)``, of the same type ``(n, ...)``: the images themselves."""
        return images

    def sequences(self, images: Tensor) -> Tensor:
        """Permuted images ``(pixels, n)`` to inputs ``(time, n, input_size)``: pixel by pixel."""
        return images.unsqueeze(-1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Negative log likelihood of the digit under the softmax of the last output, mean over the batch.

        ``outputs (time, ..., n, 10)``, of which only the last time step is read, and ``targets (..., n)`` to ``(...)``.
        """
        check_answers(outputs, targets, (outputs.shape[-2],))
        return log_loss(outputs[-1:], targets.unsqueeze(-1))

    def accuracy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The share of digits with the highest last output, for the shapes of :meth:`loss`."""
        check_answers(outputs, targets, (outputs.shape[-2],))
        return right(outputs[-1:], targets.unsqueeze(-1))

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
        pixels = self.shown(images).reshape(len(images), -1)
        permuted = torch.from_numpy(pixels.T[permutation(pixels.shape[1])])
        # Moved as bytes, a quarter of the size of float32.
        inputs = self.sequences(permuted.to(device).to(dtype) / 255)
        return Data(inputs, torch.from_numpy(labels.astype(np.int64)).to(device))
