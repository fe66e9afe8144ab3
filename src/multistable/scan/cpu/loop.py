"""The time loop and its gradient, once for all cells."""

from collections.abc import Iterable
from itertools import chain, cycle, islice, repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from multistable.scan.cpu.equations import Equations, Tensors

AT_ONCE = 131_072
"""Elements of a block for which backward finds slopes at once: enough to be worth two threads, and still in cache."""


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
    _advance(scan, states, _room_to_keep(scan, 1))
    return tuple(field[1:] for field in states)


def last_state(scan: Arguments) -> Tensors:
    """The state after the last step, each field ``([N,] n, hidden)``."""
    states = _room(scan.state, 2)
    _advance(scan, states, _room_to_keep(scan, 1))
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


def _advance(scan: Arguments, states: Tensors, kept: Tensors) -> None:
    """Fill ``states``; one that has two times only is filled in turns, and ``kept`` that has one is overwritten."""
    rule = scan.equations(*scan.weights)
    moments = [field.unbind(0) for field in states]
    old = [cycle(times) for times in moments]
    new = [chain(times[1:], cycle(times)) for times in moments]
    views = [_each(view, scan.steps) for view in rule.views(scan.projected, kept)]
    for _, *step in zip(range(scan.steps), *old, *new, *views, strict=False):
        rule.step(*step)


def _each(tensor: Tensor, steps: int) -> Iterable[Tensor]:
    return tensor.unbind(0) if len(tensor) == steps else repeat(tensor[0])


class _Scan(torch.autograd.Function):
    """All states, with the gradients of the projected input, the initial state and the weights."""

    @staticmethod
    def forward(ctx: Any, equations: type[Equations], steps: int, fields: int, *inputs: Tensor) -> Tensors:
        projected, state, weights = inputs[0], inputs[1 : 1 + fields], inputs[1 + fields :]
        scan = Arguments(equations, steps, projected, state, weights)
        states, kept = _room(state, steps + 1), _room_to_keep(scan, steps)
        _advance(scan, states, kept)
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
        d, of_state = _go_back(rule, upstream, before, kept)
        of_input, of_weights = None, (None, None)
        _, _, _, input_needs_it, *others_need_it = ctx.needs_input_grad
        if input_needs_it:
            of_input = d[..., rule.of_input, :].flatten(-2)
            of_input = of_input.sum(0, keepdim=True) if ctx.constant else of_input
        if any(others_need_it[len(states) :]):
            of_weights = rule.weight_gradients(before, kept, d)
        return None, None, None, of_input, *of_state, *of_weights[: len(weights)]


def _go_back(
    rule: Equations, upstream: tuple[Tensor | None, ...], states: Tensors, kept: Tensors
) -> tuple[Tensor, Tensors]:
    """Gradients of the pre-activations, ``(steps, [N,] n, gates, hidden)``, and of the state before the first step.

    ``states`` are those before each step.
    """
    steps, *leading, hidden = states[0].shape
    nothing = states[0].new_zeros((*leading, hidden))
    add = [(nothing, *(repeat(nothing, steps) if field is None else field.unbind(0))) for field in upstream]
    at_once = min(steps, max(1, AT_ONCE // max(1, nothing.numel())))
    d = nothing.new_empty(steps, *leading, rule.gates, hidden)
    k = nothing.new_empty(rule.slopes, at_once, *leading, hidden)
    gradients = tuple(nothing.new_empty(at_once + 1, *leading, hidden) for _ in states)
    now = [moments[steps] for moments in add]
    for stop in range(steps, 0, -at_once):
        start = max(0, stop - at_once)
        for field, last in zip(gradients, now, strict=True):
            field[stop - start].copy_(last)
        part = slice(start, stop)
        d_part, k_part = d[part], k[:, : stop - start]
        state_part, kept_part = (tuple(buffer[part] for buffer in buffers) for buffers in (states, kept))
        g = tuple(field[1 : stop - start + 1] for field in gradients)
        before = tuple(field[: stop - start] for field in gradients)
        rule.find_slopes(state_part, kept_part, k_part)
        views = [view.unbind(0) for view in (*g, *before)]
        views += [moments[part] for moments in add]
        views += [view.unbind(0) for view in rule.views_back(g, kept_part, k_part, d_part)]
        for step in zip(*map(reversed, views), strict=True):
            rule.step_back(*step)
        rule.finish(state_part, g, k_part, d_part)
        now = [field[0] for field in gradients]
    return d, tuple(now)
