"""The derivative of a step of known cells, from the program of the step.

Between its products a step computes each unit by itself. So the derivative of what stands there is one number a unit,
and that of the whole step is made of the weights, each row times such a number: d times less work than what
differentiates the step column by column.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.networks.layers import CellLayer
from multistable.scan.program import Node, Program, RefusedError, program_of
from multistable.scan.program import weights_of as named_weights
from multistable.scan.program.nodes import ancestors, evaluate


@dataclass(frozen=True)
class Linear:
    """A cell whose step is products, and between them one number a unit."""

    cell: Cell[Any]
    program: Program
    weights: list[Tensor]

    @classmethod
    def of(cls, cell: Cell[Any]) -> "Linear":
        """The cell as it is now; ``RefusedError`` where it is not of this kind."""
        if type(cell).project is not Cell.project:
            raise RefusedError("it treats its input in a way of its own")
        program = program_of(cell)
        roots = [*program.states, *(lane for product in program.products for lane in product.operand)]
        if any(node.op == "sum" for node in ancestors(roots)):
            raise RefusedError("its step takes sums over units")
        return cls(cell, program, program.prepare(list(named_weights(cell).values())))

    def derivatives(self, u: Tensor, state: Sequence[Tensor], of_input: Tensor | None) -> tuple[Tensor, ...]:
        """The derivatives of one step of n states.

        Args:
            u: the input, ``(n, features)``.
            state: each field ``(n, hidden)``.
            of_input: the derivative of ``u`` by something of size e, ``(n, features, e)``; ``None`` for a constant.

        Returns:
            The new state, ``(n, fields * hidden)``, and its derivative ``(n, fields * hidden, fields * hidden + e)`` by
            the state and that something.
        """
        program, hidden = self.program, self.cell.hidden_size
        after, values = program.step(self.cell.project(u), state, self.weights)
        like, fields = state[0], len(state)
        width = fields * hidden + (0 if of_input is None else of_input.shape[-1])
        through = None if of_input is None else self.cell.input_weight.mT @ of_input
        made: dict[Node, Tensor] = {}

        def total(rates: dict[Node, Tensor]) -> Tensor:
            """A lane's derivative ``(n, hidden, width)`` from those by the leaves it is made of, ``(n, hidden)``."""
            result = like.new_zeros(len(like), hidden, width)
            for leaf, rate in rates.items():
                rows = rate.unsqueeze(-1)
                if leaf.op == "s":
                    result[..., leaf.value * hidden : (leaf.value + 1) * hidden].diagonal(dim1=-2, dim2=-1).add_(rate)
                elif leaf.op == "x" and through is not None:
                    lane = through[:, leaf.value * hidden : (leaf.value + 1) * hidden]
                    result[..., fields * hidden :].addcmul_(rows, lane)
                elif leaf.op == "p":
                    field, matrix = fields_of[leaf], made[leaf]
                    part = result if field is None else result[..., field * hidden : (field + 1) * hidden]
                    part.addcmul_(rows, matrix)
            return result

        fields_of = {leaf: product.field for product in program.products for leaf in product.lanes}
        for index, product in enumerate(program.products):
            matrix = torch.cat([self.weights[place] for place in product.matrices], dim=-1).mT
            if product.field is None:
                lanes = range(len(product.operand))
                matrix = matrix @ torch.cat([total(self._rates(("o", (index, i)), values, like)) for i in lanes], -2)
            made |= zip(product.lanes, matrix.split(hidden, dim=-2), strict=True)
        parts = [total(self._rates(("g", field), values, like)) for field in range(fields)]
        return torch.cat(after, dim=-1), torch.cat(parts, dim=-2)

    def _rates(self, target: tuple[str, Any], values: dict[Node, Tensor], like: Tensor) -> dict[Node, Tensor]:
        """The derivative ``(n, hidden)`` of a value of each unit by each leaf, where it is not zero."""
        program, nodes = self.program, self.program.nodes
        ends: list[tuple[str, Any]] = [
            ("o", (i, lane)) for i, product in enumerate(program.products) for lane in range(len(product.operand))
        ]
        ends += [(op, field) for op in ("g", "up") for field in range(len(program.states))]
        upstream = {nodes.leaf(*end): torch.full_like(like, float(end == target)) for end in ends}
        of_leaf = dict(zip((nodes.leaf("x", lane) for lane in range(program.lanes)), program.of_x, strict=True))
        of_leaf |= zip((nodes.leaf("s", field) for field in range(len(program.states))), program.of_s, strict=True)
        of_leaf |= program.of_p
        rates = evaluate(of_leaf.values(), values | upstream, like)
        return {
            leaf: rate.expand_as(like) for leaf, rate in zip(of_leaf, rates, strict=True) if bool((rate != 0).any())
        }


def linear_layers(layers: Sequence[Any]) -> list[list[Linear]] | None:
    """The cells of each layer as :class:`Linear`; ``None`` if there is one that is not of this kind."""
    if not all(isinstance(layer, CellLayer) for layer in layers):
        return None
    try:
        return [[Linear.of(cell) for cell in layer.cells] for layer in layers]
    except RefusedError:
        return None


def jacobians(layers: list[list[Linear]], states: Sequence[Any], u: Tensor) -> Tensor:
    """The derivatives ``(n, d, d)`` of a step of all layers, at the states of each under ``u (n, features)``."""
    sizes = [[len(state) * state[0].shape[-1] for state in layer] for layer in states]
    d, n = sum(map(sum, sizes)), len(u)
    result, of_input, begin = u.new_zeros(n, d, d), None, 0
    for cells, layer, widths in zip(layers, states, sizes, strict=True):
        outputs, rates, before = [], [], begin
        for linear, state, width in zip(cells, layer, widths, strict=True):
            rows, hidden = slice(begin, begin + width), linear.cell.hidden_size
            after, own = linear.derivatives(u, state, of_input)
            result[:, rows, rows] = own[..., :width]
            result[:, rows, :before] = own[..., width:]
            outputs.append(after[:, :hidden])
            rates.append(slice(begin, begin + hidden))
            begin += width
        u = torch.cat(outputs, dim=-1)
        of_input = torch.cat([result[:, rows, :begin] for rows in rates], dim=-2)
    return result
