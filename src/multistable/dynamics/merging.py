"""From a network that is multistable to one with a wanted VAA: its states are drawn together until it is reached."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from multistable.dynamics.vaa import distances, vaa

# Distances below this share of eps are small enough.
SMALL = 0.1


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


def excess_of(layers: Sequence[Layer], aim: Tensor, states: int, eps: float) -> Tensor:
    """By how much the VAA of each layer is above ``aim (...)``, ``(layers, ...)``.

    Args:
        layers: the states of each.
        aim: the VAA that they should have.
        states: of how many states: VAA depends on it where there are fewer attractors than states.
        eps: the tolerance of the VAA.
    """
    shares = [vaa(layer.end.detach()[..., :states, :].nan_to_num(), eps) for layer in layers]
    return torch.stack(shares).cpu() - aim


def steered(layers: Sequence[Layer], apart: Tensor, excess: Tensor, merging: Tensor, eps: float) -> Tensor:
    """The loss of each layer, ``(layers, ...)``: for networks that are ``merging (...)`` towards the wanted VAA.

    Args:
        layers: the states of each.
        apart: the loss that keeps states apart, ``(layers, ...)``: for all other networks, and where ``excess < 0``.
        excess: see :func:`excess_of`.
        merging: which networks.
        eps: the tolerance of the VAA.
    """
    together = torch.stack([merging_loss(layer.end, eps) for layer in layers])
    return torch.where((merging & (excess > 0)).to(apart.device), together, apart)
