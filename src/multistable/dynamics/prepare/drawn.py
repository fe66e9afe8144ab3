"""Ways to prepare a network that draw some of its weights anew, cell by cell."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multistable.cells import CELLS
from multistable.cells.base import Cell
from multistable.cells.elman import Elman
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.models import Turn, each_part
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.system import known_layers, studying
from multistable.networks.gates import Gates
from multistable.networks.layers import CellLayer, Layer

New = Iterable[tuple[Tensor, Tensor | float]]
"""Weights of a cell, each with what it is to become."""


@dataclass(frozen=True)
class Drawn:
    """A way to prepare a network, called as :func:`prepare` without its ``method``.

    Attributes:
        name: what users call it.
        needs: what a cell must have, in words.
        fits: whether a cell, or a kind of cell, has it.
        draw: ``draw(gates, draws, data, **options)`` gives the new weights of a cell. It changes nothing itself.
    """

    name: str
    needs: str
    fits: Callable[[Any], bool]
    draw: Callable[..., New]

    def __call__(
        self,
        rnn: nn.Module,
        sequences: Any,
        *,
        generator: Generators = None,
        part: str | None = None,
        forward: Forward | None = None,
        **options: Any,
    ) -> None:
        """Draw the weights of a network, or of the parts of a model, in place."""

        def one(network: nn.Module, sequences: Any, _: Turn) -> None:
            self.check(network)
            with torch.inference_mode(False), torch.no_grad(), studying(network, sequences) as (system, data):
                draws = Draws(generator, system.members)
                self._set(system.layers, draws, data, options)

        each_part(one, rnn, sequences, part=part, forward=forward, changes=True)

    def check(self, network: nn.Module) -> None:
        """Raise unless the method fits every cell that it would change."""
        layers = known_layers(network)
        if layers is None:
            raise ValueError(f"{self._refusal()}, got a {type(network).__name__}, whose equations are not known")
        for gates in _gates(layers):
            if not self.fits(gates.cell):
                raise ValueError(f"{self._refusal()}, got {type(gates.cell).__name__}")

    def _refusal(self) -> str:
        kinds: list[type[Cell[Any]]] = [kind for kind in (*CELLS.values(), Elman) if isinstance(kind, type)]
        fitting = ", ".join(kind.__name__ for kind in kinds if self.fits(kind))
        return f"method {self.name!r} is for cells with {self.needs}: {fitting}"

    def _set(self, layers: Iterable[Layer], draws: Draws, data: SequenceSet, options: dict[str, Any]) -> None:
        new = [pair for gates in _gates(layers) for pair in self.draw(gates, draws, data, **options)]
        for weight, value in new:
            if isinstance(value, Tensor):
                weight.copy_(value)
            else:
                weight.fill_(value)


def _gates(layers: Iterable[Layer]) -> list[Gates]:
    """Of the cells to prepare, first layer to last: of double layers those of the half that a warmup would change."""
    warmable = [layer.warmable for layer in layers]
    return [gates for layer in warmable if isinstance(layer, CellLayer) for gates in layer.gates]
