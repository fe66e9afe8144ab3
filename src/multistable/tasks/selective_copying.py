"""Selective copying: Jing et al. (2019), "Gated orthogonal recurrent units", as Gu and Dao (2023), "Mamba", use it."""

from dataclasses import dataclass

import torch

from multistable.arguments import positive_integer
from multistable.setting import TASK, documented, setting
from multistable.tasks.base import Data
from multistable.tasks.generated import Classes, at_least, distinct_times, one_hot


@documented
@dataclass(frozen=True)
class SelectiveCopying(Classes):
    """A few symbols among blanks at random times, to be given back in order at the last time steps.

    Inputs are one-hot: the symbols, then a blank, then the cue that asks for an answer.
    """

    items: int = setting(4, "Symbols to remember.", positive_integer, TASK)
    symbols: int = setting(4, "Different symbols.", positive_integer, TASK)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("T", self.T, 2 * self.items, f"{self.items} symbols and as many answers")

    @property
    def input_size(self) -> int:  # type: ignore[override]
        return self.symbols + 2

    @property
    def output_size(self) -> int:  # type: ignore[override]
        return self.symbols

    @property
    def answers(self) -> int:
        return self.items

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, symbols + 2)``, targets ``(n, items)``."""
        blank, cue = self.symbols, self.symbols + 1
        times = distinct_times(self.items, self.T - self.items, n, generator)
        items = torch.randint(self.symbols, times.shape, generator=generator, device=generator.device)
        tokens = torch.full((self.T, n), blank, device=generator.device).scatter_(0, times, items)
        tokens[-self.items :] = cue
        return Data(one_hot(tokens, self.input_size), items.T.contiguous())
