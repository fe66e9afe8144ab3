"""The values of a step: what each unit computes, as nodes that are made of one another."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

LOGICAL = {"and", "or", "not"}
COMPARISONS = {"gt", "ge", "lt", "le", "eq", "ne"} | LOGICAL
CHEAP = COMPARISONS | {"add", "sub", "mul", "neg", "abs", "maximum", "minimum", "where"}
"""What a backward pass computes again rather than save. Of the others it keeps the value."""

TORCH: dict[str, Callable[..., Tensor]] = {
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
    "pow": torch.pow,  # to a constant
    "sum": lambda x: x.sum(-1, keepdim=True),
}
for _name in (
    *("add", "sub", "mul", "div", "neg", "abs", "sigmoid", "tanh", "exp", "expm1", "log", "log1p", "sqrt"),
    *("maximum", "minimum", "where", "gt", "ge", "lt", "le", "eq", "ne", "detach"),
):
    TORCH[_name] = getattr(torch, _name)
"""The operations that a fused loop has: each by its function of PyTorch. ``sum`` is that over the units of a row."""


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """A value of each unit of each row; the same for all units of a row if ``of_row``.

    Leaves are ``const``, the number ``value``, and inputs: ``value`` is the lane, or the field of a state; of ``u``
    and ``p`` the index of the weight or product, and its lane.
    """

    op: str
    args: "tuple[Node, ...]" = ()
    value: Any = None
    of_row: bool = False

    @property
    def cheap(self) -> bool:
        """Whether computing it again costs less than keeping it."""
        return self.of_row or self.op in CHEAP


@dataclass
class Graph:
    """Makes nodes; two that are the same are one."""

    made: dict[Any, Node] = field(default_factory=dict)

    def leaf(self, op: str, value: Any, *, of_row: bool = False) -> Node:
        """An input, or a constant."""
        return self._intern(Node(op, (), value, of_row or op == "const"))

    def const(self, value: float) -> Node:
        """A number."""
        return self.leaf("const", float(value))

    def __call__(self, op: str, *args: "Node | float") -> Node:
        """The result of an operation; numbers are made constants."""
        nodes = tuple(arg if isinstance(arg, Node) else self.const(arg) for arg in args)
        if op in LOGICAL:  # a number is true where it is not 0
            nodes = tuple(n if n.op in COMPARISONS else self("ne", n, 0) for n in nodes)
        else:  # elsewhere true is 1
            first = 1 if op == "where" else 0
            nodes = (*nodes[:first], *(self("where", n, 1, 0) if n.op in COMPARISONS else n for n in nodes[first:]))
        return self._simpler(op, nodes) or self._intern(
            Node(op, nodes, None, op == "sum" or all(node.of_row for node in nodes))
        )

    def power(self, x: Node, exponent: float) -> Node:
        """x to a constant power; by products where that is a whole number, which x below zero has, too."""
        if exponent < 0:
            return self("div", 1, self.power(x, -exponent))
        if exponent == 0.5:
            return self("sqrt", x)
        if exponent == int(exponent):
            result, power = self.const(1), x
            for bit in reversed(f"{int(exponent):b}"):
                result = self("mul", result, power) if bit == "1" else result
                power = self("mul", power, power)
            return result
        return self("pow", x, exponent)

    def _intern(self, node: Node) -> Node:
        sign = math.copysign(1, node.value) if node.op == "const" else 0  # 0 and -0 are equal
        return self.made.setdefault((node.op, tuple(map(id, node.args)), node.value, sign), node)

    def _simpler(self, op: str, args: tuple[Node, ...]) -> Node | None:
        """What the operation comes to where it is with a constant, or None."""
        values = [node.value if node.op == "const" else None for node in args]
        if None not in values and op not in COMPARISONS | {"where", "sum"}:
            numbers = (torch.tensor(value, dtype=torch.float64) for value in values)
            return self.const(TORCH[op](*numbers).item())
        match op, values:
            case ("mul", [1.0, _]) | ("add", [0.0, _]):
                return args[1]
            case ("mul" | "div", [_, 1.0]) | ("add" | "sub", [_, 0.0]):
                return args[0]
            case ("mul", [0.0, _]) | ("mul", [_, 0.0]):
                return self.const(0)
            case ("sub", [0.0, _]):
                return self("neg", args[1])
            case ("neg", _) if args[0].op == "neg":
                return args[0].args[0]
        return None


def ancestors(roots: Iterable[Node], cut: Callable[[Node], bool] = lambda node: False) -> Iterator[Node]:
    """The roots and all they are made of, each once and after its arguments; not further than where ``cut`` says."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) not in seen:
            seen.add(id(node))
            if not cut(node):
                for arg in node.args:
                    yield from visit(arg)
            yield node

    for root in roots:
        yield from visit(root)


def evaluate(roots: Iterable[Node], values: dict[Node, Tensor], like: Tensor) -> list[Tensor]:
    """The interpreter: the roots in operations of PyTorch, from the values of leaves; constants are made ``like``."""
    roots = list(roots)
    known = dict(values)
    for node in ancestors(roots, known.__contains__):
        if node not in known:
            if node.op == "const":
                known[node] = like.new_full((), node.value)
            elif node.op == "pow":
                known[node] = torch.pow(known[node.args[0]], node.args[1].value)
            else:
                known[node] = TORCH[node.op](*(known[arg] for arg in node.args))
    return [known[root] for root in roots]
