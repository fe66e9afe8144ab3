"""What the recurrent modules of a model read while the model runs, as sequences."""

import inspect
import itertools
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence, pad_sequence

from multistable.cells.base import Cell
from multistable.dynamics.system.modules import ModuleLayer
from multistable.dynamics.system.sequences import PaddedSequences, RaggedSequences, SequenceSet
from multistable.dynamics.system.system import known_layers
from multistable.networks.ensemble import Ensemble
from multistable.networks.rnn import RNN

MOST_BYTES = 2**30
"""Beyond this, no more sequences are kept than the caller needs."""


class Reads:
    """The sequences that one recurrent module reads.

    A call with a whole sequence is one sequence for each row of its batch. A module that is called step by step, or
    piece by piece, goes on with a row's sequence where the state that it is given is the one that it returned. A row
    with any other state begins a new sequence: from zero, or from the state that was given. A row whose state is that
    of the call before had been held, as loops over sequences of different lengths do; the step that it did not take is
    dropped.

    Args:
        name: of the module, for errors.
        module: the module.
        wanted: how many sequences to keep.
        least: how many sequences the caller needs.
    """

    def __init__(self, name: str, module: nn.Module, wanted: int, least: int) -> None:
        self.name, self.module = name, module
        self._wanted, self._least = wanted, least
        self._pieces: list[list[Tensor]] = []
        self._before: list[Tensor | None] = []
        self._bytes = 0
        self._names = list(inspect.signature(type(module).forward).parameters)[1:3]
        self._own: ModuleLayer | None = None
        # What is called as it is has its state as the layer that calls it has it.
        self._called = not isinstance(module, Ensemble) and known_layers(module) is None
        self._inside = False
        self.end_of_batch()

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def enough(self) -> bool:
        """Whether no further sequence is kept."""
        return len(self) >= self._wanted or (self._bytes >= MOST_BYTES and len(self) >= self._least)

    def end_of_batch(self) -> None:
        """No sequence goes on in the next batch."""
        self._rows: list[int | None] = []
        self._given: Tensor | None = None
        self._returned: Tensor | None = None

    def begin(self, module: nn.Module, arguments: Any, options: Any) -> None:
        """Keep what a call reads; a forward pre-hook."""
        if self._inside:
            return
        given = dict(zip(self._names, arguments, strict=False)) | options
        x, state = (*(given.get(name) for name in self._names), None)[:2]
        if not isinstance(x, Tensor | PackedSequence):
            raise TypeError(f"{self.name} must be given a tensor or a PackedSequence, got {type(x).__name__}")
        shape = (x.data if isinstance(x, PackedSequence) else x).shape
        if len(shape) < 2 and not isinstance(self.module, nn.RNNCellBase | Cell):
            raise ValueError(f"{self.name} must be given sequences (time, n, features), got shape {tuple(shape)}")
        self._features = shape[-1]
        u, lengths = self._by_time(x)
        before = None if state is None else self._flat(state)
        resets = self._resets(given.get("resets"), u)
        if before is not None:
            before = before.masked_fill(resets[0].unsqueeze(-1), 0)
        rows = self._continued(u.shape[1], before)
        starts = [of_row.nonzero().flatten().tolist() for of_row in resets.T] if resets.any() else [[]] * len(rows)
        for row, sequence in enumerate(rows):
            whole = u[: lengths[row], row]
            cuts = [0, *(cut for cut in starts[row] if 0 < cut < len(whole)), len(whole)]
            for start, end in itertools.pairwise(cuts):
                rows[row] = self._new(None) if start else sequence
                self._keep(rows[row], whole[start:end])
        self._rows, self._given = rows, before

    def end(self, module: nn.Module, arguments: Any, options: Any, output: Any) -> None:
        """Remember the state that a call returned; a forward hook."""
        if self._inside:
            return
        state = output if isinstance(module, nn.RNNCellBase) else output[1]
        self._returned = None if isinstance(module, Ensemble) else self._flat(state)

    def sequences(self) -> SequenceSet:
        """What was read, at most as many sequences as wanted."""
        pieces, before = self._pieces[: self._wanted], self._before[: self._wanted]
        whole = [torch.cat(parts) for parts in pieces]
        lengths = torch.tensor([len(sequence) for sequence in whole], device="cpu")
        given = [state for state in before if state is not None]
        start = None
        if given:
            start = torch.stack([torch.zeros_like(given[0]) if state is None else state for state in before])
        of_members = whole[0].dim() == 3
        data: SequenceSet
        if of_members or len(set(lengths.tolist())) == 1:
            padded = pad_sequence(whole)
            data = PaddedSequences(padded.movedim(2, 1) if of_members else padded, lengths, before=start)
        else:
            data = RaggedSequences(torch.cat(whole), lengths, before=start)
        if not torch.isfinite(data.numbers).all():
            raise ValueError(f"what {self.name or 'the network'} reads must be finite, got NaN or infinity")
        return data

    def _continued(self, n: int, before: Tensor | None) -> list[int | None]:
        """Which sequence each of n rows goes on with, or begins; ``None`` where nothing is kept."""
        if before is None:
            return [self._new(None) for _ in range(n)]
        goes_on = _equal_rows(before, self._returned)
        held = _equal_rows(before, self._given)
        zero = (before == 0).all(dim=-1).tolist()
        rows: list[int | None] = []
        for row in range(n):
            same = self._rows[row] if row < len(self._rows) else None
            if goes_on[row] and row < len(self._rows):
                rows.append(same)
            elif held[row] and not zero[row] and same is not None and len(self._pieces[same]) > 1:
                self._pieces[same].pop()
                rows.append(same)
            else:
                rows.append(self._new(None if zero[row] else before[row]))
        return rows

    def _new(self, before: Tensor | None) -> int | None:
        if self.enough:
            return None
        self._pieces.append([])
        self._before.append(before)
        return len(self._pieces) - 1

    def _keep(self, sequence: int | None, piece: Tensor) -> None:
        if sequence is not None:
            # A copy: the model may write into its tensors later.
            self._pieces[sequence].append(piece.detach().clone())
            self._bytes += piece.nbytes

    def _resets(self, resets: Any, u: Tensor) -> Tensor:
        """Before which steps of ``u (time, n, features)`` an ``ms.RNN`` sets its state to zero, ``(time, n)``."""
        if resets is None:
            return torch.zeros(u.shape[:2], dtype=torch.bool)
        if isinstance(resets, PackedSequence):
            resets = pad_packed_sequence(resets)[0]
        elif resets.dim() == 1:
            resets = resets.unsqueeze(1)
        elif self.module.batch_first:
            resets = resets.T
        return resets.cpu()

    def _by_time(self, x: Any) -> tuple[Tensor, list[int]]:
        """An input as ``(time, n, features)``, and the length of each row."""
        if isinstance(x, PackedSequence):
            u, lengths = pad_packed_sequence(x)
            return u, lengths.tolist()
        batch_first = bool(getattr(self.module, "batch_first", False))
        if isinstance(self.module, nn.RNNCellBase | Cell) or not self._takes_sequences(x):
            u = x.reshape(1, -1, x.shape[-1])
        elif x.dim() == 2:
            u = x.unsqueeze(1)
        elif x.dim() == 4:  # of an ensemble: (time, n, R, features)
            u = x.permute(2, 1, 0, 3) if batch_first else x.transpose(1, 2)
        else:
            u = x.transpose(0, 1) if batch_first else x
        return u, [len(u)] * u.shape[1]

    def _takes_sequences(self, x: Tensor) -> bool:
        known = isinstance(self.module, nn.RNNBase | RNN | Ensemble)
        return known or self._own_convention().takes_sequences

    def _flat(self, state: Any) -> Tensor:
        """A state in the module's own form as ``(n, d)``, in the order of ``flat``."""
        module: Any = self.module
        fields = _fields(state)
        if isinstance(module, Ensemble):
            raise TypeError(f"{self.name} is an ensemble that is given a state: this cannot be taken apart")
        if self._called and not (isinstance(module, nn.RNNBase | RNN) and fields[0].dim() == 2):
            rows = list(self._own_convention().from_native(state))
        elif isinstance(module, nn.RNNCellBase | Cell):
            rows = [field.reshape(-1, field.shape[-1]) for field in fields]
        elif isinstance(module, nn.RNNBase | RNN) and fields[0].dim() == 2:
            return self._flat(tuple(field.unsqueeze(1) for field in fields))
        elif isinstance(module, nn.RNNBase):
            rows = [row for layer in zip(*fields, strict=True) for row in layer]
        else:
            rows = [field for layer in module.unpack_state(state) for cell in layer for field in cell]
        return torch.cat(rows, dim=-1).detach().clone()

    def _own_convention(self) -> Any:
        """How a module of the user's own is called, found out by calls of it."""
        if self._own is None:
            self._inside = True
            try:
                self._own = ModuleLayer(self.module, self._features, bool(getattr(self.module, "batch_first", False)))
            finally:
                self._inside = False
        return self._own.convention


def _fields(state: Any) -> Sequence[Tensor]:
    return (state,) if isinstance(state, Tensor) else cast(Sequence[Tensor], tuple(state))


def _equal_rows(rows: Tensor, others: Tensor | None) -> list[bool]:
    """Which rows ``(n, d)`` are those of others, of which there may be fewer or more."""
    equal = torch.zeros(len(rows), dtype=torch.bool)
    if others is not None and others.shape[-1] == rows.shape[-1]:
        shared = min(len(rows), len(others))
        equal[:shared] = (rows[:shared] == others[:shared]).all(dim=-1).cpu()
    return equal.tolist()
