"""Repeat previous: Morad et al. (2023), "POPGym"."""

from dataclasses import dataclass

import torch

from multistable.arguments import positive_integer
from multistable.setting import TASK, documented, setting
from multistable.tasks.base import Data
from multistable.tasks.generated import Classes, at_least, one_hot


@documented
@dataclass(frozen=True)
class RepeatPrevious(Classes):
    """A symbol at every time step, one-hot: which was it a few steps before? Asked for as soon as there is one."""

    lag: int = setting(5, "How many steps before.", positive_integer, TASK)
    symbols: int = setting(4, "Different symbols.", positive_integer, TASK)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("T", self.T, self.lag + 1, "an answer")

    @property
    def input_size(self) -> int:  # type: ignore[override]
        return self.symbols

    @property
    def output_size(self) -> int:  # type: ignore[override]
        return self.symbols

    @property
    def answers(self) -> int:
        return self.T - self.lag

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, symbols)``, targets ``(n, T - lag)``."""
        tokens = torch.randint(self.symbols, (self.T, n), generator=generator, device=generator.device)
        return Data(one_hot(tokens, self.symbols), tokens[: -self.lag].T.contiguous())
