"""The adding problem of Hochreiter and Schmidhuber (1997), "Long short-term memory", section 5.4."""

from dataclasses import dataclass

import torch

from multistable.setting import documented
from multistable.tasks.base import Data
from multistable.tasks.generated import Numbers, at_least


@documented
@dataclass(frozen=True)
class Adding(Numbers):
    """The sum of two marked numbers of a stream, asked for at the end.

    The first channel is u_t ~ U(0, 1). The second is 1 at one time step of either half, and 0 elsewhere. In this form,
    of Le, Jaitly and Hinton (2015), the best answer without memory is 1, and its squared error 1/6.
    """

    input_size = 2
    answers = 1
    guessing = 1 / 6

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("T", self.T, 2, "a time step in either half")

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, 2)``, targets ``(n, 1)``."""
        device, half = generator.device, self.T // 2
        u = torch.rand(self.T, n, generator=generator, device=device)
        first = torch.randint(half, (1, n), generator=generator, device=device)
        second = torch.randint(half, self.T, (1, n), generator=generator, device=device)
        times = torch.cat([first, second])
        marks = torch.zeros_like(u).scatter_(0, times, 1.0)
        return Data(torch.stack([u, marks], -1), u.gather(0, times).sum(0).unsqueeze(-1))
