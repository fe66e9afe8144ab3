"""Initial weights: each function returns a new ``Parameter`` drawn from the given generator."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter, init

from multistable.arguments import shown


def glorot(
    rows: int, columns: int, *, gates: int, generator: torch.Generator | None = None, **factory: Any
) -> Parameter:
    """``(rows, gates * columns)``: each gate's matrix is drawn from U(-a, a), a = sqrt(6 / (rows + columns))."""
    bound = math.sqrt(6 / (rows + columns))
    return uniform(rows, gates * columns, bound=bound, generator=generator, **factory)


def orthogonal(size: int, *, gates: int, generator: torch.Generator | None = None, **factory: Any) -> Parameter:
    """``(size, gates * size)``: one random orthogonal matrix for each gate."""
    like = empty(0, **factory)
    # There is none in half precision: it is drawn in float32.
    drawn = torch.promote_types(like.dtype, torch.float32)
    blocks = [
        init.orthogonal_(torch.empty(size, size, dtype=drawn, device=like.device), generator=generator)
        for _ in range(gates)
    ]
    return Parameter(torch.cat(blocks, dim=-1).to(like.dtype))


def uniform(*shape: int, bound: float, generator: torch.Generator | None = None, **factory: Any) -> Parameter:
    """``shape``, drawn from U(-bound, bound)."""
    return Parameter(init.uniform_(empty(*shape, **factory), -bound, bound, generator=generator))


def constant(*shape: int, value: float, generator: torch.Generator | None = None, **factory: Any) -> Parameter:
    """``shape``, filled with ``value``; the generator is not used, it is accepted so that all calls look alike."""
    return Parameter(empty(*shape, **factory).fill_(value))


def chrono_bias(size: int, t_max: float, *, generator: torch.Generator | None = None, **factory: Any) -> Tensor:
    """``(size,)``: log U(1, t_max - 1), forget biases whose time scales spread up to ``t_max``."""
    return init.uniform_(empty(size, **factory), 1, t_max - 1, generator=generator).log()


def empty(*shape: int, device: Any = None, dtype: Any = None, **others: Any) -> Tensor:
    """``shape`` without values, or an error that names the argument that does not fit."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"dtype must be a floating-point type of torch, such as torch.float32, got {shown(dtype)}")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(f"device must be one that PyTorch has here, such as 'cpu', got {shown(device)}") from error
    return torch.empty(*shape, device=device, dtype=dtype, **others)
