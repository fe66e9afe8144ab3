"""The copy first input benchmark (section 4.1)."""

from dataclasses import dataclass

import torch

from multistable.arguments import positive_integer
from multistable.tasks.base import Data
from multistable.tasks.generated import GeneratedTask


@dataclass(frozen=True)
class CopyFirstInput(GeneratedTask):
    """u_t ~ N(0, 1) for t = 1, ..., T; the target is y_T = u_1, the loss (o_T - y_T)^2.

    Without any memory the best answer is 0, and its loss 1.0.

    Args:
        T: the number of time steps.
    """

    T: int

    input_size = 1
    answers = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "T", positive_integer("T", self.T))

    @property
    def length(self) -> int:
        return self.T

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, 1)``, targets ``(n, 1)``."""
        u = torch.randn(self.T, n, 1, generator=generator, device=generator.device, dtype=torch.float32)
        return Data(inputs=u, targets=u[0].clone())
