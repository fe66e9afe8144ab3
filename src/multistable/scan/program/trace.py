"""From a Python step to nodes: what PyTorch records of it, operation by operation."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from multistable.scan.program.nodes import TORCH, Graph, Node

aten = torch.ops.aten
Lanes = tuple[Node, ...]
"""The columns of a tensor, in blocks of ``hidden_size``; or one node that is the same for all units of a row."""


class RefusedError(Exception):
    """A step that no fused loop can be made of; says why."""


def apart(module: Any) -> Any:
    """A module with the same weights and options that shares no dictionary with it, nor do the modules inside."""
    twin = object.__new__(type(module))  # copy.copy asks __getstate__, which parametrised modules refuse
    twin.__dict__ = dict(vars(module))
    twin._parameters, twin._buffers = dict(module._parameters), dict(module._buffers)
    twin._modules = {name: None if inside is None else apart(inside) for name, inside in module._modules.items()}
    return twin


class Stepper(nn.Module):
    """What is done with a cell as a function of its weights, by ``torch.func.functional_call``."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function of the cell."""
        return function(self.cell, *arguments)

    def call(self, weights: dict[str, Tensor], function: Callable[..., Any], *arguments: Any) -> Any:
        """The same with other weights."""
        named = {f"cell.{name}": weight for name, weight in weights.items()}
        return torch.func.functional_call(self, named, (function, *arguments))


def record(function: Callable[..., Any], *arguments: Any, fake: bool = False) -> fx.Graph:
    """What PyTorch is asked to do by a function of tensors; with ``fake`` ones, a look at their values is an error."""
    composite = [
        *(aten.softplus, aten.softplus_backward, aten.silu, aten.silu_backward, aten.elu, aten.elu_backward),
        *(aten.leaky_relu, aten.leaky_relu_backward, aten.hardtanh, aten.hardtanh_backward, aten.mish),
        *(aten.mish_backward, aten.log_sigmoid_forward, aten.log_sigmoid_backward, aten.addcmul, aten.addcdiv),
        *(aten.lerp, aten.addmm, aten.baddbmm),
    ]
    table: Any = get_decompositions(composite) | {aten.native_layer_norm.default: _layer_norm}
    # What is changed in place becomes a new value; where it is an input, a copy_ at the end says so.
    out_of_place = torch.func.functionalize(function)
    mode: Any = "fake" if fake else "real"
    recorded = make_fx(out_of_place, table, tracing_mode=mode, _allow_non_fake_inputs=True)(*arguments)
    return recorded.graph


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if len(shape) > 1:
        raise RefusedError(f"its step has a layer_norm over {len(shape)} dimensions")
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    slope = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    result = centred * slope if weight is None else centred * slope * weight
    return (result if bias is None else result + bias), mean, slope


class Reader:
    """Turns a record into nodes.

    Args:
        nodes: where they are made.
        hidden: the number of units.
        rows: the number of rows in the record, no other size of which is the same.
        derivative: whether derivatives have been taken, so that ``detach`` has done its work.
    """

    def __init__(self, nodes: Graph, hidden: int, rows: int, *, derivative: bool = False) -> None:
        self.nodes, self.hidden, self.rows, self.derivative = nodes, hidden, rows, derivative
        self.weights: list[fx.Node] = []
        """What the step takes that depends on parameters alone; the ``value`` of ``u`` and ``p`` counts in it."""
        self.products: list[tuple[Lanes, int, int]] = []
        """Each operand, the place of its matrix in ``weights``, and how many lanes the product has."""
        self.known: dict[fx.Node, Any] = {}

    def read(self, graph: fx.Graph, inputs: Sequence[Lanes | None]) -> list[Lanes]:
        """The lanes of each output, from those of each input; an input that is None is a parameter."""
        given = iter(inputs)
        for node in graph.nodes:
            if node.op == "placeholder":
                self.known[node] = _or_weight(next(given), node)
            elif node.op == "get_attr":
                self.known[node] = self._constant(node)
            elif node.op == "call_function":
                self.known[node] = self._call(node)
            elif node.op == "output":
                return [self._lanes(self._value(arg)) for arg in _flat(node.args)]
        raise AssertionError("a record has an output")

    def _value(self, arg: Any) -> Any:
        return self.known[arg] if isinstance(arg, fx.Node) else arg

    def _constant(self, node: fx.Node) -> Lanes:
        tensor = getattr(node.graph.owning_module, str(node.target), None)
        if not isinstance(tensor, Tensor) or tensor.numel() != 1 or type(tensor) is not Tensor:
            raise RefusedError("its step reads a tensor that is neither a parameter nor a buffer of the cell")
        return (self.nodes.const(tensor.item()),)

    def _call(self, node: fx.Node) -> Any:
        name: str = getattr(node.target, "overloadpacket", node.target).__name__  # type: ignore[union-attr]
        if name.endswith("_") and not name.startswith("_"):
            raise RefusedError(f"its step changes its state, its input or a weight in place (aten.{name})")
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise RefusedError(f"its step draws random numbers (aten.{name})")
        given = [self._value(arg) for arg in _flat((node.args, node.kwargs)) if isinstance(arg, fx.Node)]
        of_weights = all(isinstance(value, fx.Node) for value in given)
        filled = not given and (self._has_rows(node) or (name in _FILLED and _value_of(node).numel() == 1))
        if of_weights and not filled and not self._has_rows(node):
            return node
        if of_weights and given and name in ("expand", "expand_as", "repeat"):
            return self._lanes(given[0])
        if filled and name in _FILLED:
            return self._like(node, _FILLED[name](node.args))
        if name == "detach" and self.derivative:
            return given[0]
        if name in _OWN:
            return _OWN[name](self, node, *map(self._value, node.args), **node.kwargs)
        raise RefusedError(f"its step has the operation aten.{name}, which fused loops do not know")

    def _has_rows(self, node: fx.Node) -> bool:
        values = _value_of(node)
        return any(value.dim() > 1 and value.shape[-2] == self.rows for value in _flat((values,)))

    def _like(self, node: fx.Node, number: Any) -> Lanes:
        return (self.nodes.const(float(number)),) * self._count(_value_of(node))

    def _count(self, value: Tensor) -> int:
        """The lanes of a tensor of rows."""
        width = value.shape[-1] if value.dim() else 1
        if width != 1 and width % self.hidden:
            raise RefusedError(f"its step has {width} columns, no multiple of hidden_size, {self.hidden}")
        return max(1, width // self.hidden)

    def _lanes(self, value: Any) -> Lanes:
        """A value as lanes; of numbers and of weights too."""
        if isinstance(value, tuple):
            return value
        if isinstance(value, fx.Node):
            return self._unit(value)
        return (self.nodes.const(float(value)),)

    def _unit(self, weight: fx.Node) -> Lanes:
        """A weight for each unit, or one number for all."""
        value = _value_of(weight)
        count = self._count(value)
        if value.dim() > 1 and value.shape[-2] != 1:
            raise RefusedError(f"its step has a weight of {tuple(value.shape)} where one for each unit is known")
        place, of_row = self._place(weight), value.dim() == 0 or value.shape[-1] != count * self.hidden
        return tuple(self.nodes.leaf("u", (place, lane), of_row=of_row) for lane in range(count))

    def _place(self, weight: fx.Node) -> int:
        if weight not in self.weights:
            self.weights.append(weight)
        return self.weights.index(weight)

    def pointwise(self, function: Callable[..., Node], *values: Any) -> Lanes:
        """``function`` of each lane, with what is the same for all units beside all of them."""
        operands = [self._lanes(value) for value in values]
        count = max(map(len, operands))
        for operand in operands:
            if len(operand) != count and not (len(operand) == 1 and operand[0].of_row):
                raise RefusedError("its step broadcasts units, which fused loops do not know")
        rows = [operand if len(operand) == count else operand * count for operand in operands]
        return tuple(function(*lane) for lane in zip(*rows, strict=True))

    def product(self, node: fx.Node, operand: Any, matrix: Any) -> Lanes:
        """The product of states with a matrix of weights."""
        if not isinstance(operand, tuple) or not isinstance(matrix, fx.Node):
            raise RefusedError("its step has a product that is not of states with a matrix of weights")
        rows, columns = _value_of(matrix).shape[-2:]
        if rows != len(operand) * self.hidden or columns % self.hidden:
            sizes = f"{rows} x {columns}"
            raise RefusedError(f"its step has a matrix of {sizes}, no blocks of hidden_size, {self.hidden}")
        count = columns // self.hidden
        self.products.append((operand, self._place(matrix), count))
        return tuple(self.nodes.leaf("p", (len(self.products) - 1, lane)) for lane in range(count))


def _or_weight(lanes: Lanes | None, node: fx.Node) -> Any:
    return node if lanes is None else lanes


def _value_of(node: fx.Node) -> Any:
    return node.meta["val"]


def _flat(args: Iterable[Any]) -> list[Any]:
    """All that stands in nested lists and tuples."""
    found = []
    for arg in args.values() if isinstance(args, dict) else args:
        found += _flat(arg) if isinstance(arg, list | tuple | dict) else [arg]
    return found


def _last(node: fx.Node, dim: int) -> None:
    value = _value_of(node)
    value = value[0] if isinstance(value, list | tuple) else value
    if dim not in (-1, value.dim() - 1):
        raise RefusedError("its step takes rows apart or puts rows together")


def _same(reader: Reader, node: fx.Node, value: Any, *_: Any, **__: Any) -> Lanes:
    lanes = reader._lanes(value)
    result = _value_of(node)
    if node.args and result.shape[-2:] != _value_of(node.args[0]).shape[-2:]:  # type: ignore[arg-type]
        if len(lanes) == 1 and lanes[0].of_row:
            return lanes * reader._count(result)
        raise RefusedError(f"its step changes the shape of a state, to {tuple(result.shape)}")
    return lanes


def _cat(reader: Reader, node: fx.Node, tensors: Sequence[Any], dim: int = 0) -> Lanes:
    _last(node, dim)
    lanes: Lanes = ()
    for tensor in tensors:
        part = reader._lanes(reader._value(tensor))
        lanes += part
    return lanes


def _split(reader: Reader, node: fx.Node, value: Lanes, sizes: Any, dim: int = 0) -> list[Lanes]:
    _last(node, dim)
    widths = [part.shape[-1] for part in _value_of(node)]
    starts = [sum(widths[:index]) for index in range(len(widths))]
    return [reader_slice(reader, value, start, start + width) for start, width in zip(starts, widths, strict=True)]


def reader_slice(reader: Reader, value: Lanes, start: int, stop: int) -> Lanes:
    """The lanes between two columns."""
    if start % reader.hidden or stop % reader.hidden:
        raise RefusedError(f"its step takes columns {start} to {stop}, no blocks of hidden_size, {reader.hidden}")
    return value[start // reader.hidden : stop // reader.hidden]


def _slice(
    reader: Reader, node: fx.Node, value: Lanes, dim: int = 0, start: Any = None, stop: Any = None, step: int = 1
) -> Lanes:
    width = len(value) * reader.hidden
    first, last, step = slice(start, stop, step).indices(_value_of(node.args[0]).shape[dim])  # type: ignore[arg-type]
    if dim not in (-1, _value_of(node).dim() - 1):
        if _value_of(node).shape == _value_of(node.args[0]).shape:  # type: ignore[arg-type]
            return value
        _last(node, dim)
    if step != 1:
        raise RefusedError("its step takes every few columns of a state")
    return reader_slice(reader, value, first, min(last, width))


def _sum(reader: Reader, node: fx.Node, value: Lanes, dims: Any = None, keepdim: bool = False, **_: Any) -> Lanes:
    _last(node, dims[0] if dims and len(dims) == 1 else 0)
    if not keepdim:
        raise RefusedError("its step takes sums over units without keepdim=True")
    nodes, total = reader.nodes, None
    for lane in value:
        part = lane if reader.hidden == 1 else nodes("mul", lane, reader.hidden) if lane.of_row else nodes("sum", lane)
        total = part if total is None else nodes("add", total, part)
    assert total is not None
    return (total,)


def _mean(reader: Reader, node: fx.Node, value: Lanes, dims: Any = None, keepdim: bool = False, **_: Any) -> Lanes:
    (total,) = _sum(reader, node, value, dims, keepdim)
    return (reader.nodes("mul", total, 1 / _value_of(node.args[0]).shape[-1]),)  # type: ignore[arg-type]


def _convert(reader: Reader, node: fx.Node, value: Lanes, **options: Any) -> Lanes:
    if _value_of(node.args[0]).dtype == torch.bool:  # type: ignore[arg-type]
        return reader.pointwise(lambda x: reader.nodes("where", x, 1.0, 0.0), value)
    if _value_of(node).dtype != _value_of(node.args[0]).dtype:  # type: ignore[arg-type]
        raise RefusedError(f"its step converts a state to {_value_of(node).dtype}")
    return value


def _pow(reader: Reader, node: fx.Node, value: Any, exponent: Any) -> Lanes:
    if not isinstance(exponent, int | float) or isinstance(value, int | float):
        raise RefusedError("its step has a power that is not a constant (aten.pow)")
    return reader.pointwise(lambda x: reader.nodes.power(x, exponent), value)


def _div(reader: Reader, node: fx.Node, x: Any, y: Any, rounding_mode: Any = None) -> Lanes:
    if rounding_mode is not None:
        raise RefusedError("its step rounds (aten.div with a rounding mode)")
    return reader.pointwise(lambda a, b: reader.nodes("div", a, b), x, y)


def _bounded(reader: Reader, node: fx.Node, x: Any, low: Any = None, high: Any = None) -> Lanes:
    result = reader._lanes(x)
    for op, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            result = reader.pointwise(lambda a, b, op=op: reader.nodes(op, a, b), result, bound)
    return result


def _formula(function: Callable[..., Node]) -> Callable[..., Lanes]:
    """An operation that is pointwise, by what it is made of."""

    def read(reader: Reader, node: fx.Node, *values: Any, **options: Any) -> Lanes:
        return reader.pointwise(lambda *lanes: function(reader.nodes, *lanes, **options), *values)

    return read


def _plain(name: str) -> Callable[..., Lanes]:
    return _formula(lambda nodes, *lanes: nodes(name, *lanes))


def _sign(g: Graph, x: Node) -> Node:
    return g("where", g("gt", x, 0.0), 1.0, g("where", g("lt", x, 0.0), -1.0, 0.0))


_OWN: dict[str, Callable[..., Any]] = {name: _plain(name) for name in TORCH.keys() - {"sum", "pow", "div"}}
_OWN |= {f"logical_{name}": _plain(name) for name in ("and", "or", "not")}
_OWN |= {f"bitwise_{name}": _plain(name) for name in ("and", "or", "not")}
_OWN |= dict.fromkeys(("view", "_unsafe_view", "reshape", "expand", "clone", "alias", "contiguous"), _same)
_OWN |= {
    "__and__": _plain("and"),
    "__or__": _plain("or"),
    "lift_fresh_copy": _same,
    "getitem": lambda reader, node, values, index: values[index],
    "split": _split,
    "split_with_sizes": _split,
    "slice": _slice,
    "cat": _cat,
    "sum": _sum,
    "mean": _mean,
    "_to_copy": _convert,
    "mm": Reader.product,
    "bmm": Reader.product,
    "pow": _pow,
    "div": _div,
    "clamp": _bounded,
    "clamp_min": lambda reader, node, x, low: _bounded(reader, node, x, low),
    "clamp_max": lambda reader, node, x, high: _bounded(reader, node, x, None, high),
    "ones_like": lambda reader, node, *_, **__: reader._like(node, 1),
    "zeros_like": lambda reader, node, *_, **__: reader._like(node, 0),
    "new_zeros": lambda reader, node, *_, **__: reader._like(node, 0),
    "new_ones": lambda reader, node, *_, **__: reader._like(node, 1),
    "full_like": lambda reader, node, x, number, **_: reader._like(node, number),
    "new_full": lambda reader, node, x, size, number, **_: reader._like(node, number),
    "add": _formula(lambda g, a, b, alpha=1: g("add", a, g("mul", b, alpha))),
    "sub": _formula(lambda g, a, b, alpha=1: g("sub", a, g("mul", b, alpha))),
    "rsub": _formula(lambda g, a, b, alpha=1: g("sub", b, g("mul", a, alpha))),
    "relu": _formula(lambda g, x: g("where", g("le", x, 0.0), 0.0, x)),
    "threshold_backward": _formula(lambda g, up, y, limit: g("where", g("le", y, limit), 0.0, up)),
    "sigmoid_backward": _formula(lambda g, up, y: g("mul", up, g("mul", y, g("sub", 1.0, y)))),
    "tanh_backward": _formula(lambda g, up, y: g("mul", up, g("sub", 1.0, g("mul", y, y)))),
    "square": _formula(lambda g, x: g("mul", x, x)),
    "reciprocal": _formula(lambda g, x: g("div", 1.0, x)),
    "rsqrt": _formula(lambda g, x: g("div", 1.0, g("sqrt", x))),
    "sgn": _formula(_sign),
    "sign": _formula(_sign),
    "masked_fill": _formula(lambda g, x, mask, number: g("where", mask, number, x)),
    "conj_physical": _same,
}
"""How each operation of PyTorch is read."""

_FILLED: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda args: 0,
    "ones": lambda args: 1,
    "full": lambda args: args[1],
    "scalar_tensor": lambda args: args[0],
}
"""The number that a new tensor is filled with, by the operation that makes it."""
