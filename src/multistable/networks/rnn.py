"""Stacked recurrent networks with the conventions of ``torch.nn.GRU``."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from multistable.arguments import positive_integer, positive_integers, share, truth_value
from multistable.cells.base import check_tensor, fields_of
from multistable.networks.cell_specs import CellSpec, cell_maker, check_options, halves, made_cell, without_bias
from multistable.networks.layers import Bidirectional, CellLayer, Double, LayerState, Single, StackLayer
from multistable.networks.pieces import OfDirections, Pieces, pieces_of_batch, pieces_of_packed, rows_of
from multistable.scan import uncompiled


class RNN(nn.Module):
    """A stack of recurrent layers, u^i_t = o^{i-1}_t.

    Args:
        cell: a name in ``ms.CELLS`` or ``"module:Class"``, a :class:`Cell` class, or any function
            ``(input_size, hidden_size) -> Cell``. A pair of these, such as ``("gru", "lstm")`` or ``"gru+lstm"``, makes
            every layer a double layer of both, the half to warm up first.
        input_size: features of the input.
        hidden_size: units of each layer; a double layer has half of them in each of its halves.
        num_layers: how many layers.
        bias: whether the cells have biases. With ``False`` they are zero and frozen (``requires_grad=False``).
        batch_first: inputs and outputs are ``(n, time, features)`` instead of ``(time, n, features)``.
        dropout: how much of what one layer hands to the next is set to zero in training mode.
        bidirectional: make every layer two (:class:`Bidirectional`), of which one reads from the end. Outputs have
            ``2 * hidden_size`` features, states ``2 * num_layers`` entries: layer by layer, onward and then reverse.
        double: make every layer a double layer (:class:`Double`).
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
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        double: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        num_layers = positive_integer("num_layers", num_layers)
        input_size, hidden_size = positive_integers(input_size=input_size, hidden_size=hidden_size)
        cells = halves(cell)
        self.batch_first, double = truth_value("batch_first", batch_first), truth_value("double", double)
        double = double or len(cells) == 2
        if double and hidden_size % 2:
            raise ValueError(f"hidden_size must be even, double layers have two halves, got {hidden_size!r}")
        self.bias, self.bidirectional = truth_value("bias", bias), truth_value("bidirectional", bidirectional)
        self.dropout = _checked_dropout(dropout, num_layers)
        makers = [cell_maker(half) for half in (cells * 2 if double and len(cells) == 1 else cells)]
        for make in makers:
            check_options(make, options)
        factory = {"generator": generator, "device": device, "dtype": dtype}
        # A user's own cell need not accept arguments that are not given.
        factory = {name: value for name, value in factory.items() if value is not None} | options

        def one_way(features: int) -> CellLayer:
            cells = [made_cell(make, features, hidden_size // len(makers), factory) for make in makers]
            for made in cells if not self.bias else ():
                without_bias(made)
            return Double(*cells) if double else Single(*cells)

        def layer(features: int) -> StackLayer:
            return Bidirectional(one_way(features), one_way(features)) if self.bidirectional else one_way(features)

        self.input_size, self.hidden_size = input_size, hidden_size
        outputs = hidden_size * (1 + self.bidirectional)
        self.layers = nn.ModuleList(layer(outputs if i else input_size) for i in range(num_layers))

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @uncompiled
    def forward(self, x: Any, state: Any = None, *, resets: Any = None) -> tuple[Any, Any]:
        """Advance over a batch of sequences.

        Under ``torch.autocast`` it computes in the type of the weights all the same, and returns the type that
        ``torch.nn`` returns. ``torch.compile`` calls it as it is.

        Args:
            x: ``(time, n, input_size)``, or ``(n, time, input_size)`` with ``batch_first``; one sequence without
                a batch dimension, ``(time, input_size)``; or a ``PackedSequence``.
            state: as returned by an earlier call; zero when not given.
            resets: before which steps of which sequences the state is set to zero, as where an episode starts: a tensor
                of ``bool`` of the shape of ``x`` without its features. For a ``PackedSequence`` it is packed too, or
                padded as by ``pad_packed_sequence``. What reads from the end starts anew after it has read such a
                step: nothing passes from one episode to another.

        Returns:
            The output of the last layer in the layout of ``x``, and the state of all layers at the end:
            ``h (num_layers, n, hidden_size)``, or the pair ``(h, c)`` for LSTM.
        """
        if isinstance(x, PackedSequence):
            output, end = self._forward_packed(x, state, resets)
            return x._replace(data=output), end
        check_tensor("the input", x)
        if x.dim() < 2:
            raise ValueError(f"the input must be (time, n, features) or (time, features), got shape {tuple(x.shape)}")
        if x.dim() > 2:
            return self._forward_batch(x, state, resets)
        batch = 0 if self.batch_first else 1
        state = None if state is None else _map(state, _as_batch_of_one)
        of_one = resets.unsqueeze(batch) if isinstance(resets, Tensor) and resets.dim() == 1 else resets
        output, end = self._forward_batch(x.unsqueeze(batch), state, of_one)
        return output.squeeze(batch), _map(end, lambda s: s.squeeze(1))

    def advance(self, u: Tensor, state: Any = None) -> tuple[Tensor, list[LayerState]]:
        """The output of the last layer and all states of all layers.

        Args:
            u: inputs, ``(time, ..., n, input_size)``, whatever ``batch_first`` says.
            state: as :meth:`forward` takes it.

        Returns:
            Output ``(time, ..., n, hidden_size)``, and for each layer its states, each field with time first.
        """
        states = []
        for index, (layer, before) in enumerate(zip(self._stack, self._before(u, u.shape[1:-1], state), strict=True)):
            u, layer_states = layer(self._dropped_out(u) if index else u, before)
            states.append(layer_states)
        return u, states

    def pack_state(self, states: Sequence[LayerState]) -> Any:
        """The layers' states in the form that :meth:`forward` returns: each field stacked over layers."""
        parts = [part for layer, state in zip(self._stack, states, strict=True) for part in layer.merged(state)]
        first, *others = parts
        fields = [torch.stack([part[name] for part in parts]) if others else first[name].unsqueeze(0) for name in first]
        return fields[0] if len(fields) == 1 else tuple(fields)

    def unpack_state(self, state: Any) -> list[LayerState]:
        """The inverse of :meth:`pack_state`."""
        directions = self._directions
        names = directions[0].state_fields
        fields = fields_of(state)
        if len(fields) != len(names) or any(field.shape[:1] != (len(directions),) for field in fields):
            given = [tuple(field.shape) for field in fields]
            layers = f"{self.num_layers} layers" + " of two directions" * self.bidirectional
            raise ValueError(f"the state must be ({', '.join(names)}), each with {layers} first, got shapes {given}")
        per_direction = zip(*(field.unbind(0) for field in fields), strict=True)
        parts = (
            layer.split(dict(zip(names, tensors, strict=True)))
            for layer, tensors in zip(directions, per_direction, strict=True)
        )
        return [tuple(cell for _ in layer.directions for cell in next(parts)) for layer in self._stack]

    def flatten_parameters(self) -> None:
        """Does nothing: what calls it on a ``torch.nn.GRU`` can call it here."""

    def extra_repr(self) -> str:
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        others = [f"{name}={getattr(self, name)}" for name, usual in defaults.items() if getattr(self, name) != usual]
        return ", ".join([str(self.input_size), str(self.hidden_size), *others])

    @property
    def _stack(self) -> list[StackLayer]:
        return list(self._modules["layers"]._modules.values())  # type: ignore[union-attr, arg-type]

    @property
    def _directions(self) -> list[CellLayer]:
        return [direction for layer in self._stack for direction in layer.directions]

    def _dropped_out(self, u: Tensor) -> Tensor:
        return functional.dropout(u, self.dropout, self.training) if self.dropout else u

    def _before(self, u: Tensor, batch: Sequence[int], state: Any) -> Sequence[LayerState | None]:
        """The state of each layer before the first step of inputs ``(..., input_size)``, both checked."""
        if u.shape[-1] != self.input_size:
            raise ValueError(f"the input must have input_size = {self.input_size} features, got {u.shape[-1]}")
        if state is None:
            return [None] * len(self._stack)
        before = self.unpack_state(state)
        for field in fields_of(state):
            if field.shape[1:-1] != torch.Size(batch):
                expected, given = tuple(batch), tuple(field.shape[1:-1])
                raise ValueError(f"the state must have the batch dimensions of the input, {expected}, got {given}")
        return before

    def _through(
        self, u: Tensor, before: Sequence[LayerState | None], lengths: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """The output of the last layer, and the state of all layers after the last step."""
        ends = []
        for index, (layer, state) in enumerate(zip(self._stack, before, strict=True)):
            u, end = layer.read(self._dropped_out(u) if index else u, state, lengths)
            ends.append(end)
        return u, self.pack_state(ends)

    def _forward_batch(self, x: Tensor, state: Any, resets: Any) -> tuple[Tensor, Any]:
        u = x.movedim(-2, 0) if self.batch_first else x
        before = self._before(u, u.shape[1:-1], state)
        if resets is not None:
            resets = _checked_resets(resets, x.shape[:-1], x.device)
            resets = resets.movedim(-1, 0) if self.batch_first else resets
            if len(u) == 1 or not resets[1:].any():
                state, resets = self._forgotten(state, resets[:1].any(0)), None
                before = self._before(u, u.shape[1:-1], state)
        if resets is None:
            output, end = self._through(u, before)
        else:
            output, end = self._in_pieces(u, state, pieces_of_batch(resets))
            output, end = output.view(*u.shape[:-1], -1), _map(end, lambda s: s.unflatten(1, u.shape[1:-1]))
        output = output.movedim(0, -2) if self.batch_first else output
        return self._cast(output, end, x, state) if torch.is_autocast_enabled(x.device.type) else (output, end)

    def _forward_packed(self, x: PackedSequence, state: Any, resets: Any) -> tuple[Tensor, Any]:
        time, n = len(x.batch_sizes), int(x.batch_sizes[0])
        self._before(x.data, (n,), state)
        if isinstance(resets, PackedSequence):
            resets = pad_packed_sequence(resets, batch_first=self.batch_first)[0]
        if resets is not None:
            resets = _checked_resets(resets, (n, time) if self.batch_first else (time, n), x.data.device)
            resets = resets.T if self.batch_first else resets
        output, end = self._in_pieces(x.data, state, pieces_of_packed(x, resets))
        return self._cast(output, end, x.data, state)

    def _forgotten(self, state: Any, resets: Tensor) -> Any:
        """The given state with zeros where ``resets (..., n)``, but for what reads from the end."""
        ways = 1 + self.bidirectional

        def forget(field: Tensor) -> Tensor:
            onward = torch.arange(len(field), device=field.device) % ways == 0
            return field.masked_fill(onward.view(-1, *(1,) * (field.dim() - 1)) & resets.unsqueeze(-1), 0)

        return None if state is None else _map(state, forget)

    def _in_pieces(self, u: Tensor, state: Any, pieces: Pieces) -> tuple[Tensor, Any]:
        """The output for each row of ``u (..., input_size)``, and the last state, with one dimension of sequences."""
        before = None if state is None else _map(state, _with_a_row_of_zeros)
        outputs, ends = [], []
        for group in pieces.groups:
            given = None if before is None else self._rows_of_states(before, group.before)
            u_of_group = rows_of(u, group.steps)
            output, end = self._through(u_of_group, self._before(u, group.steps.shape[1:], given), group.lengths)
            outputs.append(output.flatten(0, -2))
            ends.append([field.flatten(1, -2) for field in fields_of(end)])
        joined = tuple(torch.cat(field, dim=1) for field in zip(*ends, strict=True))
        end = self._rows_of_states(joined if len(joined) > 1 else joined[0], pieces.ends)
        return rows_of(torch.cat(outputs), pieces.back), end

    def _rows_of_states(self, state: Any, rows: OfDirections) -> Any:
        """For each direction its own rows of fields ``(layers * directions, rows, units)``."""
        ways = 1 + self.bidirectional

        def taken(field: Tensor) -> Tensor:
            parts = [
                field[index::ways].index_select(1, own.flatten()).unflatten(1, own.shape)
                for index, own in enumerate(rows[:ways])
            ]
            return torch.stack(parts, dim=1).flatten(0, 1)

        return _map(state, taken)

    def _cast(self, output: Tensor, end: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The results, computed in the type of the weights, in the type that ``torch.nn`` returns."""
        device = output.device.type
        if not torch.is_autocast_enabled(device) or output.dtype == torch.float64:
            return output, end
        dtype = torch.get_autocast_dtype(device)
        if device == "cpu" and all(cell.casts_to_state for layer in self._stack for cell in layer.cells):
            dtype = torch.promote_types(dtype, x.dtype if state is None else fields_of(state)[0].dtype)
        return output.to(dtype), _map(end, lambda field: field.to(dtype))


def _checked_dropout(dropout: Any, num_layers: int) -> float:
    dropout = share("dropout", dropout)
    if dropout and num_layers == 1:
        warnings.warn(f"dropout={dropout} is between layers, of which there is one: it does nothing", stacklevel=3)
    return dropout


def _checked_resets(resets: Any, shape: Sequence[int], device: torch.device) -> Tensor:
    if not isinstance(resets, Tensor) or resets.dtype != torch.bool:
        given = resets.dtype if isinstance(resets, Tensor) else type(resets).__name__
        raise TypeError(f"resets must be a tensor of torch.bool, got {given}")
    if resets.shape != torch.Size(shape):
        raise ValueError(
            f"resets must have the shape of the input without its features, {tuple(shape)}, got {tuple(resets.shape)}"
        )
    return resets.to(device)


def _with_a_row_of_zeros(field: Tensor) -> Tensor:
    """``(layers, ..., n, units)`` with the sequences as one dimension, and one more."""
    flat = field.flatten(1, -2)
    return torch.cat([flat, flat.new_zeros(len(flat), 1, flat.shape[-1])], dim=1)


def _as_batch_of_one(state: Tensor) -> Tensor:
    if state.dim() != 2:
        raise ValueError(f"the state of one sequence must be (num_layers, units), got shape {tuple(state.shape)}")
    return state.unsqueeze(1)


def _map(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``change`` applied to a state that is a tensor or a tuple of tensors."""
    return change(state) if isinstance(state, Tensor) else tuple(change(field) for field in fields_of(state))
