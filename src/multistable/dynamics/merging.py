"""From a network that is multistable to one with a wanted VAA: its states are drawn together until it is reached."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from multistable.dynamics.vaa import distances, vaa

# Distances below this share of eps are small enough.
SMALL = 0.1
# The weight of drawing together, where that of keeping apart is at most 1.
TOGETHER = 5.0
# The excess from which on states are kept at rest too; nearer to the wanted VAA that would keep it from falling.
KEPT = 0.8


class Layer(NamedTuple):
    """The states of a layer in the middle and at the end of a stabilisation period, ``(..., n, d)``."""

    middle: Tensor
    end: Tensor


def merging_loss(end: Tensor, eps: float) -> Tensor:
    """How far states are from coinciding, ``(...)``: the mean of log(d / (SMALL eps)) over pairs, 0 where d is less.

    Distances are those of the states themselves, as in the VAA: saturated ones would hide that cells of an LSTM differ.

    Args:
        end: states at the end of the stabilisation period, ``(..., n, d)``.
        eps: the tolerance of the VAA.
    """
    least = SMALL * eps
    apart = distances(end).clamp(min=least).log() - math.log(least)
    return apart.mean(dim=(-2, -1))


def excess_of(layers: Sequence[Layer], wanted: Tensor, states: int, eps: float) -> Tensor:
    """By how much the VAA of each layer is above the ``wanted (...)`` one, 1 for a VAA of 1, ``(layers, ...)``.

    Args:
        layers: the states of each.
        wanted: the VAA.
        states: of how many states: VAA depends on it where there are fewer attractors than states.
        eps: the tolerance of the VAA.
    """
    shares = [vaa(layer.end.detach()[..., :states, :].nan_to_num(), eps) for layer in layers]
    return (torch.stack(shares).cpu() - wanted) / (1 - wanted)


def steered(layers: Sequence[Layer], apart: Tensor, excess: Tensor, merging: Tensor, eps: float) -> Tensor:
    """The loss of each layer, ``(layers, ...)``: ``apart`` but for networks that are ``merging (...)``.

    Theirs draws states together and, while VAA is far above the wanted one, keeps them at rest: states that come nearer
    for ever all coincide in the end. Under an input with a VAA below the wanted one they are kept apart.

    Args:
        layers: the states of each.
        apart: the loss that keeps states apart and at rest, ``(layers, ...)``.
        excess: see :func:`excess_of`.
        merging: which networks.
        eps: the tolerance of the VAA.
    """
    together = torch.stack([merging_loss(layer.end, eps) for layer in layers])
    excess = excess.to(apart)
    both = TOGETHER * together + ((excess - KEPT) / (1 - KEPT)).clamp(min=0) * apart
    return torch.where(merging.to(apart.device) & (excess > 0), both, apart)
