"""What a warmup aims for: as many attractors as possible, or a wanted VAA."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from multistable.arguments import positive_number, shown

AS_MANY_AS_POSSIBLE = 0.95
"""A target of the default warmup below this is a wanted VAA, which the network should reach and not exceed."""
USUAL_NOISE = 0.2
"""The noise that attractors should withstand where none is named."""


@dataclass(frozen=True)
class Goal:
    """The goal of each network; every tensor is ``(...)``: empty for a single network, R for an ensemble.

    Attributes:
        target: k. In Algorithm 3 the VAA* of each layer; in the default warmup the VAA of the network, which is to
            reach it or, where VAA is wanted, to equal it.
        wanted: which networks have a wanted VAA. The others should have as many attractors as possible.
        tolerance: how near VAA has to come to a wanted VAA.
        noise: its standard deviation, where states should come back to their attractors after noise.
    """

    target: Tensor
    wanted: Tensor
    tolerance: float
    noise: float | None = None

    @classmethod
    def of(
        cls,
        target: float | Sequence[float],
        algorithm: str,
        *,
        tolerance: float = 0.1,
        members: int | None = None,
        robust: Any = False,
    ) -> "Goal":
        """The goal that the arguments of ``warmup`` describe, or an error that names ``target`` or ``robust``."""
        targets = _targets(target, members)
        wanted = (targets < AS_MANY_AS_POSSIBLE) & (algorithm != "paper")
        noise = _noise(robust)
        if noise is not None and algorithm != "fast":
            raise ValueError(f"robust must be False with algorithm={algorithm!r}, got {shown(robust)}")
        if noise is not None and bool(wanted.any()):
            raise ValueError(
                f"target must be at least {AS_MANY_AS_POSSIBLE} with robust={shown(robust)}, which makes as many "
                f"attractors as it can, got {shown(target)}"
            )
        return cls(targets, wanted, tolerance, noise)

    def check(self, states: int) -> None:
        """Raise unless a batch of ``states`` states can have each wanted VAA."""
        too_low = self.target[self.wanted & (self.target < 1 / states)]
        if len(too_low):
            raise ValueError(
                f"target must be at least 1/{states} = {1 / states:.3g} where a VAA is wanted: {states} states have no "
                f"lower VAA, got {too_low.min():g}"
            )


def _noise(robust: Any) -> float | None:
    """The noise that attractors should withstand, ``None`` where nothing is asked of them."""
    if isinstance(robust, bool):
        return USUAL_NOISE if robust else None
    return positive_number("robust", robust)


def _targets(target: float | Sequence[float], members: int | None) -> Tensor:
    """The targets ``(...)``: one number for all, or one for each member of an ensemble."""
    try:
        values = torch.as_tensor(target, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"target must be a number in [0, 1], got {shown(target)}") from error
    if torch.as_tensor(target, device="cpu").dtype == torch.bool:
        raise ValueError(f"target must be a number in [0, 1], got {shown(target)}")
    leading = () if members is None else (members,)
    if values.shape not in {(), leading}:
        raise ValueError(
            f"target must be one number{f' or {members}, one for each member' if members else ''}, got {shown(target)}"
        )
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"target must lie in [0, 1], got {shown(target)}")
    return values.expand(leading)
