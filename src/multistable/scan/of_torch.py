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
from multistable.scan.program import RefusedError

WEIGHTS = ("input_weight", "recurrent_weight", "bias", "recurrent_bias")
EQUATIONS = frozenset(("step", "project", "input_bias"))
"""What a cell of the same recurrence may not have its own of."""

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


_form = cache(Form)


def prepared(cell: Cell[Any], u: Tensor) -> list[Any]:
    """The weights that PyTorch's kernels take to advance ``cell`` over inputs; ``RefusedError`` where they cannot."""
    if cell.torch_kind is None:
        raise RefusedError(f"torch.nn has no {type(cell).__name__}")
    kind, owner = type(cell), _owner(type(cell))
    if kind is not owner or not EQUATIONS.isdisjoint(cell.__dict__):
        for name in sorted(EQUATIONS):
            if name in cell.__dict__ or getattr(kind, name) is not getattr(owner, name):
                raise RefusedError(f"{kind.__name__} has a {name} of its own")
    known = cell._parameters
    weights = [known[name] if name in known else getattr(cell, name) for name in WEIGHTS]
    device, hidden = u.device, cell.hidden_size
    columns = len(cell.torch_gates) * hidden
    # Kernels read as much without asking.
    shapes = ((u.shape[-1], columns), (hidden, columns), (columns,), (columns,))
    fits = u.dim() == 3 and u.dtype == torch.float32
    for weight, shape in zip(weights, shapes, strict=True):
        if weight is not None and (weight.shape != shape or weight.dtype != torch.float32 or weight.device != device):
            fits = False
    if not fits:
        raise RefusedError(_why_not(u, weights, shapes))
    reason = LIBRARIES[device.type].absent() if device.type in LIBRARIES else f"there are none on {device}"
    if reason is not None or u.numel() == 0:
        raise RefusedError(reason or "the input must not be empty")
    return weights


def _why_not(u: Tensor, weights: list[Any], shapes: tuple[Any, ...]) -> str:
    """What is wrong with tensors that :func:`prepared` refuses."""
    if u.dim() != 3 or weights[0].dim() != 2:
        return "torch.nn has no leading dimensions"
    if any(each is not None and (each.dtype, each.device) != (torch.float32, u.device) for each in (u, *weights)):
        return f"its tensors must be in float32 on {u.device}"
    return f"its weights must be {list(shapes)}"


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
    else:
        for name, field in zip(fields, state, strict=True):
            if field.shape != shape or field.dtype != u.dtype or field.device != u.device:
                given = f"{tuple(field.shape)}, {field.dtype} on {field.device}"
                raise ValueError(f"state {name} must be {shape}, {u.dtype} on {u.device}, got {given}")
    form = _form(cell.torch_kind, cell.torch_gates, weights[3] is not None, precision)
    output, *end = LIBRARIES[u.device.type].advance(form, u, weights, state)
    return output, cell.State(*end)
