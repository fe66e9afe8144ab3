"""The recurrences of every cell as one differentiable function: buffers, launches, and the weight gradients."""

import importlib
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from itertools import pairwise
from typing import Any

import torch
import triton
from torch import Tensor

from multistable.scan.kernels.backward import retreat
from multistable.scan.kernels.elementwise import advance_units, retreat_units
from multistable.scan.kernels.forward import advance
from multistable.scan.kernels.kinds import Kind
from multistable.scan.kernels.leading import one_lead, one_lead_in_time, own_lead_in_time
from multistable.scan.kernels.plan import HELD_BACKWARD, HELD_FORWARD, HELD_HALVES, Plan, plan
from multistable.scan.kernels.project import gradient_of_bias, gradient_of_input, gradients_of_weight, project, way_of
from multistable.scan.retained import graph_is_kept

UNITS_PER_PROGRAM, STEPS_AHEAD = 32, 4
# With more, as the compiler would take, a multiprocessor has fewer programs whose reads hide each other; with less,
# registers spill.
REGISTERS_FORWARD = 96
REGISTERS_BACKWARD = 136

PARTS = 4
STEPS_OF_A_PART = 25
"""The backward pass of an MGU divides time into so many parts, each of at least so many steps: see ``_retreat``."""


def _on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Launch on the tensor's GPU, which need not be the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@cache
def _matrix() -> Any:
    """The kernels on the matrix units, or None where Gluon, in which they are written, is missing or too old."""
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 6):
        return None
    try:
        return importlib.import_module("multistable.scan.kernels.matrix")
    except ImportError:  # Triton still calls it experimental, and may move it; float32 does not need it.
        return None


@cache
def capacity(device: torch.device) -> dict[str, Any]:
    """The facts of a device that decide a plan: multiprocessors, bytes of shared memory for a program, matrix units."""
    if device.type == "cuda":
        properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
        ampere = torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)
        return {
            "processors": properties["multiprocessor_count"],
            "shared_memory": properties["max_shared_mem"],
            "matrix_units": ampere and _matrix() is not None,
        }
    # Triton's interpreter runs one program after the other, so that none can wait for another, and knows no Gluon.
    return {"processors": 1, "shared_memory": 2**20, "matrix_units": False}


def _plan(
    kind: Kind, like: Tensor, members: int, rows: int, hidden: int, precision: str, *, backward: bool = True
) -> Plan:
    sizes = {"hidden": hidden, "gates": kind.recurrent, "members": members, "rows": rows}
    return plan(**sizes, precision=precision, backward=backward, **capacity(like.device))


def _arrivals(division: Plan, like: Tensor) -> Tensor:
    """Memory in which the programs of each group count their meetings; never read if there are none."""
    if division.splits == 1:
        return like
    return torch.zeros(division.groups, dtype=torch.int64, device=like.device)


def _inbox(division: Plan, like: Tensor, readers: int) -> Tensor:
    """Memory in which the programs of a group on the matrix units send each other numbers; never read by a lone one.

    It has place for ``(rows, inputs)`` numbers for each of ``readers``, which is 1 if all programs read the same.
    """
    if division.splits == 1:
        return like
    return like.new_zeros(2, division.groups, readers, division.rows, division.inputs)


def advance_all(
    kind: Kind, precision: str, projected: Tensor, of_input: Tensor | None, weight: Tensor, bias: Tensor | None,
    states: tuple[Tensor, ...], saved: Tensor | None = None, *, only_last: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Advance over all steps.

    Args:
        projected: ``(time, members, rows, gates * hidden)``, any strides.
        of_input: the bias of the input, ``(members, gates * hidden)``, if the projected input does not have it.
        weight: ``(members, hidden, gates * hidden)``, of a BRC ``(members, 2 * hidden)``.
        bias: the recurrent bias of a GRU, ``(members, hidden)``.
        states: the state before the first step, each field ``(members, rows, hidden)``; none for zero.
        saved: where to write what the backward pass needs, the blocks of ``equations.py``, ``(members, time, rows,
            blocks * hidden)``, if at all. ``projected`` may be a view of it.
        only_last: return the state after the last step alone.

    Returns:
        The states, each field ``(members, time + 1, rows, hidden)``, the given one first (or, if ``only_last``,
        ``(members, 2, rows, hidden)``, the last in the place of the number of steps modulo two).
    """
    T, N, B, width = projected.shape
    H = width // kind.projected
    buffers = tuple(projected.new_empty(N, 2 if only_last else T + 1, B, H) for _ in range(kind.fields))
    for i, buffer in enumerate(buffers):
        if states:
            buffer[:, 0] = states[i]
        else:
            buffer[:, 0].zero_()
    save = saved is not None
    target = projected if saved is None else saved
    weight = weight.contiguous()
    with _on(projected):
        if kind.name == "brc":
            advance_units[(-(-B * H // UNITS_PER_PROGRAM), N)](
                projected, weight, weight if of_input is None else of_input.contiguous(), buffers[0], target,
                T, B, H, *projected.stride(), buffers[0].stride(0), BLOCK=UNITS_PER_PROGRAM, AHEAD=STEPS_AHEAD,
                BIAS=of_input is not None, SAVE=save, ONLY_LAST=only_last, num_warps=1, maxnreg=REGISTERS_FORWARD,
            )  # fmt: skip
            return buffers
        division = _plan(kind, projected, N, B, H, precision, backward=save)
        if division.matrix:
            _matrix().advance[division.grid](
                projected, weight if of_input is None else of_input.contiguous(), weight,
                weight if bias is None else bias.contiguous(), buffers[0], buffers[-1], target,
                _inbox(division, projected, 1), T, N, B, division.span, *projected.stride(), weight.stride(0),
                weight.stride(1), buffers[0].stride(0),
                H=H, KIND=kind.name, G=kind.recurrent, X=kind.projected, SAVED=kind.saved,
                OF_INPUT=of_input is not None, BIAS=bias is not None, SAVE=save, ONLY_LAST=only_last,
                HALVES=division.halves,
                HELD=HELD_HALVES if division.halves else HELD_FORWARD, **division.constants,
            )  # fmt: skip
            return buffers
        exchanged = kind.name == "mgu" and division.splits > 1
        advance[division.grid](
            projected, weight, weight if bias is None else bias.contiguous(), buffers[0], buffers[-1], target,
            projected.new_empty(N, B, H) if exchanged else projected, _arrivals(division, projected),
            1, T, N, B, division.span, H, *projected.stride(), weight.stride(0), weight.stride(1),
            buffers[0].stride(0),
            KIND=kind.name, G=kind.recurrent, X=kind.projected, SAVED=kind.saved, BIAS=bias is not None,
            SAVE=save, ONLY_LAST=only_last, **division.constants,
        )  # fmt: skip
    return buffers


def _retreat_units(
    weight: Tensor, upstream: Tensor, states: Tensor, saved: Tensor
) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """The gradients of a BRC's first state, of its weight and of the input's bias; the rest is written over ``saved``.

    Args:
        weight: ``(members, 2 * hidden)``.
        upstream: the gradient of the states, ``(time, members, rows, hidden)``.
        states: as ``advance_all`` returns them.
    """
    T, N, B, H = upstream.shape
    initial = saved.new_empty(N, B, H)
    sums = saved.new_empty(N, B, 5 * H)
    with _on(saved):
        retreat_units[(-(-B * H // UNITS_PER_PROGRAM), N)](
            upstream, weight.contiguous(), states, saved, initial, sums,
            T, B, H, *upstream.stride(), BLOCK=UNITS_PER_PROGRAM, AHEAD=STEPS_AHEAD, num_warps=1,
            maxnreg=REGISTERS_BACKWARD,
        )  # fmt: skip
    of_weight, of_bias = sums.sum(1).split([2 * H, 3 * H], dim=-1)
    return (initial,), of_weight, of_bias


def _retreat(
    kind: Kind, precision: str, weight: Tensor, upstream: tuple[Tensor, ...], buffers: tuple[Tensor, ...],
    saved: Tensor, *, wants_weight: bool,
) -> tuple[tuple[Tensor, ...], Tensor | None]:  # fmt: skip
    """The gradients of the first state and, where wanted, of the weight; the rest is written over ``saved``.

    The gradient of an MGU's weight takes a product with f * h, which is as large as all states. f * h is computed anew
    for a part of the steps at a time, so that it is never whole in memory; the gradient of the state is carried from
    one part to the next.

    Args:
        weight: ``(members, hidden, gates * hidden)``.
        upstream: the gradients of the states, each field ``(time, members, rows, hidden)``.
        buffers: as ``advance_all`` returns them.
    """
    T, N, B, H = upstream[0].shape
    division = _plan(kind, saved, N, B, H, precision)
    # A row at a time, transposed: units of the result are side by side in memory, as they are in registers.
    factors: Tensor | None = (weight if division.matrix else weight.transpose(-1, -2)).contiguous()
    new = saved.new_zeros if kind.name == "mgu" else saved.new_empty
    carried = tuple(new((N, B, H)) for _ in buffers)
    of_weight: Tensor | None = None
    modulated = kind.name == "mgu" and wants_weight
    parts = max(1, min(PARTS, T // STEPS_OF_A_PART)) if modulated else 1
    for start, stop in reversed(list(pairwise(T * part // parts for part in range(parts + 1)))):
        before = buffers[0][:, start:stop]
        factor = saved[:, start:stop, :, :H] * before if modulated else before
        with _on(saved):
            tensors = (upstream[0], upstream[-1], factors, buffers[0], buffers[-1], saved, carried[0], carried[-1])
            strides = (*upstream[0].stride(), *upstream[-1].stride())
            options = {"KIND": kind.name, "G": kind.recurrent, "SAVED": kind.saved, **division.constants}
            if division.matrix:
                inbox = _inbox(division, saved, division.inputs // division.units)
                _matrix().retreat[division.grid](
                    *tensors, inbox, start, stop, T, N, B, division.span, kind.recurrent * H * H, kind.recurrent * H,
                    *strides, H=H, HELD=HELD_BACKWARD, **options,
                )  # fmt: skip
            else:
                retreat[division.grid](
                    *tensors, _arrivals(division, saved), 1, start, stop, T, N, B, division.span, H, *strides, **options
                )
        del tensors
        if start == 0:
            factors = None  # before its like is asked for
        if wants_weight:
            if of_weight is None:
                of_weight = saved.new_empty(N, H, kind.recurrent * H)
            _add_products(kind, of_weight, before, factor, saved[:, start:stop], first=stop == T)
        del factor  # before the next one is asked for
    return carried, of_weight


def _add_products(kind: Kind, of_weight: Tensor, before: Tensor, factor: Tensor, grads: Tensor, *, first: bool) -> None:
    """Write or, unless ``first``, add to the gradient of the weight: a product over some steps and all rows.

    Args:
        of_weight: ``(members, hidden, gates * hidden)``.
        before: the state before each step, ``(members, time, rows, hidden)``.
        factor: what the last gate's matrix multiplies, the same shape: the state, or the f * h of an MGU.
        grads: ``(members, time, rows, blocks * hidden)``.
    """
    # All lie network first, so that these are batched products on them as they are.
    before, factor, grads = (x.flatten(1, 2) for x in (before, factor, grads))
    H = before.shape[-1]
    if kind.name == "mgu":
        pairs = [(before, grads[..., :H]), (factor, grads[..., H:])]
    elif kind.name == "gru":
        pairs = [(before, grads[..., : 2 * H]), (before, grads[..., 3 * H :])]
    else:
        pairs = [(before, grads[..., : kind.recurrent * H])]
    columns = of_weight.split([b.shape[-1] for _, b in pairs], dim=-1)
    for (a, b), out in zip(pairs, columns, strict=True):
        out.baddbmm_(a.mT, b, beta=0 if first else 1)


def all_states(
    kind: Kind, precision: str, x: Tensor, input_weight: Tensor | None, input_bias: Tensor | None, weight: Tensor,
    bias: Tensor | None, *states: Tensor, steps: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The states after each step, each field ``(time, ..., rows, hidden)``.

    Args:
        x: inputs ``(time, ..., rows, in)``, or, without an input weight, projected ones.
        input_weight, input_bias, weight, bias: of the cell, with its leading dimensions, those of ``x``.
        states: the fields of the state before the first step, ``(..., rows, hidden)``; none for zero.
        steps: how many, if ``x`` is one input for all of them; without a gradient alone.
    """
    tensors = (x, input_weight, input_bias, weight, bias, *states)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        return Recurrence.apply(kind, precision, *tensors)
    lead = weight.dim() - kind.weight_dim
    buffers, _ = _advance(kind, precision, _flat(lead, x, *tensors[1:]), save=False, steps=steps)
    return _after_each_step(buffers, weight.shape[:lead])


@torch.no_grad()
def only_last(
    kind: Kind, precision: str, x: Tensor, input_weight: Tensor | None, input_bias: Tensor | None, weight: Tensor,
    bias: Tensor | None, *states: Tensor, steps: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The state after the last step, each field ``(..., rows, hidden)``, without gradient; no other is stored.

    Arguments as for :func:`all_states`; a projected input that is constant in time has stride 0 there.
    """
    lead = weight.dim() - kind.weight_dim
    flat = _flat(lead, x, input_weight, input_bias, weight, bias, *states)
    buffers, _ = _advance(kind, precision, flat, save=False, only_last=True, steps=steps)
    end = (len(x) if steps is None else steps) % 2
    return tuple(buffer[:, end].clone().reshape(*x.shape[1:-1], -1) for buffer in buffers)


def _flat(lead: int, x: Tensor, *others: Tensor | None) -> list[Any]:
    return [one_lead_in_time(x), *(None if other is None else one_lead(other, lead) for other in others)]


def _advance(
    kind: Kind, precision: str, tensors: list[Any], *, save: bool, only_last: bool = False, steps: int | None = None
) -> tuple[tuple[Tensor, ...], Tensor | None]:
    """``advance_all`` on the tensors of ``all_states`` with one leading dimension: its states and what is saved.

    With ``steps`` there is one input for all steps, and nothing is saved.
    """
    x, input_weight, input_bias, weight, bias, *states = tensors
    if input_weight is None:
        T, N, B, width = x.shape
        saved = x.new_empty(N, T, B, width // kind.projected * kind.saved) if save else None
        return advance_all(kind, precision, x, None, weight, bias, tuple(states), saved, only_last=only_last), saved
    H = input_weight.shape[-1] // kind.projected
    _, N, B, _ = x.shape
    division = None if kind.name == "brc" else _plan(kind, x, N, B, H, precision, backward=save)
    way = way_of(x, input_weight, halves=division is not None and division.halves)
    # In a matrix product the bias takes another pass over memory. Kernels add it on the way, except those with a row at
    # a time, whose registers have no place for it.
    apart = way == "matrix" and (division is None or division.matrix)
    width = H * (kind.saved if save else kind.projected)
    with _on(x):
        projected, room = project(x, input_weight, None if apart else input_bias, width, way)
    saved = room if save else None
    of_input = input_bias if apart else None
    projected = projected if steps is None else projected.expand(steps, *projected.shape[1:])
    return advance_all(
        kind, precision, projected, of_input, weight, bias, tuple(states), saved, only_last=only_last
    ), saved


def _after_each_step(buffers: tuple[Tensor, ...], lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(own_lead_in_time(buffer[:, 1:].transpose(0, 1), lead) for buffer in buffers)


class Recurrence(torch.autograd.Function):
    """``all_states``; the backward pass does the sequential part in few launches, the rest in large products.

    It is one function from the input to the states, with the leading dimensions as they are given: every view that
    autograd would see, and every further function, takes microseconds of host time, more than many steps take.
    """

    @staticmethod
    def forward(ctx: Any, kind: Kind, precision: str, *tensors: Any) -> tuple[Tensor, ...]:
        lead = tensors[3].dim() - kind.weight_dim
        flat = _flat(lead, *tensors)
        x, input_weight, _, weight, bias, *_ = flat
        buffers, saved = _advance(kind, precision, flat, save=True)
        ctx.kind, ctx.precision, ctx.lead, ctx.has_bias = kind, precision, tensors[3].shape[:lead], bias is not None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(None if input_weight is None else x, input_weight, weight, saved, *buffers)
        return _after_each_step(buffers, ctx.lead)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        if torch.is_grad_enabled():  # create_graph=True, whatever the upstream gradients are functions of
            raise RuntimeError("the fused time loop has no second derivatives: use the reference time loop for them")
        kind: Kind = ctx.kind
        u, input_weight, weight, saved, *buffers = ctx.saved_tensors
        N, T, B, _ = saved.shape
        H = buffers[0].shape[-1]
        _, _, needs_x, needs_input_weight, needs_input_bias, needs_weight, _, *of_states = ctx.needs_input_grad
        if graph_is_kept():
            saved = saved.clone()  # Gradients are written over it, and a second pass will read it again.
        upstream = tuple(
            saved.new_zeros(()).expand(T, N, B, H) if grad is None else one_lead_in_time(grad) for grad in grads
        )
        of_x = of_input_weight = of_input_bias = of_bias = None
        with _without_autocast(saved.device.type):
            of_weight: Tensor | None
            if kind.name == "brc":
                initial, of_weight, of_input_bias = _retreat_units(weight, upstream[0], buffers[0], saved)
            else:
                initial, of_weight = _retreat(
                    kind, ctx.precision, weight, upstream, tuple(buffers), saved, wants_weight=needs_weight
                )
            rows = saved.flatten(1, 2)
            of_projected = rows[..., : kind.projected * H]
            if ctx.has_bias:
                of_bias = gradient_of_bias(rows[..., 3 * H :])
            if input_weight is None:
                of_x, of_input_bias = saved[..., : kind.projected * H].transpose(0, 1), None
            else:
                if needs_x:
                    of_x = gradient_of_input(of_projected, input_weight, T)
                lacks_bias = needs_input_bias and of_input_bias is None
                if needs_input_weight or lacks_bias:
                    way = way_of(u, input_weight, halves=False)
                    with _on(saved):
                        of_input_weight, of_product = gradients_of_weight(
                            u, saved, kind.projected * H, way, bias=lacks_bias
                        )
                    of_input_bias = of_product if lacks_bias else of_input_bias
        others = (of_input_weight, of_input_bias, of_weight, of_bias, *initial[: len(of_states)])
        return (
            None,
            None,
            None if of_x is None else own_lead_in_time(of_x, ctx.lead),
            *(None if other is None else other.reshape(*ctx.lead, *other.shape[1:]) for other in others),
        )


def _without_autocast(device: str) -> AbstractContextManager[Any]:
    """The backward pass may be asked for inside ``torch.autocast``, which the forward pass was not."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
