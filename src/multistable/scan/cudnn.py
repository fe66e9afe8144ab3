"""Recurrences of ``torch.nn`` through cuDNN, with the weights of a cell."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any

import torch
from torch import Tensor
from torch.backends.cudnn.rnn import get_cudnn_mode

from multistable.cells.base import Cell
from multistable.scan.retained import graph_is_kept

WEIGHTS = ("input_weight", "recurrent_weight", "bias", "recurrent_bias")
SIDE = 32
"""A program of ``repack`` takes so many rows and columns of the weights."""


def read(cell: Cell[Any], u: Tensor, state: tuple[Tensor, ...], precision: str) -> tuple[Tensor, ...]:
    """The output after each step ``(time, n, hidden_size)`` and the fields of the last state, ``(n, hidden_size)``.

    Args:
        u: inputs, ``(time, n, input_size)``.
        state: before the first step, each field ``(n, hidden_size)``.
        precision: the least precision, as for ``fused.scan``; whether TF32 is used is PyTorch's own setting.
    """
    weights = tuple(getattr(cell, name) for name in WEIGHTS)
    form = (cell.torch_kind, cell.torch_gates, precision)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (u, *state, *weights)):
        return Recurrence.apply(form, u, *weights, *state)
    return _advance(form, u, weights, state, train=False)[0]


def _advance(form: Any, u: Tensor, weights: Any, state: Any, *, train: bool) -> tuple[tuple[Tensor, ...], Any]:
    """The output, the last state, and what the way back needs."""
    kind, gates, precision = form
    u = u.contiguous()
    hx, cx = state[0].unsqueeze(0).contiguous(), state[1].unsqueeze(0).contiguous() if len(state) > 1 else None
    hidden, inputs = hx.shape[-1], u.shape[-1]
    size, places = _layout(kind, len(gates), inputs, hidden, u.device)
    buffer = u.new_zeros(size) if weights[3] is None else u.new_empty(size)
    views = _views(buffer, places)
    _repack(gates, weights, views, back=False)
    with _as_precise_as(precision):
        output, hy, cy, reserve, _ = torch._VF._cudnn_rnn(
            u, views, 4, buffer, hx, cx, get_cudnn_mode(kind), hidden, 0, 1, False, 0.0, train, False, [], None
        )
    end = (hy.squeeze(0),) if cx is None else (hy.squeeze(0), cy.squeeze(0))
    return (output, *end), (u, hx, cx, buffer, output, reserve)


@cache
def _layout(kind: str, gates: int, inputs: int, hidden: int, device: torch.device) -> tuple[int, Any]:
    """How many numbers cuDNN's memory for weights has, and where it has which."""
    shapes = [torch.Size(shape) for shape in ((gates * hidden, inputs), (gates * hidden, hidden))]
    shapes += [torch.Size((gates * hidden,))] * 2
    like = [torch.zeros(shape, device=device) for shape in shapes]
    with torch.no_grad():
        buffer = torch._cudnn_rnn_flatten_weight(like, 4, inputs, get_cudnn_mode(kind), hidden, 0, 1, False, False)
    places = [(weight.data_ptr() - buffer.data_ptr()) // buffer.element_size() for weight in like]
    return buffer.numel(), list(zip(places, shapes, strict=True))


def _views(buffer: Tensor, places: Any) -> list[Tensor]:
    """The weights in cuDNN's memory, by the places of :func:`_layout`."""
    return [buffer.as_strided(shape, (*shape[1:], 1), place) for place, shape in places]


@cache
def _repacking(gates: tuple[int, ...], second: bool, back: bool) -> Any:
    from multistable.scan.kernels.launch import Launch
    from multistable.scan.kernels.repack import repack

    return Launch(repack, ORDER=gates, SECOND=second, BACK=back, SIDE=SIDE)


def _repack(gates: tuple[int, ...], ours: Any, theirs: Any, *, back: bool) -> None:
    """Copy the weights of a cell to those of ``torch.nn``, or, with ``back``, the other way."""
    inputs, hidden = ours[0].shape[0], ours[1].shape[0]
    grid = (-(-(inputs + hidden + 2) // SIDE), len(gates) * -(-hidden // SIDE))
    second = ours[3] is not None
    ours = [weight.contiguous() for weight in (ours if second else (*ours[:3], ours[2]))]
    _repacking(gates, second, back)(grid, *ours, *theirs, inputs, hidden)


class Recurrence(torch.autograd.Function):
    """``_advance`` with its gradients."""

    @staticmethod
    def forward(ctx: Any, form: Any, u: Tensor, *tensors: Any) -> tuple[Tensor, ...]:
        weights, state = tensors[: len(WEIGHTS)], tensors[len(WEIGHTS) :]
        outputs, saved = _advance(form, u, weights, state, train=True)
        ctx.form, ctx.fields, ctx.second = form, len(state), weights[3] is not None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("cuDNN has no second derivatives: use the reference time loop for them")
        kind, gates, precision = ctx.form
        u, hx, cx, buffer, output, reserve = ctx.saved_tensors
        hidden = hx.shape[-1]
        _, places = _layout(kind, len(gates), u.shape[-1], hidden, u.device)
        views = _views(buffer, places)
        of_end = [None if grad is None else grad.unsqueeze(0).contiguous() for grad in (*grads[1:], None)][:2]
        of_output = None if grads[0] is None else grads[0].contiguous()
        needs = ctx.needs_input_grad
        wanted = [needs[1], any(needs[2 + len(WEIGHTS) :]), any(needs[3 + len(WEIGHTS) :]), any(needs[2:6])]
        with _as_precise_as(precision):
            of_u, of_hx, of_cx, of_theirs = torch.ops.aten._cudnn_rnn_backward(
                u, views, 4, buffer, hx, cx, output, of_output, *of_end, get_cudnn_mode(kind), hidden, 0, 1, False, 0.0,
                True, False, [], None, reserve.clone() if graph_is_kept() else reserve, wanted,
            )  # fmt: skip
        of_weights: list[Tensor | None] = [None] * len(WEIGHTS)
        if wanted[3]:
            inputs, columns = u.shape[-1], len(gates) * hidden
            shapes = [(inputs, columns), (hidden, columns), (columns,), (columns,)]
            of_weights = [u.new_empty(shape) for shape in shapes]
            of_weights[3] = of_weights[3] if ctx.second else None
            _repack(gates, of_weights, [each.contiguous() for each in of_theirs], back=True)
        of_state = (of_hx, of_cx)[: ctx.fields]
        return (
            None,
            of_u if wanted[0] else None,
            *of_weights,
            *(each.squeeze(0) if wanted[1] and each is not None else None for each in of_state),
        )


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
