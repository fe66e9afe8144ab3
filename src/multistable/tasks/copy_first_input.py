"""The copy first input benchmark (section 4.1)."""

from dataclasses import dataclass

import torch

from multistable.setting import documented
from multistable.tasks.base import Data
from multistable.tasks.generated import Numbers


@documented
@dataclass(frozen=True)
class CopyFirstInput(Numbers):
    """u_t ~ N(0, 1) for t = 1, ..., T; the target is y_T = u_1, the loss (o_T - y_T)^2.

    Without any memory the best answer is 0, and its loss 1.0.
    """

    input_size = 1
    answers = 1
    guessing = 1.0
    paper_sizes = {"num_layers": 1, "hidden_size": 128}  # noqa: RUF012 (a constant)

    @property
    def paper_stretch(self) -> int:
        return {50: 30, 300: 200, 600: 400}.get(self.T, super().paper_stretch)

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, 1)``, targets ``(n, 1)``."""
        u = torch.randn(self.T, n, 1, generator=generator, device=generator.device, dtype=torch.float32)
        return Data(inputs=u, targets=u[0].clone())
