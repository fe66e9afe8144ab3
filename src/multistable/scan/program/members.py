"""Independent recurrences of one cell side by side: its program and its weights with one leading dimension, or none."""

import math
from typing import Any, NamedTuple

from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan.program import Program, RefusedError, program_of


class Members(NamedTuple):
    """Recurrences side by side.

    Attributes:
        program: of each.
        weights: what ``program_of_members`` makes of their weights.
        number: how many these are of.
    """

    program: Program
    weights: dict[str, Tensor]
    number: int

    def prepared(self) -> tuple[Tensor, ...]:
        """What the program prepares of the weights."""
        return tuple(self.program.prepare(list(self.weights.values())))

    def sources(self) -> tuple[Tensor, ...]:
        """The weights that the program has windows on; what it prepares of them where it has none."""
        if self.program.windows is None:
            return self.prepared()
        weights = list(self.weights.values())
        return tuple([weights[place] for place in self.program.sources])


def program_of_members(cell: Cell[Any], weights: dict[str, Tensor], dims: int) -> Members:
    """The program for inputs with ``dims`` leading dimensions; ``RefusedError`` where there is none.

    Weights that have leading dimensions get one for all of them, or none if that is 1. Where weights have none, all
    recurrences share them.
    """
    bias = weights.get("bias")
    shapes = {weight.shape[:dims] for weight in weights.values()} if dims else set()
    members = 1
    if len(shapes) == 1 and (bias is None or bias.dim() == dims + 1):
        members = math.prod(shapes.pop())
        if dims > 1 or members == 1:
            flat = () if members == 1 else (members,)
            weights = {name: weight.reshape(*flat, *weight.shape[dims:]) for name, weight in weights.items()}
    try:
        return Members(program_of(cell, weights, () if members == 1 else (members,)), weights, members)
    except RefusedError as reason:
        raise RefusedError(f"{type(cell).__name__} has no fused loop: {reason}") from reason
