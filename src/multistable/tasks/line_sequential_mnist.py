"""The permuted line-sequential MNIST benchmark (section 4.2)."""

from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from multistable.arguments import count
from multistable.tasks.permuted_mnist import PermutedMNIST

LINES = 28


@dataclass(frozen=True)
class PermutedLineSequentialMNIST(PermutedMNIST):
    """The 28 lines of the permuted image, pixels in [0, 1], then N black lines to forget in: T = 28 + N.

    Args:
        N: the number of black lines, 72 and 472 in the paper.
        data: the folder of the four MNIST files, see :func:`multistable.tasks.mnist.load`. Their content is verified,
            so tasks that differ in the folder alone are equal.
    """

    N: int
    data: Path | str | None = field(default=None, compare=False)

    input_size = 28

    def __post_init__(self) -> None:
        object.__setattr__(self, "N", count("N", self.N))

    @property
    def length(self) -> int:
        return LINES + self.N

    def sequences(self, images: Tensor) -> Tensor:
        """Permuted images ``(784, n)`` to inputs ``(28 + N, n, 28)``."""
        n = images.shape[-1]
        inputs = images.new_zeros(self.length, n, self.input_size)
        inputs[:LINES] = images.reshape(LINES, self.input_size, n).transpose(1, 2)
        return inputs
