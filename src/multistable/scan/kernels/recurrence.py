"""The recurrences of every cell as one differentiable function: buffers, launches, and the weight gradients."""

import importlib
from functools import cache
from itertools import pairwise
from typing import Any

import torch
import triton
from torch import Tensor

from multistable.cells.base import first_columns, with_first_columns
from multistable.scan.fused import OfInput
from multistable.scan.kernels.backward import retreat
from multistable.scan.kernels.elementwise import advance_units, retreat_units
from multistable.scan.kernels.form import Form
from multistable.scan.kernels.forward import advance
from multistable.scan.kernels.launch import Launch
from multistable.scan.kernels.leading import one_lead, one_lead_in_time, own_lead_in_time
from multistable.scan.kernels.plan import HELD_BACKWARD, HELD_FORWARD, HELD_HALVES, Plan, plan
from multistable.scan.kernels.project import gradient_of_bias, gradient_of_input, gradients_of_weight, project, way_of
from multistable.scan.kernels.text import module_of
from multistable.scan.kernels.weights import Weights, gradients_of_each, matrices_of, units_of
from multistable.scan.program.nodes import evaluate
from multistable.scan.retained import graph_is_kept
from multistable.scan.surroundings import without_autocast

UNITS_PER_PROGRAM, STEPS_AHEAD = 32, 4
# With more, as the compiler would take, a multiprocessor has fewer programs whose reads hide each other; with less,
# registers spill.
REGISTERS_FORWARD = 96
REGISTERS_BACKWARD = 136

PARTS = 4
NUMBERS_OF_A_PART = 2**22
"""The backward pass of a cell that computes operands divides time into so many parts, if each has at least so many
numbers in an operand: see ``_Retreat.with_products``."""


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


def _plan(form: Form, device: torch.device, members: int, rows: int, precision: str, *, backward: bool) -> Plan | None:
    if not form.blocks:
        return None
    facts = capacity(device)
    if not form.fits_matrix_units:
        facts = facts | {"matrix_units": False}
    sizes = {"hidden": form.program.hidden, "gates": form.blocks, "members": members, "rows": rows}
    return plan(**sizes, precision=precision, backward=backward, **facts)


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
    form: Form, division: Plan | None, projected: Tensor, of_input: Tensor | None, weights: Weights, initial: Weights,
    saved: Tensor | None = None, *, only_last: bool = False,
) -> Tensor:  # fmt: skip
    """Advance over all steps.

    Args:
        division: of :func:`_plan`; None for a form without products.
        projected: ``(time, members, rows, lanes * hidden)``, any strides.
        of_input: the bias of the input, ``(members, lanes * hidden)``, if the projected input does not have it.
        weights: what the program prepares.
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
        inbox = _inbox(division, projected, 1)
        launch(division.grid, projected, bias, weight, units, states, target, inbox, *sizes, *strides)
        return states
    computed = max((count for count, _ in form.stages), default=0) if division.splits > 1 else 0
    exchanged = projected.new_empty(computed, N, B, H) if computed else projected
    arrivals = _arrivals(division, projected)
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
            maxnreg=REGISTERS_FORWARD, **constants,
        )  # fmt: skip
    constants |= {"OPERANDS": functions.operands, "STAGES": form.stages, "BLOCKS": form.blocks}
    constants |= {"PADDED": division.units * division.splits != form.program.hidden, **division.constants}
    if not division.matrix:
        return Launch(advance, **constants)
    held = HELD_HALVES if division.halves else HELD_FORWARD
    own = {"H": form.program.hidden, "OF_INPUT": bias, "HALVES": division.halves, "HELD": held}
    return Launch(_matrix().advance, **constants, **own)


@cache
def _retreating(form: Form, division: Plan | None) -> Launch:
    """The kernel of the way back."""
    functions = module_of(*form.functions)
    constants: dict[str, Any] = {
        "FINISH": functions.finish_retreat, "BEFORE": form.before, "AFTER": form.after, "FIELDS": form.fields,
        "UNITS": len(form.program.units), "SUMS": form.sums, "SAVED": len(form.saved), "WIDTH": form.width,
    }  # fmt: skip
    if division is None:
        return Launch(
            retreat_units, X=form.program.lanes, BLOCK=UNITS_PER_PROGRAM, AHEAD=STEPS_AHEAD, num_warps=1,
            maxnreg=REGISTERS_BACKWARD, **constants,
        )  # fmt: skip
    constants |= {
        "RETREAT": functions.retreat, "RETREATS": form.retreats, "INTO": form.into, "ORDER": form.order,
        "IN_PARTS": form.computes_operands, "PADDED": division.units * division.splits != form.program.hidden,
        **division.constants,
    }  # fmt: skip
    if not division.matrix:
        return Launch(retreat, **constants)
    del constants["SUMS"]  # such a form has none
    return Launch(_matrix().retreat, H=form.program.hidden, HELD=HELD_BACKWARD, **constants)


class _Retreat:
    """The way back: the gradients of the state before the first step, of the weights and of the input's bias.

    Those of the projected input and of the products are written over ``saved``.

    Args:
        upstream: the gradients of the states, each field ``(time, members, rows, hidden)``.
        states: as ``advance_all`` returns them.
        saved: as ``advance_all`` writes it.
    """

    def __init__(self, form: Form, weights: Weights, upstream: Weights, states: Tensor, saved: Tensor) -> None:
        self.form, self.weights = form, weights
        self.upstream, self.states, self.saved = upstream, states, saved
        self.time, self.members, self.rows, self.hidden = upstream[0].shape
        self.units = units_of(form, weights, self.members)
        self.of_matrices: Tensor | None = None
        new = saved.new_zeros if form.computes_operands else saved.new_empty
        self.carried = new(form.fields, self.members, self.rows, self.hidden)
        sums = form.sums + (0 if form.blocks else form.program.lanes)
        self.sums = new(sums, self.members, self.rows, self.hidden) if sums else self.carried
        self.strides = tuple(field.stride() for field in upstream)

    def alone(self) -> None:
        """Of units that see themselves alone."""
        T, B, H = self.time, self.rows, self.hidden
        units = self.states if self.units is None else self.units
        tensors = (self.upstream, units, self.states, self.saved, self.carried, self.sums)
        grid = (-(-B * H // UNITS_PER_PROGRAM), self.members)
        _retreating(self.form, None)(grid, *tensors, T, B, H, self.strides)

    def with_products(self, division: Plan, *, wants_weight: bool) -> None:
        """Of cells with products.

        The gradient of a matrix takes a product with its operand, which, where it is computed, is as large as all
        states. It is computed anew for a part of the steps at a time, so that it is never whole in memory; the gradient
        of the state is carried from one part to the next.
        """
        form, T = self.form, self.time
        weight = matrices_of(form, self.weights, self.members)
        # A row at a time, transposed: units of the result are side by side in memory, as they are in registers.
        factors: Tensor | None = weight if division.matrix else weight.transpose(-1, -2).contiguous()
        in_parts = form.computes_operands and wants_weight
        parts = max(1, min(PARTS, T, self.states[0].numel() // NUMBERS_OF_A_PART)) if in_parts else 1
        for start, stop in reversed(list(pairwise(T * part // parts for part in range(parts + 1)))):
            operands = self._operands(start, stop) if wants_weight else []
            self._launch(division, factors, start, stop)
            if start == 0:
                factors = None  # before its like is asked for
            if wants_weight:
                if self.of_matrices is None:
                    self.of_matrices = self.saved.new_empty(self.members, self.hidden, form.blocks * self.hidden)
                self._add_products(operands, start, stop)
            del operands  # before the next ones are asked for

    def _launch(self, division: Plan, factors: Any, start: int, stop: int) -> None:
        units = self.states if self.units is None else self.units
        tensors = (self.upstream, factors, units, self.states, self.saved, self.carried)
        sizes = (start, stop, self.time, self.members, self.rows, division.span)
        launch = _retreating(self.form, division)
        if division.matrix:
            inbox = _inbox(division, self.saved, division.inputs // division.units)
            launch(division.grid, *tensors, inbox, *sizes, *factors.stride()[:2], self.strides)
        else:
            arrivals = _arrivals(division, self.saved)
            launch(division.grid, *tensors, self.sums, arrivals, 1, *sizes, self.hidden, self.strides)

    def _operands(self, start: int, stop: int) -> list[Tensor]:
        """What each product multiplies, ``(members, steps, rows, hidden)``, from what is saved."""
        form, program, H = self.form, self.form.program, self.hidden
        before = self.states[:, :, start:stop]
        if not form.computes_operands:
            return [before[slot.field] for slot in form.slots]
        after = self.states[:, :, start + 1 : stop + 1]
        values = dict(zip(program.states, after, strict=True))
        values |= {node: before[node.value] for node in program.nodes.made.values() if node.op == "s"}
        lanes = self.saved[:, start:stop].split(H, -1)
        values |= zip(form.saved, lanes, strict=False)
        if self.units is not None:
            values |= zip(program.units, self.units[:, None, None].split(H, -1), strict=True)
        computed = [program.products[slot.product].operand[slot.lane] for slot in form.slots]
        found = evaluate(computed, values, self.saved)
        # Gradients will be written over what is saved.
        return [value.clone() if node in form.saved else value for node, value in zip(computed, found, strict=True)]

    def _add_products(self, operands: list[Tensor], start: int, stop: int) -> None:
        """Write or, if other steps came first, add to the gradient of the matrices: products over steps and rows."""
        assert self.of_matrices is not None
        H = self.hidden
        # All lie network first, so that these are batched products on them as they are.
        grads = self.saved[:, start:stop].flatten(1, 2)
        shape = (self.members, stop - start, self.rows, H)
        for slot, operand in zip(self.form.slots, operands, strict=True):
            factor = (operand if operand.shape == shape else operand.expand(shape)).flatten(1, 2).mT
            for at, first, count in _runs(slot.order):
                columns = slice((slot.first + first) * H, (slot.first + first + count) * H)
                lanes = grads[..., (slot.start + at) * H : (slot.start + at + count) * H]
                self.of_matrices[..., columns].baddbmm_(factor, lanes, beta=0 if stop == self.time else 1)

    def of_lanes(self) -> Tensor | None:
        """The gradients summed over steps and rows, ``(members, lanes, hidden)``: one product for all who want one.

        None where no weight of units wants any; those of units that see themselves alone were summed on the way.
        """
        form = self.form
        if not form.blocks:
            return self.sums[form.sums :].sum(2).transpose(0, 1)
        if form.sums == len(form.of_units):
            return None
        columns = len(form.gradients) * self.hidden
        rows = self.saved.flatten(1, 2)
        rows = rows if columns == rows.shape[-1] else rows[..., :columns]
        return gradient_of_bias(rows).unflatten(-1, (-1, self.hidden))

    def of_units(self, of_lanes: Any) -> Tensor | None:
        """The gradient of the weights of units, ``(members, units * hidden)``."""
        if self.units is None:
            return None
        sums = iter(self.sums.sum(2) if self.form.sums else ())
        found = [next(sums) if lane is None else of_lanes[:, lane] for lane in self.form.of_units]
        return found[0] if len(found) == 1 else torch.cat(found, -1)

    def of_bias(self, of_lanes: Any) -> Tensor | None:
        """The gradient of the input's bias where it is known from ``of_lanes``, ``(members, lanes * hidden)``."""
        first = self.form.of_x
        return None if of_lanes is None else of_lanes[:, first : first + self.form.program.lanes].flatten(1)


@cache
def _runs(order: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Where blocks lie one after the other in both orders: the place in this one, that in the other, how many."""
    starts = [at for at in range(len(order)) if at == 0 or order[at] != order[at - 1] + 1]
    return [(a, order[a], b - a) for a, b in pairwise([*starts, len(order)])]


def all_states(
    form: Form, precision: str, x: Tensor, of_input: OfInput | None, weights: Weights, initial: Weights,
    steps: int | None = None,
) -> Weights:  # fmt: skip
    """The states after each step, each field ``(time, ..., rows, hidden)``.

    Args:
        x: inputs ``(time, ..., rows, in)``, or projected ones.
        of_input: the weights for the product with ``x``, with the same leading dimensions; None for projected inputs.
        weights: what the program prepares.
        initial: the fields of the state before the first step, ``(..., rows, hidden)``; none for zero.
        steps: how many, if ``x`` is one input for all of them; without a gradient alone.
    """
    *of_x, columns = (None, None, None, 0) if of_input is None else of_input
    tensors = (x, *of_x, *weights, *initial)
    if torch.is_grad_enabled() and any([tensor is not None and tensor.requires_grad for tensor in tensors]):
        return Recurrence.apply(form, precision, len(weights), columns, *tensors)
    flat = _flat(len(weights), columns, *tensors)
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
    flat = _flat(len(weights), columns, x, *of_x, *weights, *initial)
    states, _ = _advance(form, precision, *flat, save=False, only_last=True, steps=steps)
    end = states[:, :, (len(x) if steps is None else steps) % 2]
    return tuple(field.clone().reshape(*x.shape[1:-1], -1) for field in end)


def _flat(
    count: int, columns: int, x: Tensor, input_weight: Any, bias: Any, second: Any, *others: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None, Weights, Weights]:
    """The tensors with one leading dimension, both biases as one.

    The first ``count`` of the others are weights, which have theirs.
    """
    lead = x.dim() - 3
    bias = bias if second is None else with_first_columns(bias, second, columns)
    weight, bias = (None if tensor is None else one_lead(tensor, lead) for tensor in (input_weight, bias))
    return one_lead_in_time(x), weight, bias, others[:count], tuple(one_lead(field, lead) for field in others[count:])


def _advance(
    form: Form, precision: str, x: Tensor, input_weight: Tensor | None, input_bias: Tensor | None, weights: Weights,
    initial: Weights, *, save: bool, only_last: bool = False, steps: int | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """``advance_all`` on the tensors of ``_flat``: its states and what is saved.

    With ``steps`` there is one input for all steps, and nothing is saved.
    """
    H, lanes = form.program.hidden, form.program.lanes
    _, N, B, _ = x.shape
    division = _plan(form, x.device, N, B, precision, backward=save)
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
    return tuple(own_lead_in_time(field, lead) for field in states[:, :, 1:].transpose(1, 2).unbind(0))


class Recurrence(torch.autograd.Function):
    """``all_states``; the backward pass does the sequential part in few launches, the rest in large products.

    It is one function from the input to the states, with the leading dimensions as they are given: every view that
    autograd would see, and every further function, takes microseconds of host time, more than many steps take.
    """

    @staticmethod
    def forward(ctx: Any, form: Form, precision: str, count: int, columns: int, *tensors: Any) -> Weights:
        x, input_weight, input_bias, weights, initial = _flat(count, columns, *tensors)
        states, saved = _advance(form, precision, x, input_weight, input_bias, weights, initial, save=True)
        ctx.form, ctx.precision, ctx.columns = form, precision, columns
        ctx.lead, ctx.fields = tensors[0].shape[1:-2], len(initial)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(None if input_weight is None else x, input_weight, saved, states, *weights)
        return _after_each_step(states, ctx.lead)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        if torch.is_grad_enabled():  # create_graph=True, whatever the upstream gradients are functions of
            raise RuntimeError("the fused time loop has no second derivatives: use the reference time loop for them")
        form: Form = ctx.form
        u, input_weight, saved, states, *weights = ctx.saved_tensors
        N, T, B, _ = saved.shape
        H = form.program.hidden
        _, _, _, _, needs_x, needs_input_weight, needs_first, needs_second, *others = ctx.needs_input_grad
        needs_input_bias = needs_first or needs_second
        needs_weights = any(others[: len(weights)])
        if graph_is_kept():
            saved = saved.clone()  # Gradients are written over it, and a second pass will read it again.
        upstream = tuple(
            saved.new_zeros(()).expand(T, N, B, H) if grad is None else one_lead_in_time(grad) for grad in grads
        )
        of_x = of_input_weight = of_input_bias = None
        of_weights: list[Tensor | None] = [None] * len(weights)
        with without_autocast(saved.device.type):
            back = _Retreat(form, tuple(weights), upstream, states, saved)
            division = _plan(form, saved.device, N, B, ctx.precision, backward=True)
            if division is not None:
                back.with_products(division, wants_weight=needs_weights)
            else:
                back.alone()
            of_lanes = back.of_lanes() if needs_weights or needs_input_bias else None
            if needs_weights:
                of_weights = gradients_of_each(form, tuple(weights), back.of_matrices, back.of_units(of_lanes))
            grads_of_x = saved[..., form.of_x * H : (form.of_x + form.program.lanes) * H]
            if input_weight is None:
                of_x = grads_of_x.transpose(0, 1)
            else:
                of_input_bias = back.of_bias(of_lanes) if needs_input_bias else None
                if needs_x:
                    of_x = gradient_of_input(grads_of_x.flatten(1, 2), input_weight, T)
                lacks_bias = needs_input_bias and of_input_bias is None
                if needs_input_weight or lacks_bias:
                    way = way_of(u, input_weight, halves=False)
                    of_input_weight, of_product = gradients_of_weight(u, grads_of_x, way, bias=lacks_bias)
                    of_input_bias = of_product if lacks_bias else of_input_bias
        lead = ctx.lead
        of_input_bias = None if of_input_bias is None else of_input_bias.reshape(*lead, -1)
        return (
            None,
            None,
            None,
            None,
            None if of_x is None else own_lead_in_time(of_x, lead),
            None if of_input_weight is None else of_input_weight.reshape(*lead, *of_input_weight.shape[1:]),
            of_input_bias,
            None if of_input_bias is None or not needs_second else first_columns(of_input_bias, ctx.columns),
            *of_weights,
            *(back.carried[field].reshape(*lead, B, H) for field in range(ctx.fields)),
        )
