"""From a network that is multistable to one with a wanted VAA: its states are drawn together until it is reached."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from multistable.dynamics.vaa import distances, vaa

# Distances below this share of eps are small enough.
SMALL = 0.1
# The multiple of the learning rate where VAA is this far above the wanted one; in proportion below, down to a share.
LARGEST_RATE, FAR, LEAST = 10.0, 0.5, 0.1


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


def steered(layers: Sequence[Layer], apart: Tensor, merging: Tensor, eps: float) -> Tensor:
    """The loss of each layer, ``(layers, ...)``: ``apart`` but for networks that are ``merging (...)``."""
    together = torch.stack([merging_loss(layer.end, eps) for layer in layers])
    return torch.where(merging.to(apart.device), together, apart)


def merging_rate(layers: Sequence[Layer], wanted: Tensor, states: int, eps: float) -> Tensor:
    """What the learning rate is multiplied with, ``(...)``: less for a VAA that is nearly the ``wanted (...)`` one.

    Args:
        layers: the states of each.
        wanted: the VAA.
        states: of how many states: VAA depends on it where there are fewer attractors than states.
        eps: the tolerance of the VAA.
    """
    shares = [vaa(layer.end.detach()[..., :states, :].nan_to_num(), eps) for layer in layers]
    excess = torch.stack(shares).mean(dim=0).cpu() - wanted
    return LARGEST_RATE * (excess / FAR).clamp(LEAST, 1)
