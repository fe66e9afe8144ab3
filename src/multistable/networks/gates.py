"""The weights of each gate of a cell, as views of the parameters that they are part of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from multistable.cells.base import Cell


@dataclass(frozen=True)
class Gates:
    """The weights of each gate of a cell of this library, or of one direction of a layer of a ``torch.nn`` recurrence.

    Attributes:
        cell: what the weights are those of.
        module: the module that has them as parameters: the cell itself, or the recurrence.
        names: what ``module`` calls the ``recurrent_weight``, the ``bias`` and the ``recurrent_bias``.
        order: where the module keeps the rows of each gate, for one of ``torch.nn``; ``None`` for the cell itself.
    """

    cell: Cell[Any]
    module: nn.Module
    names: tuple[str, str, str]
    order: Sequence[int] | None = None

    def matrices(self) -> list[Tensor]:
        """The recurrent matrix of each gate that has one, ``(..., hidden, hidden)``: the state times it is the product.

        They are views of a parameter. A ``ValueError`` says why where there is none that can be set.
        """
        weight = self._parameter(self.names[0])
        if self.order is None:
            return list(weight.chunk(self.cell.recurrent_matrices, dim=-1))
        rows = weight.chunk(len(self.order))
        return [rows[place].mT for place in self.order]

    def biases(self) -> list[list[Tensor]]:
        """Of each gate its bias ``(..., hidden)``, and where there are two biases the second, as :meth:`matrices`."""
        names = [name for name in self.names[1:] if getattr(self.module, name, None) is not None]
        vectors = [self._parameter(name) for name in names or self.names[1:2]]
        size = self.cell.hidden_size
        gates = vectors[0].shape[-1] // size
        places = range(gates) if self.order is None else self.order
        return [[vector.narrow(-1, place * size, size) for vector in vectors] for place in places]

    def _parameter(self, name: str) -> Tensor:
        parameter = self.module._parameters.get(name)
        if parameter is None:
            there = getattr(self.module, name, None) is not None
            why = "are derived from other weights" if there else "are not there"
        elif not parameter.requires_grad:
            why = "require no gradients"
        else:
            return parameter.detach()
        raise ValueError(f"the weights {name!r} of {type(self.module).__name__} {why}, and cannot be set")
