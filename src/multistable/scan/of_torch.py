"""The recurrences that ``torch.nn`` has too, by PyTorch's own kernels: cuDNN on a GPU, oneDNN on the CPU.

These return the output after each step and the last state alone, and have no leading dimensions. ``choice.read`` takes
them where they are the fastest way.
"""

from typing import Any

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan import cpu, cudnn, fused
from multistable.scan.program import weights_of

FASTEST_ON_THE_CPU = ("LSTM",)
"""Whose kernels on the CPU take less time than the loop made from the step, by ``benchmarks/calls.py``."""

MOST_UNITS, MOST_NUMBERS = 512, 2**19
"""Where cuDNN takes less time than the kernels made from the step: in layers of more units, and, where each row of a
product takes as long, in float32 with so many numbers in the gates of a step."""


def supported(cell: Cell[Any], u: Tensor) -> str | None:
    """Why PyTorch's kernels cannot advance ``cell`` over inputs ``(time, ..., n, input_size)``; None if they can."""
    kind: Any = type(cell)
    owner: Any = next(base for base in kind.__mro__ if "torch_kind" in vars(base))
    if cell.torch_kind is None:
        return f"torch.nn has no {kind.__name__}"
    for name in ("step", "project", "input_bias"):
        if name in vars(cell) or getattr(kind, name) is not getattr(owner, name):
            return f"{kind.__name__} has a {name} of its own"
    if u.dim() != 3 or cell.input_weight.dim() != 2:
        return "torch.nn has no leading dimensions"
    weights = weights_of(cell)
    tensors = (u, *weights.values())
    if any(tensor.dtype != torch.float32 or tensor.device != u.device for tensor in tensors) or u.numel() == 0:
        return f"its tensors must be in float32 on {u.device}, and not empty"
    if u.is_cuda:
        there = torch.backends.cudnn.enabled and torch.backends.cudnn.is_available()
        return None if there and fused.has_triton() else "cuDNN, or Triton, which lays out its weights, is not there"
    return cpu.unfit(u, weights) if torch.backends.mkldnn.is_available() else "oneDNN is not there"


def is_fastest(cell: Cell[Any], u: Tensor, precision: str) -> bool:
    """Whether they take less time than the loop made from the cell's step, by ``benchmarks/calls.py``."""
    if not u.is_cuda:
        return cell.torch_kind in FASTEST_ON_THE_CPU
    of_a_step = len(cell.torch_gates) * cell.hidden_size * u.shape[1]
    return cell.hidden_size > MOST_UNITS or (precision == "ieee" and of_a_step >= MOST_NUMBERS)


def read(cell: Cell[Any], u: Tensor, state: Any, *, precision: str) -> tuple[Tensor, Any]:
    """The output after each step ``(time, n, hidden_size)``, and the state after the last.

    Args:
        u: inputs, ``(time, n, input_size)``.
        state: the state before the first step, each field ``(n, hidden_size)``; zero if not given.
        precision: the least precision of products on a GPU.
    """
    if state is None:
        state = (u.new_zeros(u.shape[1], cell.hidden_size),) * len(cell.State._fields)
    output, *end = cudnn.read(cell, u, state, precision) if u.is_cuda else _on_the_cpu(cell, u, state)
    return output, cell.State(*end)


def _on_the_cpu(cell: Any, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    second = torch.zeros_like(cell.bias) if cell.recurrent_bias is None else cell.recurrent_bias
    weights = Turned.apply(cell.torch_gates, cell.input_weight, cell.recurrent_weight, cell.bias, second)
    run = getattr(torch._VF, cell.torch_kind.lower())
    before = tuple(field.unsqueeze(0) for field in state)
    train = torch.is_grad_enabled()
    output, *end = run(u, before if len(before) > 1 else before[0], weights, True, 1, 0.0, train, False, False)
    return output, *(field.squeeze(0) for field in end)


class Turned(torch.autograd.Function):
    """Weights ``(rows, gates * hidden)`` or ``(gates * hidden,)`` with gates first, in the other order."""

    @staticmethod
    def forward(ctx: Any, order: tuple[int, ...], *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.order = order
        ctx.set_materialize_grads(False)
        # The whole is turned at once, as PyTorch turns it fastest; gates are then rows that follow one another.
        return tuple(_reordered(w.mT.contiguous() if w.dim() > 1 else w, order) for w in weights)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        found = (None if grad is None else _reordered(grad, ctx.order) for grad in grads)
        return None, *(grad.mT if grad is not None and grad.dim() > 1 else grad for grad in found)


def _reordered(rows: Tensor, order: tuple[int, ...]) -> Tensor:
    gates = rows.chunk(len(order))
    return torch.cat([gates[index] for index in order])
