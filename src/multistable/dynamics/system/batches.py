"""The batches that a model is run on, in each form in which a user may have them."""

import copy
import inspect
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader, default_collate

from multistable.dynamics.system.modules import example_of

Forward = Callable[[nn.Module, Any], Any]

DICTS = (dict, UserDict)
"""Batches whose entries are the arguments of a model. Other mappings, such as a TensorDict, are one argument."""

ROWS = 32
"""How many rows of a data set the model is run on at once."""

ACCEPTED = (
    "sequences must be a batch (a tensor, a dict, a tuple, a PackedSequence), an iterable of batches (a DataLoader), "
    "or a data set of rows"
)


def batches_of(batches: Any, model: nn.Module) -> Iterator[Any]:
    """The batches one by one, on the model's device and in its floating-point type."""
    for batch in _each(batches, model):
        yield _as_model(batch, example_of(model))


def peeked(batches: Any) -> tuple[Any, Any]:
    """The first batch of what may be an iterator, and what yields the same as ``batches`` did."""
    if is_batch(batches) or not isinstance(batches, Iterable) or is_rows(batches):
        return batches, batches
    iterator = iter(batches)
    first = next(iterator, None)
    return first, chain([first], iterator) if iterator is batches and first is not None else batches


def call(model: nn.Module, batch: Any) -> Any:
    """Run a model on a batch: a dict as ``model(**batch)``, of a tuple or list the first entry, else the batch."""
    if isinstance(batch, DICTS):
        return model(**batch)
    is_pair = isinstance(batch, tuple | list) and not isinstance(batch, PackedSequence)
    return model(batch[0] if is_pair else batch)


def how_called(batch: Any) -> str:
    """The call that :func:`call` makes, for an error."""
    if isinstance(batch, DICTS):
        return f"model(**batch), a batch of {', '.join(map(str, batch))}"
    is_pair = isinstance(batch, tuple | list) and not isinstance(batch, PackedSequence)
    return "model(batch[0])" if is_pair else "model(batch)"


def is_rows(batches: Any) -> bool:
    """Whether this is a data set whose entries are single rows, as those of PyTorch and of Hugging Face are."""
    plain = isinstance(batches, tuple | list | str | bytes | Mapping | Tensor | np.ndarray | DataLoader)
    return not plain and hasattr(batches, "__getitem__") and hasattr(batches, "__len__")


def columns(row: Mapping[str, Any]) -> dict[str, Tensor]:
    """The entries of a row that are numbers, as tensors."""
    found = {}
    for name, value in row.items():
        try:
            array = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
        except (TypeError, ValueError):
            continue  # text, or rows of different lengths
        found[name] = array
    return found


def _each(batches: Any, model: nn.Module) -> Iterator[Any]:
    if is_rows(batches):
        yield from _collated(batches, model)
    elif is_batch(batches):
        yield batches
    elif isinstance(batches, Iterable) and not isinstance(batches, str | bytes):
        yield from batches
    else:
        raise TypeError(f"{ACCEPTED}, got {type(batches).__name__}")


def is_batch(batches: Any) -> bool:
    """Whether this is a single batch."""
    if isinstance(batches, tuple):
        return any(isinstance(entry, Tensor | np.ndarray) for entry in batches)
    return isinstance(batches, Tensor | np.ndarray | Mapping)


def _collated(rows: Any, model: nn.Module) -> Iterator[Any]:
    """Rows of a data set as batches; rows of different lengths, which cannot stand side by side, one by one."""
    taken = _taken_by(model)

    def row(index: int) -> Any:
        entry = rows[index]
        if not isinstance(entry, Mapping):
            return entry
        return {name: value for name, value in columns(entry).items() if taken is None or name in taken}

    for start in range(0, len(rows), ROWS):
        entries = [row(index) for index in range(start, min(start + ROWS, len(rows)))]
        try:
            together = [default_collate(entries)]
        except (RuntimeError, TypeError, ValueError):
            together = [default_collate([entry]) for entry in entries]
        yield from together


def _taken_by(model: nn.Module) -> set[str] | None:
    """The names that the model's forward takes; ``None`` if it takes any."""
    parameters = inspect.signature(model.forward).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters}


def _as_model(value: Any, like: Tensor) -> Any:
    """Tensors and arrays at any depth of a batch on the model's device, those of floating-point numbers in its type."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.from_numpy(np.require(value, value.dtype.newbyteorder("="), ["C", "W"]))
    if isinstance(value, Tensor | PackedSequence):
        floating = (value if isinstance(value, Tensor) else value.data).is_floating_point()
        moved: Any = value.to(like.device)  # type: ignore[arg-type]
        return moved.to(like.dtype) if floating else moved
    if isinstance(value, DICTS):
        return {name: _as_model(entry, like) for name, entry in value.items()}
    if isinstance(value, MutableMapping) and hasattr(value, "to"):  # a TensorDict, into which models write
        return copy.copy(value).to(like.device)
    if isinstance(value, tuple | list):
        entries = [_as_model(entry, like) for entry in value]
        if isinstance(value, list):
            return entries
        return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
    return value
