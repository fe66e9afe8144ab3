"""What a step does with weights alone, before the loop: a function of them, and parts of them where it is no more."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

Prepare = Callable[[Sequence[Tensor]], list[Tensor]]

aten = torch.ops.aten
VIEWS = (aten.slice.Tensor, aten.split.Tensor, aten.unsqueeze.default, aten.view.default, aten.expand.default)


class Window(NamedTuple):
    """Columns of a weight.

    Attributes:
        weight: its place among all weights.
        start: the first column.
        stop: the one after the last.
    """

    weight: int
    start: int
    stop: int


def preparation_of(recorded: fx.Graph, wanted: list[fx.Node]) -> Prepare:
    """What the step does with weights alone, as a function of all weights."""
    needed = _needed(wanted)
    placeholders = [node for node in recorded.nodes if node.op == "placeholder"]
    work: list[Any] = [
        (node, node.target, node.args, node.kwargs)
        for node in recorded.nodes
        if node in needed and node.op != "placeholder"
    ]

    def prepare(weights: Sequence[Tensor]) -> list[Tensor]:
        values = dict(zip(placeholders[len(placeholders) - len(weights) :], weights, strict=True))
        like = weights[0] if weights else None
        for node, function, args, kwargs in work:
            options = {name: _known(arg, values) for name, arg in kwargs.items()} if kwargs else {}
            if like is not None and "dtype" in options:
                options |= {"dtype": like.dtype, "device": like.device}
            values[node] = function(*_known(args, values), **options)
        found = [values[node] for node in wanted]
        if like is not None:  # a vector that the step makes has the default type, or is of whole numbers
            found = [value if value.dtype == like.dtype else value.to(like.dtype) for value in found]
        return found

    return prepare


def windows_of(wanted: list[fx.Node], prepare: Prepare, shapes: Sequence[torch.Size]) -> tuple[Window, ...] | None:
    """What is prepared of weights of these shapes as windows on them, all dimensions but the last as one.

    None where something is computed, repeated or in another order.
    """
    steps = [node for node in _needed(wanted) if node.op != "placeholder"]
    if any(node.target not in (*VIEWS, operator.getitem) for node in steps):
        return None
    # Views only move numbers: where each has come from is seen in numbers that are all different.
    ends = torch.tensor([0, *(shape.numel() for shape in shapes)], device="cpu").cumsum(0).tolist()
    weights = [
        torch.arange(start, start + shape.numel(), dtype=torch.float64, device="cpu").view(shape)
        for start, shape in zip(ends, shapes, strict=False)
    ]
    found = []
    for value in prepare(weights):
        first = int(value.flatten()[0])
        place = next(index for index, end in enumerate(ends[1:]) if first < end)
        if not (value.dim() and shapes[place]):  # a number alone has no columns
            return None
        start = first - ends[place]
        window = Window(place, start, start + value.shape[-1])
        if not torch.equal(weights[place][..., window.start : window.stop].flatten(), value.flatten()):
            return None
        found.append(window)
    return tuple(found)


def _needed(wanted: list[fx.Node]) -> set[fx.Node]:
    """These nodes and all that they are made of."""
    needed: set[fx.Node] = set()
    pending = list(wanted)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    return needed


def _known(arg: Any, values: dict[fx.Node, Tensor]) -> Any:
    """An argument of a node with values in the place of nodes."""
    if isinstance(arg, fx.Node):
        return values[arg]
    if isinstance(arg, list | tuple):
        return [_known(entry, values) if isinstance(entry, fx.Node | list | tuple) else entry for entry in arg]
    return arg
