"""A cell's step as data: write the step, get the fused loop.

A cell's author writes :meth:`Cell.step`, in PyTorch. Here PyTorch records what the step does (``trace``). The record is
read as nodes (``nodes``): values of one unit that are made of one another, products with matrices of weights between
them. What depends on weights alone stands before the loop, and is PyTorch's own to compute and to differentiate. The
derivatives of what stands between the products are PyTorch's too: its record of ``torch.func.vjp`` is read in the same
way. Those of the products are products, and those of the weights one product over all steps. ``stages`` divides the
nodes among the passes between the products, and says what is saved for the backward pass.

So a loop that is written once, with buffers and products, serves every cell: it asks :func:`program_of` what a pass
computes. A step that cannot be recorded, or has an operation that ``nodes.TORCH`` does not have, is refused with a
reason, and gets the plain loop.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from threading import RLock
from typing import Any

import torch
from torch import Tensor, fx

from multistable.cells.base import Cell
from multistable.scan.program.conditions import dependence
from multistable.scan.program.nodes import Graph, Node, ancestors, evaluate
from multistable.scan.program.preparation import Prepare, Window, preparation_of, windows_of
from multistable.scan.program.trace import Lanes, Reader, RefusedError, Stepper, apart, record

__all__ = ["Node", "Product", "Program", "RefusedError", "program_of"]

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Product:
    """A product of states with matrices, side by side.

    Attributes:
        operand: the lanes that are multiplied.
        matrices: the places of the matrices among the weights.
        lanes: of the result, each a leaf ``p``.
        field: the field of the state that the operand is, or None where it is computed.
    """

    operand: Lanes
    matrices: tuple[int, ...]
    lanes: Lanes
    field: int | None


@dataclass(frozen=True, eq=False)
class Program:
    """What a step computes and what its derivatives are.

    Leaves are: ``x`` lanes of the projected input, ``s`` fields of the state, ``u`` weights of units, ``p`` lanes of
    products; of the derivatives also ``g`` and ``up``, which together are the gradient of each field of the new state
    (from the steps after it and from outside), and ``o``, that of each lane of a product's operand.

    Attributes:
        nodes: where the nodes were made.
        hidden: the number of units.
        lanes: of the projected input, each ``hidden`` columns wide.
        units: the leaves ``u``.
        products: in an order in which each needs those before it alone.
        states: the new state.
        of_x, of_s, of_u, of_p: the gradient of each leaf; of ``u`` and ``p`` by leaf.
        prepare: from the tensors of :func:`weights_of` to those that the leaves ``u`` and the products count.
        windows: the same as parts of these tensors; None where it is more.
    """

    nodes: Graph
    hidden: int
    lanes: int
    units: Lanes
    products: tuple[Product, ...]
    states: Lanes
    of_x: Lanes
    of_s: Lanes
    of_u: dict[Node, Node]
    of_p: dict[Node, Node]
    prepare: Prepare
    windows: tuple[Window, ...] | None

    @cached_property
    def sources(self) -> tuple[int, ...]:
        """The places among all weights of those that the windows are of."""
        return tuple(dict.fromkeys(window.weight for window in self.windows or ()))

    def step(self, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[Tensors, dict[Node, Tensor]]:
        """The interpreter of one step: the new state, and the values of the leaves.

        Args:
            x: projected inputs, ``(..., n, lanes * hidden)``.
            state: each field ``(..., n, hidden)``.
            weights: what ``prepare`` returns.
        """
        values = dict(zip(self._leaves("x", self.lanes), x.split(self.hidden, -1), strict=True))
        values |= zip(self._leaves("s", len(state)), state, strict=True)
        for node in self.units:
            place, lane = node.value
            weight = weights[place]
            values[node] = weight if node.of_row else weight[..., lane * self.hidden : (lane + 1) * self.hidden]
        for product in self.products:
            operand = torch.cat([lane.expand_as(state[0]) for lane in evaluate(product.operand, values, x)], -1)
            result = torch.cat([operand @ weights[place] for place in product.matrices], -1)
            values |= zip(product.lanes, result.split(self.hidden, -1), strict=True)
        return tuple(lane.expand_as(state[0]) for lane in evaluate(self.states, values, x)), values

    def step_back(
        self, upstream: Sequence[Tensor], values: dict[Node, Tensor], weights: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The interpreter of one step back: the gradients of projected input, state and weights."""
        like = upstream[0]
        values = values | dict(zip(self._leaves("g", len(upstream)), upstream, strict=True))
        values |= {leaf: torch.zeros_like(like) for leaf in self._leaves("up", len(upstream))}
        of_weights = [torch.zeros_like(weight) for weight in weights]
        through: dict[int, Tensor] = {}
        for index, product in reversed(list(enumerate(self.products))):
            gradient = torch.cat([d.expand_as(like) for d in self._gradients(product.lanes, values)], -1)
            operand = torch.cat([lane.expand_as(like) for lane in evaluate(product.operand, values, like)], -1)
            matrices = [weights[place] for place in product.matrices]
            parts = gradient.split([matrix.shape[-1] for matrix in matrices], -1)
            for place, part in zip(product.matrices, parts, strict=True):
                of_weights[place] += operand.mT @ part
            back = gradient @ torch.cat(matrices, -1).mT
            if product.field is None:
                leaves = (self.nodes.leaf("o", (index, lane)) for lane in range(len(product.operand)))
                values |= zip(leaves, back.split(self.hidden, -1), strict=True)
            else:
                through[product.field] = through.get(product.field, 0) + back
        for node, of_unit in zip(self.units, self._gradients(self.units, values), strict=True):
            place, lane = node.value
            part = slice(None) if node.of_row else slice(lane * self.hidden, (lane + 1) * self.hidden)
            of_weights[place][..., part] += of_unit.expand_as(like).sum_to_size(of_weights[place][..., part].shape)
        of_x = [d.expand_as(like) for d in evaluate(self.of_x, values, like)]
        of_s = [d.expand_as(like) + through.get(f, 0) for f, d in enumerate(evaluate(self.of_s, values, like))]
        return torch.cat(of_x, -1), of_s, of_weights

    def _gradients(self, leaves: Lanes, values: dict[Node, Tensor]) -> list[Tensor]:
        of_leaf = self.of_u | self.of_p
        return evaluate([of_leaf[leaf] for leaf in leaves], values, next(iter(values.values())))

    def _leaves(self, op: str, count: int) -> Lanes:
        return tuple(self.nodes.leaf(op, index) for index in range(count))


def weights_of(cell: Cell[Any]) -> dict[str, Tensor]:
    """The parameters and buffers of a cell by name."""
    if not cell._modules:  # a search for what may be inside modules takes long
        return {name: weight for name, weight in (cell._parameters | cell._buffers).items() if weight is not None}
    return dict(cell.named_parameters(remove_duplicate=False)) | dict(cell.named_buffers(remove_duplicate=False))


_programs: dict[Any, "Program | RefusedError"] = {}
_recording = RLock()


def program_of(cell: Cell[Any], weights: dict[str, Tensor] | None = None, members: tuple[int, ...] = ()) -> Program:
    """The program of a cell's step; ``RefusedError`` where there is none.

    Args:
        weights: of the shapes that :func:`weights_of` the cell shall have.
        members: the leading dimension of these weights, if they have one.
    """
    weights = weights_of(cell) if weights is None else weights
    shapes = tuple([(name, weight.shape) for name, weight in weights.items()])
    key = (members, shapes, dependence(cell))
    found = _programs.get(key)
    if found is None:
        with _recording:  # PyTorch records one thing at a time
            if key not in _programs:
                # While two threads import it from different sides, here and in an optimiser, either gets an error.
                import_module("torch._dynamo")
                try:
                    _programs[key] = _made(cell, weights, members)
                except RefusedError as reason:
                    _programs[key] = reason
            found = _programs[key]
    if isinstance(found, RefusedError):
        raise found
    return found


def _made(cell: Cell[Any], weights: dict[str, Tensor], leading: tuple[int, ...]) -> Program:
    sizes = {size for weight in weights.values() for size in weight.shape} | {cell.hidden_size, *leading}
    rows = next(prime for prime in (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47) if prime not in sizes)
    own = apart(cell)  # other threads may use the cell, and a step may change it
    with torch.random.fork_rng(devices=[]), ThreadPoolExecutor(1) as another_thread:
        # Modes and hooks of PyTorch are of a thread: in another the caller's do not reach the record.
        program = another_thread.submit(torch.no_grad()(_recorded), own, weights, leading, rows).result()
    if dependence(own) != dependence(cell):
        raise RefusedError("its step changes an attribute of the cell")
    return program


def _recorded(cell: Cell[Any], weights: dict[str, Tensor], leading: tuple[int, ...], rows: int) -> Program:
    stepper, hidden, fields = Stepper(cell), cell.hidden_size, len(cell.State._fields)
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator, device="cpu")

    names = list(weights)
    values = [0.5 * drawn(*weight.shape) for weight in weights.values()]
    state = [drawn(*leading, rows, hidden) for _ in range(fields)]

    def step(x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
        named = dict(zip(names, weights, strict=True))
        return tuple(stepper.call(named, type(cell).checked_step, x, cell.State(*state)))

    try:
        u = drawn(1, *leading, rows, cell.input_size)
        x = stepper.call(dict(zip(names, values, strict=True)), type(cell).project, u)[0]
        if any(field.shape[-1] != hidden for field in cell.zero_state(x)):
            raise RefusedError(f"its state has fields of other sizes than hidden_size, {hidden}")
        recorded = record(step, x, tuple(state), tuple(values), fake=True)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(_why(error)) from error
    if x.shape[-1] % hidden:
        raise RefusedError(f"its projected input has {x.shape[-1]} columns, no multiple of hidden_size, {hidden}")
    nodes = Graph()
    reader = Reader(nodes, hidden, rows)
    lanes = tuple(nodes.leaf("x", lane) for lane in range(x.shape[-1] // hidden))
    old = [(nodes.leaf("s", index),) for index in range(fields)]
    new = reader.read(recorded, [lanes, *old, *(None for _ in values)])
    if [len(field) for field in new] != [1] * fields:
        raise RefusedError(f"its step returns no state of {fields} fields, each of {hidden} units")
    try:
        shapes, ends = [value.shape for value in values], tuple(field[0] for field in new)
        program = _differentiated(nodes, hidden, len(lanes), reader, ends, recorded, shapes)
        same = all(_is_step(program, step, x, state, values, generator, size) for size in (1.0, 1e6, 1e-6))
        fewer = [field[..., :2, :].float() for field in state]
        same = same and _has_states(program, step, x[..., :2, :].float(), fewer, [value.float() for value in values])
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(_why(error)) from error
    if not same:
        raise RefusedError("its step has derivatives of its own, or is not the same at every call")
    return program


def _why(error: Exception) -> str:
    name = type(error).__name__
    if name in ("DataDependentOutputException", "GuardOnDataDependentSymNode"):
        return "its step decides or computes in Python by the values of tensors"
    return f"its step could not be recorded: {name}: {str(error).strip().splitlines()[0] if str(error) else ''}"


def _differentiated(
    nodes: Graph, hidden: int, lanes: int, reader: Reader, states: Lanes, recorded: fx.Graph, shapes: list[torch.Size]
) -> Program:
    """The program, with derivatives that PyTorch finds of what stands between the products."""
    prepare = preparation_of(recorded, reader.weights)
    products = _side_by_side(reader)
    roots = [lane for product in products for lane in product.operand] + list(states)
    units = tuple(node for node in ancestors(roots) if node.op == "u")
    x = tuple(nodes.leaf("x", lane) for lane in range(lanes))
    s = tuple(nodes.leaf("s", index) for index in range(len(states)))
    leaves = (*x, *s, *units, *(lane for product in products for lane in product.lanes))
    computed = [(index, product) for index, product in enumerate(products) if product.field is None]
    outputs = [*(lane for _, product in computed for lane in product.operand), *states]
    upstream = [nodes.leaf("o", (index, lane)) for index, product in computed for lane in range(len(product.operand))]
    upstream += [nodes("add", nodes.leaf("g", index), nodes.leaf("up", index)) for index in range(len(states))]

    def both(values: Tensors, gradients: Tensors) -> tuple[Tensor, ...]:
        def results(*values: Tensor) -> Tensors:
            found = evaluate(outputs, dict(zip(leaves, values, strict=True)), values[0])
            return tuple(result.expand_as(values[0]) for result in found)

        found, back, *_ = torch.func.vjp(results, *values)
        return *found, *back(gradients)

    draws = [
        tuple(torch.rand(2, hidden, dtype=torch.float64, device="cpu") for _ in group) for group in (leaves, upstream)
    ]
    derivative = Reader(nodes, hidden, 2, derivative=True)
    found = derivative.read(record(both, *draws), [(node,) for node in (*leaves, *upstream)])
    values = iter(node for (node,) in found)
    results = [next(values) for _ in outputs]
    of_leaf = {leaf: next(values) for leaf in leaves}
    operands, after = iter(results[: -len(states)]), tuple(results[-len(states) :])
    products = [
        Product(
            product.operand if product.field is not None else tuple(next(operands) for _ in product.operand),
            product.matrices,
            product.lanes,
            product.field,
        )
        for product in products
    ]
    return Program(
        nodes,
        hidden,
        lanes,
        units,
        tuple(products),
        after,
        tuple(of_leaf[leaf] for leaf in x),
        tuple(of_leaf[leaf] for leaf in s),
        {leaf: of_leaf[leaf] for leaf in units},
        {lane: of_leaf[lane] for product in products for lane in product.lanes},
        prepare,
        windows_of(reader.weights, prepare, shapes),
    )


def _side_by_side(reader: Reader) -> list[Product]:
    """The products, those of one operand as one."""
    found: dict[Lanes, list[tuple[int, int, int]]] = {}
    for index, (operand, place, count) in enumerate(reader.products):
        found.setdefault(operand, []).append((index, place, count))
    products = []
    for operand, parts in found.items():
        lanes = [reader.nodes.leaf("p", (index, lane)) for index, _, count in parts for lane in range(count)]
        field = operand[0].value if len(operand) == 1 and operand[0].op == "s" else None
        products.append(Product(operand, tuple(place for _, place, _ in parts), tuple(lanes), field))
    return products


def _has_states(
    program: Program,
    step: Callable[..., tuple[Tensor, ...]],
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
) -> bool:
    """Whether the program gives the states of the step in float32, and for other rows than were recorded."""
    expected, (found, _) = step(x, state, weights), program.step(x, state, program.prepare(weights))
    pairs = list(zip(found, expected, strict=True))
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True) for a, b in pairs)


def _is_step(
    program: Program,
    step: Callable[..., tuple[Tensor, ...]],
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    generator: torch.Generator,
    size: float,
) -> bool:
    """Whether the program is the step: not where that has derivatives of its own, or is a matter of chance.

    The gradients that come from above are of the ``size``, since a step may clip them.
    """
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in (x, *state, *weights)]
        own, fields = leaves[: 1 + len(state)], leaves[1 : 1 + len(state)]
        expected = step(leaves[0], fields, leaves[1 + len(state) :])
        prepared = program.prepare(leaves[1 + len(state) :])
    draws = [torch.randn(field.shape, dtype=field.dtype, generator=generator, device="cpu") for field in expected]
    upstream = [size * draw for draw in draws]
    values, known = program.step(x, state, prepared)
    of_x, of_s, of_weights = program.step_back(upstream, known, [weight.detach() for weight in prepared])
    wanted = _gradients(expected, leaves, upstream)
    through = _gradients(prepared, leaves[len(own) :], of_weights)
    pairs = zip((*values, of_x, *of_s, *through), (*expected, *wanted), strict=True)
    return all(torch.allclose(a, b, rtol=1e-8, atol=1e-8 * max(size, 1), equal_nan=True) for a, b in pairs)


def _gradients(results: Sequence[Tensor], leaves: list[Tensor], upstream: Sequence[Tensor]) -> list[Tensor]:
    """Those of ``leaves``; zero where there are none."""
    parts = [(result, up) for result, up in zip(results, upstream, strict=True) if result.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(leaves)
    if parts:
        results, upstream = zip(*parts, strict=True)
        found = torch.autograd.grad(results, leaves, upstream, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]
