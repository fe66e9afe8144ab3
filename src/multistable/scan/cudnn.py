"""Recurrences of ``torch.nn`` through cuDNN, with the weights of a cell; ``advance`` as in ``onednn.py``."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.backends.cudnn.rnn import get_cudnn_mode

from multistable.scan import fused
from multistable.scan.retained import graph_is_kept, needs_gradient

Tensors = tuple[Any, ...]

SIDE = 32
"""A program of ``repack`` takes so many rows and columns of the weights."""


def absent() -> str | None:
    """Why this cannot be used; None if it can."""
    there = torch.backends.cudnn.enabled and torch.backends.cudnn.is_available() and fused.has_triton()
    return None if there else "cuDNN, or Triton, which lays out its weights, is not there"


def advance(form: Any, u: Tensor, weights: Tensors, state: Tensors) -> Tensors:
    """As in ``onednn.py``; whether TF32 is used is PyTorch's own setting, where the precision permits it."""
    tensors = (u, *weights, *state)
    if needs_gradient(tensors):
        return cast(Tensors, Recurrence.apply(form, *tensors))
    return _advance(form, *tensors, train=False)[0]


class Recurrence(torch.autograd.Function):
    """``advance`` with its gradients, as one function from the weights of a cell."""

    @staticmethod
    def forward(ctx: Any, form: Any, *tensors: Any) -> Tensors:
        outputs, saved = _advance(form, *tensors, train=True)
        ctx.form = form
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Tensors:
        if torch.is_grad_enabled():  # create_graph=True, whatever the upstream gradients are functions of
            raise RuntimeError("cuDNN has no second derivatives: use the reference time loop for them")
        needs = ctx.needs_input_grad[1:]
        found = _retreat(ctx.form, ctx.saved_tensors, grads, needs)
        return None, *[grad if need else None for grad, need in zip(found, needs, strict=True)]


def _advance(form: Any, u: Tensor, *tensors: Any, train: bool) -> tuple[Tensors, Tensors]:
    """What ``advance`` returns, and what the way back needs, if it follows."""
    weights, (hx, *others) = tensors[:4], [field.unsqueeze(0).contiguous() for field in tensors[4:]]
    u, cx, hidden = u.contiguous(), others[0] if others else None, hx.shape[-1]
    layout = layout_of(form, u.shape[-1], hidden, u.device)
    buffer = u.new_empty(layout.size) if form.second else u.new_zeros(layout.size)
    views = layout.views(buffer)
    layout.repack(weights, views, back=False)
    with _as_precise_as(form.precision):
        output, hy, cy, reserve, _ = torch._VF._cudnn_rnn(
            u, views, 4, buffer, hx, cx, layout.mode, hidden, 0, 1, False, 0.0, train, False, [], None
        )
    end = (hy.squeeze(0),) if cx is None else (hy.squeeze(0), cy.squeeze(0))
    return (output, *end), (u, hx, cx, buffer, output, reserve)


def _retreat(form: Any, saved: Tensors, grads: Any, needs: Any) -> Tensors:
    """The gradients of input, weights and state, of those at least that ``needs`` names."""
    u, hx, cx, buffer, output, reserve = saved
    hidden, fields = hx.shape[-1], len(needs) - 5
    layout = layout_of(form, u.shape[-1], hidden, u.device)
    of_end = [None if grad is None else grad.unsqueeze(0).contiguous() for grad in (*grads[1:], None)][:2]
    of_output = None if grads[0] is None else grads[0].contiguous()
    wanted = [needs[0], any(needs[5:]), any(needs[6:]), any(needs[1:5])]
    with _as_precise_as(form.precision):
        of_u, of_hx, of_cx, of_theirs = torch.ops.aten._cudnn_rnn_backward(
            u, layout.views(buffer), 4, buffer, hx, cx, output, of_output, *of_end, layout.mode, hidden, 0, 1, False,
            0.0, True, False, [], None, reserve.clone() if graph_is_kept() else reserve, wanted,
        )  # fmt: skip
    of_state = [each.squeeze(0) if wanted[1] and each is not None else None for each in (of_hx, of_cx)[:fields]]
    of_weights: Tensors = (None,) * 4
    if wanted[3]:
        of_weights = tuple(None if shape is None else u.new_empty(shape) for shape in layout.shapes)
        layout.repack(of_weights, [each.contiguous() for each in of_theirs], back=True)
    return of_u, *of_weights, *of_state


class Layout(NamedTuple):
    """How cuDNN has the weights of a recurrence.

    Attributes:
        mode: its number for the recurrence.
        size: of its memory for weights.
        places: where each weight begins, and its shape and strides.
        grid: of the kernel that copies weights.
        copies: that kernel, from our weights and back.
        shapes: of our weights; None where there is no second bias.
    """

    mode: int
    size: int
    places: list[tuple[Any, Any, int]]
    grid: tuple[int, int]
    copies: tuple[Any, Any]
    shapes: list[Any]

    def views(self, buffer: Tensor) -> list[Tensor]:
        """The weights in cuDNN's memory."""
        return [buffer.as_strided(*place) for place in self.places]

    def repack(self, ours: Any, theirs: Any, *, back: bool) -> None:
        """Copy the weights of a cell to those of ``torch.nn``, or, with ``back``, the other way."""
        input_weight, recurrent_weight, first, second = ours
        second = first if second is None else second
        rows = (input_weight.shape[0], recurrent_weight.shape[0])
        ours = [weight.contiguous() for weight in (input_weight, recurrent_weight, first, second)]
        self.copies[back](self.grid, *ours, *theirs, *rows)


@cache
def layout_of(form: Any, inputs: int, hidden: int, device: torch.device) -> Layout:
    """The layout of a recurrence of these sizes."""
    from multistable.scan.kernels.launch import Launch
    from multistable.scan.kernels.repack import repack

    gates = len(form.gates)
    columns, mode = gates * hidden, get_cudnn_mode(form.kind)
    theirs = [torch.zeros(shape, device=device) for shape in ((columns, inputs), (columns, hidden), columns, columns)]
    with torch.no_grad():
        buffer = torch._cudnn_rnn_flatten_weight(theirs, 4, inputs, mode, hidden, 0, 1, False, False)
    starts = [(weight.data_ptr() - buffer.data_ptr()) // buffer.element_size() for weight in theirs]
    places = [(w.shape, (*w.shape[1:], 1), start) for w, start in zip(theirs, starts, strict=True)]
    shapes = [(inputs, columns), (hidden, columns), (columns,), (columns,) if form.second else None]
    grid = (-(-(inputs + hidden + 2) // SIDE), gates * -(-hidden // SIDE))
    constants = {"ORDER": form.gates, "SECOND": form.second, "SIDE": SIDE}
    copies = (Launch(repack, BACK=False, **constants), Launch(repack, BACK=True, **constants))
    return Layout(mode, buffer.numel(), places, grid, copies, shapes)


_flag = RLock()


@contextmanager
def _as_precise_as(precision: str) -> Iterator[None]:
    """No TF32 inside unless ``precision`` permits it; cuDNN reads the flag of the process at each call."""
    read, write = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
    if precision == "tf32" or read("cuda", "rnn") != "tf32":
        yield
        return
    with _flag:
        try:
            write("cuda", "rnn", "ieee")
            yield
        finally:
            write("cuda", "rnn", "tf32")
