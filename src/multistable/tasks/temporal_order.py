"""Temporal order: Hochreiter and Schmidhuber (1997), "Long short-term memory", experiment 6a."""

from dataclasses import dataclass

import torch

from multistable.setting import documented
from multistable.tasks.base import Data
from multistable.tasks.generated import Classes, at_least, one_hot

OTHERS = 4
"""Symbols that say nothing; X and Y come after them."""


@documented
@dataclass(frozen=True)
class TemporalOrder(Classes):
    """Which of X and Y came first, and which second? Four classes: XX, XY, YX and YY, asked for at the end.

    Inputs are one-hot. The first of the two comes in the second tenth of the sequence, the second in the fifth; at all
    other times there is one of four symbols that say nothing.
    """

    input_size = OTHERS + 2
    output_size = 4
    answers = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("T", self.T, 10, "a time step in each tenth")

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, 6)``, targets ``(n, 1)``."""
        device = generator.device
        tokens = torch.randint(OTHERS, (self.T, n), generator=generator, device=device)
        spans = [(self.T * tenth // 10, self.T * (tenth + 1) // 10) for tenth in (1, 4)]
        times = torch.cat([torch.randint(*span, (1, n), generator=generator, device=device) for span in spans])
        told = torch.randint(2, (2, n), generator=generator, device=device)
        tokens.scatter_(0, times, OTHERS + told)
        return Data(one_hot(tokens, self.input_size), (2 * told[0] + told[1]).unsqueeze(-1))
