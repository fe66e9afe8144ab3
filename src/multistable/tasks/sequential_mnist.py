"""The permuted sequential MNIST benchmark (section 4.2)."""

from dataclasses import dataclass

from torch import Tensor

from multistable.setting import documented
from multistable.tasks.permuted_mnist import PIXELS, PermutedMNIST


@documented
@dataclass(frozen=True)
class PermutedSequentialMNIST(PermutedMNIST):
    """The pixels of the permuted image, in [0, 1], one by one: T = 784."""

    input_size = 1
    length = PIXELS

    def sequences(self, images: Tensor) -> Tensor:
        """Permuted images ``(784, n)`` to inputs ``(784, n, 1)``."""
        return images.unsqueeze(-1)
