"""The product with the input, written where the recurrence will keep its slots."""

from typing import Any

import torch
from torch import Tensor


class Project(torch.autograd.Function):
    """W_u u_t + b of all steps, for the recurrence to overwrite.

    Network first in memory, with room for ``slots`` blocks a row where the recurrence needs more than the ``gates``
    of the input: what a step reads, what it keeps for the backward pass, and the gradient that the backward pass
    leaves there, all lie in one place. Nothing here needs the result again.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, weight: Tensor, bias: Tensor, width: int) -> Tensor:
        """``u (time, networks, rows, in)``, ``weight (networks, in, out)``, ``bias (networks, out)``.

        Returns ``(time, networks, rows, out)``, a view of ``(networks, time, rows, width)``.
        """
        time, networks, rows, _ = u.shape
        room = u.new_empty(networks, time * rows, width)
        projected = room[..., : weight.shape[-1]]
        torch.baddbmm(bias.unsqueeze(1), _network_first(u), weight, out=projected)
        ctx.save_for_backward(u, weight)
        return projected.unflatten(1, (time, rows)).transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """One product each; none copies the gradient."""
        if torch.is_grad_enabled():
            raise RuntimeError("the fused time loop has no second derivatives: use the reference time loop for them")
        u, weight = ctx.saved_tensors
        grad = _network_first(grads[0])
        needs_u, needs_weight, needs_bias, _ = ctx.needs_input_grad
        of_u = (grad @ weight.mT).unflatten(1, (len(u), -1)).transpose(0, 1) if needs_u else None
        of_weight = _network_first(u).mT @ grad if needs_weight else None
        # A product with ones, since a sum over so many rows takes as much memory again for its partial results.
        ones = grad.new_ones(1, 1, grad.shape[1]).expand(len(grad), -1, -1)
        of_bias = (ones @ grad).squeeze(1) if needs_bias else None
        return of_u, of_weight, of_bias, None


def _network_first(x: Tensor) -> Tensor:
    """``(time, networks, rows, any)`` as ``(networks, time * rows, any)``, a view where the layout allows."""
    return x.transpose(0, 1).flatten(1, 2)
