"""The permuted sequential MNIST benchmark (section 4.2)."""

from dataclasses import dataclass

from multistable.setting import documented
from multistable.tasks.permuted_mnist import PIXELS, PermutedMNIST


@documented
@dataclass(frozen=True)
class PermutedSequentialMNIST(PermutedMNIST):
    """The pixels of the permuted image, in [0, 1], one by one: T = 784."""

    length = PIXELS
