"""The permuted line-sequential MNIST benchmark (section 4.2)."""

from dataclasses import dataclass, field

from torch import Tensor

from multistable.arguments import count
from multistable.setting import TASK, about, documented
from multistable.tasks.permuted_mnist import PermutedMNIST

LINES = 28


@documented
@dataclass(frozen=True)
class PermutedLineSequentialMNIST(PermutedMNIST):
    """The 28 lines of the permuted image, pixels in [0, 1], then N black lines to forget in: T = 28 + N.

    N is 72 and 472 in the paper.
    """

    N: int = field(metadata=about("Time steps at the end without anything to learn.", count, TASK))

    input_size = 28

    @property
    def length(self) -> int:
        return LINES + self.N

    @property
    def paper_stretch(self) -> int:
        return {72: 50, 472: 350}.get(self.N, super().paper_stretch)

    def sequences(self, images: Tensor) -> Tensor:
        """Permuted images ``(784, n)`` to inputs ``(28 + N, n, 28)``."""
        n = images.shape[-1]
        inputs = images.new_zeros(self.length, n, self.input_size)
        inputs[:LINES] = images.reshape(LINES, self.input_size, n).transpose(1, 2)
        return inputs
