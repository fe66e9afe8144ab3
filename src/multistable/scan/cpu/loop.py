"""The buffers of a scan, and its gradient for autograd: once for all cells."""

from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from multistable.scan.cpu.base import Equations, Tensors
from multistable.scan.retained import graph_is_kept


class Arguments(NamedTuple):
    """A scan; ``[N,]`` is there where many recurrences advance side by side."""

    equations: type[Equations]
    steps: int
    projected: Tensor
    """``(steps, [N,] n, gates * hidden)``, or ``(1, ...)`` when the input is constant in time."""
    state: Tensors
    """Each field ``([N,] n, hidden)``."""
    weights: Tensors
    """The recurrent weight, and the recurrent bias where the cell has one."""


def all_states(scan: Arguments) -> Tensors:
    """The state after each step, each field ``(steps, [N,] n, hidden)``."""
    inputs = (scan.projected, *scan.state, *scan.weights)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Scan.apply(scan.equations, scan.steps, len(scan.state), *inputs)
    states = _room(scan.state, scan.steps + 1)
    scan.equations(*scan.weights).advance(scan.steps, scan.projected, states, _room_to_keep(scan, 1))
    return tuple(field[1:] for field in states)


def last_state(scan: Arguments) -> Tensors:
    """The state after the last step, each field ``([N,] n, hidden)``."""
    states = _room(scan.state, 2)
    scan.equations(*scan.weights).advance(scan.steps, scan.projected, states, _room_to_keep(scan, 1))
    return tuple(field[scan.steps % 2] for field in states)


def _room(state: Tensors, times: int) -> Tensors:
    """Buffers for states at ``times`` times, of which the first is ``state``."""
    buffers = tuple(field.new_empty(times, *field.shape) for field in state)
    for buffer, field in zip(buffers, state, strict=True):
        buffer[0].copy_(field)
    return buffers


def _room_to_keep(scan: Arguments, steps: int) -> Tensors:
    *leading, hidden = scan.state[0].shape
    return tuple(scan.projected.new_empty(steps, *leading, blocks * hidden) for blocks in scan.equations.kept)


class _Scan(torch.autograd.Function):
    """All states, with the gradients of the projected input, the initial state and the weights."""

    @staticmethod
    def forward(ctx: Any, equations: type[Equations], steps: int, fields: int, *inputs: Tensor) -> Tensors:
        projected, state, weights = inputs[0], inputs[1 : 1 + fields], inputs[1 + fields :]
        scan = Arguments(equations, steps, projected, state, weights)
        states, kept = _room(state, steps + 1), _room_to_keep(scan, steps)
        equations(*weights).advance(steps, projected, states, kept)
        ctx.equations, ctx.constant = equations, len(projected) != steps
        ctx.sizes = [len(states), len(kept), len(weights)]
        ctx.save_for_backward(*states, *kept, *weights)
        ctx.set_materialize_grads(False)
        return tuple(field[1:] for field in states)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        # Not once_differentiable: where the upstream gradient is a constant it lets a wrong zero through.
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused loop on the CPU has no second derivatives (create_graph=True): use the reference"
            )
        saved = iter(ctx.saved_tensors)
        states, kept, weights = (tuple(islice(saved, size)) for size in ctx.sizes)
        before = tuple(field[:-1] for field in states)
        rule = ctx.equations(*weights)
        if rule.overwrites and graph_is_kept():
            kept = tuple(buffer.clone() for buffer in kept)
        d, of_state = rule.go_back(upstream, before, kept)
        of_input, of_weights = None, (None, None)
        _, _, _, input_needs_it, *others_need_it = ctx.needs_input_grad
        if input_needs_it:
            of_input = d[..., rule.of_input, :].flatten(-2)
            of_input = of_input.sum(0, keepdim=True) if ctx.constant else of_input
        if any(others_need_it[len(states) :]):
            of_weights = rule.weight_gradients(before, kept, d)
        return None, None, None, of_input, *of_state, *of_weights[: len(weights)]
