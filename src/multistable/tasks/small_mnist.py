"""Permuted sequential MNIST of fewer pixels, for a CPU."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from multistable.arguments import positive_integer
from multistable.setting import TASK, documented, setting
from multistable.tasks.permuted_mnist import SIDE, PermutedMNIST


def _divisor(name: str, value: Any) -> int:
    side = positive_integer(name, value)
    if SIDE % side:
        raise ValueError(f"{name} must divide {SIDE}, the side of an image, got {value!r}")
    return side


@documented
@dataclass(frozen=True)
class SmallPermutedMNIST(PermutedMNIST):
    """The pixels of an image that has been made smaller, permuted and shown one by one: T = side * side."""

    side: int = setting(14, "Pixels of a side; each is the mean of a square of the image.", _divisor, TASK)

    @property
    def length(self) -> int:
        return self.side**2

    def shown(self, images: np.ndarray) -> np.ndarray:
        """Images ``(n, 28, 28)`` to ``(n, side, side)``, rounded to whole levels of grey."""
        block = SIDE // self.side
        squares = images.reshape(-1, self.side, block, self.side, block)
        return squares.mean((2, 4)).round().astype(images.dtype)
