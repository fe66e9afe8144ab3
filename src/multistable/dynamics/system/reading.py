"""Input sequences, in each form in which a user may have them."""

import copy
import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader, default_collate, default_convert

from multistable.arguments import shown
from multistable.dynamics.system.padding import lengths_among
from multistable.dynamics.system.sequences import PaddedSequences, RaggedSequences, SequenceSet

ACCEPTED = (
    "a tensor in the network's layout, a list of (time, features) tensors, a PackedSequence, "
    "or an iterable of such batches (a DataLoader); in place of tensors also NumPy arrays of numbers"
)
MOST_SEQUENCES, MOST_NUMBERS = 1_000_000, 2**28
"""What is read of an iterable that does not tell its length before it is taken for endless."""

_one_reader = threading.RLock()


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
    if not torch.isfinite(joined.numbers).all():
        raise ValueError("sequences must be finite, got NaN or infinity")
    return joined


def _pieces(sequences: Any, batch_first: bool, members: int | None) -> Iterator[SequenceSet]:
    """The batches that ``sequences`` consists of."""
    sequences = _without_arrays(sequences)
    if isinstance(sequences, tuple) and sequences and isinstance(sequences[0], Tensor) and sequences[0].dim() == 3:
        yield _from_tensor(sequences[0], batch_first, members, beside=sequences[1:])
    elif isinstance(sequences, Tensor | PackedSequence) or _is_list_of_sequences(sequences):
        yield _whole(sequences, batch_first, members)
    elif isinstance(sequences, Iterable) and not isinstance(sequences, str | bytes | dict):
        with global_randomness_kept():
            yield from _read(sequences, batch_first, members)
    else:
        raise TypeError(f"sequences must be {ACCEPTED}, got {type(sequences).__name__}")


def _whole(sequences: Any, batch_first: bool, members: int | None) -> SequenceSet:
    """A tensor, a packed sequence or a list of sequences as a set."""
    if isinstance(sequences, Tensor):
        return _from_tensor(sequences, batch_first, members)
    return _from_packed(sequences) if isinstance(sequences, PackedSequence) else _from_list(sequences)


def _read(batches: Iterable[Any], batch_first: bool, members: int | None) -> Iterator[SequenceSet]:
    """The batches of an iterable; an error if it seems to have no end."""
    sequences, numbers, expected = 0, 0, _length(batches)
    for index, batch in enumerate(_with_tuples(batches)):
        if index >= expected and (sequences >= MOST_SEQUENCES or numbers >= MOST_NUMBERS):
            raise ValueError(
                f"sequences must have an end, got a {type(batches).__name__} that goes on after {sequences} sequences: "
                "pass as many batches as are needed, for instance itertools.islice(sequences, 100)"
            )
        piece = _from_batch(batch, batch_first, members)
        sequences, numbers = sequences + len(piece), numbers + piece.numbers.numel()
        yield piece


def _length(batches: Any) -> int:
    """How many batches there are, 0 if that is not told."""
    try:
        return len(batches)
    except TypeError:  # also from a loader of a data set without a length
        return 0


def _with_tuples(batches: Iterable[Any]) -> Iterable[Any]:
    """The batches; those that PyTorch's own collation made a list from a tuple are tuples again.

    A list of ``(time, features)`` tensors means sequences, a tuple inputs and targets.
    """
    collate = batches.collate_fn if isinstance(batches, DataLoader) else None
    if collate is default_collate:
        return (tuple(batch) if isinstance(batch, list) else batch for batch in batches)
    if collate is default_convert:
        loader: Any = copy.copy(batches)
        loader.collate_fn, loader._iterator = _converted, None
        return map(_not_ambiguous, loader)
    return batches


def _converted(item: Any) -> Any:
    """What :func:`default_convert` returns, but a tuple stays one."""
    converted = default_convert(item)
    return tuple(converted) if type(item) is tuple else converted


def _not_ambiguous(item: Any) -> Any:
    """An item of a data set as it is, unless it may be two things."""
    if isinstance(item, list) and len(item) > 1 and _is_list_of_sequences(item):
        raise ValueError(
            f"sequences must say what a list of {len(item)} tensors (time, features) is, which a DataLoader with "
            "batch_size=None got from its data set: return a tuple for inputs and targets, or pass collate_fn=list if "
            "each is a sequence"
        )
    return item


def _from_batch(batch: Any, batch_first: bool, members: int | None) -> SequenceSet:
    """One batch of an iterable, or one sequence; of a tuple such as (inputs, targets) the first entry is taken."""
    batch, beside = _without_arrays(batch), ()
    is_tuple = isinstance(batch, tuple) and not isinstance(batch, PackedSequence)  # itself a named tuple
    is_list_of_others = isinstance(batch, list) and not _is_list_of_sequences(batch)
    if (is_tuple or is_list_of_others) and batch:
        batch, *beside = batch
    if isinstance(batch, Tensor) and batch.dim() == 2:
        return _from_list([batch])
    if isinstance(batch, Tensor):
        return _from_tensor(batch, batch_first, members, beside)
    if isinstance(batch, PackedSequence) or _is_list_of_sequences(batch):
        return _whole(batch, batch_first, members)
    raise TypeError(f"sequences must be {ACCEPTED}, got an iterable of {type(batch).__name__}")


def _without_arrays(value: Any) -> Any:
    """NumPy arrays of numbers as tensors, alone or in a list or tuple; anything else as it is."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        # A tensor cannot share the memory of every array: not of one with negative strides, or that is read-only.
        return torch.from_numpy(np.require(value, value.dtype.newbyteorder("="), ["C", "W"]))
    if isinstance(value, tuple | list) and any(isinstance(entry, np.ndarray) for entry in value):
        entries = [_without_arrays(entry) for entry in value]
        return entries if isinstance(value, list) else tuple(entries)
    return value


def _from_tensor(
    tensor: Tensor, batch_first: bool, members: int | None, beside: Sequence[Any] = ()
) -> PaddedSequences | RaggedSequences:
    """Sequences in one tensor. If their lengths are among what is ``beside`` it, they end there."""
    _check_numbers(tensor)
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
    lengths = lengths_among(beside, time_first)
    if lengths is None:
        return PaddedSequences(time_first, torch.full((n,), time, device="cpu"))
    if own:
        return PaddedSequences(time_first, lengths)
    return _one_after_the_other(PaddedSequences(time_first, lengths))


def numbers_of(name: str, value: Any, accepted: str) -> Tensor:
    """A tensor, an array or a list of numbers as a tensor without gradient, on the device where it is."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(value, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be {accepted}, got {shown(value)}") from None
    check_real(name, tensor)
    return tensor.detach()


def check_real(name: str, tensor: Tensor) -> None:
    """Raise unless the tensor has real numbers that can be read."""
    if tensor.is_complex() or tensor.is_quantized:
        raise TypeError(f"{name} must be of real numbers, got {tensor.dtype}")
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_nested:
        kind = "meta tensor" if tensor.is_meta else "nested tensor" if tensor.is_nested else f"{tensor.layout} tensor"
        raise TypeError(f"{name} must be dense tensors with values, got a {kind}")


def _check_numbers(tensor: Tensor) -> None:
    """Raise unless the tensor has real numbers that can be read, and these are no tokens."""
    check_real("sequences", tensor)
    if not tensor.is_floating_point() and tensor.dtype != torch.bool:
        raise TypeError(
            f"sequences must be of a floating-point type, got {tensor.dtype}: for whole numbers that are tokens pass "
            "the model that embeds them, ms.measure(model, batches); else sequences.float()"
        )


def _is_list_of_sequences(value: Any) -> bool:
    return (
        isinstance(value, tuple | list)
        and not isinstance(value, PackedSequence)
        and len(value) > 0
        and all(isinstance(entry, Tensor) and entry.dim() == 2 for entry in value)
    )


def _from_list(sequences: Sequence[Tensor]) -> RaggedSequences:
    for sequence in sequences:
        _check_numbers(sequence)
    features = {sequence.shape[1] for sequence in sequences}
    if len(features) > 1:
        raise ValueError(f"all sequences must have the same number of features, got {sorted(features)}")
    lengths = torch.tensor([len(sequence) for sequence in sequences], device="cpu")
    return RaggedSequences(torch.cat(list(sequences)), lengths)


def _from_packed(packed: PackedSequence) -> RaggedSequences:
    """The sequences of a packed one, in the order in which they were packed."""
    _check_numbers(packed.data)
    sizes = packed.batch_sizes.cpu()
    place = torch.arange(int(sizes[0]), device="cpu")
    lengths = len(sizes) - torch.searchsorted(sizes.flip(0), place, right=True)
    if packed.unsorted_indices is not None:
        place = packed.unsorted_indices.cpu()
        lengths = lengths[place]
    time = torch.arange(int(lengths.sum()), device="cpu") - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    rows = (sizes.cumsum(0) - sizes)[time] + place.repeat_interleave(lengths)
    return RaggedSequences(packed.data[rows.to(packed.data.device)], lengths)


def _join(pieces: Sequence[Any]) -> SequenceSet:
    """All batches as one set."""
    lengths = torch.cat([piece.lengths for piece in pieces])
    padded = [piece.padded for piece in pieces if isinstance(piece, PaddedSequences)]
    own = sum(tensor.dim() == 4 for tensor in padded)
    if own not in (0, len(pieces)):
        raise ValueError("sequences must be for each member, or for all members, in all batches, got some of both")
    if own or (len(padded) == len(pieces) and len({len(tensor) for tensor in padded}) == 1):
        return PaddedSequences(_side_by_side(padded), lengths)
    return RaggedSequences(torch.cat([_one_after_the_other(piece).steps for piece in pieces]), lengths)


def _side_by_side(tensors: Sequence[Tensor]) -> Tensor:
    """Padded sequences of all tensors ``(time, ..., n, features)``, padded to the longest."""
    time = max(len(tensor) for tensor in tensors)
    pad = [torch.cat([x, x.new_zeros(time - len(x), *x.shape[1:])]) if len(x) < time else x for x in tensors]
    return torch.cat(pad, dim=-2)


def _one_after_the_other(piece: PaddedSequences | RaggedSequences) -> RaggedSequences:
    if isinstance(piece, RaggedSequences):
        return piece
    inside = torch.arange(len(piece.padded), device="cpu") < piece.lengths.unsqueeze(-1)
    return RaggedSequences(piece.padded.transpose(0, 1)[inside.to(piece.padded.device)], piece.lengths)


@contextmanager
def global_randomness_kept() -> Iterator[None]:
    """Put back the global generators, from which reading a data loader draws; one thread reads at a time."""
    with _one_reader:
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        with torch.random.fork_rng(devices):
            try:
                yield
            finally:
                random.setstate(python)
                np.random.set_state(numpy)  # noqa: NPY002
