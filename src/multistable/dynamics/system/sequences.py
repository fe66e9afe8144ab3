"""Input sequences, in each form in which a user may have them."""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence, pad_sequence

ACCEPTED = (
    "a tensor in the network's layout, a list of (time, features) tensors, a PackedSequence, "
    "or an iterable of such batches (a DataLoader); in place of tensors also NumPy arrays of numbers"
)


class AtMost(int):
    """A default size: if there are fewer sequences, all are taken. A size that the user gave is then an error."""


@dataclass(frozen=True)
class SequenceSet:
    """Sequences padded to one length.

    ``padded`` is ``(time, n, features)``, or ``(time, R, n, features)`` where each member of an ensemble has its
    own; ``lengths (n,)`` are the sequences' own lengths.
    """

    padded: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def features(self) -> int:
        return self.padded.shape[-1]

    def of_members(self, members: Sequence[int]) -> "SequenceSet":
        """The sequences of some members of an ensemble; sequences that all members share stay as they are."""
        return self if self.padded.dim() == 3 else SequenceSet(self.padded[:, list(members)], self.lengths)

    def select(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Some of the sequences, by indices ``(..., k)`` where ``...`` is empty or the members of an ensemble.

        Returns:
            Inputs ``(time, ..., k, features)`` and lengths ``(..., k)``.
        """
        where = indices.to(self.padded.device)
        if self.padded.dim() == 3:
            return self.padded[:, where], self.lengths[indices]
        members = torch.arange(len(where), device=where.device).unsqueeze(-1)
        return self.padded[:, members, where], self.lengths[indices]


def sequence_set(sequences: Any, *, batch_first: bool = False, members: int | None = None) -> SequenceSet:
    """Read ``sequences`` in any accepted form, and check that they are usable.

    Args:
        sequences: tensors of ``(time, n, features)``, or ``(n, time, features)`` if ``batch_first``; with
            ``members`` also ``(time, R, n, features)`` or ``(R, n, time, features)``; the other forms; or a
            :class:`SequenceSet`, which is taken as it is.
        batch_first: the layout of tensors.
        members: R for an ensemble, or ``None`` for a single network.
    """
    if isinstance(sequences, SequenceSet):
        return sequences
    pieces = list(_pieces(sequences, batch_first, members))
    if not pieces or any(len(piece) == 0 for piece in pieces):
        raise ValueError("sequences must not be empty, got a set of 0 sequences (an iterator can be read only once)")
    features = {piece.features for piece in pieces}
    if len(features) > 1:
        raise ValueError(f"all sequences must have the same number of features, got {sorted(features)}")
    joined = pieces[0] if len(pieces) == 1 else _join(pieces)
    if int(joined.lengths.min()) == 0:
        raise ValueError("sequences must have at least one time step, got a sequence of length 0")
    if not torch.isfinite(joined.padded).all():
        raise ValueError("sequences must be finite, got NaN or infinity")
    return joined


def check_batch_size(batch_size: int, available: int, what: str = "sequences") -> None:
    """Raise unless a batch can be drawn without replacement."""
    if batch_size > available and not isinstance(batch_size, AtMost):
        raise ValueError(f"batch_size must not exceed the number of {what}, {available}, got {batch_size}")


def _pieces(sequences: Any, batch_first: bool, members: int | None) -> Iterator[SequenceSet]:
    """The batches that ``sequences`` consists of."""
    sequences = _without_arrays(sequences)
    if isinstance(sequences, Tensor):
        yield _from_tensor(sequences, batch_first, members)
    elif isinstance(sequences, PackedSequence):
        yield SequenceSet(*pad_packed_sequence(sequences))
    elif isinstance(sequences, tuple) and sequences and isinstance(sequences[0], Tensor) and sequences[0].dim() == 3:
        yield _from_tensor(sequences[0], batch_first, members)
    elif _is_list_of_sequences(sequences):
        yield _from_list(sequences)
    elif isinstance(sequences, Iterable) and not isinstance(sequences, str | bytes | dict):
        with _global_randomness_kept():
            for batch in sequences:
                yield _from_batch(batch, batch_first, members)
    else:
        raise TypeError(f"sequences must be {ACCEPTED}, got {type(sequences).__name__}")


def _from_batch(batch: Any, batch_first: bool, members: int | None) -> SequenceSet:
    """One batch of an iterable, or one sequence; of a tuple such as (inputs, targets) the first entry is taken."""
    batch = _without_arrays(batch)
    is_tuple = isinstance(batch, tuple) and not isinstance(batch, PackedSequence)  # itself a named tuple
    is_list_of_others = isinstance(batch, list) and not _is_list_of_sequences(batch)
    if (is_tuple or is_list_of_others) and batch:
        batch = batch[0]
    if isinstance(batch, Tensor) and batch.dim() == 2:
        return _from_list([batch])
    if isinstance(batch, PackedSequence | Tensor) or _is_list_of_sequences(batch):
        return next(_pieces(batch, batch_first, members))
    raise TypeError(f"sequences must be {ACCEPTED}, got an iterable of {type(batch).__name__}")


def _without_arrays(value: Any) -> Any:
    """NumPy arrays of numbers as tensors, alone or in a list or tuple; anything else as it is."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        # A tensor cannot share the memory of every array: not of one with negative strides, or that is read-only.
        return torch.from_numpy(np.require(value, value.dtype.newbyteorder("="), ["C", "W"]))
    if isinstance(value, tuple | list) and any(isinstance(entry, np.ndarray) for entry in value):
        entries = [_without_arrays(entry) for entry in value]
        return entries if isinstance(value, list) else tuple(entries)
    return value


def _from_tensor(tensor: Tensor, batch_first: bool, members: int | None) -> SequenceSet:
    own = members is not None and tensor.dim() == 4
    if tensor.dim() != 3 and not own:
        layout = "(n, time, features)" if batch_first else "(time, n, features)"
        raise ValueError(f"a tensor of sequences must be {layout}, got shape {tuple(tensor.shape)}")
    time_first = tensor.movedim(-2, 0) if batch_first else tensor
    if own and time_first.shape[1] != members:
        raise ValueError(
            f"sequences for each of {members} members must have {members} as their member dimension, "
            f"got {time_first.shape[1]}"
        )
    time, n = time_first.shape[0], time_first.shape[-2]
    return SequenceSet(time_first, torch.full((n,), time, device="cpu"))


def _is_list_of_sequences(value: Any) -> bool:
    return (
        isinstance(value, tuple | list)
        and not isinstance(value, PackedSequence)
        and len(value) > 0
        and all(isinstance(entry, Tensor) and entry.dim() == 2 for entry in value)
    )


def _from_list(sequences: Any) -> SequenceSet:
    features = {sequence.shape[1] for sequence in sequences}
    if len(features) > 1:
        raise ValueError(f"all sequences must have the same number of features, got {sorted(features)}")
    lengths = torch.tensor([len(sequence) for sequence in sequences], device="cpu")
    return SequenceSet(pad_sequence(list(sequences)), lengths)


def _join(pieces: list[SequenceSet]) -> SequenceSet:
    """All batches as one set, padded to the longest."""
    time = max(len(piece.padded) for piece in pieces)

    def pad(tensor: Tensor) -> Tensor:
        return torch.cat([tensor, tensor.new_zeros(time - len(tensor), *tensor.shape[1:])])

    padded = torch.cat([pad(piece.padded) for piece in pieces], dim=-2)
    return SequenceSet(padded, torch.cat([piece.lengths for piece in pieces]))


@contextmanager
def _global_randomness_kept() -> Iterator[None]:
    """Put back the global generators, from which reading a data loader draws."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
