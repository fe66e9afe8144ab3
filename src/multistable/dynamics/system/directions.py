"""Bidirectional networks: each direction of each layer is a network of its own."""

from typing import Any

import torch
from torch import Tensor, nn

from multistable.dynamics.system.modules import TorchLayer
from multistable.dynamics.system.sequences import PaddedSequences, SequenceSet
from multistable.networks.convert import TorchRecurrence, torch_directions

WAYS = ("forward", "backward")


class Direction(nn.Module):
    """One direction of one layer of a bidirectional ``torch.nn`` recurrence, over that module's own parameters.

    It reads sequences ``(time, n, features)`` in its own order: the backward direction is given them reversed.
    """

    def __init__(self, recurrence: TorchRecurrence) -> None:
        super().__init__()
        self.layer = TorchLayer(recurrence)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The output ``(time, n, units)``, and the state after the last step."""
        output, states = self.layer(x, None if state is None else (tuple(state),))
        return output, tuple(field[-1] for field in states[0])


def directions(module: nn.Module) -> dict[str, nn.Module]:
    """The networks that a recurrent module consists of: itself, or by name each direction of each layer."""
    layers = torch_directions(module)
    if layers is None or len(layers[0]) == 1:
        return {"": module}
    return {
        _name(layers, layer, way): Direction(recurrence)
        for layer, both in enumerate(layers)
        for way, recurrence in zip(WAYS, both, strict=True)
    }


def read_by(module: nn.Module, direction: str, data: SequenceSet) -> SequenceSet:
    """What a direction of a module reads, of the sequences that the module reads.

    It is computed with the present weights of the layers below, so it holds until these change.
    """
    layers = torch_directions(module)
    if layers is None or not direction:
        return data
    names = [[_name(layers, layer, way) for way in WAYS] for layer in range(len(layers))]
    (wanted,) = (layer for layer, both in enumerate(names) if direction in both)
    way = names[wanted].index(direction)
    width = 0 if data.before is None else data.before.shape[-1] // (2 * len(layers))

    def before(layer: int, way: int) -> Tensor | None:
        """The state before the first step: that of the whole module has one block for each direction of each layer."""
        place = (2 * layer + way) * width
        return None if data.before is None else data.before[:, place : place + width]

    u, lengths = data.select(torch.arange(len(data), device="cpu"))
    for layer, both in enumerate(layers[:wanted]):
        outputs = []
        for index, recurrence in enumerate(both):
            read = PaddedSequences(_reversed(u, lengths) if index else u, lengths, before=before(layer, index))
            output = _output(TorchLayer(recurrence), read)
            outputs.append(_reversed(output, lengths) if index else output)
        u = torch.cat(outputs, dim=-1)
    return PaddedSequences(_reversed(u, lengths) if way else u, lengths, before=before(wanted, way))


def _output(layer: TorchLayer, data: PaddedSequences) -> Tensor:
    like = next(layer.parameters())
    layer_at_rest = layer.with_present_weights()
    state = None
    if data.before is not None:
        _, after = layer_at_rest(data.padded[:1].to(like))
        sizes = [field.shape[-1] for field in after[0]]
        state = (after[0]._make(data.before.to(like).split(sizes, dim=-1)),)
    output, _ = layer_at_rest(data.padded.to(like), state)
    return output


def _reversed(padded: Tensor, lengths: Tensor) -> Tensor:
    """Sequences ``(time, n, features)``, each from its own last step to its first; what follows stays."""
    time = torch.arange(len(padded), device="cpu").unsqueeze(-1)
    index = torch.where(time < lengths, lengths - 1 - time, time).to(padded.device)
    return padded.gather(0, index.unsqueeze(-1).expand_as(padded))


def _name(layers: list[Any], layer: int, way: str) -> str:
    return way if len(layers) == 1 else f"{layer}.{way}"
