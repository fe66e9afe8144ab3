"""The time loop: buffers made once, products by PyTorch, the passes between them, and the gradient for autograd."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from multistable.scan.cpu.passes import Buffers, Shape, make_pass
from multistable.scan.program import Product, Program
from multistable.scan.program.stages import Pass, Stages, Window
from multistable.scan.retained import graph_is_kept
from multistable.scan.surroundings import without_autocast

Tensors = tuple[Tensor, ...]
Action = Callable[[int], object]
"""Part of a step, which takes the time."""


class Arguments(NamedTuple):
    """A scan; ``[N,]`` is there where many recurrences with weights of their own advance side by side."""

    program: Program
    steps: int
    projected: Tensor
    """``(steps, [N,] n, lanes * hidden)``, or ``(1, ...)`` when the input is constant in time."""
    state: Tensors
    """Each field ``([N,] n, hidden)``."""
    weights: Tensors
    """What the program prepares of the cell's weights."""


def all_states(scan: Arguments) -> Tensors:
    """The state after each step, each field ``(steps, [N,] n, hidden)``."""
    inputs = (scan.projected, *scan.state, *scan.weights)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Scan.apply(scan.program, scan.steps, len(scan.state), *inputs)
    states = _room(scan.state, scan.steps + 1)
    _advance(scan, states, gradient=False)
    return tuple(field[1:] for field in states)


def last_state(scan: Arguments) -> Tensors:
    """The state after the last step, each field ``([N,] n, hidden)``."""
    states = _room(scan.state, 2)
    _advance(scan, states, gradient=False)
    return tuple(field[scan.steps % 2] for field in states)


def _room(state: Tensors, times: int) -> Tensors:
    """Buffers for states at ``times`` times, of which the first is ``state``."""
    buffers = tuple(field.new_empty(times, *field.shape) for field in state)
    for buffer, field in zip(buffers, state, strict=True):
        buffer[0].copy_(field)
    return buffers


@cache
def _stages(program: Program, gradient: bool) -> Stages:
    return Stages(program, gradient=gradient)


def _advance(scan: Arguments, states: Tensors, *, gradient: bool) -> tuple[Tensor, dict[int, Tensor]]:
    """Fill ``states``, one with two times only in turns; returns what is saved, and the operands of products."""
    program, stages = scan.program, _stages(scan.program, gradient)
    times, *shape = (scan.steps if gradient else 1), *scan.state[0].shape[:-1]
    hidden = program.hidden
    lanes = max(stages.width, len(stages.gradients) if stages.in_place else 0) if gradient else stages.width
    saved = scan.projected.new_empty(times, *shape, lanes * hidden)
    operands = {
        index: saved.new_empty(times, *shape, len(product.operand) * hidden)
        for index, product in enumerate(program.products)
        if product.field is None
    }
    buffers: Buffers = {("projected", 0): scan.projected, ("saved", 0): saved}
    buffers |= {(name, index): field for index, field in enumerate(states) for name in ("state", "after")}
    buffers |= {("operand", index): operand for index, operand in operands.items()}
    buffers |= {("weight", index): weight for index, weight in enumerate(scan.weights)}

    def multiply(index: int) -> Action:
        product = program.products[index]
        operand = operands[index] if product.field is None else states[product.field]
        columns = slice(stages.columns[index] * hidden, (stages.columns[index] + len(product.lanes)) * hidden)
        return _product(operand, _matrix(product, scan.weights), saved[..., columns])

    before = [multiply(index) for index in stages.direct]
    _run(stages.forward, before, [], multiply, buffers, _shape_of(scan.state[0]), range(scan.steps))
    return saved, operands


def _run(
    passes: Sequence[Pass],
    before: Sequence[Action],
    after: Sequence[Action],
    multiply: Callable[[int], Action],
    buffers: Buffers,
    shape: Shape,
    times: range,
) -> None:
    """For each time all products and passes in turn; all times at once where there is one pass alone."""
    first, *_ = made = [make_pass(each, buffers, shape) for each in passes]
    if len(made) == 1 and not before and not after:
        first(times.start, times.stop, times.step)
        return
    step = times.step
    rest = [([multiply(index) for index in each.then], run) for run, each in zip(made, passes, strict=True)]
    for t in times:
        for action in before:
            action(t)
        for products, run in rest:
            run(t, t + step, step)
            for action in products:
                action(t)
        for action in after:
            action(t)


def _shape_of(field: Tensor) -> Shape:
    *members, rows, units = field.shape
    return Shape(members[0] if members else 1, rows, units)


def _product(operand: Tensor, matrix: Tensor, result: Tensor) -> Action:
    """The product at a time; buffers that have fewer times are taken in turns."""
    multiply = torch.mm if matrix.dim() == 2 else torch.bmm
    given, found = operand.unbind(0), result.unbind(0)
    return lambda t: multiply(given[t % len(given)], matrix, out=found[t % len(found)])


def _product_added(operand: Tensor, matrix: Tensor, result: Tensor) -> Action:
    """The product at a time, added to ``result``."""
    add = torch.addmm if matrix.dim() == 2 else torch.baddbmm
    given = operand.unbind(0)
    return lambda t: add(result, given[t], matrix, out=result)


def _matrix(product: Product, weights: Tensors) -> Tensor:
    matrices = [weights[place] for place in product.matrices]
    return matrices[0] if len(matrices) == 1 else torch.cat(matrices, -1)


class _Scan(torch.autograd.Function):
    """All states, with the gradients of the projected input, the initial state and the weights."""

    @staticmethod
    def forward(ctx: Any, program: Program, steps: int, fields: int, *inputs: Tensor) -> Tensors:
        projected, state, weights = inputs[0], inputs[1 : 1 + fields], inputs[1 + fields :]
        states = _room(state, steps + 1)
        saved, operands = _advance(Arguments(program, steps, projected, state, weights), states, gradient=True)
        ctx.program, ctx.constant, ctx.operands = program, len(projected) != steps, list(operands)
        ctx.sizes = [fields, 1, len(operands), len(weights)]
        ctx.save_for_backward(*states, saved, *operands.values(), *weights)
        ctx.set_materialize_grads(False)
        return tuple(field[1:] for field in states)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        # Not once_differentiable: where the upstream gradient is a constant it lets a wrong zero through.
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused loop on the CPU has no second derivatives (create_graph=True): use the reference"
            )
        tensors = iter(ctx.saved_tensors)
        states, (saved,), operands, weights = (tuple(islice(tensors, size)) for size in ctx.sizes)
        back = _Back(ctx.program, states, saved, dict(zip(ctx.operands, operands, strict=True)), weights)
        _, _, _, input_needs_it, *others_need_it = ctx.needs_input_grad
        of_weights: Iterable[Tensor | None] = (None for _ in weights)
        with without_autocast(saved.device.type):
            back.run(upstream)
            of_input = back.of_input(constant=ctx.constant) if input_needs_it else None
            if any(others_need_it[len(states) :]):
                of_weights = back.of_weights()
        return None, None, None, of_input, *back.of_state, *of_weights


class _Back:
    """The way back through all steps."""

    def __init__(
        self, program: Program, states: Tensors, saved: Tensor, operands: dict[int, Tensor], weights: Tensors
    ) -> None:
        self.program, self.stages = program, _stages(program, True)
        self.hidden, self.weights, self.operands = program.hidden, weights, operands
        self.states, self.saved = states, saved
        self.steps, shape = len(saved), states[0].shape[1:-1]
        if self.stages.in_place:
            self.saved = saved.clone() if graph_is_kept() else saved
            self.gradients = self.saved
        else:
            self.gradients = saved.new_empty(self.steps, *shape, len(self.stages.gradients) * self.hidden)
        self.of_state = tuple(saved.new_zeros(*shape, self.hidden) for _ in states)
        self.sums = saved.new_zeros(1, *shape, len(program.units) * self.hidden)

    def run(self, upstream: Sequence[Tensor | None]) -> None:
        """Find the gradients of all lanes, and of the state before the first step."""
        zero = self.saved.new_zeros(1, *self.of_state[0].shape)
        buffers: Buffers = {("saved", 0): self.saved, ("gradients", 0): self.gradients, ("sum", 0): self.sums}
        for index, field in enumerate(self.states):
            above = upstream[index]
            buffers |= {("state", index): field, ("after", index): field}
            buffers["gradient", index] = self.of_state[index][None]
            buffers["upstream", index] = zero if above is None else above
        buffers |= {("weight", index): weight for index, weight in enumerate(self.weights)}
        through = {index: zero.new_empty(1, *operand.shape[1:]) for index, operand in self.operands.items()}
        buffers |= {("through", index): gradient for index, gradient in through.items()}
        after = []
        for index in self.stages.direct:
            of_field = self.of_state[self.program.products[index].field or 0]
            after.append(_product_added(self._of_product(index), self._transposed(index), of_field))
        times = range(self.steps - 1, -1, -1)
        shape = _shape_of(self.of_state[0])

        def multiply(index: int) -> Action:
            return _product(self._of_product(index), self._transposed(index), through[index])

        _run(self.stages.backward, [], after, multiply, buffers, shape, times)

    def of_input(self, *, constant: bool) -> Tensor:
        """The gradient of the projected input."""
        columns = slice(self.stages.of_x * self.hidden, (self.stages.of_x + self.program.lanes) * self.hidden)
        gradient = self.gradients[..., columns]
        return gradient.sum(0, keepdim=True) if constant else gradient

    def of_weights(self) -> list[Tensor]:
        """The gradients of weights: one product over all steps for each product, and sums of what passes summed."""
        found = [torch.zeros_like(weight) for weight in self.weights]
        for index, product in enumerate(self.program.products):
            field = product.field
            operand = self.operands[index] if field is None else self.states[field][:-1]
            gradient = _sum_of_products(operand, self._of_product(index))
            window = self.stages.windows[index]
            if window.order != tuple(range(len(window.order))):
                lanes = gradient.split(self.hidden, -1)
                gradient = torch.cat([lanes[window.order.index(lane)] for lane in range(len(lanes))], -1)
            parts = gradient.split([self.weights[place].shape[-1] for place in product.matrices], -1)
            for place, part in zip(product.matrices, parts, strict=True):
                found[place] = found[place] + part
        if self.program.units:
            sums = self.sums[0].sum(-2, keepdim=True).split(self.hidden, -1)
            for unit, total in zip(self.program.units, sums, strict=True):
                place, lane = unit.value
                part = slice(None) if unit.of_row else slice(lane * self.hidden, (lane + 1) * self.hidden)
                gradient = found[place][..., part]
                shape = (1,) * (total.dim() - gradient.dim()) + gradient.shape
                gradient += total.sum_to_size(shape).view(gradient.shape)
        return found

    def _of_product(self, index: int) -> Tensor:
        """The gradient of a product, ``(steps, [N,] n, columns)``, its lanes in the order of its window."""
        window = self.stages.windows[index]
        return self.gradients[..., window.start * self.hidden : (window.start + len(window.order)) * self.hidden]

    def _transposed(self, index: int) -> Tensor:
        """The matrix for gradients, ``([N,] columns, rows)``, in the order of its window."""
        window: Window = self.stages.windows[index]
        matrix = _matrix(self.program.products[index], self.weights)
        if window.order != tuple(range(len(window.order))):
            lanes = matrix.split(self.hidden, -1)
            matrix = torch.cat([lanes[lane] for lane in window.order], -1)
        return matrix.mT.contiguous()


def _sum_of_products(a: Tensor, b: Tensor) -> Tensor:
    """The sum over time and batch of outer products: ``(t, [N,] n, i)``, ``(t, [N,] n, o)`` to ``([N,] i, o)``."""
    if a.dim() == 4:
        a, b = a.transpose(0, 1), b.transpose(0, 1)
    return a.flatten(-3, -2).mT @ b.flatten(-3, -2)
