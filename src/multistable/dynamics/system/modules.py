"""Recurrent modules of other libraries as layers: those of ``torch.nn``, and any with the same calling convention."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from multistable.cells.base import Cell
from multistable.networks.convert import TorchRecurrence
from multistable.networks.gates import Gates
from multistable.networks.layers import CellLayer, Layer, LayerState, Single


class TorchLayer(CellLayer):
    """One layer of a ``torch.nn`` recurrence, whose weights are derived from the user's own parameters."""

    def __init__(self, recurrence: TorchRecurrence) -> None:
        super().__init__()
        self.module = recurrence.module
        self._recurrence = recurrence

    @property
    def input_size(self) -> int:
        """The features of the input."""
        return self._recurrence.outline.input_size

    @property
    def cells(self) -> tuple[Cell[Any], ...]:
        """The layer's cell, with weights that are derived anew from the module's present parameters."""
        return (self._recurrence.cell(),)

    @property
    def gates(self) -> tuple[Gates, ...]:
        """The user's own parameters, gate by gate."""
        return (self._recurrence.gates(),)

    def with_present_weights(self) -> Layer:
        """The layer with weights that are derived once."""
        return Single(self._recurrence.cell())


class ModuleLayer(Layer):
    """Any module ``(input, state) -> (output, state)``, as one layer.

    The module takes whole sequences ``(time, n, features)`` or single steps ``(n, features)``; ``None`` as its
    state means the initial state; its state is a tensor, or a tuple of tensors, of any shape with a batch
    dimension.

    Args:
        module: the user's module.
        features: the size of its input.
        batch_first: whether its sequences are ``(n, time, features)``.
    """

    def __init__(self, module: nn.Module, features: int, batch_first: bool) -> None:
        super().__init__()
        self.module = module
        self._features = features
        self.convention = _discover(module, features, batch_first)

    @property
    def input_size(self) -> int:
        """The features of the input."""
        return self._features

    def forward(self, u: Tensor, state: LayerState | None = None) -> tuple[Tensor, LayerState]:
        """As :meth:`Layer.forward`, one call of the module a time step; the output is the whole state."""
        convention = self.convention
        native = None if state is None else convention.to_native(state[0])
        states = []
        for u_t in u:
            native = _state_after(self.module, convention.one_step(u_t), native)
            states.append(convention.from_native(native))
        fields = tuple(torch.stack(field) for field in zip(*states, strict=True))
        return torch.cat(fields, dim=-1), (fields,)

    def only_last(self, u: Tensor, state: LayerState | None = None) -> LayerState:
        """The state after the last step; arguments as for :meth:`forward`."""
        native = None if state is None else self.convention.to_native(state[0])
        for u_t in u:
            native = _state_after(self.module, self.convention.one_step(u_t), native)
        return (self.convention.from_native(native),)


@dataclass(frozen=True)
class _Convention:
    """How a module wants its input, and where its state keeps the batch.

    All tensors are copied on their way in and out: a module may update its input and its state in place.
    """

    time_dim: int | None
    """Where sequences have their time; ``None`` for a module of single steps."""
    together: Callable[[Sequence[Tensor]], Any]
    """Makes the state of its tensors: a tuple, a named tuple, a list, or the tensor itself."""
    batch_dims: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    """For each tensor of the state: its batch dimension, and its shape without it."""

    @property
    def takes_sequences(self) -> bool:
        """Whether the module takes whole sequences, not single steps."""
        return self.time_dim is not None

    def one_step(self, u_t: Tensor) -> Tensor:
        return u_t.clone() if self.time_dim is None else u_t.unsqueeze(self.time_dim).clone()

    def from_native(self, native: Any) -> tuple[Tensor, ...]:
        """Each tensor of the state as ``(n, anything)``."""
        pairs = zip(_tensors(native), self.batch_dims, strict=True)
        return tuple(tensor.movedim(dim, 0).reshape(tensor.shape[dim], -1).clone() for tensor, dim in pairs)

    def to_native(self, fields: Sequence[Tensor]) -> Any:
        """The inverse of :meth:`from_native`."""
        parts = zip(fields, self.batch_dims, self.shapes, strict=True)
        return self.together(
            [
                field.reshape(-1, *shape).movedim(0, dim).clone(memory_format=torch.contiguous_format)
                for field, dim, shape in parts
            ]
        )


def _discover(module: nn.Module, features: int, batch_first: bool) -> _Convention:
    """Find out the convention of a module by calls with inputs of different sizes."""
    like = example_of(module)

    def state_after(*shape: int) -> tuple[list[torch.Size], Any]:
        with torch.no_grad():
            # Not zeros, which hide much of what a module does to its input.
            u = torch.linspace(-1, 1, features, device=like.device, dtype=like.dtype).expand(*shape, features)
            state = _state_after(module, u.contiguous(), None)
        return [tensor.shape for tensor in _tensors(state)], _maker_of(state)

    def sequences(time: int, n: int) -> tuple[list[torch.Size], Any]:
        return state_after(n, time) if batch_first else state_after(time, n)

    try:
        # A module of single steps may take the time dimension for a second batch dimension: its state then has it too.
        takes_sequences = sequences(4, 2)[0] == sequences(5, 2)[0]
    except Exception:
        takes_sequences = False
    try:
        (two, together), (three, _) = (sequences(4, n) if takes_sequences else state_after(n) for n in (2, 3))
        dims = tuple(_differing_dim(a, b) for a, b in zip(two, three, strict=True))
    except Exception as error:
        raise TypeError(f"{_not_recurrent(module, features)} (its error: {error})") from error
    rest = tuple(tuple(s[:dim] + s[dim + 1 :]) for s, dim in zip(two, dims, strict=True))
    time_dim = (1 if batch_first else 0) if takes_sequences else None
    return _Convention(time_dim, together, dims, rest)


def _state_after(module: nn.Module, u: Tensor, state: Any) -> Any:
    """The state that the module returns, beside its output or, as the cells of ``torch.nn`` do, alone."""
    result = module(u, state)
    if isinstance(module, nn.RNNCellBase):
        return result
    _, after = result
    return after


def _maker_of(state: Any) -> Callable[[Sequence[Tensor]], Any]:
    """What makes a state of the same kind from its tensors."""
    if isinstance(state, Tensor):
        return itemgetter(0)
    return getattr(state, "_make", list if isinstance(state, list) else tuple)


def example_of(module: nn.Module) -> Tensor:
    """A tensor of the module's device and type: a parameter, or a buffer if it has no parameter."""
    tensors = (t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point())
    return next(tensors, torch.empty(0))


def _tensors(state: Any) -> tuple[Tensor, ...]:
    tensors = (state,) if isinstance(state, Tensor) else state
    if not isinstance(tensors, tuple | list) or not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(f"the state must be a tensor or a tuple of tensors, got {type(state).__name__}")
    if any(t.is_complex() for t in tensors):
        raise TypeError("the state must be of real numbers, got complex ones")
    return tuple(tensors)


def _differing_dim(a: torch.Size, b: torch.Size) -> int:
    """The batch dimension: where the shapes for two batch sizes differ."""
    (dim,) = (i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    return dim


def _not_recurrent(module: nn.Module, features: int) -> str:
    message = (
        f"{type(module).__name__} has no recurrent layers that could be found: accepted are torch.nn.RNN, GRU, LSTM "
        "and their cells, ms.RNN, ms.Cell, ms.Ensemble, and modules called as (input, state) -> (output, state) "
        f"that take inputs of {features} features and None as the initial state"
    )
    recurrent = (nn.RNNBase, nn.RNNCellBase, Cell)
    inside = [f"{name} ({type(m).__name__})" for name, m in module.named_modules() if name and isinstance(m, recurrent)]
    return f"{message}. It contains {', '.join(inside)}: pass that module instead" if inside else message
