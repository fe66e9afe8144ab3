"""What a time loop makes of ``torch.autocast`` and ``torch.compile`` around it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from multistable.cells.base import Cell

P = ParamSpec("P")
R = TypeVar("R")
Loop = TypeVar("Loop", bound=Callable[..., Any])


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which ``torch.compile`` calls as it is: loops are compiled already, or cannot be traced."""
    disabled: Callable[P, R] | None = None

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_dynamo_compiling():
            return function(*args, **kwargs)
        nonlocal disabled
        if disabled is None:  # made here, since it imports the compiler, which takes a second
            disabled = torch.compiler.disable(function)
        return disabled(*args, **kwargs)

    return run


def without_autocast(device: str) -> AbstractContextManager[Any]:
    """Off inside; a backward pass needs it too, which may be asked for inside ``torch.autocast``."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def in_own_precision(loop: Loop) -> Loop:
    """A time loop ``(cell, u, state=None, ...)`` that computes under ``torch.autocast`` too in the type of the weights.

    As autocast does, it takes inputs and states of any type but float64. What it returns is not cast.
    """

    @wraps(loop)
    def run(cell: Cell[Any], u: Tensor, state: Any = None, **options: Any) -> Any:
        device = u.device.type
        if not torch.is_autocast_enabled(device):
            return loop(cell, u, state, **options)
        dtype = next((weight.dtype for weight in cell.parameters()), u.dtype)

        def taken(tensor: Tensor) -> Tensor:
            return tensor if torch.float64 in (tensor.dtype, dtype) else tensor.to(dtype)

        with without_autocast(device):
            return loop(cell, taken(u), None if state is None else cell.State(*map(taken, state)), **options)

    return cast(Loop, run)
