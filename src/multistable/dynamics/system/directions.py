"""Bidirectional networks: each direction of each layer is a network of its own."""

from typing import Any

import torch
from torch import Tensor, nn

from multistable.dynamics.system.modules import TorchLayer
from multistable.dynamics.system.sequences import PaddedSequences, SequenceSet
from multistable.networks.convert import torch_recurrences
from multistable.networks.layers import StackLayer
from multistable.networks.pieces import reversed_in_time
from multistable.networks.rnn import RNN

WAYS = ("forward", "backward")


class Direction(nn.Module):
    """One direction of one layer of a bidirectional network, over that network's own parameters.

    It reads sequences ``(time, n, features)`` in its own order: the backward direction is given them reversed.
    """

    def __init__(self, layer: StackLayer) -> None:
        super().__init__()
        self.layer = layer

    @property
    def input_size(self) -> int:
        """The features of what it reads."""
        return self.layer.input_size

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The output ``(time, n, units)``, and the state after the last step."""
        output, states = self.layer(x, None if state is None else (tuple(state),))
        return output, tuple(field[-1] for field in states[0])


def directions(module: nn.Module) -> dict[str, nn.Module]:
    """The networks that a recurrent module consists of: itself, or by name each direction of each layer."""
    layers = _layers(module)
    if layers is None:
        return {"": module}
    return {
        _name(layers, layer, way): Direction(network)
        for layer, both in enumerate(layers)
        for way, network in zip(WAYS, both, strict=True)
    }


def read_by(module: nn.Module, direction: str, data: SequenceSet) -> SequenceSet:
    """What a direction of a module reads, of the sequences that the module reads.

    It is computed with the present weights of the layers below, so it holds until these change.
    """
    layers = _layers(module)
    if layers is None or not direction:
        return data
    names = [[_name(layers, layer, way) for way in WAYS] for layer in range(len(layers))]
    (wanted,) = (layer for layer, both in enumerate(names) if direction in both)
    way = names[wanted].index(direction)
    u, lengths = data.select(torch.arange(len(data), device="cpu"))
    long = lengths.to(u.device)
    backward = reversed_in_time(u, long)
    width = 0 if data.before is None else data.before.shape[-1] // (2 * len(layers))

    def before(layer: int, way: int) -> Tensor | None:
        """The state before the first step: that of the whole module has one block for each direction of each layer."""
        place = (2 * layer + way) * width
        return None if data.before is None else data.before[:, place : place + width]

    for index, both in enumerate(layers[:wanted]):
        output = _output(both[0], u, before(index, 0))
        output_backward = _output(both[1], backward, before(index, 1))
        u = torch.cat([output, reversed_in_time(output_backward, long)], dim=-1)
        backward = reversed_in_time(u, long)
    return PaddedSequences(backward if way else u, lengths, before=before(wanted, way))


def _layers(module: Any) -> list[tuple[StackLayer, ...]] | None:
    """The two directions of each layer of a bidirectional network; ``None`` for any other module."""
    if not getattr(module, "bidirectional", False):
        return None
    if isinstance(module, RNN):
        return [layer.directions for layer in module.layers]  # type: ignore[misc]
    recurrences = torch_recurrences(module)
    if recurrences is None:
        if not isinstance(module, nn.RNNBase):
            return None
        raise TypeError(
            f"{type(module).__name__} with bidirectional=True must have no hooks and no forward of its own to be taken "
            "apart into its directions"
        )
    both: Any = [TorchLayer(recurrence) for recurrence in recurrences]
    return list(zip(both[::2], both[1::2], strict=True))


def _output(layer: StackLayer, u: Tensor, before: Tensor | None) -> Tensor:
    like = next(layer.parameters())
    at_rest, u, state = layer.with_present_weights(), u.to(like), None
    if before is not None:
        _, after = at_rest(u[:1])
        fields = iter(before.to(like).split([field.shape[-1] for cell in after for field in cell], dim=-1))
        state = tuple(cell._make(next(fields) for _ in cell) for cell in after)
    return at_rest(u, state)[0]


def _name(layers: list[Any], layer: int, way: str) -> str:
    return way if len(layers) == 1 else f"{layer}.{way}"
