"""Stacked recurrent networks with the conventions of ``torch.nn.GRU``."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from inspect import Parameter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from multistable.arguments import positive_integer, positive_integers, truth_value
from multistable.cells import CELLS, Cell
from multistable.networks.layers import CellLayer, Double, LayerState, Single

CellSpec = str | Callable[..., Cell[Any]]

# The arguments with which every cell makes its weights. They are passed on only if they are given.
_FACTORY = ("generator", "device", "dtype")
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class RNN(nn.Module):
    """A stack of recurrent layers, u^i_t = o^{i-1}_t.

    Args:
        cell: a name in ``ms.CELLS`` or ``"module:Class"``, a :class:`Cell` class, or any function
            ``(input_size, hidden_size) -> Cell``. With ``double=True`` also a pair of these, the half to warm up first.
        input_size: features of the input.
        hidden_size: units of each layer; a double layer has half of them in each of its halves.
        num_layers: how many layers.
        double: make every layer a double layer (:class:`Double`).
        batch_first: inputs and outputs are ``(n, time, features)`` instead of ``(time, n, features)``.
        generator: where the initial weights are drawn from; PyTorch's global generator if not given.
        options: further arguments of the cell, for instance ``t_max`` of ``"chrono"``. Both halves of a double
            layer get them; use ``functools.partial`` to give one half its own.
    """

    layers: nn.ModuleList

    def __init__(
        self,
        cell: CellSpec | Sequence[CellSpec],
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        double: bool = False,
        batch_first: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        num_layers = positive_integer("num_layers", num_layers)
        double, batch_first = truth_value("double", double), truth_value("batch_first", batch_first)
        input_size, hidden_size = positive_integers(input_size=input_size, hidden_size=hidden_size)
        if double and hidden_size % 2:
            raise ValueError(f"hidden_size must be even, double layers have two halves, got {hidden_size!r}")
        makers = _cell_makers(cell, double)
        for make in makers:
            check_options(make, options)
        factory = {"generator": generator, "device": device, "dtype": dtype}
        # A user's own cell need not accept arguments that are not given.
        factory = {name: value for name, value in factory.items() if value is not None} | options

        def layer(features: int) -> CellLayer:
            if double:
                return Double(*(_made(make, features, hidden_size // 2, factory) for make in makers))
            return Single(_made(makers[0], features, hidden_size, factory))

        self.input_size, self.hidden_size, self.batch_first = input_size, hidden_size, batch_first
        self.layers = nn.ModuleList(layer(hidden_size if i else input_size) for i in range(num_layers))

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def forward(self, x: Any, state: Any = None) -> tuple[Any, Any]:
        """Advance over a batch of sequences.

        Args:
            x: ``(time, n, input_size)``, or ``(n, time, input_size)`` with ``batch_first``; one sequence without
                a batch dimension, ``(time, input_size)``; or a ``PackedSequence``.
            state: as returned by an earlier call; zero when not given.

        Returns:
            The output of the last layer in the layout of ``x``, and the state of all layers at the end:
            ``h (num_layers, n, hidden_size)``, or the pair ``(h, c)`` for LSTM.
        """
        if isinstance(x, PackedSequence):
            return self._forward_packed(x, state)
        if x.dim() < 2:
            raise ValueError(f"the input must be (time, n, features) or (time, features), got shape {tuple(x.shape)}")
        if x.dim() == 2:
            batch = 0 if self.batch_first else 1
            state = None if state is None else _map(state, _as_batch_of_one)
            output, end = self.forward(x.unsqueeze(batch), state)
            return output.squeeze(batch), _map(end, lambda s: s.squeeze(1))
        u, ends = x.movedim(-2, 0) if self.batch_first else x, []
        for layer, before in zip(self._stack, self._before(u, state), strict=True):
            u, end = layer.read(u, before)
            ends.append(end)
        return (u.movedim(0, -2) if self.batch_first else u), self.pack_state(ends)

    def advance(self, u: Tensor, state: Any = None) -> tuple[Tensor, list[LayerState]]:
        """The output of the last layer and all states of all layers.

        Args:
            u: inputs, ``(time, ..., n, input_size)``, whatever ``batch_first`` says.
            state: as :meth:`forward` takes it.

        Returns:
            Output ``(time, ..., n, hidden_size)``, and for each layer its states, each field with time first.
        """
        states = []
        for layer, before in zip(self._stack, self._before(u, state), strict=True):
            u, layer_states = layer(u, before)
            states.append(layer_states)
        return u, states

    def _before(self, u: Tensor, state: Any) -> Sequence[LayerState | None]:
        """The state of each layer before the first step of inputs ``(time, ..., n, input_size)``, both checked."""
        if u.shape[-1] != self.input_size:
            raise ValueError(f"the input must have input_size = {self.input_size} features, got {u.shape[-1]}")
        if state is None:
            return [None] * len(self.layers)
        before = self.unpack_state(state)
        given = next(
            (x.shape[:-1] for cells in before for s in cells for x in s if x.shape[:-1] != u.shape[1:-1]), None
        )
        if given is not None:
            expected, given = tuple(u.shape[1:-1]), tuple(given)
            raise ValueError(f"the state must have the batch dimensions of the input, {expected}, got {given}")
        return before

    def pack_state(self, states: Sequence[LayerState]) -> Any:
        """The layers' states in the form that :meth:`forward` returns: each field stacked over layers."""
        merged = [layer.merge(state) for layer, state in zip(self._stack, states, strict=True)]
        fields = [torch.stack([fields[name] for fields in merged]) for name in merged[0]]
        return fields[0] if len(fields) == 1 else tuple(fields)

    def unpack_state(self, state: Any) -> list[LayerState]:
        """The inverse of :meth:`pack_state`."""
        names = self._stack[0].state_fields
        fields = (state,) if isinstance(state, Tensor) else tuple(state)
        if len(fields) != len(names) or any(len(field) != len(self.layers) for field in fields):
            given = [tuple(field.shape) for field in fields]
            expected = f"({', '.join(names)}), each with {len(self.layers)} layers first"
            raise ValueError(f"the state must be {expected}, got shapes {given}")
        per_layer = zip(*(field.unbind(0) for field in fields), strict=True)
        return [
            layer.split(dict(zip(names, tensors, strict=True)))
            for layer, tensors in zip(self._stack, per_layer, strict=True)
        ]

    def extra_repr(self) -> str:
        return f"batch_first={self.batch_first}"

    @property
    def _stack(self) -> list[CellLayer]:
        return cast(list[CellLayer], list(self.layers))

    def _forward_packed(self, packed: PackedSequence, state: Any) -> tuple[PackedSequence, Any]:
        u, lengths = pad_packed_sequence(packed)
        output, states = self.advance(u, state)
        last = lengths.to(u.device) - 1
        end = _map(self.pack_state(states), lambda s: s[:, last, torch.arange(len(last), device=u.device)])
        # The output has the order of the input, so that the two can be compared entry by entry.
        order = slice(None) if packed.sorted_indices is None else packed.sorted_indices
        repacked = pack_padded_sequence(output[:, order], lengths[order if isinstance(order, slice) else order.cpu()])
        return repacked._replace(sorted_indices=packed.sorted_indices, unsorted_indices=packed.unsorted_indices), end


def check_options(cell: CellSpec, options: Iterable[str]) -> None:
    """Raise if one of the names is no argument of the cell beyond its sizes, as far as its signature tells."""
    known = _options_of(_cell_maker(cell))
    unknown = [] if known is None else [name for name in options if name not in known]
    if unknown:
        named = repr(cell) if isinstance(cell, str) else getattr(cell, "__name__", repr(cell))
        raise TypeError(
            f"the cell {named} takes no argument {unknown[0]!r}; beyond its sizes it takes: "
            f"{', '.join(known or ()) or 'nothing'}"
        )


def _options_of(make: Callable[..., Any]) -> list[str] | None:
    """The names of the arguments that a cell takes beyond its sizes; ``None`` where it may take any."""
    bound = 0
    while isinstance(make, partial):
        bound += len(make.args)
        make = make.func
    if not isinstance(make, type):
        return _named([make], first=2 + bound)
    # The ``__init__`` of a cell hands on what it does not name, to the class above it and to the initial weights.
    return _named([vars(kind)["__init__"] for kind in make.__mro__ if "__init__" in vars(kind)], first=3 + bound)


def _named(functions: Iterable[Callable[..., Any]], first: int) -> list[str] | None:
    """The arguments of functions after the ``first`` ones; each function hands on to the next what it does not name."""
    names: list[str] = []
    for function in functions:
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
        positional = [p.name for p in parameters if p.kind in _POSITIONAL]
        names += positional[first:] + [p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
        if not any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
            return [name for name in dict.fromkeys(names) if name not in _FACTORY]
    return None


def _cell_makers(cell: CellSpec | Sequence[CellSpec], double: bool) -> list[Callable[..., Cell[Any]]]:
    """What makes the cells of a layer: one maker, or two for a double layer."""
    specs: list[Any] = list(cell) if isinstance(cell, tuple | list) else [cell]
    if not 1 <= len(specs) <= 1 + double:
        wanted = "one cell, or a pair of cells" if double else "one cell (a pair of cells needs double=True)"
        raise ValueError(f"cell must be {wanted}, got {len(specs)}: {cell!r}")
    makers = [_cell_maker(spec) for spec in specs]
    return makers * 2 if double and len(makers) == 1 else makers


def _cell_maker(spec: CellSpec) -> Callable[..., Cell[Any]]:
    other_class = isinstance(spec, type) and not issubclass(spec, Cell)
    if callable(spec) and not (other_class or inspect.isabstract(spec) or isinstance(spec, nn.Module)):
        return spec
    if not isinstance(spec, str):
        raise TypeError(f"cell must be a name ({', '.join(CELLS)}) or a Cell class, got {spec!r}")
    return CELLS.find(spec)


def _made(make: Callable[..., Any], input_size: int, hidden_size: int, factory: dict[str, Any]) -> Cell[Any]:
    """A cell of these sizes, or an error if the user's function makes something else."""
    cell = make(input_size, hidden_size, **factory)
    if not isinstance(cell, Cell):
        raise TypeError(f"cell must make a Cell, got one that makes a {type(cell).__name__}")
    if (cell.input_size, cell.hidden_size) != (input_size, hidden_size):
        raise ValueError(
            f"cell must make a Cell of the sizes it is given, input_size = {input_size} and hidden_size = "
            f"{hidden_size}, got one of input_size = {cell.input_size} and hidden_size = {cell.hidden_size}"
        )
    return cell


def _as_batch_of_one(state: Tensor) -> Tensor:
    if state.dim() != 2:
        raise ValueError(f"the state of one sequence must be (num_layers, units), got shape {tuple(state.shape)}")
    return state.unsqueeze(1)


def _map(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``change`` applied to a state that is a tensor or a tuple of tensors."""
    return change(state) if isinstance(state, Tensor) else tuple(change(field) for field in state)
