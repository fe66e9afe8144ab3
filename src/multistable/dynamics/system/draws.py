"""Random numbers for the measures and the warmup, from generators that the caller gives."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Generators = torch.Generator | Sequence[torch.Generator] | None


class Draws:
    """Draws for one network, or for each member of an ensemble.

    A single network has no leading dimension, an ensemble of R has ``(R,)``. With one generator for an ensemble
    all members see the same draws; with one for each, a member sees what it would see alone. All numbers are
    drawn in float64 on the generator's device and returned on the CPU, so that neither the precision nor the
    device of a network changes them.

    Args:
        generator: a generator, or one for each member. When not given, a new one with the seed that
            ``torch.manual_seed`` set: the global generator is left as it is.
        members: R, or ``None`` for a single network.
    """

    def __init__(self, generator: Generators = None, members: int | None = None) -> None:
        self._members = members
        if generator is None:
            generator = torch.Generator().manual_seed(torch.initial_seed())
        self._generators: list[Any] = list(generator) if isinstance(generator, tuple | list) else [generator]
        others = [type(g).__name__ for g in self._generators if not isinstance(g, torch.Generator)]
        if others:
            raise TypeError(
                f"generator must be a torch.Generator, or a list of them, one for each member, got {others[0]}"
            )
        # A list has one generator for each member, also a list of one.
        if isinstance(generator, tuple | list) and len(generator) != (members or 1):
            raise ValueError(
                f"generator must be one torch.Generator, or one for each of {members or 1} members, "
                f"got a list of {len(generator)}"
            )

    def batch(self, total: int, size: int) -> Tensor:
        """``(..., size)`` of 0..total-1, without replacement."""
        return self._each(lambda g: torch.randperm(total, generator=g, device=g.device)[:size])

    def times(self, lengths: Tensor) -> Tensor:
        """``(..., n)``, one time step from {1, ..., length} for each of ``lengths (..., n)``."""
        share = self._each(lambda g: torch.rand(lengths.shape[-1], generator=g, device=g.device, dtype=torch.float64))
        return (share * lengths).long() + 1

    def normal(self, *shape: int) -> Tensor:
        """``(..., *shape)`` from N(0, 1)."""
        return self._each(lambda g: torch.randn(shape, generator=g, device=g.device, dtype=torch.float64))

    def uniform(self, *shape: int) -> Tensor:
        """``(..., *shape)`` from 0 to 1."""
        return self._each(lambda g: torch.rand(shape, generator=g, device=g.device, dtype=torch.float64))

    def integer(self, high: int) -> Tensor:
        """``(...)`` from {1, ..., high}, uniformly."""
        return self._each(lambda g: torch.randint(1, high + 1, (), generator=g, device=g.device))

    def _each(self, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        draws = [draw(generator).cpu() for generator in self._generators]
        if self._members is None:
            return draws[0]
        return torch.stack(draws).expand(self._members, *draws[0].shape)
