"""Counting the ones of a stream of bits: our own, after the counters of Weiss, Goldberg and Yahav (2018)."""

from dataclasses import dataclass

import torch

from multistable.setting import documented
from multistable.tasks.base import Data
from multistable.tasks.generated import Numbers


@documented
@dataclass(frozen=True)
class Counting(Numbers):
    """How many of T bits were 1, in standard deviations from the mean, asked for at the end."""

    input_size = 1
    answers = 1
    guessing = 1.0

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, 1)``, 0 or 1, targets ``(n, 1)``."""
        bits = torch.randint(2, (self.T, n, 1), generator=generator, device=generator.device).float()
        return Data(bits, (bits.sum(0) - self.T / 2) / (self.T / 4) ** 0.5)
