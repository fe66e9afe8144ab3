"""What settled states remember: how much of what came before, and whether displaced ones come back."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from multistable.dynamics.measure.algorithm_1_measure import (
    measured_system,
)
from multistable.dynamics.measure.labels import Portrait, places_of
from multistable.dynamics.measure.stabilisation import stabilise
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.reading import numbers_of


def bits_about(labels: Tensor, targets: Any) -> float:
    """The mutual information of labels and targets in bits, corrected for its bias in few samples (Miller and Madow).

    Args:
        labels: ``(n,)``, whole numbers.
        targets: ``(n,)`` or ``(n, m)``: what each label may tell, each different row a value of its own.
    """
    values = numbers_of("targets", targets, f"({len(labels)},) or ({len(labels)}, m)").cpu()
    if values.dim() not in (1, 2) or len(values) != len(labels):
        raise ValueError(f"targets must be ({len(labels)},) or ({len(labels)}, m), got shape {tuple(values.shape)}")
    _, target = torch.unique(values, dim=0, return_inverse=True)
    both = torch.stack([labels.cpu(), target], dim=-1)
    (joint, many), (of_labels, some), (of_targets, few) = map(_entropy, (both, labels.cpu(), target))
    found = of_labels + of_targets - joint + (some + few - many - 1) / (2 * len(labels))
    return max(0.0, found / math.log(2))


def _entropy(values: Tensor) -> tuple[float, int]:
    """The entropy in nats of the values as they are found, and how many different ones there are."""
    _, counts = torch.unique(values, dim=0, return_counts=True)
    shares = counts.double() / len(values)
    return float(-(shares * shares.log()).sum()), len(counts)


def shares_returning(
    network: nn.Module,
    ends: Tensor,
    under: Tensor,
    portraits: Sequence[Portrait],
    noise: Sequence[float],
    settling: tuple[int, float],
    draws: Draws,
) -> list[float]:
    """The share of states at attractors that come back to them from a displacement in a random direction.

    Args:
        network: a single one.
        ends: settled states, ``(n, d)``.
        under: ``(n,)``, the number of the input of each.
        portraits: the attractors under each input.
        noise: the lengths of the displacements.
        settling: the steps after which a state must be back, and how near.
        draws: where directions are drawn from.
    """
    stabilisation, eps = settling
    with measured_system(network, portraits[0].u.shape[-1]) as system:
        u = torch.stack([found.u for found in portraits])[under].to(system.device, system.dtype)
        way = draws.normal(*ends.shape)
        way = way / torch.linalg.vector_norm(way, dim=-1, keepdim=True)
        begin = torch.cat([ends.double() + size * way for size in noise])
        after = stabilise(system, system.split(begin), u.repeat(len(noise), 1), stabilisation).states.cpu()
    back = torch.zeros(len(noise), len(ends), dtype=torch.bool, device="cpu")
    own = torch.full((len(ends),), -1, device="cpu")
    for index, found in enumerate(portraits):
        here = under == index
        own[here] = found.labels
        ids = torch.tensor([*found.ids, -1], device="cpu")
        for row, states in zip(back, after.unflatten(0, (len(noise), -1)), strict=True):
            row[here] = ids[places_of(states[here], found, eps)] == found.labels
    return (back & (own >= 0)).double().sum(dim=-1).div(max(1, int((own >= 0).sum()))).tolist()
