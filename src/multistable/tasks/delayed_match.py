"""Delayed match to sample, of experiments on working memory: Miyashita and Chang (1988); Yang et al. (2019)."""

from dataclasses import dataclass

import torch

from multistable.arguments import positive_integer, positive_number
from multistable.setting import TASK, documented, setting, unchanged
from multistable.tasks.base import Data
from multistable.tasks.generated import Classes, at_least, one_hot


@documented
@dataclass(frozen=True)
class DelayedMatch(Classes):
    """A sample at the first time step, noise, and a test at the last: are the two the same (class 1) or not (0)?"""

    symbols: int = setting(4, "Different samples.", positive_integer, TASK)
    noise: float = setting(0.5, "Standard deviation of the noise.", unchanged(positive_number), TASK)

    output_size = 2
    answers = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("T", self.T, 2, "a sample and a test")
        at_least("symbols", self.symbols, 2, "tests that are not the sample")

    @property
    def input_size(self) -> int:  # type: ignore[override]
        return self.symbols

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, symbols)``, targets ``(n, 1)``."""
        device = generator.device
        inputs = self.noise * torch.randn(self.T, n, self.symbols, generator=generator, device=device)
        sample = torch.randint(self.symbols, (n,), generator=generator, device=device)
        away = torch.randint(1, self.symbols, (n,), generator=generator, device=device)
        same = torch.randint(2, (n,), generator=generator, device=device)
        inputs[0] = one_hot(sample, self.symbols)
        inputs[-1] = one_hot((sample + (1 - same) * away) % self.symbols, self.symbols)
        return Data(inputs, same.unsqueeze(-1))
