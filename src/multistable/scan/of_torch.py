"""The recurrences that ``torch.nn`` has too, by PyTorch's own kernels: cuDNN on a GPU, oneDNN on the CPU.

These return the output after each step and the last state alone, and have no leading dimensions. ``choice.read`` takes
them where they are the fastest way.
"""

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan import cudnn, onednn
from multistable.scan.program import RefusedError, weights_of

WEIGHTS = ("input_weight", "recurrent_weight", "bias", "recurrent_bias")

LIBRARIES: dict[str, Any] = {"cpu": onednn, "cuda": cudnn}
"""For each type of device the module that calls PyTorch's kernels there."""


class Form(NamedTuple):
    """A recurrence of ``torch.nn``.

    Attributes:
        kind: its name there.
        gates: where each gate is there.
        second: whether it has a second bias.
        precision: the least precision of products on a GPU.
    """

    kind: str
    gates: tuple[int, ...]
    second: bool
    precision: str


def prepared(cell: Cell[Any], u: Tensor) -> list[Any]:
    """The weights that PyTorch's kernels take to advance ``cell`` over inputs; ``RefusedError`` where they cannot."""
    if cell.torch_kind is None:
        raise RefusedError(f"torch.nn has no {type(cell).__name__}")
    kind, owner = type(cell), _owner(type(cell))
    for name in ("step", "project", "input_bias"):
        if name in cell.__dict__ or getattr(kind, name) is not getattr(owner, name):
            raise RefusedError(f"{kind.__name__} has a {name} of its own")
    known = weights_of(cell)
    weights = [known[name] if name in known else getattr(cell, name) for name in WEIGHTS]
    if u.dim() != 3 or weights[0].dim() != 2:
        raise RefusedError("torch.nn has no leading dimensions")
    device, hidden = u.device, cell.hidden_size
    columns = len(cell.torch_gates) * hidden
    for tensor in (u, *weights):
        if tensor is not None and (tensor.dtype != torch.float32 or tensor.device != device):
            raise RefusedError(f"its tensors must be in float32 on {device}")
    shapes = [(u.shape[2], columns), (hidden, columns), (columns,), (columns,)]  # they read as much without asking
    if any(weight is not None and weight.shape != shape for weight, shape in zip(weights, shapes, strict=True)):
        raise RefusedError(f"its weights must be {shapes}")
    reason = LIBRARIES[device.type].absent() if device.type in LIBRARIES else f"there are none on {device}"
    if reason is not None or u.numel() == 0:
        raise RefusedError(reason or "the input must not be empty")
    return weights


@cache
def _owner(kind: Any) -> Any:
    """The class whose recurrence it is that PyTorch has."""
    return next(base for base in kind.__mro__ if "torch_kind" in vars(base))


def read(cell: Cell[Any], u: Tensor, state: Any, *, precision: str) -> tuple[Tensor, Any]:
    """The output after each step ``(time, n, hidden_size)``, and the state after the last; as :func:`prepared`.

    Args:
        u: inputs, ``(time, n, input_size)``.
        state: the state before the first step, each field ``(n, hidden_size)``; zero if not given.
        precision: the least precision of products on a GPU.
    """
    weights = prepared(cell, u)
    shape, fields = (u.shape[1], cell.hidden_size), cell.State._fields
    if state is None:
        state = (u.new_zeros(shape),) * len(fields)
    for name, field in zip(fields, state, strict=True):
        if field.shape != shape or field.dtype != u.dtype or field.device != u.device:
            given = f"{tuple(field.shape)}, {field.dtype} on {field.device}"
            raise ValueError(f"state {name} must be {shape}, {u.dtype} on {u.device}, got {given}")
    library = LIBRARIES[u.device.type]
    form, tensors = Form(cell.torch_kind, cell.torch_gates, weights[3] is not None, precision), (u, *weights, *state)
    if not (torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)):
        output, *end = library.advance(form, *tensors, train=False)[0]
    elif library.has_gradient(form.kind):
        output, *end = Recurrence.apply(library, form, *tensors)
    else:
        output, *end = library.differentiable(form, *tensors)
    return output, cell.State(*end)


class Recurrence(torch.autograd.Function):
    """``advance`` of a library with its gradients, as one function from the weights of a cell."""

    @staticmethod
    def forward(ctx: Any, library: Any, form: Any, *tensors: Any) -> tuple[Tensor, ...]:
        outputs, saved = library.advance(form, *tensors, train=True)
        ctx.kernels, ctx.form, ctx.count = library, form, len(saved)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved, *tensors)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        library, saved, needs = ctx.kernels, ctx.saved_tensors, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # create_graph=True
            tensors = saved[ctx.count :]
            return None, None, *_differentiably(library.differentiable(ctx.form, *tensors), tensors, needs, grads)
        found = library.retreat(ctx.form, saved[: ctx.count], grads, needs)
        return None, None, *[grad if need else None for grad, need in zip(found, needs, strict=True)]


def _differentiably(results: Any, tensors: Any, needs: Any, grads: Any) -> list[Tensor | None]:
    """The gradients of those ``tensors`` that need one, of which further ones can be taken."""
    given = [(result, grad) for result, grad in zip(results, grads, strict=True) if grad is not None]
    wanted = [tensor for tensor, need in zip(tensors, needs, strict=True) if need]
    of_wanted = torch.autograd.grad(
        [result for result, _ in given], wanted, [grad for _, grad in given], create_graph=True, allow_unused=True
    )
    found = iter(of_wanted)
    return [next(found) if need else None for need in needs]
