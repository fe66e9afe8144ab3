"""Recurrences of ``torch.nn`` on the CPU, with the weights of a cell: LSTMs through oneDNN."""

from typing import Any

import torch
from torch import Tensor

from multistable.scan import cpu

Tensors = tuple[Tensor, ...]

absent = cpu.transformed if torch.backends.mkldnn.is_available() else lambda: "oneDNN is not there"
"""Why this cannot be used; None if it can."""


def advance(form: Any, u: Tensor, weights: Tensors, state: Tensors) -> Tensors:
    """The output after each step ``(time, n, hidden)``, and the fields of the last state.

    PyTorch's own functions differentiate it: one of ours in Python would take longer than they do.

    Args:
        form: which recurrence, a ``Form`` of ``of_torch.py``.
        u: inputs, ``(time, n, input_size)``.
        weights: those of ``of_torch.WEIGHTS``.
        state: each field of the state before the first step, ``(n, hidden)``.
    """
    input_weight, recurrent_weight, first, second = weights
    second = torch.zeros_like(first) if second is None else second
    given = []
    for rows in (_turned(input_weight), _turned(recurrent_weight), first, second):
        gates = rows.chunk(len(form.gates))
        given.append(torch.cat([gates[index] for index in form.gates]))
    before = [field.unsqueeze(0) for field in state]
    run, train = getattr(torch._VF, form.kind.lower()), torch.is_grad_enabled()
    output, *end = run(u, before if len(before) > 1 else before[0], given, True, 1, 0.0, train, False, False)
    return output, *[field.squeeze(0) for field in end]


def _turned(matrix: Tensor) -> Tensor:
    """The transposed matrix, contiguous."""
    if torch.is_grad_enabled() and matrix.requires_grad:
        return matrix.mT.contiguous()
    # As channels that are shuffled it takes a third of the time, but PyTorch has no derivative of it.
    rows, count = len(matrix), matrix.numel()
    channels = matrix.contiguous().as_strided((1, count, 1, 1), (count, 1, count, count))
    return torch.native_channel_shuffle(channels, rows).view(-1, rows)
