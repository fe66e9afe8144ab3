"""Parity of a stream of bits: at every step, as in Graves (2016), or of a few bits, as in Barak et al. (2022)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from multistable.arguments import positive_integer
from multistable.setting import TASK, documented, setting
from multistable.tasks.base import Data
from multistable.tasks.generated import Classes, at_least


class _Parity(Classes):
    """Bits as +1 (1) and -1 (0), and whether the number of ones is odd (class 1)."""

    input_size = 1
    output_size = 2

    def _bits(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The bits ``(T, n)``, and as inputs ``(T, n, 1)``."""
        bits = torch.randint(2, (self.T, n), generator=generator, device=generator.device)
        return bits, (2.0 * bits - 1).unsqueeze(-1)


@documented
@dataclass(frozen=True)
class Parity(_Parity):
    """Whether the number of ones so far is odd, asked for at every time step."""

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, 1)``, targets ``(n, T)``."""
        bits, inputs = self._bits(n, generator)
        return Data(inputs, (bits.cumsum(0) % 2).T.contiguous())


@documented
@dataclass(frozen=True)
class SparseParity(_Parity):
    """Whether the number of ones at a few times, always the same, is odd; asked for at the end.

    The times divide the sequence evenly: the first is the first time step.
    """

    of: int = setting(2, "Bits that count.", positive_integer, TASK)

    answers = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("T", self.T, self.of, "the bits that count")

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, 1)``, targets ``(n, 1)``."""
        bits, inputs = self._bits(n, generator)
        times = [count * self.T // self.of for count in range(self.of)]
        return Data(inputs, (bits[times].sum(0) % 2).unsqueeze(-1))
