"""A network as a discrete-time dynamical system, layer by layer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from multistable.arguments import shown, truth_value
from multistable.cells.base import Cell
from multistable.dynamics.system.contexts import evaluating
from multistable.dynamics.system.directions import Direction
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.inputs import Inputs, Normal, inputs_in_any_form, inputs_of
from multistable.dynamics.system.modules import ModuleLayer, TorchLayer, example_of
from multistable.dynamics.system.reading import sequence_set
from multistable.dynamics.system.sequences import SequenceSet, check_batch_size, check_range
from multistable.dynamics.system.states import StateSet, state_set
from multistable.dynamics.system.threads import threads_that_pay
from multistable.dynamics.system.whole_states import States, at_time, divided, flat, map_states, rows_of
from multistable.networks.convert import is_only, torch_recurrences
from multistable.networks.ensemble import Ensemble
from multistable.networks.layers import CellLayer, Double, Layer, Single, StackLayer
from multistable.networks.rnn import RNN
from multistable.networks.wrappers import unwrapped
from multistable.scan import choose

# Where only some states are needed, those of this many time steps are in memory at once.
WINDOW = 60
# Sequences that have come to their end are left out so many times, down to so many: the products of fewer take as long.
PARTS, LEAST_ROWS = 8, 16


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
    inputs: Inputs = field(default_factory=Normal)

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
        return replace(self, layers=layers, members=len(members), inputs=self.inputs.of_members(members))

    def constant_inputs(
        self, count: int, draws: Draws, *, layer: int = 0, first: int | None = None, scale: float = 1.0
    ) -> Tensor:
        """So many constant inputs u of one layer, ``(..., count, features)``.

        Args:
            count: how many.
            draws: where they are drawn from.
            layer: its number. The first reads the inputs of the network; what the others read is made by the layer
                before, and u ~ N(0, 1) stands for it.
            first: of given inputs, the number of the first to take, the others in turn; one by chance if not given.
            scale: a factor for inputs from N(0, 1), which leaves others as they are.
        """
        inputs = self.inputs if layer == 0 else Normal()
        u = inputs.take(count, self.layers[layer].input_size, draws, first=first, scale=scale)
        return u.to(device=self.device, dtype=self.dtype).expand(*self.leading, *u.shape[-2:])

    def constant_input(self, layer: int, draws: Draws, scale: float = 1.0) -> Tensor:
        """u for one layer, the same for all states of a batch: ``(..., 1, features)``."""
        return self.constant_inputs(1, draws, layer=layer, scale=scale)

    def before(self, data: SequenceSet, indices: Tensor) -> States | None:
        """The states before the first step of the sequences at ``indices (..., n)``; ``None`` where they are zero."""
        whole = data.states_before(indices)
        return None if whole is None else self.split(whole)

    def split(self, x: Tensor) -> States:
        """The inverse of :func:`flat`: the states of each layer from whole states ``(..., n, d)`` or ``(n, d)``."""
        u = torch.zeros(1, *self.leading, 1, self.input_size, device=self.device, dtype=self.dtype)
        with torch.no_grad():
            like = self.only_last(u)
        size = flat(like).shape[-1]
        if x.shape[-1] != size:
            whole = "the whole state of all layers, [h, c] for LSTM, as ms.reachable_states returns it"
            raise ValueError(f"states must be (n, {size}), {whole}, got shape {tuple(x.shape)}")
        return divided(x.to(device=self.device, dtype=self.dtype).expand(*self.leading, *x.shape[-2:]), like)

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

    def reached(self, u: Tensor, times: Tensor, states: States | None = None) -> States:
        """The states that sequences lead to: of each its state after its own number of steps.

        Of a single network on a CPU those that have come to their end are left out of what follows. On a GPU they take
        no time, and in an ensemble the last digits of a member would depend on how long others go on.

        Args:
            u: inputs, ``(time, ..., n, features)``.
            times: how many steps to take in each, ``(..., n)`` on the CPU, from 1 to time.
            states: the states before the first step; zero when not given.
        """
        if self.device.type != "cpu" or self.members is not None:
            return self.states_at(u, times, states)
        order = times.argsort(dim=-1, descending=True, stable=True)
        times, u = times.gather(-1, order), rows_of(u, order.expand(len(u), *order.shape))
        states = None if states is None else map_states(lambda x: rows_of(x, order), states)
        found: States = []
        start = 0
        for stop in _stops(times):
            going = max(int((times > start).sum(dim=-1).max()), min(LEAST_ROWS, times.shape[-1]))
            states = None if states is None else map_states(lambda x, k=going: x[..., :k, :], states)
            over_time = self.advance(u[start:stop, ..., :going, :], states)
            states = at_time(over_time, -1)
            index = times[..., :going] - 1 - start
            here = at_time(over_time, index.clamp(0, stop - start - 1))
            found = map_states(_first_rows((index >= 0).unsqueeze(-1)), here, found) if found else here
            start = stop
        back = order.argsort(dim=-1)
        return map_states(lambda x: rows_of(x, back), found)


def _stops(times: Tensor) -> list[int]:
    """Where to stop: often enough that few sequences go on after their end, and at the last one's."""
    share = max(1, times.shape[-1] // PARTS)
    ends = times.sort(dim=-1).values[..., share - 1 :: share].reshape(-1, -(-(times.shape[-1] - share + 1) // share))
    stops = [0]
    for end in sorted({*ends.amax(dim=0).tolist(), int(times.max())}):
        while stops[-1] < end:
            stops.append(min(stops[-1] + WINDOW, end))
    return stops[1:]


def backends(rnn: nn.Module) -> list[str]:
    """Which time loop advances each recurrence of a network under the present :func:`engine` settings.

    One line for each cell of each layer: ``"triton"`` for the fused loop on a GPU, ``"cpu"`` for the fused loop on a
    CPU, or ``"reference: ..."`` for the plain loop, with the reason. A module that is called step by step, as it is,
    has the single line ``"module"``.
    """
    _check_module(rnn)
    layers = known_layers(rnn)
    if layers is None:
        return ["module"]
    like = example_of(rnn)
    members = members_of(rnn)
    leading = () if members is None else (members,)
    cells = [cell for layer in layers for cell in layer.cells]
    return [str(choose(c, like.new_zeros(1, *leading, 1, c.input_size))) for c in cells]


def members_of(rnn: nn.Module) -> int | None:
    """R for an ensemble of R networks, ``None`` for a single one."""
    return len(rnn) if isinstance(rnn, Ensemble) else None


@contextmanager
def studying(
    rnn: nn.Module, sequences: Any, *, batch_size: int | None = None, inputs: Any = "normal"
) -> Iterator[tuple[System, SequenceSet]]:
    """The network as a system and the sequences that drive it, both checked; the network is in evaluation inside.

    Args:
        rnn: see :func:`measure`.
        sequences: see :func:`measure`.
        batch_size: how many sequences will be drawn at once; ``None`` where all are taken.
        inputs: the constant inputs, see :func:`measure`.
    """
    rnn = network_of(rnn)
    data = sequences_of(rnn, sequences)
    if batch_size is not None:
        check_batch_size(batch_size, len(data))
    with as_system(rnn, data.features) as system:
        _check_features(data, system)
        yield _under(system, inputs, data), data


@contextmanager
def studying_states(
    rnn: nn.Module, states: Any, sequences: Any, *, batch_size: int | None = None, inputs: Any = "normal"
) -> Iterator[tuple[System, StateSet]]:
    """:func:`studying` from given states.

    Args:
        rnn: see :func:`measure`.
        states: ``(n, d)`` or ``(R, n, d)``, see :func:`measure`.
        sequences: what the network reads, for ``inputs="data"`` and modules that do not tell the size of their input;
            ``None`` if there are none.
        batch_size: how many states will be drawn at once; ``None`` where all are taken.
        inputs: the constant inputs, see :func:`measure`.
    """
    rnn = network_of(rnn)
    data = None if sequences is None else sequences_of(rnn, sequences)
    starts = state_set(states, members_of(rnn))
    check_range(starts.states, example_of(rnn).dtype, "states")
    if batch_size is not None:
        check_batch_size(batch_size, len(starts), "states")
    with as_system(rnn, data.features if data is not None else features_of(rnn, inputs)) as system:
        if data is not None:
            _check_features(data, system)
        system.split(starts.states)
        yield _under(system, inputs, data), starts


@contextmanager
def as_system(rnn: nn.Module, features: int) -> Iterator[System]:
    """A network in evaluation as a system, computed with as many threads as pay. For ``features`` see
    :func:`system_of`.
    """
    with evaluating(rnn):
        system = system_of(rnn, features)
        with paying_threads(rnn, system):
            yield system


def paying_threads(rnn: nn.Module, system: System) -> AbstractContextManager[None]:
    """:func:`threads_that_pay` for the layers of a network."""
    return threads_that_pay(sum(p.numel() for p in rnn.parameters()) // len(system.layers))


def network_of(rnn: Any) -> nn.Module:
    """The module itself, without what stands around it; an error unless it is one that has weights with values."""
    rnn = unwrapped(rnn)
    _check_module(rnn)
    if any(parameter.is_meta for parameter in rnn.parameters()):
        raise ValueError(f"rnn must have weights with values, got a {type(rnn).__name__} on the device meta")
    return cast(nn.Module, rnn)


def _check_module(rnn: Any) -> None:
    if not isinstance(rnn, nn.Module):
        raise TypeError(f"rnn must be a torch.nn.Module, got {type(rnn).__name__}")


def features_of(rnn: nn.Module, inputs: Any) -> int:
    """The size of a network's input where no sequence tells it: a module may have it, or inputs that were given."""
    rnn = rnn.network if isinstance(rnn, Ensemble) else rnn
    size = getattr(rnn, "input_size", None)
    if isinstance(size, int):
        return size
    if not isinstance(inputs, str):
        return inputs_in_any_form(inputs).shape[-1]
    raise ValueError(f"{type(rnn).__name__} does not tell its input_size: give a tensor in place of {shown(inputs)}")


def sequences_of(rnn: nn.Module, sequences: Any) -> SequenceSet:
    """The sequences in the network's own layout, checked."""
    data = sequence_set(sequences, batch_first=_batch_first(rnn), members=members_of(rnn))
    check_range(data.numbers, example_of(rnn).dtype)
    return data


def _check_features(data: SequenceSet, system: System) -> None:
    if data.features != system.input_size:
        expected = f"as many features as the network's input_size, {system.input_size}"
        raise ValueError(f"sequences must have {expected}, got {data.features}")


def _under(system: System, inputs: Any, data: SequenceSet | None) -> System:
    """The system under the constant inputs that the user chose."""
    return replace(system, inputs=inputs_of(inputs, system.input_size, data, system.dtype))


def system_of(rnn: nn.Module, features: int) -> System:
    """The network as a system. ``features`` is the size of its input, which not every module tells."""
    rnn = unwrapped(rnn)
    known = known_layers(rnn)
    network = rnn.network if isinstance(rnn, Ensemble) else rnn
    if known is not None and getattr(network, "bidirectional", False):
        raise ValueError(
            f"{type(network).__name__} with bidirectional=True has two states that nothing joins: take each direction "
            "by itself, ms.recurrent_parts(network) has them"
        )
    layers: Sequence[Layer] = known or [ModuleLayer(rnn, features, _batch_first(rnn))]
    like = example_of(rnn)
    return System(layers, members_of(rnn), like.device, like.dtype)


def _batch_first(rnn: nn.Module) -> bool:
    return truth_value(f"batch_first of {type(rnn).__name__}", getattr(rnn, "batch_first", False))


def known_layers(rnn: nn.Module) -> list[StackLayer] | None:
    """The layers of a network whose equations are known; ``None`` for any other module, which is called as it is."""
    rnn = unwrapped(rnn)
    if isinstance(rnn, Direction):
        return [rnn.layer]
    if isinstance(rnn, Ensemble):
        _check_taken_apart(rnn, is_only(rnn, Ensemble) and is_only(rnn.network, RNN))
        return cast(list[StackLayer], list(rnn.network.layers))
    if isinstance(rnn, RNN):
        known = is_only(rnn, RNN)
        _check_taken_apart(rnn, known or not any(isinstance(layer, Double) for layer in rnn.layers))
        return cast(list[StackLayer], list(rnn.layers)) if known else None
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


def _where(condition: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda new, old: torch.where(condition, new, old)


def _first_rows(condition: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """The first rows are new where the condition ``(..., k, 1)`` holds; there may be more of the old ones."""

    def merged(new: Tensor, old: Tensor) -> Tensor:
        k = new.shape[-2]
        return torch.cat([torch.where(condition, new, old[..., :k, :]), old[..., k:, :]], dim=-2)

    return merged
