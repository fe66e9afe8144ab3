"""What advice is given about: a network or a model, what it reads, and the targets, row by row."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from multistable.arguments import shown
from multistable.dynamics.system.batches import Forward, batches_of, is_batch, is_rows
from multistable.dynamics.system.models import each_part, is_network
from multistable.dynamics.system.modules import example_of
from multistable.dynamics.system.reading import global_randomness_kept, numbers_of, sequence_set
from multistable.dynamics.system.sequences import SequenceSet

MOST_SEQUENCES, MOST_NUMBERS = 6_000, 2**26
"""What is read of the data: more sequences or more numbers than these make no probe better that takes a minute."""
LABELS = ("labels", "label", "targets", "target", "y")
"""The entries of a dict batch that are its targets, if the caller does not say which."""
IGNORED = -100
"""The class of a step that has no target, as in ``torch.nn.functional.cross_entropy``; of numbers it is NaN."""
MOST_CLASSES = 1_000

Chosen = str | int | Callable[[Any], Any] | Any


@dataclass(frozen=True)
class Answers:
    """Targets in one form, on the CPU.

    Attributes:
        values: ``(n, k)`` numbers or ``(n,)`` classes, one answer a sequence; or ``(n, T, k)`` and ``(n, T)``, one a
            step, with NaN or :data:`IGNORED` where there is none.
        classes: how many classes there are; 0 for numbers.
        every_step: whether there is an answer a step.
    """

    values: Tensor
    classes: int
    every_step: bool

    @property
    def given(self) -> Tensor:
        """Where there is an answer, ``(n,)`` or ``(n, T)``."""
        return self.values != IGNORED if self.classes else ~self.values.isnan().any(dim=-1)

    @property
    def outputs(self) -> int:
        """The numbers that a readout has for an answer."""
        return self.classes or self.values.shape[-1]


@dataclass(frozen=True)
class Material:
    """What was read.

    Attributes:
        model: the network or the model.
        bare: whether it is a network that reads sequences itself.
        batches: what the model is run on, on its device; of a network its sequences, a :class:`SequenceSet`.
        targets: of a model the targets of each batch; of a network None.
        read: what the first part of the model reads; of a network its sequences.
        answers: the targets in one form, in the order of ``read``; None where there are none.
        rows_dim: in which dimension the targets of a batch have their rows; None where that is not known.
        why_not: why there are no answers.
    """

    model: nn.Module
    bare: bool
    batches: Any
    targets: list[Any] | None
    read: SequenceSet
    answers: Answers | None
    rows_dim: int | None
    why_not: str

    def rows(self) -> tuple[Tensor, Tensor, Answers]:
        """The sequences ``(n, T, features)``, zero after their end, on the device of the model; their lengths ``(n,)``
        and answers. Of more than are needed some that are evenly spread."""
        answers, data = cast(Answers, self.answers), self.read
        most = max(1, min(len(data), MOST_SEQUENCES, MOST_NUMBERS // (int(data.lengths.max()) * data.features)))
        taken = torch.linspace(0, len(data) - 1, most, device="cpu").round().long()
        u, lengths = data.select(taken)
        device = example_of(self.model).device
        u, lengths = u.transpose(0, 1).to(device, torch.float32), lengths.to(device)
        inside = torch.arange(u.shape[1], device=device) < lengths.unsqueeze(-1)
        # Past its end a sequence may hold anything, also NaN.
        return u.masked_fill(~inside.unsqueeze(-1), 0), lengths, replace(answers, values=answers.values[taken])


def material(rnn: nn.Module, sequences: Any, targets: Chosen, part: str | None, forward: Forward | None) -> Material:
    """Read the data once, as far as it is needed."""
    bare = False
    if part is None and forward is None:
        bare, sequences = is_network(rnn, sequences)
    if bare:
        return _of_network(rnn, sequences, targets)
    return _of_model(rnn, sequences, targets, part, forward)


def _of_network(rnn: nn.Module, sequences: Any, targets: Chosen) -> Material:
    batch_first = bool(getattr(rnn, "batch_first", False))
    several = _several(sequences)
    batches = list(_limited(sequences)) if several else [sequences]
    data = sequence_set(batches if several else sequences, batch_first=batch_first)
    found = _chosen(batches, targets, whole=len(data))
    if targets is None and found is not None and len(found) == 1 and _are_lengths(found[0], data):
        found = None
    return Material(rnn, True, data, None, data, *_answers(found, data, time_first=not batch_first))


def _of_model(model: nn.Module, sequences: Any, targets: Chosen, part: str | None, forward: Forward | None) -> Material:
    with global_randomness_kept():
        batches = list(_limited(batches_of(sequences, model)))
    if not batches:
        raise ValueError("sequences must not be empty, got no batches (an iterator can be read only once)")
    found = _chosen(batches, targets, whole=None)

    def read_of(some: list[Any]) -> SequenceSet:
        least = max(1, sum(map(_rows, some)))
        reads = each_part(lambda _, data, turn: data, model, some, part=part, forward=forward, least=least)
        return next(iter(reads.values())) if isinstance(reads, dict) else reads

    # What a part reads may be far larger than a batch of tokens: no more is kept than the probes of it need.
    some = max(1, min(len(batches), MOST_NUMBERS // read_of(batches[:1]).numbers.numel()))
    read = read_of(batches[:some])
    answers = _answers(None if found is None else found[:some], read, time_first=False)
    return Material(model, False, batches, found, read, *answers)


def _several(sequences: Any) -> bool:
    """Whether sequences for a network come as an iterable of batches."""
    if isinstance(sequences, Tensor | PackedSequence | SequenceSet) or is_batch(sequences) or is_rows(sequences):
        return False
    if isinstance(sequences, tuple | list):
        first = sequences[0] if sequences else None
        return isinstance(first, tuple | list) or (isinstance(first, Tensor) and first.dim() == 3)
    return isinstance(sequences, Iterable) and not isinstance(sequences, str | bytes | Mapping)


def _limited(batches: Iterable[Any]) -> Iterable[Any]:
    """As many of the batches as are needed."""
    rows = numbers = 0
    with global_randomness_kept():
        for batch in batches:
            yield batch
            rows, numbers = rows + _rows(batch), numbers + sum(tensor.numel() for tensor in tensors_of(batch))
            if rows >= MOST_SEQUENCES or numbers >= MOST_NUMBERS:
                return


def tensors_of(batch: Any) -> list[Tensor]:
    """The tensors at any depth of a batch."""
    if isinstance(batch, Tensor):
        return [batch]
    if isinstance(batch, PackedSequence):
        return [batch.data]
    entries = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else ()
    return list(itertools.chain.from_iterable(map(tensors_of, entries)))


def _rows(batch: Any) -> int:
    """About how many sequences a batch has."""
    tensors = tensors_of(batch)
    return len(tensors[-1]) if tensors and tensors[-1].dim() else 1


def _chosen(batches: list[Any], targets: Chosen, whole: int | None) -> list[Any] | None:
    """The targets of each batch, or None if there are none.

    Args:
        batches: the batches.
        targets: what the caller said.
        whole: how many sequences a network reads; None for a model.
    """
    if targets is None:
        found = [_usual(batch) for batch in batches]
        return None if any(entry is None for entry in found) else found
    if callable(targets) and not isinstance(targets, Tensor):
        return [targets(batch) for batch in batches]
    if isinstance(targets, str) or (isinstance(targets, int) and not isinstance(targets, bool)):
        try:
            return [batch[targets] for batch in batches]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(
                "targets must be an entry of each batch, or targets(batch), or the targets themselves, got "
                f"{targets!r}, which a batch of type {type(batches[0]).__name__} does not have"
            ) from error
    values = numbers_of("targets", targets, "a tensor, targets(batch), or the name or number of an entry of each batch")
    if whole is None and len(batches) > 1:
        raise ValueError(
            "targets must be targets(batch), or the name or number of an entry of each batch, where a model is given "
            f"batches, got {shown(values)}"
        )
    if not values.dim() or (whole is not None and whole not in values.shape[:2]):
        raise ValueError(f"targets must be one for each of {whole} sequences, got shape {tuple(values.shape)}")
    return [values]


def _usual(batch: Any) -> Any:
    """The targets of a batch where they usually are."""
    if isinstance(batch, Mapping):
        return next((batch[name] for name in LABELS if name in batch), None)
    is_pair = isinstance(batch, tuple | list) and not isinstance(batch, PackedSequence) and len(batch) > 1
    if not is_pair:
        return None
    try:
        return numbers_of("targets", batch[1], "")
    except TypeError:
        return None


def _are_lengths(target: Any, data: SequenceSet) -> bool:
    return target.shape == data.lengths.shape and torch.equal(target.cpu().double(), data.lengths.double())


def _answers(found: list[Any] | None, data: SequenceSet, time_first: bool) -> tuple[Answers | None, int | None, str]:
    """The targets in one form in the order of the sequences, the dimension of their rows; or why there are none."""
    if found is None:
        return None, None, "no targets were given"
    if not all(isinstance(target, Tensor) for target in found):
        return None, None, f"the targets are no tensors but of type {type(found[0]).__name__}"
    dims = [dim for dim in ((1, 0) if time_first else (0, 1)) if _have_rows(found, dim, len(data))]
    if not dims:
        shape = tuple(found[0].shape)
        return (
            None,
            None,
            f"targets of shape {shape} could not be matched with the {len(data)} sequences that were read",
        )
    by_rows = [target.detach().cpu().movedim(dims[0], 0) for target in found]
    every_step = _is_every_step(by_rows, data.lengths)
    longest = int(data.lengths.max())
    if every_step:
        by_rows = [_padded(target, longest) for target in by_rows]
    if len({target.shape[1:] for target in by_rows}) > 1:
        return None, dims[0], "the targets of different batches have different shapes"
    values = torch.cat(by_rows)
    if every_step:
        past = torch.arange(longest, device="cpu") >= data.lengths.unsqueeze(-1)
        values[past] = torch.nan if values.is_floating_point() else IGNORED
    answers, why = _in_one_form(values, every_step)
    return answers, dims[0], why


def _have_rows(targets: list[Tensor], dim: int, n: int) -> bool:
    """Whether there are as many sequences as the targets have entries in a dimension."""
    return all(target.dim() > dim for target in targets) and sum(target.shape[dim] for target in targets) == n


def _is_every_step(targets: list[Tensor], lengths: Tensor) -> bool:
    """Whether targets ``(n, m, ...)`` of each batch have as many entries as its longest sequence has steps."""
    starts = itertools.accumulate((len(target) for target in targets), initial=0)
    return int(lengths.max()) > 1 and all(
        target.dim() > 1 and target.shape[1] == int(lengths[start : start + len(target)].max())
        for target, start in zip(targets, starts, strict=False)
    )


def _padded(target: Tensor, longest: int) -> Tensor:
    more = target.new_zeros(len(target), longest - target.shape[1], *target.shape[2:])
    return torch.cat([target, more], dim=1)


def _in_one_form(values: Tensor, every_step: bool) -> tuple[Answers | None, str]:
    if values.is_floating_point():
        values = values.float()
        values = values.reshape(*values.shape[: 1 + every_step], -1)
        found = Answers(values, 0, every_step)
        if not found.given.any() or values[found.given].isinf().any():
            return None, "the targets are not finite"
        return found, ""
    values = values.long()
    values = values.squeeze(-1) if values.dim() == 2 + every_step and values.shape[-1] == 1 else values
    if values.dim() != 1 + every_step:
        return None, f"integer targets of shape {tuple(values.shape)} are neither one a sequence nor one a step"
    given = values != IGNORED
    if not given.any() or int(values[given].min()) < 0:
        return None, "the classes are not numbers from 0 on"
    classes = int(values[given].max()) + 1
    if classes > MOST_CLASSES:
        return None, f"the targets have {classes} classes, more than the {MOST_CLASSES} that a probe takes"
    return Answers(values, classes, every_step), ""
