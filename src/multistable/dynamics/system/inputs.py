"""The constant inputs under which a network is studied."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from multistable.arguments import shown
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.reading import numbers_of
from multistable.dynamics.system.sequences import SequenceSet, check_range

ACCEPTED = (
    '"normal" (drawn from N(0, 1)), "zero", "data" (drawn from the time steps of the sequences), '
    "or a tensor (features,) or (k, features) of one or several"
)


class Inputs(ABC):
    """Where constant inputs come from."""

    count: int | None = None
    """How many there are; ``None`` where new ones are drawn at each call."""

    @abstractmethod
    def take(self, count: int, features: int, draws: Draws, *, first: int | None = None, scale: float = 1.0) -> Tensor:
        """So many inputs, ``(..., count, features)``, or ``(count, features)`` where all members have the same.

        Args:
            count: how many.
            features: the size of each.
            draws: where they are drawn from.
            first: of given inputs, the number of the first to take, the others in turn; one by chance if not given.
            scale: a factor for inputs from N(0, 1), which leaves others as they are.
        """

    def of_members(self, members: Sequence[int]) -> "Inputs":
        """The inputs of some members of an ensemble."""
        return self


class Normal(Inputs):
    """u ~ N(0, 1), as in the paper."""

    def take(self, count: int, features: int, draws: Draws, *, first: int | None = None, scale: float = 1.0) -> Tensor:
        return scale * draws.normal(count, features)


class Given(Inputs):
    """Inputs that the user gave, ``(k, features)``."""

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self.count = len(values)

    def take(self, count: int, features: int, draws: Draws, *, first: int | None = None, scale: float = 1.0) -> Tensor:
        if first is None and len(self._values) > 1:
            start = (draws.integer(len(self._values)) - 1).unsqueeze(-1)
        else:
            start = torch.tensor([first or 0], device="cpu")
        return self._values[(start + torch.arange(count, device="cpu")) % len(self._values)]


class FromData(Inputs):
    """What the sequences hold: a random time step of a random sequence."""

    def __init__(self, data: SequenceSet) -> None:
        self._data = data

    def take(self, count: int, features: int, draws: Draws, *, first: int | None = None, scale: float = 1.0) -> Tensor:
        u, lengths = self._data.select(torch.cat([draws.batch(len(self._data), 1) for _ in range(count)], dim=-1))
        index = (draws.times(lengths) - 1).to(u.device).unsqueeze(0).unsqueeze(-1)
        return u.gather(0, index.expand(1, *u.shape[1:])).squeeze(0)

    def of_members(self, members: Sequence[int]) -> Inputs:
        return FromData(self._data.of_members(members))


def _from_data(features: int, data: SequenceSet | None) -> Inputs:
    if data is None:
        raise ValueError('inputs="data" needs sequences to draw from, got none')
    return FromData(data)


_NAMED: dict[str, Callable[[int, SequenceSet | None], Inputs]] = {
    "normal": lambda features, data: Normal(),
    "zero": lambda features, data: Given(torch.zeros(1, features, device="cpu")),
    "data": _from_data,
}


def check_inputs(given: Any) -> None:
    """Raise where no network and no sequences could make ``given`` inputs."""
    if isinstance(given, str):
        if given not in _NAMED:
            raise ValueError(f"inputs must be {ACCEPTED}, got {shown(given)}")
    else:
        inputs_in_any_form(given)


def inputs_of(given: Any, features: int, data: SequenceSet | None, dtype: torch.dtype) -> Inputs:
    """The inputs that the user chose.

    Args:
        given: a name, or one or several inputs as a tensor, an array or a list.
        features: the size of the network's input.
        data: the sequences; ``None`` if there are none.
        dtype: the network's type.
    """
    check_inputs(given)
    if isinstance(given, str):
        return _NAMED[given](features, data)
    values = constant_inputs(given, features)
    check_range(values, dtype, "inputs")
    return Given(values)


def constant_inputs(given: Any, features: int, name: str = "inputs") -> Tensor:
    """One or several constant inputs, or ``"zero"``, as ``(k, features)`` in float64 on the CPU, checked."""
    if is_zero(given):
        return torch.zeros(1, features, dtype=torch.float64, device="cpu")
    values = inputs_in_any_form(given, name)
    given_shape = tuple(values.shape)
    if values.dim() == 1:
        # Numbers for a network that reads one at a time are as many inputs.
        values = values.unsqueeze(-1 if features == 1 else 0)
    if values.dim() != 2 or values.shape[-1] != features or not len(values):
        shape = f"(features,) or (k, features) with {features} features"
        raise ValueError(f"{name} must be {shape}, got shape {given_shape}")
    if not values.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return values


def is_zero(given: Any) -> bool:
    """Whether the constant input is asked for by the name of zero."""
    return isinstance(given, str) and given == "zero"


def inputs_in_any_form(given: Any, name: str = "inputs") -> Tensor:
    """Numbers of a tensor, an array or a list, of at least one dimension, in float64 on the CPU."""
    return torch.atleast_1d(numbers_of(name, given, ACCEPTED).to(device="cpu", dtype=torch.float64))
