"""Adam for weights stacked over the members of an ensemble, each with its own learning rate."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Adam:
    """Kingma and Ba's Adam: elementwise, so that one step over stacked weights is a step of each member alone.

    ``torch.optim.Adam`` has one learning rate for a whole parameter. Everything is updated in place, without reading
    a number back, so that a step can be recorded (``multistable.scan.graphs``).

    Args:
        parameters: each ``(R, ...)``.
        rates: the learning rate of each member, ``(R,)``.
        steps: how many steps have been taken before.
    """

    betas = (0.9, 0.999)
    eps = 1e-8

    def __init__(self, parameters: Sequence[Tensor], rates: Tensor, steps: int = 0) -> None:
        self.parameters = list(parameters)
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]
        self._rates = [rates.to(p).reshape(-1, *[1] * (p.dim() - 1)) for p in self.parameters]
        # One for each device and type would do; a float64 count is exact for any number of steps.
        self._steps = torch.tensor(float(steps), dtype=torch.float64, device=self.parameters[0].device)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update the parameters by their ``gradients``."""
        first, second = self.betas
        self._steps += 1
        torch._foreach_lerp_(self.means, list(gradients), 1 - first)
        torch._foreach_mul_(self.squares, second)
        torch._foreach_addcmul_(self.squares, list(gradients), list(gradients), 1 - second)
        dtype: Any = self.parameters[0].dtype
        spread = torch._foreach_sqrt(self.squares)
        torch._foreach_mul_(spread, (1 - second**self._steps).rsqrt().to(dtype))
        torch._foreach_add_(spread, self.eps)
        torch._foreach_reciprocal_(spread)
        torch._foreach_mul_(spread, self.means)
        torch._foreach_mul_(spread, [rate * (1 / (1 - first**self._steps)).to(dtype) for rate in self._rates])
        torch._foreach_sub_(self.parameters, spread)
