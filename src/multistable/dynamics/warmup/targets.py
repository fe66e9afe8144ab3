"""What a warmup aims for: a VAA* for each layer, or a VAA of the network that was asked for."""

from collections.abc import Sequence

import torch
from torch import Tensor

from multistable.arguments import shown


def check_target(target: float | Sequence[float], members: int | None) -> Tensor:
    """The target as a tensor ``(...)``: one number, or one for each member of an ensemble."""
    try:
        values = torch.as_tensor(target, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"target must be a number in [0, 1], got {shown(target)}") from error
    if torch.as_tensor(target).dtype == torch.bool:
        raise ValueError(f"target must be a number in [0, 1], got {shown(target)}")
    leading = () if members is None else (members,)
    if values.shape not in {(), leading}:
        raise ValueError(
            f"target must be one number{f' or {members}, one for each member' if members else ''}, got {shown(target)}"
        )
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"target must lie in [0, 1], got {shown(target)}")
    return values.expand(leading)


def check_wanted(wanted: Tensor, states: int) -> None:
    """Each VAA of ``wanted (...)`` is one that so many states can have."""
    if bool((wanted < 1 / states).any()):
        raise ValueError(
            f"target must be at least 1/{states} = {1 / states:.3g} where a VAA is wanted, {states} states have none "
            f"below it, got {wanted.min():g}"
        )
