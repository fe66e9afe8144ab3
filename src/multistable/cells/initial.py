"""Initial weights: each function returns a new ``Parameter`` drawn from the given generator."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter, init


def glorot(
    rows: int, columns: int, *, gates: int, generator: torch.Generator | None = None, **factory: Any
) -> Parameter:
    """``(rows, gates * columns)``: each gate's matrix is drawn from U(-a, a), a = sqrt(6 / (rows + columns))."""
    bound = math.sqrt(6 / (rows + columns))
    return uniform(rows, gates * columns, bound=bound, generator=generator, **factory)


def orthogonal(size: int, *, gates: int, generator: torch.Generator | None = None, **factory: Any) -> Parameter:
    """``(size, gates * size)``: one random orthogonal matrix for each gate."""
    blocks = [init.orthogonal_(torch.empty(size, size, **factory), generator=generator) for _ in range(gates)]
    return Parameter(torch.cat(blocks, dim=-1))


def uniform(*shape: int, bound: float, generator: torch.Generator | None = None, **factory: Any) -> Parameter:
    """``shape``, drawn from U(-bound, bound)."""
    return Parameter(init.uniform_(torch.empty(*shape, **factory), -bound, bound, generator=generator))


def constant(*shape: int, value: float, generator: torch.Generator | None = None, **factory: Any) -> Parameter:
    """``shape``, filled with ``value``; the generator is not used, it is accepted so that all calls look alike."""
    return Parameter(torch.full(shape, value, **factory))


def chrono_bias(size: int, t_max: float, *, generator: torch.Generator | None = None, **factory: Any) -> Tensor:
    """``(size,)``: log U(1, t_max - 1), forget biases whose time scales spread up to ``t_max``."""
    return init.uniform_(torch.empty(size, **factory), 1, t_max - 1, generator=generator).log()
