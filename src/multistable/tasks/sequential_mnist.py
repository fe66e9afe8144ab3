"""The permuted sequential MNIST benchmark (section 4.2)."""

from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from multistable.tasks.permuted_mnist import PIXELS, PermutedMNIST


@dataclass(frozen=True)
class PermutedSequentialMNIST(PermutedMNIST):
    """The pixels of the permuted image, in [0, 1], one by one: T = 784.

    Args:
        data: the folder of the four MNIST files, see :func:`multistable.tasks.mnist.load`. Their content is verified,
            so tasks that differ in the folder alone are equal.
    """

    data: Path | str | None = field(default=None, compare=False)

    input_size = 1
    length = PIXELS

    def sequences(self, images: Tensor) -> Tensor:
        """Permuted images ``(784, n)`` to inputs ``(784, n, 1)``."""
        return images.unsqueeze(-1)
