"""Recurrent layers: one cell, two side by side, or two that read from both ends."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import shown
from multistable.cells.base import Cell
from multistable.networks.gates import Gates
from multistable.networks.pieces import at_end, reversed_in_time
from multistable.scan import read, scan

LayerState = tuple[Any, ...]
"""The state of a layer: for each of its cells, that cell's named tuple."""


class Layer(nn.Module, ABC):
    """A recurrent layer. Networks are stacks of layers, and a warmup acts on each layer by itself."""

    @property
    @abstractmethod
    def input_size(self) -> int:
        """The features of the input."""

    @abstractmethod
    def forward(self, u: Tensor, state: LayerState | None = None) -> tuple[Tensor, LayerState]:
        """Advance over a whole sequence.

        Args:
            u: inputs, ``(time, ..., n, input_size)``.
            state: the state before the first step; zero when not given.

        Returns:
            The output ``(time, ..., n, units)`` and the state after each step, each field with time first.
        """

    @abstractmethod
    def only_last(self, u: Tensor, state: LayerState | None = None) -> LayerState:
        """The state after the last step, without gradient; arguments as for :meth:`forward`."""

    def step(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """One step in plain PyTorch, to be differentiated: ``u (..., n, input_size)`` and the state before it.

        Returns:
            The output ``(..., n, units)`` and the state after the step.
        """
        output, states = self(u.unsqueeze(0), state)
        return output[0], tuple(_of_first_step(cell) for cell in states)

    @property
    def warmable(self) -> "Layer":
        """The part of the layer that warmup acts on."""
        return self

    def warmable_state(self, state: LayerState) -> LayerState:
        """The state of :attr:`warmable`, taken from the state of the whole layer."""
        return state

    def with_present_weights(self) -> "Layer":
        """The same layer, valid until its weights change: a layer that derives its weights does so only once."""
        return self


class StackLayer(Layer):
    """A layer of an ``ms.RNN``."""

    @property
    @abstractmethod
    def cells(self) -> tuple[Cell[Any], ...]:
        """The recurrences of this layer."""

    @abstractmethod
    def merged(self, state: LayerState) -> list[dict[str, Tensor]]:
        """The fields of the state of each direction, see :meth:`CellLayer.merge`."""

    @property
    @abstractmethod
    def directions(self) -> tuple["CellLayer", ...]:
        """The layers of one direction that it consists of: itself, or one that reads onward and one in reverse."""

    @abstractmethod
    def of_directions(self, state: LayerState) -> tuple[LayerState, ...]:
        """The state of each of :attr:`directions`; one after the other they are the state of the layer."""

    @abstractmethod
    def read(
        self, u: Tensor, state: LayerState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """The output ``(time, ..., n, units)``, and the state after the last step alone.

        Args:
            u: inputs, ``(time, ..., n, input_size)``.
            state: the state before the first step; zero when not given.
            lengths: how many steps each sequence has, ``(..., n)``, if not all of them.
        """


class CellLayer(StackLayer):
    """Cells side by side that read the same input; the layer's output is their concatenation."""

    @property
    def directions(self) -> tuple["CellLayer", ...]:
        return (self,)

    def of_directions(self, state: LayerState) -> tuple[LayerState, ...]:
        return (state,)

    def merged(self, state: LayerState) -> list[dict[str, Tensor]]:
        return [self.merge(state)]

    @property
    def input_size(self) -> int:
        return self.cells[0].input_size

    @property
    def hidden_size(self) -> int:
        return sum(cell.hidden_size for cell in self.cells)

    def forward(self, u: Tensor, state: LayerState | None = None) -> tuple[Tensor, LayerState]:
        cells = self.cells
        if len(cells) == 1:
            states = scan(cells[0], u, None if state is None else state[0])
            return states[0], (states,)
        after = _scan_side_by_side(cells, u, state)
        return torch.cat([states[0] for states in after], dim=-1), after

    def read(
        self, u: Tensor, state: LayerState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        cells = self.cells
        if len(cells) == 1 and lengths is None:
            output, end = read(cells[0], u, None if state is None else state[0])
            return output, (end,)
        output, after = self(u, state)
        return output, _at_end(after, lengths)

    def only_last(self, u: Tensor, state: LayerState | None = None) -> LayerState:
        return _scan_side_by_side(self.cells, u, state, only_last=True)

    def step(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        after = tuple(cell.checked_step(cell.project(u), x) for cell, x in zip(self.cells, state, strict=True))
        return _joined([x[0] for x in after]), after

    @property
    def gates(self) -> tuple[Gates, ...]:
        """The weights of each cell, gate by gate."""
        return tuple(Gates(cell, cell, ("recurrent_weight", "bias", "recurrent_bias")) for cell in self.cells)

    @property
    def state_fields(self) -> tuple[str, ...]:
        """The names of what the layer remembers: ``("h",)``, or ``("h", "c")`` where one of its cells is an LSTM."""
        return tuple(dict.fromkeys(name for cell in self.cells for name in cell.State._fields))

    def merge(self, state: LayerState) -> dict[str, Tensor]:
        """Each field of the state as one tensor ``(..., n, units)``: the cells with this field stand side by side."""
        if len(state) == 1:
            return dict(zip(state[0]._fields, state[0], strict=True))
        return {name: _joined([getattr(x, name) for x in state if name in x._fields]) for name in self.state_fields}

    def split(self, merged: dict[str, Tensor]) -> LayerState:
        """The inverse of :meth:`merge`."""
        pieces = {}
        for name, tensor in merged.items():
            units = [cell.hidden_size for cell in self.cells if name in cell.State._fields]
            if tensor.shape[-1] != sum(units):
                raise ValueError(f"state {name!r} must have {sum(units)} units, got {tensor.shape[-1]}")
            pieces[name] = iter(tensor.split(units, dim=-1))
        return tuple(cell.State(*(next(pieces[name]) for name in cell.State._fields)) for cell in self.cells)


class Single(CellLayer):
    """A layer of one cell."""

    def __init__(self, cell: Cell[Any]) -> None:
        super().__init__()
        self.cell = cell

    @property
    def cells(self) -> tuple[Cell[Any], ...]:
        return (self._modules["cell"],)  # type: ignore[return-value]  # without a search for the attribute


class Double(CellLayer):
    """A layer of two half-size recurrences (section 6.3), of which warmup changes the first alone.

    ``warmed`` becomes multistable, ``transient`` keeps its rich transient dynamics. They may be different cells.
    """

    def __init__(self, warmed: Cell[Any], transient: Cell[Any]) -> None:
        super().__init__()
        for name, cell in (("warmed", warmed), ("transient", transient)):
            if not isinstance(cell, Cell):
                raise TypeError(f"{name} must be a Cell, got {shown(cell)}")
        if warmed.input_size != transient.input_size:
            raise ValueError(
                "both halves of a double layer read the same input, "
                f"got input_size {warmed.input_size} and {transient.input_size}"
            )
        kinds = [{(p.dtype, p.device) for p in cell.parameters()} for cell in (warmed, transient)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"warmed and transient must have weights of one type on one device, got {kinds}")
        self.warmed = warmed
        self.transient = transient

    @property
    def cells(self) -> tuple[Cell[Any], ...]:
        return (self.warmed, self.transient)

    @property
    def warmable(self) -> Layer:
        return Single(self.warmed)

    def warmable_state(self, state: LayerState) -> LayerState:
        return state[:1]


class Bidirectional(StackLayer):
    """Two layers that read the same input, ``onward`` from its start and ``reverse`` from its end.

    The output at a time step is what both have made of it, side by side. The state is that of the one and then that of
    the other.
    """

    def __init__(self, onward: CellLayer, reverse: CellLayer) -> None:
        super().__init__()
        self.onward = onward
        self.reverse = reverse

    @property
    def directions(self) -> tuple[CellLayer, ...]:
        return (self.onward, self.reverse)

    @property
    def cells(self) -> tuple[Cell[Any], ...]:
        return (*self.onward.cells, *self.reverse.cells)

    @property
    def input_size(self) -> int:
        return self.onward.input_size

    def of_directions(self, state: LayerState) -> tuple[LayerState, ...]:
        onward = len(self.onward.cells)
        return state[:onward], state[onward:]

    def merged(self, state: LayerState) -> list[dict[str, Tensor]]:
        onward, reverse = self.of_directions(state)
        return [self.onward.merge(onward), self.reverse.merge(reverse)]

    def forward(self, u: Tensor, state: LayerState | None = None) -> tuple[Tensor, LayerState]:
        """As :meth:`Layer.forward`; after a time step, ``reverse`` is in the state that it has come to from the end."""
        before, before_reverse = (None, None) if state is None else self.of_directions(state)
        output, after = self.onward(u, before)
        output_reverse, after_reverse = self.reverse(reversed_in_time(u), before_reverse)
        output_reverse = reversed_in_time(output_reverse)
        turned = tuple(cell._make(map(reversed_in_time, cell)) for cell in after_reverse)
        return torch.cat([output, output_reverse], dim=-1), (*after, *turned)

    def read(
        self, u: Tensor, state: LayerState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        before, before_reverse = (None, None) if state is None else self.of_directions(state)
        output, end = self.onward.read(u, before, lengths)
        output_reverse, end_reverse = self.reverse.read(reversed_in_time(u, lengths), before_reverse, lengths)
        return torch.cat([output, reversed_in_time(output_reverse, lengths)], dim=-1), (*end, *end_reverse)

    def only_last(self, u: Tensor, state: LayerState | None = None) -> LayerState:
        before, before_reverse = (None, None) if state is None else self.of_directions(state)
        return (*self.onward.only_last(u, before), *self.reverse.only_last(reversed_in_time(u), before_reverse))


def _at_end(states: LayerState, lengths: Tensor | None) -> LayerState:
    """The state after the last step of each sequence, from the states after every step."""
    return tuple(
        cell._make(field[-1].clone() if lengths is None else at_end(field, lengths) for field in cell)
        for cell in states
    )


def _scan_side_by_side(
    cells: Sequence[Cell[Any]], u: Tensor, state: LayerState | None, only_last: bool = False
) -> LayerState:
    """The states of each cell; cells that can be stacked advance in one scan, along a new leading dimension."""
    if not _stackable(cells):
        before = state or [None] * len(cells)
        return tuple(scan(cell, u, x, only_last=only_last) for cell, x in zip(cells, before, strict=True))
    weights = [dict(cell.named_parameters()) for cell in cells]
    pair = cells[0].bind({name: torch.stack([w[name] for w in weights]) for name in weights[0]})
    stacked = None if state is None else pair.State(*(torch.stack(field) for field in zip(*state, strict=True)))
    states = scan(pair, u.unsqueeze(1), stacked, only_last=only_last)
    halves = zip(*(field.unbind(0 if only_last else 1) for field in states), strict=True)
    return tuple(pair.State(*fields) for fields in halves)


def _stackable(cells: Sequence[Cell[Any]]) -> bool:
    first = cells[0]
    only_own_parameters = not (first._modules or first._buffers)
    return len(cells) > 1 and only_own_parameters and all(first.same_equations(cell) for cell in cells[1:])


def _of_first_step(cell: Any) -> Any:
    fields = [field[0] for field in cell]
    return cell._make(fields) if hasattr(cell, "_make") else tuple(fields)


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side along the last dimension; one alone is not copied."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors), dim=-1)
