"""Sets of input sequences, from which batches are selected."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor


class AtMost(int):
    """A default size: if there are fewer sequences, all are taken. A size that the user gave is then an error."""


class SequenceSet(ABC):
    """Input sequences of a network, or of each of the R members of an ensemble."""

    lengths: Tensor
    """The number of time steps of each sequence, ``(n,)`` on the CPU."""
    before: Tensor | None
    """The whole state before the first step of each sequence, ``(n, d)``; ``None`` where it is zero."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    @abstractmethod
    def numbers(self) -> Tensor:
        """All inputs, ``(..., features)``."""

    @property
    def features(self) -> int:
        """The numbers of a time step."""
        return self.numbers.shape[-1]

    @abstractmethod
    def of_members(self, members: Sequence[int]) -> Self:
        """The sequences of some members of an ensemble; sequences that all members share stay as they are."""

    @abstractmethod
    def select(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Some of the sequences, by indices ``(..., k)`` where ``...`` is empty or the members of an ensemble.

        Returns:
            Inputs ``(time, ..., k, features)``, padded with anything, and lengths ``(..., k)``.
        """

    def lengths_of(self, indices: Tensor) -> Tensor:
        """The lengths of some of the sequences, in the form of ``indices``, on the CPU."""
        return self.lengths[indices]

    def states_before(self, indices: Tensor) -> Tensor | None:
        """The whole states ``(..., k, d)`` of some of the sequences before their first step; ``None`` if zero."""
        return None if self.before is None else self.before[indices.to(self.before.device)]


@dataclass(frozen=True)
class PaddedSequences(SequenceSet):
    """Sequences in one tensor: ``(time, n, features)``, or ``(time, R, n, features)`` if each member has its own."""

    padded: Tensor
    lengths: Tensor
    before: Tensor | None = field(default=None, kw_only=True)

    @property
    def numbers(self) -> Tensor:
        return self.padded

    def of_members(self, members: Sequence[int]) -> Self:
        return self if self.padded.dim() == 3 else type(self)(self.padded[:, list(members)], self.lengths)

    def select(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        where = indices.to(self.padded.device)
        if self.padded.dim() == 3:
            return self.padded[:, where], self.lengths[indices]
        members = torch.arange(len(where), device=where.device).unsqueeze(-1)
        return self.padded[:, members, where], self.lengths[indices]


@dataclass(frozen=True)
class RaggedSequences(SequenceSet):
    """Sequences of different lengths, one after the other: ``steps`` is ``(sum of lengths, features)``."""

    steps: Tensor
    lengths: Tensor
    before: Tensor | None = field(default=None, kw_only=True)

    @property
    def numbers(self) -> Tensor:
        return self.steps

    def of_members(self, members: Sequence[int]) -> Self:
        return self

    def select(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        lengths = self.lengths[indices]
        starts = (self.lengths.cumsum(0) - self.lengths)[indices]
        time = torch.arange(int(lengths.max()), device="cpu").reshape(-1, *[1] * indices.dim())
        rows = starts + torch.minimum(time, lengths - 1)
        return self.steps[rows.to(self.steps.device)], lengths


def check_range(numbers: Tensor, dtype: torch.dtype, name: str = "sequences") -> None:
    """Raise if a number is beyond those of a network's type."""
    most = torch.finfo(dtype).max
    if numbers.is_floating_point() and torch.finfo(numbers.dtype).max > most:
        largest = max(-numbers.min().item(), numbers.max().item())
        if largest > most:
            raise ValueError(
                f"{name} must be of numbers that the network's type {dtype} has, up to {most:.4g}, got {largest:.4g}"
            )


def check_batch_size(batch_size: int, available: int, what: str = "sequences") -> None:
    """Raise unless a batch can be drawn without replacement."""
    if batch_size > available and not isinstance(batch_size, AtMost):
        raise ValueError(f"batch_size must not exceed the number of {what}, {available}, got {batch_size}")
