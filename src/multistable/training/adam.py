"""Adam for weights stacked over the members of an ensemble, each with its own learning rate."""

import importlib.util
import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from multistable.training.fused_adam import FusedStep


class Adam:
    """Kingma and Ba's Adam: elementwise, so that one step over stacked weights is a step of each member alone.

    ``torch.optim.Adam`` has one learning rate for a whole parameter. This one updates everything in place and reads no
    number back, so that a step can be recorded (``multistable.scan.graphs``).

    Where a member's gradient is not finite, or its square is not, the member takes a gradient of 0 instead: a NaN or
    an infinity in the moments would stay there for ever.

    Args:
        parameters: each ``(R, ...)``.
        rates: the learning rate of each member, ``(R,)``.
        steps: how many steps were taken before.
        max_norms: the largest norm of each member's gradient, ``(R,)``, infinite for no limit; a longer gradient is
            :func:`shortened`. ``None`` for no limits at all.
        fused: compute a step by two kernels that read everything once, not by PyTorch's operations one after the
            other. ``None`` chooses the kernels where they can run (:func:`fits_kernels`).
    """

    betas = (0.9, 0.999)
    eps = 1e-8

    def __init__(
        self,
        parameters: Sequence[Tensor],
        rates: Tensor,
        steps: int = 0,
        max_norms: Tensor | None = None,
        *,
        fused: bool | None = None,
    ) -> None:
        self.parameters = list(parameters)
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]
        self._rates = [_for_each(rates.to(p), p) for p in self.parameters]
        self._max_norms = None if max_norms is None else max_norms.to(self.parameters[0])
        self._passed_over = torch.zeros(len(rates), dtype=torch.long, device=self.parameters[0].device)
        self._zero = self.parameters[0].new_zeros(())
        # A count in float64 is exact for any number of steps.
        self._steps = torch.tensor(float(steps), dtype=torch.float64, device=self.parameters[0].device)
        self._fused: FusedStep | None = None
        if fits_kernels(self.parameters) if fused is None else fused:
            self._fused = FusedStep(self.parameters, rates.to(self.parameters[0]), self._steps, self._passed_over)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update the parameters by their ``gradients``."""
        if self._max_norms is not None:
            gradients = shortened(gradients, self._max_norms)
        if self._fused is None:
            self._step(gradients)
        else:
            self._fused(self.parameters, self.means, self.squares, gradients, self.betas, self.eps)

    def passed_over(self) -> list[int]:
        """How many gradients of each member were not usable since the last call."""
        counts: list[int] = self._passed_over.tolist()
        self._passed_over.zero_()
        return counts

    def _step(self, gradients: Sequence[Tensor]) -> None:
        """The step by PyTorch's operations; the kernels are compared with it."""
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

    def _usable(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients, with 0 for members that cannot use theirs; these are counted."""
        # Extreme entries, not a sum of squares: a sum depends on its order, and so on the other members.
        members = [g.reshape(len(self._passed_over), -1) for g in gradients]
        extremes = torch.stack([extreme for m in members for extreme in (m.amax(dim=1), m.amin(dim=1))])
        finite = extremes.square().isfinite().all(dim=0)
        if not finite.is_cuda and bool(finite.all()):
            return list(gradients)  # On the CPU reading the answer costs less than the copies below.
        self._passed_over += ~finite
        # masked_fill would change the layout of the gradients, and a Python number for 0 would be copied to the GPU.
        return [torch.where(_for_each(finite, g), g, self._zero) for g in gradients]


def fits_kernels(parameters: Sequence[Tensor]) -> bool:
    """Whether kernels can update parameters: contiguous ones in float32 on one GPU, where Triton is installed."""
    device = parameters[0].device
    alike = all(p.device == device and p.dtype == torch.float32 and p.is_contiguous() for p in parameters)
    return device.type == "cuda" and alike and importlib.util.find_spec("triton") is not None


def shortened(gradients: Sequence[Tensor], max_norms: Tensor) -> list[Tensor]:
    """Gradients of R members, each ``(R, ...)``, shortened to norms of ``max_norms (R,)`` (Pascanu et al., 2013).

    The norm of a member is that of all its gradients together. A gradient that is not longer, or not finite, stays as
    it is, to the last bit. Nothing is read back.
    """
    members = [g.reshape(len(max_norms), -1) for g in gradients]
    largest = torch.stack([torch.linalg.vector_norm(m, math.inf, dim=1) for m in members]).amax(dim=0)
    # Gradients are divided by their largest entry because squares may be out of range. Where that is 0 or not finite,
    # the norm is NaN, no comparison with it is true, and the gradient stays.
    units = [g / _for_each(largest, g) for g in gradients]
    parts = [torch.linalg.vector_norm(u.reshape(len(max_norms), -1), dim=1) for u in units]
    norms = torch.linalg.vector_norm(torch.stack(parts), dim=0)
    longer, share = norms > max_norms / largest, max_norms / norms
    pairs = zip(gradients, units, strict=True)
    return [torch.where(_for_each(longer, g), u * _for_each(share, g), g) for g, u in pairs]


def _for_each(values: Tensor, like: Tensor) -> Tensor:
    """``values (R,)`` in a shape that multiplies each member of ``like (R, ...)`` by its own."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


def warn_of_passed_over(
    names: Sequence[str], counts: Sequence[int], advice: str = "A smaller learning rate may help"
) -> None:
    """Warn, with some ``advice``, of each member that passed gradients over; ``counts`` says how many."""
    for name, count in zip(names, counts, strict=True):
        if count:
            warnings.warn(
                f"{name}: {count} gradient{'s' if count > 1 else ''} passed over, not finite or too large to be "
                f"squared: 0 was taken in place of each. {advice}",
                RuntimeWarning,
                stacklevel=2,
            )
