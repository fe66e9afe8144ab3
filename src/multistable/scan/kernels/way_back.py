"""The way back through a recurrence: launches, and the gradients of matrices and of weights of units."""

from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from multistable.scan.kernels import gpu
from multistable.scan.kernels.backward import retreat
from multistable.scan.kernels.elementwise import STEPS_AHEAD, UNITS_PER_PROGRAM, retreat_units
from multistable.scan.kernels.form import Form
from multistable.scan.kernels.launch import Launch
from multistable.scan.kernels.plan import HELD_BACKWARD, Plan
from multistable.scan.kernels.project import gradient_of_bias
from multistable.scan.kernels.text import module_of
from multistable.scan.kernels.weights import Weights, matrices_of, units_of
from multistable.scan.program.nodes import evaluate

REGISTERS = 136
"""The most of a thread: with more, fewer programs hide each other's reads; with less, registers spill."""

PARTS = 4
NUMBERS_OF_A_PART = 2**22
"""The backward pass of a cell that computes operands divides time into so many parts, if each has at least so many
numbers in an operand: see ``WayBack.with_products``."""


@cache
def _launch_of(form: Form, division: Plan | None) -> Launch:
    """The kernel of the way back."""
    functions = module_of(*form.functions)
    constants: dict[str, Any] = {
        "FINISH": functions.finish_retreat, "BEFORE": form.before, "AFTER": form.after, "FIELDS": form.fields,
        "UNITS": len(form.program.units), "SUMS": form.sums, "SAVED": len(form.saved), "WIDTH": form.width,
    }  # fmt: skip
    if division is None:
        return Launch(
            retreat_units, X=form.program.lanes, BLOCK=UNITS_PER_PROGRAM, AHEAD=STEPS_AHEAD, num_warps=1,
            maxnreg=REGISTERS, **constants,
        )  # fmt: skip
    constants |= {
        "RETREAT": functions.retreat, "RETREATS": form.retreats, "INTO": form.into, "ORDER": form.order,
        "IN_PARTS": form.computes_operands, "PADDED": division.units * division.splits != form.program.hidden,
        **division.constants,
    }  # fmt: skip
    if not division.matrix:
        return Launch(retreat, **constants)
    del constants["SUMS"]  # such a form has none
    return Launch(gpu.matrix_kernels().retreat, H=form.program.hidden, HELD=HELD_BACKWARD, **constants)


class WayBack:
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
        self.strides = tuple([field.stride() for field in upstream])

    def alone(self) -> None:
        """Of units that see themselves alone."""
        T, B, H = self.time, self.rows, self.hidden
        units = self.states if self.units is None else self.units
        tensors = (self.upstream, units, self.states, self.saved, self.carried, self.sums)
        grid = (-(-B * H // UNITS_PER_PROGRAM), self.members)
        _launch_of(self.form, None)(grid, *tensors, T, B, H, self.strides)

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
        for start, stop in reversed(list(pairwise([T * part // parts for part in range(parts + 1)]))):
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
        launch = _launch_of(self.form, division)
        if division.matrix:
            inbox = gpu.inbox_of(division, self.saved, division.inputs // division.units)
            launch(division.grid, *tensors, inbox, *sizes, *factors.stride()[:2], self.strides)
        else:
            arrivals = gpu.arrivals_of(division, self.saved)
            launch(division.grid, *tensors, self.sums, arrivals, 1, *sizes, self.hidden, self.strides)

    def _operands(self, start: int, stop: int) -> list[Tensor]:
        """What each product multiplies, transposed, ``(members, hidden, steps * rows)``, from what is saved."""
        form, program, H = self.form, self.form.program, self.hidden
        shape, step = (self.members, stop - start, self.rows, H), self.rows * H
        if not form.computes_operands:
            size, times = (self.members, H, (stop - start) * self.rows), self.time + 1
            strides, field = (times * step, 1, H), self.members * times * step
            places = [slot.field for slot in form.slots if slot.field is not None]
            return [self.states.as_strided(size, strides, place * field + start * step) for place in places]
        before = self.states[:, :, start:stop]
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
        apart = [value.clone() if node in form.saved else value for node, value in zip(computed, found, strict=True)]
        return [value.expand(shape).flatten(1, 2).mT for value in apart]

    def _add_products(self, operands: list[Tensor], start: int, stop: int) -> None:
        """Write or, if other steps came first, add to the gradient of the matrices: products over steps and rows."""
        assert self.of_matrices is not None
        H, blocks = self.hidden, self.form.blocks
        for slot, factor in zip(self.form.slots, operands, strict=True):
            for at, first, count in _runs(slot.order):
                lanes, target = self.lanes(slot.start + at, count, start, stop), self.of_matrices
                if count != blocks:
                    size, strides = (self.members, H, count * H), (H * blocks * H, blocks * H, 1)
                    target = target.as_strided(size, strides, (slot.first + first) * H)
                target.baddbmm_(factor, lanes, beta=0 if stop == self.time else 1)

    def lanes(self, first: int, count: int, start: int, stop: int) -> Tensor:
        """Some lanes of gradients, ``(members, steps * rows, count * hidden)``, a view."""
        # All lie network first, so that products are batched ones on them as they are.
        width = self.form.width * self.hidden
        size = (self.members, (stop - start) * self.rows, count * self.hidden)
        strides = (self.time * self.rows * width, width, 1)
        return self.saved.as_strided(size, strides, start * self.rows * width + first * self.hidden)

    def of_lanes(self) -> Tensor | None:
        """The gradients summed over steps and rows, ``(members, lanes, hidden)``: one product for all who want one.

        None where no weight of units wants any; those of units that see themselves alone were summed on the way.
        """
        form = self.form
        if not form.blocks:
            return self.sums[form.sums :].sum(2).transpose(0, 1)
        if form.sums == len(form.of_units):
            return None
        of_all = gradient_of_bias(self.lanes(0, len(form.gradients), 0, self.time))
        return of_all.view(self.members, -1, self.hidden)

    def of_units(self, of_lanes: Any) -> Tensor | None:
        """The gradient of the weights of units, ``(members, units * hidden)``."""
        if self.units is None:
            return None
        sums = iter(self.sums.sum(2) if self.form.sums else ())
        found = [next(sums) if lane is None else of_lanes[:, lane] for lane in self.form.of_units]
        return found[0] if len(found) == 1 else torch.cat(found, -1)

    def of_bias(self, of_lanes: Any) -> Tensor | None:
        """The gradient of the input's bias where it is known from ``of_lanes``, ``(members, lanes, hidden)``."""
        first = self.form.of_x
        return None if of_lanes is None else of_lanes[:, first : first + self.form.program.lanes]


@cache
def _runs(order: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Where blocks lie one after the other in both orders: the place in this one, that in the other, how many."""
    starts = [at for at in range(len(order)) if at == 0 or order[at] != order[at - 1] + 1]
    return [(a, order[a], b - a) for a, b in pairwise([*starts, len(order)])]
