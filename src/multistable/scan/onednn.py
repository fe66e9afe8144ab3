"""Recurrences of ``torch.nn`` on the CPU, with the weights of a cell: LSTMs through oneDNN."""

from typing import Any

import torch
from torch import Tensor

from multistable.scan import cpu

Tensors = tuple[Tensor, ...]

forward = torch.ops.aten.mkldnn_rnn_layer.default
backward = torch.ops.aten.mkldnn_rnn_layer_backward.default
LSTM = 2
"""By which PyTorch's function for oneDNN knows an LSTM."""


def absent() -> str | None:
    """Why this cannot be used; None if it can."""
    return cpu.transformed() if torch.backends.mkldnn.is_available() else "oneDNN is not there"


def has_gradient(kind: str) -> bool:
    """Whether :func:`advance` comes with :func:`retreat`; what does not, PyTorch differentiates."""
    return kind == "LSTM"


def advance(form: Any, u: Tensor, *tensors: Any, train: bool) -> tuple[Tensors, Tensors]:
    """The output after each step ``(time, n, hidden)``, the fields of the last state, and what the way back needs.

    Args:
        form: which recurrence, a ``Form`` of ``of_torch.py``.
        u: inputs, ``(time, n, input_size)``.
        tensors: the weights of ``of_torch.WEIGHTS``, and each field of the state before the first step.
        train: whether a way back follows.
    """
    if form.kind != "LSTM":
        return differentiable(form, u, *tensors), ()
    input_weight, recurrent_weight, first, second, h, c = tensors
    order = form.gates
    bias = _turned(first if second is None else first + second, order)
    turned = (_turned(input_weight, order), _turned(recurrent_weight, order), bias, torch.zeros_like(bias))
    given = (u.detach().contiguous(), *turned, h.detach().contiguous(), c.detach().contiguous())
    was = torch.is_grad_enabled()
    torch._C._set_grad_enabled(train)  # from this it knows whether a way back follows
    try:
        *results, kept = forward(*given, False, [], LSTM, h.shape[-1], 1, True, False, False, train)
    finally:
        torch._C._set_grad_enabled(was)
    return tuple(results), (*given, *results, kept)


def retreat(form: Any, saved: Tensors, grads: Any, needs: Any) -> tuple[Tensor, ...]:
    """The gradients of all tensors of :func:`advance`, from those of its results."""
    *tensors, kept = saved
    order, hidden = form.gates, tensors[5].shape[-1]
    of_u, of_input, of_recurrent, of_bias, _, *of_state = backward(
        *tensors, *grads, False, LSTM, hidden, 1, True, True, False, [], False, kept
    )
    of_bias = _reordered(of_bias, order)
    return of_u, _reordered(of_input, order).mT, _reordered(of_recurrent, order).mT, of_bias, of_bias, *of_state


def differentiable(form: Any, u: Tensor, *tensors: Any) -> Tensors:
    """The results of :func:`advance` by operations that PyTorch differentiates, as often as is asked for."""
    input_weight, recurrent_weight, first, second, *state = tensors
    second = torch.zeros_like(first) if second is None else second
    turned = [_turned(weight, form.gates) for weight in (input_weight, recurrent_weight, first, second)]
    before = [field.unsqueeze(0) for field in state]
    run, train = getattr(torch._VF, form.kind.lower()), torch.is_grad_enabled()
    output, *end = run(u, before if len(before) > 1 else before[0], turned, True, 1, 0.0, train, False, False)
    return output, *(field.squeeze(0) for field in end)


def _turned(weight: Tensor, order: tuple[int, ...]) -> Tensor:
    """A weight ``(rows, gates * hidden)`` or ``(gates * hidden,)`` with gates first, in the other order."""
    # The whole is turned at once, as PyTorch turns it fastest; gates are then rows that follow one another.
    return _reordered(weight.mT.contiguous() if weight.dim() > 1 else weight, order)


def _reordered(rows: Tensor, order: tuple[int, ...]) -> Tensor:
    gates = rows.chunk(len(order))
    return torch.cat([gates[index] for index in order])
