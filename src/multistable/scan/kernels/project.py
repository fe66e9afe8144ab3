"""The product with the input, written where the recurrence will put what it saves, and its gradients."""

import math
from functools import cache
from typing import Any, Literal

import torch
import triton
from torch import Tensor

from multistable.scan.kernels.few_inputs import gradients_of_few, project_few
from multistable.scan.kernels.launch import Launch
from multistable.scan.kernels.thrice import REST, project_thrice

FEW_INPUTS = 4
MANY_NUMBERS = 2**15
"""A product of at most so few inputs and at least so many numbers a step has its own kernel, see ``few_inputs.py``."""

LARGEST = 2.0**15
"""Larger inputs are scaled down for products of halves, which end at 65,504."""

STEPS_OF_A_SUM = 8
"""How many steps a program of that kernel's backward pass sums: with fewer, there are more programs and more sums."""

Way = Literal["few", "thrice", "matrix"]


def way_of(u: Tensor, weight: Tensor, *, halves: bool) -> Way:
    """How to compute the product.

    ``"few"`` is a kernel for few inputs, ``"thrice"`` three products of ``halves`` where these are precise enough, and
    ``"matrix"`` a matrix product. A bias costs nothing in the first two, and a pass over memory in the last. The choice
    does not depend on the number of steps, so that a step is the same however many are computed at once.
    """
    if u.shape[-1] <= FEW_INPUTS and u.shape[1:-1].numel() * weight.shape[-1] >= MANY_NUMBERS:
        return "few"
    return "thrice" if halves and u.shape[-1] >= 16 else "matrix"


def project(u: Tensor, weight: Tensor, bias: Tensor | None, width: int, first: int, way: Way) -> tuple[Tensor, Tensor]:
    """W_u u_t + b of all steps, for the recurrence to overwrite.

    Network first in memory, with room for ``width`` numbers a row where the recurrence needs more than the ``gates``
    of the input: what a step reads, what it keeps for the backward pass, and the gradient that the backward pass
    leaves there, all lie in one place.

    Args:
        u: ``(time, members, rows, in)``.
        weight: ``(members, in, out)``.
        bias: ``(members, out)``.
        width: numbers a row; those of the product, if ``way`` is ``"thrice"``.
        first: the place of the product's first number in it.
        way: of :func:`way_of`.

    Returns:
        The product, ``(time, members, rows, out)``, and the room that it is a view of, ``(members, time, rows,
        width)``.
    """
    (time, members, rows, _), out = u.shape, weight.shape[-1]
    room, apart = u.new_empty(members, time, rows, width), time * rows * width
    product = room.as_strided((members, time * rows, out), (apart, width, 1), first)
    if way == "few":
        _project_few(u, weight, bias, product)
    elif way == "thrice":
        _project_thrice(network_first(u), weight, bias, product)
    elif bias is None:
        torch.bmm(network_first(u), weight, out=product)
    else:
        torch.baddbmm(bias.unsqueeze(1), network_first(u), weight, out=product)
    return room.as_strided((time, members, rows, out), (rows * width, apart, width, 1), first), room


def _project_few(u: Tensor, weight: Tensor, bias: Tensor | None, product: Tensor) -> None:
    time, members, rows, inputs = u.shape
    tile = min(32, triton.next_power_of_2(rows))
    grid = (time * triton.cdiv(rows, tile), triton.cdiv(weight.shape[-1], 128), members)
    launch = _launch(project_few, IN=inputs, BIAS=bias is not None, ROWS=tile, COLUMNS=128)
    sizes = (rows, weight.shape[-1], product.stride(1), *u.stride())
    launch(grid, u, weight.contiguous(), weight if bias is None else bias.contiguous(), product, *sizes)


@cache
def _launch(kernel: Any, **constants: Any) -> Launch:
    return Launch(kernel, **constants)


def _project_thrice(rows: Tensor, weight: Tensor, bias: Tensor | None, room: Tensor) -> None:
    """``rows`` are ``(members, time * rows, in)``; ``room`` has no place for more than the product."""
    rows = rows if rows.stride(-1) == 1 else rows.contiguous()
    # By powers of two, and only what is too large: other inputs stay as they are, to the bit.
    largest = torch.linalg.vector_norm(rows, math.inf, dim=(1, 2))
    scale = torch.where(largest > LARGEST, torch.exp2(torch.floor(torch.log2(LARGEST / largest))), 1.0)
    high = weight.half()
    low = ((weight - high) * REST.value).half()
    grid = (triton.cdiv(rows.shape[1], 64), triton.cdiv(weight.shape[-1], 128), len(rows))
    launch = _launch(
        project_thrice, IN=rows.shape[-1], W=weight.shape[-1], BIAS=bias is not None, ROWS=64, COLUMNS=128, DEPTH=32,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    bias = weight if bias is None else bias.contiguous()
    launch(grid, rows, scale, high.contiguous(), low.contiguous(), bias, room, rows.shape[1], *rows.stride()[:2])


def gradients_of_weight(u: Tensor, grads: Tensor, way: Way, *, bias: bool) -> tuple[Tensor, Tensor | None]:
    """The gradient of the weight, ``(members, in, out)``, and with ``bias`` that of the bias, ``(members, out)``.

    Args:
        u: ``(time, members, rows, in)``.
        grads: the product's gradient, ``(members, time * rows, out)``, part of memory of wider rows.
        way: of :func:`way_of`.
    """
    if way != "few":
        return torch.bmm(network_first(u).mT, grads), gradient_of_bias(grads).squeeze(1) if bias else None
    (time, members, rows, _), out = u.shape, grads.shape[-1]
    grid = (triton.cdiv(time, STEPS_OF_A_SUM), triton.cdiv(out, 128), members)
    sums = grads.new_empty(members, grid[0], u.shape[-1] + 1, out)
    tile = min(16, triton.next_power_of_2(rows))
    launch = _launch(gradients_of_few, IN=u.shape[-1], STEPS=STEPS_OF_A_SUM, ROWS=tile, COLUMNS=128)
    launch(grid, u, grads, sums, time, rows, out, grads.stride(1), *u.stride())
    total = sums.sum(1)
    return total[:, :-1], total[:, -1] if bias else None


def gradient_of_input(grad: Tensor, weight: Tensor, time: int) -> Tensor:
    """``(time, members, rows, in)``, from the product's gradient ``(members, time * rows, out)``."""
    return torch.bmm(grad, weight.mT).view(len(grad), time, -1, weight.shape[1]).transpose(0, 1)


def gradient_of_bias(grad: Tensor) -> Tensor:
    """``(members, 1, out)``, from the product's gradient ``(members, time * rows, out)``."""
    # A product with ones, since a sum over so many rows takes as much memory again for its partial results.
    members, rows, _ = grad.shape
    ones = grad.new_ones(1, 1, rows)
    return torch.bmm(ones if members == 1 else ones.expand(members, 1, rows), grad)


def network_first(x: Tensor) -> Tensor:
    """``(time, members, rows, any)`` as ``(members, time * rows, any)``, a view where the layout allows."""
    time, members, rows, width = x.shape
    return x.reshape(1, time * rows, width) if members == 1 else x.transpose(0, 1).flatten(1, 2)
