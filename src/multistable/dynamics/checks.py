"""Checks of arguments: each error names the argument, what was given and what is accepted."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import shown


def check_positive_number(name: str, value: Any) -> None:
    """The argument ``name`` is a positive number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} must be a positive number, got {shown(value)}")


def check_states(states: Any) -> None:
    """``states`` is a finite tensor ``(..., n, d)``."""
    if not isinstance(states, Tensor):
        hint = "; ms.measure takes a network and its sequences" if isinstance(states, nn.Module) else ""
        raise TypeError(f"states must be a tensor (..., n, d), got {type(states).__name__}{hint}")
    if states.dim() < 2 or states.shape[-2] == 0:
        raise ValueError(f"states must be (..., n, d) with n >= 1, got shape {tuple(states.shape)}")
    if not states.is_floating_point():
        raise TypeError(f"states must be of a floating-point type, got {states.dtype}")
    if not torch.isfinite(states).all():
        raise ValueError("states must be finite, got NaN or infinity")


def check_callable(name: str, value: Any, accepted: str) -> None:
    """The argument ``name`` can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be {accepted}, got {shown(value)}")


class AtMost(int):
    """A size that nobody asked for: where there are fewer sequences, all of them are as good."""


def check_batch_size(batch_size: int, available: int) -> None:
    """A batch can be drawn without replacement."""
    if batch_size > available and not isinstance(batch_size, AtMost):
        raise ValueError(f"batch_size must not exceed the number of sequences, {available}, got {batch_size}")


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
