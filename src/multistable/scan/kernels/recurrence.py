"""The recurrences of every cell as one differentiable function: buffers, launches, and the weight gradients."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from multistable.cells.base import first_columns, with_first_columns
from multistable.scan.fused import OfInput
from multistable.scan.kernels import gpu
from multistable.scan.kernels.elementwise import STEPS_AHEAD, UNITS_PER_PROGRAM, advance_units
from multistable.scan.kernels.form import Form
from multistable.scan.kernels.forward import advance
from multistable.scan.kernels.launch import Launch
from multistable.scan.kernels.leading import one_lead, one_lead_in_time, own_lead_in_time
from multistable.scan.kernels.plan import HELD_FORWARD, HELD_HALVES, Plan
from multistable.scan.kernels.project import gradient_of_input, gradients_of_weight, project, way_of
from multistable.scan.kernels.text import module_of
from multistable.scan.kernels.way_back import WayBack
from multistable.scan.kernels.weights import (
    Weights,
    gradients_of_each,
    gradients_of_sources,
    matrices_of,
    parts_of,
    units_of,
)
from multistable.scan.retained import graph_is_kept, needs_gradient
from multistable.scan.surroundings import without_autocast

REGISTERS = 96
"""The most of a thread: with more, fewer programs hide each other's reads; with less, registers spill."""


def advance_all(
    form: Form, division: Plan | None, projected: Tensor, of_input: Tensor | None, weights: Weights, initial: Weights,
    saved: Tensor | None = None, *, only_last: bool = False,
) -> Tensor:  # fmt: skip
    """Advance over all steps.

    Args:
        division: of :func:`gpu.plan_for`; None for a form without products.
        projected: ``(time, members, rows, lanes * hidden)``, any strides.
        of_input: the bias of the input, ``(members, lanes * hidden)``, if the projected input does not have it.
        weights: of ``weights.parts_of``.
        initial: the state before the first step, each field ``(members, rows, hidden)``; none for zero.
        saved: where to write what the backward pass needs, the lanes of ``form.saved``, ``(members, time, rows,
            form.width * hidden)``, if at all. ``projected`` may be a view of it.
        only_last: return the state after the last step alone.

    Returns:
        The states, ``(fields, members, time + 1, rows, hidden)``, the given one first (or, if ``only_last``,
        ``(fields, members, 2, rows, hidden)``, the last in the place of the number of steps modulo two).
    """
    T, N, B, _ = projected.shape
    H = form.program.hidden
    states = projected.new_empty(form.fields, N, 2 if only_last else T + 1, B, H)
    if initial:
        for field, given in zip(states, initial, strict=True):
            field[:, 0] = given
    else:
        states.select(2, 0).zero_()
    target = projected if saved is None else saved
    units = units_of(form, weights, N)
    units = states if units is None else units
    of_input = None if of_input is None else of_input.contiguous()
    bias = states if of_input is None else of_input
    launch = _advancing(form, division, save=saved is not None, only_last=only_last, bias=of_input is not None)
    strides = projected.stride()
    if division is None:
        grid = (-(-B * H // UNITS_PER_PROGRAM), N)
        launch(grid, projected, units, bias, states, target, T, B, H, *strides, *states.stride()[:2])
        return states
    weight = matrices_of(form, weights, N)
    strides = (*strides, *weight.stride()[:2], *states.stride()[:2])
    sizes = (T, N, B, division.span)
    if division.matrix:
        inbox = gpu.inbox_of(division, projected, 1)
        launch(division.grid, projected, bias, weight, units, states, target, inbox, *sizes, *strides)
        return states
    computed = max((count for count, _ in form.stages), default=0) if division.splits > 1 else 0
    exchanged = projected.new_empty(computed, N, B, H) if computed else projected
    arrivals = gpu.arrivals_of(division, projected)
    launch(division.grid, projected, weight, units, states, target, exchanged, arrivals, 1, *sizes, H, *strides)
    return states


@cache
def _advancing(form: Form, division: Plan | None, *, save: bool, only_last: bool, bias: bool) -> Launch:
    """The kernel that advances; without a division that of cells without products."""
    functions = module_of(*form.functions)
    constants = {
        "FINISH": functions.finish, "X": form.program.lanes, "FIELDS": form.fields, "UNITS": len(form.program.units),
        "WIDTH": form.width, "SAVE": save, "ONLY_LAST": only_last,
    }  # fmt: skip
    if division is None:
        return Launch(
            advance_units, BLOCK=UNITS_PER_PROGRAM, AHEAD=STEPS_AHEAD, BIAS=bias, num_warps=1,
            maxnreg=REGISTERS, **constants,
        )  # fmt: skip
    constants |= {"OPERANDS": functions.operands, "STAGES": form.stages, "BLOCKS": form.blocks}
    constants |= {"PADDED": division.units * division.splits != form.program.hidden, **division.constants}
    if not division.matrix:
        return Launch(advance, **constants)
    held = HELD_HALVES if division.halves else HELD_FORWARD
    own = {"H": form.program.hidden, "OF_INPUT": bias, "HALVES": division.halves, "HELD": held}
    return Launch(gpu.matrix_kernels().advance, **constants, **own)


def all_states(
    form: Form, precision: str, x: Tensor, of_input: OfInput | None, weights: Weights, initial: Weights,
    steps: int | None = None,
) -> Weights:  # fmt: skip
    """The states after each step, each field ``(time, ..., rows, hidden)``.

    Args:
        x: inputs ``(time, ..., rows, in)``, or projected ones.
        of_input: the weights for the product with ``x``, with the same leading dimensions; None for projected inputs.
        weights: what ``Members.sources`` returns.
        initial: the fields of the state before the first step, ``(..., rows, hidden)``; none for zero.
        steps: how many, if ``x`` is one input for all of them; without a gradient alone.
    """
    *of_x, columns = (None, None, None, 0) if of_input is None else of_input
    tensors = (x, *of_x, *weights, *initial)
    if needs_gradient(tensors):
        return Recurrence.apply(form, precision, len(weights), columns, *tensors)
    flat = _flat(form, len(weights), columns, *tensors)
    states, _ = _advance(form, precision, *flat, save=False, steps=steps)
    return _after_each_step(states, x.shape[1:-2])


@torch.no_grad()
def only_last(
    form: Form, precision: str, x: Tensor, of_input: OfInput | None, weights: Weights, initial: Weights,
    steps: int | None = None,
) -> Weights:  # fmt: skip
    """The state after the last step, each field ``(..., rows, hidden)``, without gradient; no other is stored.

    Arguments as for :func:`all_states`; a projected input that is constant in time has stride 0 there.
    """
    *of_x, columns = (None, None, None, 0) if of_input is None else of_input
    flat = _flat(form, len(weights), columns, x, *of_x, *weights, *initial)
    states, _ = _advance(form, precision, *flat, save=False, only_last=True, steps=steps)
    end = states[:, :, (len(x) if steps is None else steps) % 2]
    return tuple(field.clone().reshape(*x.shape[1:-1], -1) for field in end)


def _flat(
    form: Form, count: int, columns: int, x: Tensor, input_weight: Any, bias: Any, second: Any, *others: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None, Weights, Weights]:
    """The tensors with one leading dimension, both biases as one.

    The first ``count`` of the others are sources of weights, which have theirs.
    """
    lead = x.dim() - 3
    bias = bias if second is None else with_first_columns(bias, second, columns)
    weight, bias = [None if tensor is None else one_lead(tensor, lead) for tensor in (input_weight, bias)]
    initial = tuple([one_lead(field, lead) for field in others[count:]])
    return one_lead_in_time(x), weight, bias, parts_of(form, others[:count]), initial


def _advance(
    form: Form, precision: str, x: Tensor, input_weight: Tensor | None, input_bias: Tensor | None, weights: Weights,
    initial: Weights, *, save: bool, only_last: bool = False, steps: int | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """``advance_all`` on the tensors of ``_flat``: its states and what is saved.

    With ``steps`` there is one input for all steps, and nothing is saved.
    """
    H, lanes = form.program.hidden, form.program.lanes
    _, N, B, _ = x.shape
    division = gpu.plan_for(form, x.device, N, B, precision, backward=save)
    if input_weight is None:
        saved = x.new_empty(N, len(x), B, form.width * H) if save else None
        return advance_all(form, division, x, None, weights, initial, saved, only_last=only_last), saved
    way = way_of(x, input_weight, halves=division is not None and division.halves)
    # In a matrix product the bias takes another pass over memory. Kernels add it on the way, except those with a row at
    # a time, whose registers have no place for it.
    apart = way == "matrix" and (division is None or division.matrix)
    width, first = (form.width * H, form.of_x * H) if save else (lanes * H, 0)
    projected, room = project(x, input_weight, None if apart else input_bias, width, first, way)
    saved = room if save else None
    of_input = input_bias if apart else None
    projected = projected if steps is None else projected.expand(steps, *projected.shape[1:])
    return advance_all(form, division, projected, of_input, weights, initial, saved, only_last=only_last), saved


def _after_each_step(states: Tensor, lead: tuple[int, ...]) -> Weights:
    """All but the first, each field ``(time, *lead, rows, hidden)``, views."""
    fields, members, times, rows, hidden = states.shape
    step, strides = rows * hidden, [times * rows * hidden]
    for size in reversed(lead[1:]):
        strides.insert(0, strides[0] * size)
    shape, apart = (times - 1, *lead, rows, hidden), (step, *strides[: len(lead)], hidden, 1)
    return tuple([states.as_strided(shape, apart, (field * members * times + 1) * step) for field in range(fields)])


class Recurrence(torch.autograd.Function):
    """``all_states``; the backward pass does the sequential part in few launches, the rest in large products.

    It is one function from the input to the states, with the leading dimensions as they are given: every view that
    autograd would see, and every further function, takes microseconds of host time, more than many steps take.
    """

    @staticmethod
    def forward(ctx: Any, form: Form, precision: str, count: int, columns: int, *tensors: Any) -> Weights:
        x, input_weight, input_bias, weights, initial = _flat(form, count, columns, *tensors)
        sources = tensors[4 : 4 + count]
        states, saved = _advance(form, precision, x, input_weight, input_bias, weights, initial, save=True)
        ctx.form, ctx.precision, ctx.columns = form, precision, columns
        ctx.lead, ctx.fields = tensors[0].shape[1:-2], len(initial)
        ctx.second = _place_of(tensors[3], sources) if form.program.windows is not None else None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(None if input_weight is None else x, input_weight, saved, states, *sources)
        return _after_each_step(states, ctx.lead)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        if torch.is_grad_enabled():  # create_graph=True, whatever the upstream gradients are functions of
            raise RuntimeError("the fused time loop has no second derivatives: use the reference time loop for them")
        form: Form = ctx.form
        u, input_weight, saved, states, *sources = ctx.saved_tensors
        weights = parts_of(form, tuple(sources))
        N, T, B, _ = saved.shape
        H = form.program.hidden
        _, _, _, _, needs_x, needs_input_weight, needs_first, needs_second, *others = ctx.needs_input_grad
        needs_input_bias = needs_first or needs_second
        needs_weights = any(others[: len(sources)])
        if graph_is_kept():
            saved = saved.clone()  # Gradients are written over it, and a second pass will read it again.
        upstream = tuple(
            [saved.new_zeros(()).expand(T, N, B, H) if grad is None else one_lead_in_time(grad) for grad in grads]
        )
        of_x = of_input_weight = of_input_bias = None
        of_parts: list[Tensor | None] = [None] * len(weights)
        with without_autocast(saved.device.type):
            back = WayBack(form, weights, upstream, states, saved)
            division = gpu.plan_for(form, saved.device, N, B, ctx.precision, backward=True)
            if division is not None:
                back.with_products(division, wants_weight=needs_weights)
            else:
                back.alone()
            of_lanes = back.of_lanes() if needs_weights or needs_input_bias else None
            if needs_weights:
                of_parts = gradients_of_each(form, weights, back.of_matrices, back.of_units(of_lanes))
            grads_of_x = back.lanes(form.of_x, form.program.lanes, 0, T)
            if input_weight is None:
                of_x = grads_of_x.unflatten(1, (T, B)).transpose(0, 1)
            else:
                of_input_bias = back.of_bias(of_lanes) if needs_input_bias else None
                if needs_x:
                    of_x = gradient_of_input(grads_of_x, input_weight, T)
                lacks_bias = needs_input_bias and of_input_bias is None
                if needs_input_weight or lacks_bias:
                    way = way_of(u, input_weight, halves=False)
                    of_input_weight, of_product = gradients_of_weight(u, grads_of_x, way, bias=lacks_bias)
                    of_input_bias = of_product if lacks_bias else of_input_bias
        lead, of_second, of_biases = ctx.lead, None, {}
        if of_input_bias is not None:
            of_input_bias = of_input_bias.reshape(*lead, -1)
            if needs_second and ctx.second is None:
                of_second = first_columns(of_input_bias, ctx.columns)
            elif needs_second:
                of_biases = {ctx.second: of_input_bias[..., : ctx.columns]}
        return (
            None,
            None,
            None,
            None,
            None if of_x is None else own_lead_in_time(of_x, lead),
            None if of_input_weight is None else of_input_weight.reshape(*lead, *of_input_weight.shape[1:]),
            of_input_bias,
            of_second,
            *gradients_of_sources(form, tuple(sources), of_parts, of_biases),
            *[back.carried[field].reshape(*lead, B, H) for field in range(ctx.fields)],
        )


def _place_of(second: Tensor | None, sources: Weights) -> int | None:
    """Which source is the second bias as well: one of which the step reads a part. It gets one gradient, of both."""
    for index, source in enumerate(sources):
        if source is second:
            return index
    return None
