"""The recurrences of every cell as one differentiable function: buffers, launches, and the weight gradients."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor

from multistable.scan.kernels.backward import retreat
from multistable.scan.kernels.elementwise import advance_units, retreat_units
from multistable.scan.kernels.forward import advance
from multistable.scan.kernels.plan import Plan, plan

UNITS_PER_PROGRAM = 32
STEPS_AHEAD = 4


@dataclass(frozen=True)
class Kind:
    """What the kernels must know of a cell: its name there, how many gates read the past, how many the input; slots."""

    name: str
    recurrent: int
    projected: int
    slots: int
    memory: bool = False


KINDS = {
    "lstm": Kind("lstm", recurrent=4, projected=4, slots=4, memory=True),
    "gru": Kind("gru", recurrent=3, projected=3, slots=4),
    "mgu": Kind("mgu", recurrent=2, projected=2, slots=2),
    "nbrc": Kind("nbrc", recurrent=2, projected=3, slots=3),
    "brc": Kind("brc", recurrent=0, projected=3, slots=3),
}


def _on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Launch on the tensor's GPU, which need not be the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@cache
def capacity(device: torch.device) -> dict[str, int]:
    """What of the device decides a plan: its multiprocessors, and bytes of shared memory for a program."""
    if device.type == "cuda":
        properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
        return {"processors": properties["multiprocessor_count"], "shared_memory": properties["max_shared_mem"]}
    # Triton's interpreter runs one program after the other: none can wait for another.
    return {"processors": 1, "shared_memory": 2**20}


def _plan(kind: Kind, projected: Tensor, hidden: int, precision: str) -> Plan:
    _, networks, rows, _ = projected.shape
    return plan(
        hidden=hidden,
        gates=kind.recurrent,
        networks=networks,
        rows=rows,
        precision=precision,
        **capacity(projected.device),
    )


def _arrivals(division: Plan, like: Tensor) -> Tensor:
    """Where the programs of each group count their meetings."""
    return torch.zeros(division.groups if division.splits > 1 else 0, dtype=torch.int64, device=like.device)


def advance_all(
    kind: Kind, precision: str, projected: Tensor, weight: Tensor, bias: Tensor | None, states: tuple[Tensor, ...],
    *, save: bool, keep: bool, own: bool = False,
) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:  # fmt: skip
    """All steps.

    Args:
        projected: ``(time, networks, rows, gates * hidden)``, any strides.
        weight: ``(networks, hidden, gates * hidden)``, of a BRC ``(networks, 2 * hidden)``.
        bias: the recurrent bias of a GRU, ``(networks, hidden)``.
        states: the state before the first step, each field ``(networks, rows, hidden)``.
        save: whether to write what the backward pass needs.
        keep: whether to return the states of all steps.
        own: whether ``projected`` comes from ``Project`` and may be overwritten: its room is then the slots.

    Returns:
        The states, each field ``(networks, time + 1, rows, hidden)``, the given one first (or, when not ``keep``,
        ``(networks, 2, rows, hidden)``, the last in the place of the number of steps modulo two); the slots of
        ``equations.py``, ``(networks, time, rows, slots * hidden)``; and the f * h of an MGU.
    """
    T, N, B, _ = projected.shape
    H = states[0].shape[-1]
    buffers = []
    for state in states:
        buffer = projected.new_empty(N, T + 1 if keep else 2, B, H)
        buffer[:, 0] = state
        buffers.append(buffer)
    if save and own:
        slots = projected.as_strided(
            (N, T, B, kind.slots * H), (T * B * kind.slots * H, B * kind.slots * H, kind.slots * H, 1)
        )
    else:
        slots = projected.new_empty((N, T, B, kind.slots * H) if save else 0)
    exchanged = kind.name == "mgu"
    modulated = projected.new_empty((N, T, B, H) if exchanged and save else (N, B, H) if exchanged else 0)
    weight = weight.contiguous()
    with _on(projected):
        if kind.name == "brc":
            advance_units[(-(-B * H // UNITS_PER_PROGRAM), N)](
                projected, weight, buffers[0], slots, T, B, H, *projected.stride(), buffers[0].stride(0),
                BLOCK=UNITS_PER_PROGRAM, AHEAD=STEPS_AHEAD, SAVE=save, KEEP=keep, num_warps=1,
            )  # fmt: skip
        else:
            division = _plan(kind, projected, H, precision)
            advance[division.grid](
                projected, weight, weight if bias is None else bias.contiguous(), buffers[0], buffers[-1], slots,
                modulated, _arrivals(division, projected),
                1, T, N, B, division.span, H, *projected.stride(), weight.stride(0), weight.stride(1),
                buffers[0].stride(0), B * H if save else 0,
                KIND=kind.name, G=kind.recurrent, X=kind.projected, SLOTS=kind.slots, BIAS=bias is not None,
                SAVE=save, KEEP=keep, **division.constants,
            )  # fmt: skip
    return tuple(buffers), slots, modulated


def _retreat_all(
    kind: Kind, precision: str, grads: tuple[Tensor, ...], weight: Tensor, buffers: tuple[Tensor, ...], slots: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The gradients of the first state, each field ``(networks, rows, hidden)``, and those written over ``slots``.

    Of a BRC, which has no matrix, also the gradient of its weights, ``(networks, 2 * hidden)``.
    """
    T, N, B, H = grads[0].shape
    initial = tuple(slots.new_empty(N, B, H) for _ in buffers)
    with _on(slots):
        if kind.name == "brc":
            grad_weight = slots.new_empty(N, B, 2 * H)
            retreat_units[(-(-B * H // UNITS_PER_PROGRAM), N)](
                grads[0], weight.contiguous(), buffers[0], slots, initial[0], grad_weight,
                T, B, H, *grads[0].stride(), BLOCK=UNITS_PER_PROGRAM, AHEAD=STEPS_AHEAD, num_warps=1,
            )  # fmt: skip
            return initial, grad_weight.sum(1)
        division = _plan(kind, grads[0], H, precision)
        # Transposed so that units of the result are side by side in memory, as they are in a program's registers.
        transposed = weight.transpose(-1, -2).contiguous()
        retreat[division.grid](
            grads[0], grads[-1], transposed, buffers[0], buffers[-1], slots, initial[0], initial[-1],
            _arrivals(division, slots), 1, T, N, B, division.span, H, *grads[0].stride(), *grads[-1].stride(),
            KIND=kind.name, G=kind.recurrent, SLOTS=kind.slots, **division.constants,
        )  # fmt: skip
    return initial, slots


def _weight_gradient(kind: Kind, before: Tensor, modulated: Tensor, grads: Tensor) -> Tensor:
    """One product over all steps and rows, for each network.

    Args:
        before: the state before each step, ``(networks, time * rows, hidden)``.
        modulated: the f * h of an MGU, the same shape.
        grads: ``(networks, time * rows, slots * hidden)``.
    """
    H = before.shape[-1]
    if kind.name == "mgu":
        pairs = [(before, grads[..., :H]), (modulated.flatten(1, 2), grads[..., H:])]
    elif kind.name == "gru":
        pairs = [(before, grads[..., : 2 * H]), (before, grads[..., 3 * H :])]
    else:
        pairs = [(before, grads[..., : kind.recurrent * H])]
    product = before.new_empty(len(before), H, kind.recurrent * H)
    columns = product.split([b.shape[-1] for _, b in pairs], dim=-1)
    for (a, b), out in zip(pairs, columns, strict=True):
        torch.bmm(a.mT, b, out=out)
    return product


def _after_each_step(buffers: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(buffer[:, 1:].transpose(0, 1) for buffer in buffers)


def all_states(
    kind: Kind,
    precision: str,
    projected: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *states: Tensor,
    own: bool = False,
) -> tuple[Tensor, ...]:
    """The states after each step, each field ``(time, networks, rows, hidden)``; arguments as in ``advance_all``."""
    tensors = (projected, weight, bias, *states)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        return Recurrence.apply(kind, precision, own, *tensors)
    buffers, _, _ = advance_all(kind, precision, projected, weight, bias, states, save=False, keep=True)
    return _after_each_step(buffers)


class Recurrence(torch.autograd.Function):
    """States of all steps; the backward pass does the sequential part in one launch, the rest in large products."""

    @staticmethod
    def forward(
        ctx: Any,
        kind: Kind,
        precision: str,
        own: bool,
        projected: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *states: Tensor,
    ) -> tuple[Tensor, ...]:
        buffers, slots, modulated = advance_all(
            kind, precision, projected, weight, bias, states, save=True, keep=True, own=own
        )
        ctx.kind = kind
        ctx.precision = precision
        ctx.has_bias = bias is not None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weight, slots, modulated, *buffers)
        return _after_each_step(buffers)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        if torch.is_grad_enabled():  # create_graph=True, whatever the upstream gradients are functions of
            raise RuntimeError("the fused time loop has no second derivatives: use the reference time loop for them")
        kind: Kind = ctx.kind
        weight, slots, modulated, *buffers = ctx.saved_tensors
        N, T, B, _ = slots.shape
        H = buffers[0].shape[-1]
        nothing = slots.new_zeros(()).expand(T, N, B, H)
        upstream = tuple(nothing if grad is None else grad for grad in grads)
        if _graph_is_kept():
            slots = slots.clone()  # Gradients are written over the slots, which a second pass will read again.
        with torch.autocast(slots.device.type, enabled=False):
            initial, grad_weight = _retreat_all(kind, ctx.precision, upstream, weight, tuple(buffers), slots)
            if kind.name != "brc" and ctx.needs_input_grad[4]:
                # The states lie network first, so that this is one batched product on them as they are.
                before = buffers[0].flatten(1, 2)[:, : T * B]
                grad_weight = _weight_gradient(kind, before, modulated, slots.flatten(1, 2))
            grad_bias = slots[..., 3 * H :].sum((1, 2)) if ctx.has_bias else None
        grad_projected = slots[..., : kind.projected * H].transpose(0, 1)
        return None, None, None, grad_projected, grad_weight, grad_bias, *initial


def _graph_is_kept() -> bool:
    """Whether this backward pass was asked to leave the graph usable (``retain_graph=True``)."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())
