"""Adam for weights stacked over the members of an ensemble, each with its own learning rate."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Adam:
    """Kingma and Ba's Adam: elementwise, so that one step over stacked weights is a step of each member alone.

    ``torch.optim.Adam`` has one learning rate for a whole parameter. Everything is updated in place, without reading
    a number back, so that a step can be recorded (``multistable.scan.graphs``).

    A member whose gradient is not finite, or so large that its square is not, takes a gradient of 0 in its place: a
    single NaN or infinity in the moments would stay there for ever.

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
        self._passed_over = torch.zeros(len(rates), dtype=torch.long, device=self.parameters[0].device)
        self._zero = self.parameters[0].new_zeros(())
        # One for each device and type would do; a float64 count is exact for any number of steps.
        self._steps = torch.tensor(float(steps), dtype=torch.float64, device=self.parameters[0].device)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update the parameters by their ``gradients``."""
        first, second = self.betas
        self._steps += 1
        usable = self._usable(gradients)
        torch._foreach_lerp_(self.means, usable, 1 - first)
        torch._foreach_mul_(self.squares, second)
        torch._foreach_addcmul_(self.squares, usable, usable, 1 - second)
        dtype: Any = self.parameters[0].dtype
        spread = torch._foreach_sqrt(self.squares)
        torch._foreach_mul_(spread, (1 - second**self._steps).rsqrt().to(dtype))
        torch._foreach_add_(spread, self.eps)
        torch._foreach_reciprocal_(spread)
        torch._foreach_mul_(spread, self.means)
        torch._foreach_mul_(spread, [rate * (1 / (1 - first**self._steps)).to(dtype) for rate in self._rates])
        torch._foreach_sub_(self.parameters, spread)

    def passed_over(self) -> list[int]:
        """How many gradients of each member were not usable since this was last asked."""
        counts: list[int] = self._passed_over.tolist()
        self._passed_over.zero_()
        return counts

    def _usable(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients, 0 for members that cannot use theirs, which are counted."""
        # The extreme entries, and not a sum of squares: no order of summation, so each member is judged as if alone.
        members = [g.reshape(len(self._passed_over), -1) for g in gradients]
        extremes = torch.stack([extreme for m in members for extreme in (m.amax(dim=1), m.amin(dim=1))])
        finite = extremes.square().isfinite().all(dim=0)
        if not finite.is_cuda and bool(finite.all()):
            return list(gradients)  # On the CPU a look costs less than the copies below.
        self._passed_over += ~finite
        # Not masked_fill, which changes the layout of what it is given, nor a number for 0, which is copied to a GPU.
        return [torch.where(finite.reshape(-1, *[1] * (g.dim() - 1)), g, self._zero) for g in gradients]


def warn_of_passed_over(names: Sequence[str], counts: Sequence[int]) -> None:
    """A warning for each member of which gradients were passed over since it was last looked at."""
    for name, count in zip(names, counts, strict=True):
        if count:
            warnings.warn(
                f"{name}: {count} gradient{'s' if count > 1 else ''} passed over, not finite or too large to be "
                "squared: 0 was taken in place of each. A smaller learning rate may help",
                RuntimeWarning,
                stacklevel=2,
            )
