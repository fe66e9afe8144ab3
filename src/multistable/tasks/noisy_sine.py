"""The continuation of a sine wave that is seen with noise: our own, a problem that takes no long memory."""

import math
from dataclasses import dataclass

import torch

from multistable.arguments import positive_number
from multistable.setting import TASK, documented, setting, unchanged
from multistable.tasks.base import Data
from multistable.tasks.generated import Numbers, at_least


@documented
@dataclass(frozen=True)
class NoisySine(Numbers):
    """The next value of a sine wave without its noise, asked for in the second half of the sequence.

    The period is U(10, 30) time steps, the phase anything. A squared error of 0 is out of reach: the noise limits it.
    """

    noise: float = setting(0.5, "Standard deviation of the noise.", unchanged(positive_number), TASK)

    input_size = 1
    guessing = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("T", self.T, 2, "a second half")

    @property
    def answers(self) -> int:
        return self.T // 2

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, 1)``, targets ``(n, T // 2)``."""
        device = generator.device
        period = 10 + 20 * torch.rand(n, generator=generator, device=device)
        phase = 2 * math.pi * torch.rand(n, generator=generator, device=device)
        times = torch.arange(self.T + 1, device=device).unsqueeze(-1)
        waves = (2 * math.pi * times / period + phase).sin()
        noise = self.noise * torch.randn(self.T, n, generator=generator, device=device)
        return Data((waves[:-1] + noise).unsqueeze(-1), waves[-self.answers :].T.contiguous())
