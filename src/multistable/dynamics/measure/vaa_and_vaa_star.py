"""Variability amongst attractors: the share of different states in a set, and its differentiable proxy."""

from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import positive_number


def vaa(states: Tensor, eps: float = 1e-4) -> Tensor:
    """Variability amongst attractors of settled states (eq. practical_vaa).

    The number of different states divided by n, where states no more than ``eps`` apart are the same.

    Args:
        states: ``(..., n, d)``, each set of n states taken by itself.
        eps: the tolerance.

    Returns:
        ``(...)`` in float64, each in [1/n, 1].
    """
    _check_states(states)
    eps = positive_number("eps", eps)
    # Distances are computed in float64, so that cancellation does not decide. The margin allows for the rounding of the
    # states themselves: those that would be eps apart without it are the same.
    margin = 1 + 4 * torch.finfo(_at_least_single(states.dtype)).eps
    same = distances(states.double()) <= eps * margin
    # Rounded, so that a whole number of attractors is whole.
    attractors = (1 / same.sum(dim=-1).double()).sum(dim=-1).round(decimals=12)
    return attractors / states.shape[-2]


def vaa_star(states: Tensor, eps: float = 1e-4) -> Tensor:
    """The differentiable proxy of :func:`vaa` (eq. vaa_star).

    Args:
        states: ``(..., n, d)``, each set of n states taken by itself.
        eps: the tolerance.

    Returns:
        ``(...)``, each in [1/n, 1].
    """
    _check_states(states)
    eps = positive_number("eps", eps)
    value = proxy(states, eps)
    # Rounding may leave the interval by an ulp; the gradient is that of the formula.
    return value + (value.clamp(1 / states.shape[-2], 1) - value).detach()


def proxy(states: Tensor, eps: float) -> Tensor:
    """:func:`vaa_star` without the checks: a NaN in the states comes out as NaN."""
    # 1 - max(0, d - eps) / d is eps / max(d, eps), which has no 0/0 for coincident states.
    saturated = states.to(_at_least_single(states.dtype)).tanh()
    c_star = eps / distances(saturated).clamp(min=eps)
    return (1 / c_star.sum(dim=-1)).mean(dim=-1)


def distances(states: Tensor) -> Tensor:
    """Euclidean distances ``(..., n, n)`` between the states of each set ``(..., n, d)``.

    They are computed from differences, not from the matrix product, which cancels for near-equal states. The gradient
    for coincident states is zero.
    """
    return torch.cdist(states, states, compute_mode="donot_use_mm_for_euclid_dist")


def _at_least_single(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _check_states(states: Any) -> None:
    """Raise unless ``states`` is a finite tensor ``(..., n, d)``."""
    if not isinstance(states, Tensor):
        hint = "; ms.measure takes a network and its sequences" if isinstance(states, nn.Module) else ""
        raise TypeError(f"states must be a tensor (..., n, d), got {type(states).__name__}{hint}")
    if states.layout is not torch.strided or states.is_meta:
        raise TypeError(f"states must be a tensor with all its values, got one in {states.layout} on {states.device}")
    if states.dim() < 2 or states.shape[-2] == 0:
        raise ValueError(f"states must be (..., n, d) with n >= 1, got shape {tuple(states.shape)}")
    if not states.is_floating_point():
        raise TypeError(f"states must be of a floating-point type, got {states.dtype}")
    if not torch.isfinite(states).all():
        raise ValueError("states must be finite, got NaN or infinity")
