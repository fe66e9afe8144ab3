"""A network as a discrete-time dynamical system, layer by layer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from multistable.arguments import truth_value
from multistable.cells.base import Cell
from multistable.dynamics.system.contexts import evaluating
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.modules import ModuleLayer, TorchLayer, example_of
from multistable.dynamics.system.reading import sequence_set
from multistable.dynamics.system.sequences import SequenceSet, check_batch_size, check_range
from multistable.networks.convert import is_only, torch_recurrences
from multistable.networks.ensemble import Ensemble
from multistable.networks.layers import CellLayer, Double, Layer, LayerState, Single
from multistable.networks.rnn import RNN
from multistable.scan import choose

# Where only some states are needed, those of this many time steps are in memory at once.
WINDOW = 60

States = list[LayerState]
"""The state of a network: one entry for each layer."""


@dataclass(frozen=True)
class System:
    """x_t = f(x_{t-1}, u_t) for all layers of a network, or of each of the R members of an ensemble.

    Inputs are ``(time, ..., n, features)`` and states ``(..., n, d)``, where ``...`` is empty for a single network
    and ``R`` for an ensemble.
    """

    layers: Sequence[Layer]
    members: int | None
    device: torch.device
    dtype: torch.dtype

    @property
    def leading(self) -> tuple[int, ...]:
        """The dimensions written ``...``."""
        return () if self.members is None else (self.members,)

    @property
    def input_size(self) -> int:
        """The features of the input."""
        return self.layers[0].input_size

    def with_present_weights(self) -> "System":
        """The same system, valid until its weights change: layers that derive their weights do so only once.

        Gradients flow to the parameters, unless they are switched off.
        """
        return replace(self, layers=[layer.with_present_weights() for layer in self.layers])

    @torch.no_grad()
    def of_members(self, members: Sequence[int]) -> "System":
        """Some members of an ensemble, or the single network, over their present weights, without gradients."""
        if self.members is None:
            return self.with_present_weights()

        def select(cell: Cell[Any]) -> Cell[Any]:
            return cell.bind({name: weight.detach()[list(members)] for name, weight in cell.named_parameters()})

        layers = [type(layer)(*map(select, cast(CellLayer, layer).cells)) for layer in self.layers]
        return replace(self, layers=layers, members=len(members))

    def constant_input(self, layer: int, draws: Draws) -> Tensor:
        """u ~ N(0, 1) for one layer, the same for all states of a batch: ``(..., 1, features)``."""
        return draws.normal(1, self.layers[layer].input_size).to(device=self.device, dtype=self.dtype)

    def advance(self, u: Tensor, states: States | None = None) -> States:
        """All states of all layers over inputs ``u``, each field with time first."""
        before = [None] * len(self.layers) if states is None else states
        after = []
        for layer, state in zip(self.layers, before, strict=True):
            u, layer_states = layer(u, state)
            after.append(layer_states)
        return after

    def only_last(self, u: Tensor, states: States | None = None) -> States:
        """The states after the last step of ``u``, without gradient."""
        before = [None] * len(self.layers) if states is None else states
        after = []
        for layer, state in zip(self.layers[:-1], before[:-1], strict=True):
            u, layer_states = layer(u, state)
            after += at_time([layer_states], -1)
        return [*after, self.layers[-1].only_last(u, before[-1])]

    def states_at(self, u: Tensor, times: Tensor, states: States | None = None) -> States:
        """The state of each sequence after its own number of steps, all in one pass.

        Args:
            u: inputs, ``(time, ..., n, features)``.
            times: how many steps to take in each, ``(..., n)`` on the CPU, from 1 to time.
            states: the states before the first step; zero when not given.
        """
        last = int(times.max())
        found: States | None = None
        for start in range(0, last, WINDOW):
            window = u[start : min(start + WINDOW, last)]
            over_time = self.advance(window, states)
            states = at_time(over_time, -1)
            index = (times - 1 - start).to(self.device)
            here = at_time(over_time, index.clamp(0, len(window) - 1))
            not_before = (index >= 0).unsqueeze(-1)
            found = here if found is None else map_states(_where(not_before), here, found)
        return cast(States, found)


def backends(rnn: nn.Module) -> list[str]:
    """Which time loop advances each recurrence of a network under the present :func:`engine` settings.

    One line for each cell of each layer: ``"triton"`` for the fused loop on a GPU, ``"cpu"`` for the fused loop on a
    CPU, or ``"reference: ..."`` for the plain loop, with the reason. A module that is called step by step, as it is,
    has the single line ``"module"``.
    """
    _check_module(rnn)
    layers = _known_layers(rnn)
    if layers is None:
        return ["module"]
    like = example_of(rnn)
    members = members_of(rnn)
    leading = () if members is None else (members,)
    cells = [cell for layer in layers for cell in layer.cells]
    return [str(choose(c, like.new_zeros(1, *leading, 1, c.input_size))) for c in cells]


def _check_module(rnn: Any) -> None:
    if not isinstance(rnn, nn.Module):
        raise TypeError(f"rnn must be a torch.nn.Module, got {type(rnn).__name__}")


def members_of(rnn: nn.Module) -> int | None:
    """R for an ensemble of R networks, ``None`` for a single one."""
    return len(rnn) if isinstance(rnn, Ensemble) else None


@contextmanager
def studying(rnn: nn.Module, sequences: Any, *, batch_size: int | None = None) -> Iterator[tuple[System, SequenceSet]]:
    """The network as a system and the sequences that drive it, both checked; the network is in evaluation inside.

    Args:
        rnn: see :func:`measure`.
        sequences: see :func:`measure`.
        batch_size: how many sequences will be drawn at once; ``None`` where all are taken.
    """
    _check_module(rnn)
    if any(parameter.is_meta for parameter in rnn.parameters()):
        raise ValueError(f"rnn must have weights with values, got a {type(rnn).__name__} on the device meta")
    data = sequence_set(sequences, batch_first=_batch_first(rnn), members=members_of(rnn))
    if batch_size is not None:
        check_batch_size(batch_size, len(data))
    check_range(data, example_of(rnn).dtype)
    with evaluating(rnn):
        system = system_of(rnn, data.features)
        if data.features != system.input_size:
            expected = f"as many features as the network's input_size, {system.input_size}"
            raise ValueError(f"sequences must have {expected}, got {data.features}")
        yield system, data


def system_of(rnn: nn.Module, features: int) -> System:
    """The network as a system. ``features`` is the size of its input, which not every module tells."""
    layers: Sequence[Layer] = _known_layers(rnn) or [ModuleLayer(rnn, features, _batch_first(rnn))]
    like = example_of(rnn)
    return System(layers, members_of(rnn), like.device, like.dtype)


def _batch_first(rnn: nn.Module) -> bool:
    return truth_value(f"batch_first of {type(rnn).__name__}", getattr(rnn, "batch_first", False))


def _known_layers(rnn: nn.Module) -> list[CellLayer] | None:
    """The layers of a network whose equations are known; ``None`` for any other module, which is called as it is."""
    if isinstance(rnn, Ensemble):
        _check_taken_apart(rnn, is_only(rnn, Ensemble) and is_only(rnn.network, RNN))
        return cast(list[CellLayer], list(rnn.network.layers))
    if isinstance(rnn, RNN):
        known = is_only(rnn, RNN)
        _check_taken_apart(rnn, known or not any(isinstance(layer, Double) for layer in rnn.layers))
        return cast(list[CellLayer], list(rnn.layers)) if known else None
    if isinstance(rnn, Cell):
        return [Single(rnn)] if is_only(rnn, Cell) else None
    recurrences = torch_recurrences(rnn)
    return None if recurrences is None else [TorchLayer(recurrence) for recurrence in recurrences]


def _check_taken_apart(rnn: nn.Module, allowed: bool) -> None:
    if not allowed:
        raise TypeError(
            f"rnn must have no hooks and no forward of its own to be taken apart into members or halves, "
            f"got {type(rnn).__name__} with some: remove them for the call"
        )


def map_states(change: Callable[..., Tensor], *states: Sequence[LayerState]) -> States:
    """``change`` applied to every tensor of one or more states of the same structure."""

    def cell_state(*fields: Any) -> Any:
        changed = [change(*tensors) for tensors in zip(*fields, strict=True)]
        return fields[0]._make(changed) if hasattr(fields[0], "_make") else tuple(changed)

    return [tuple(cell_state(*cells) for cells in zip(*layer, strict=True)) for layer in zip(*states, strict=True)]


def at_time(states: Sequence[LayerState], index: Tensor | int) -> States:
    """States ``(..., n, d)`` at one time step, or each at its own, ``index (..., n)``, taken from states over time."""
    if isinstance(index, int):
        return map_states(lambda x: x[index], states)
    where = index.unsqueeze(0).unsqueeze(-1)
    return map_states(lambda x: x.gather(0, where.expand(1, *x.shape[1:])).squeeze(0), states)


def flat(states: Sequence[LayerState]) -> Tensor:
    """The whole state as one vector ``(..., n, d)``: layer by layer, and [h, c] for LSTM."""
    return torch.cat([field for layer in states for cell in layer for field in cell], dim=-1)


def _where(condition: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda new, old: torch.where(condition, new, old)
