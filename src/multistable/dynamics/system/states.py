"""States that the user gives for a network to start from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from multistable.dynamics.system.reading import numbers_of

ACCEPTED = "a tensor (n, d), as ms.reachable_states returns it"


@dataclass(frozen=True)
class StateSet:
    """Whole states ``(n, d)``, or ``(R, n, d)`` where each member of an ensemble has its own."""

    states: Tensor

    def __len__(self) -> int:
        return self.states.shape[-2]

    def of_members(self, members: Sequence[int]) -> "StateSet":
        """The states of some members of an ensemble; states that all members share stay as they are."""
        return self if self.states.dim() == 2 else StateSet(self.states[list(members)])

    def select(self, indices: Tensor) -> Tensor:
        """Some of the states, ``(..., k, d)``, by indices ``(..., k)``."""
        where = indices.to(self.states.device)
        if self.states.dim() == 2:
            return self.states[where]
        return self.states.gather(-2, where.unsqueeze(-1).expand(*where.shape, self.states.shape[-1]))


def state_set(states: Any, members: int | None = None) -> StateSet:
    """Read ``states``, and check that they are usable.

    Args:
        states: ``(n, d)``, or with ``members`` also ``(R, n, d)``; a tensor or an array.
        members: R for an ensemble, or ``None`` for a single network.
    """
    tensor = numbers_of("states", states, ACCEPTED)
    own = members is not None and tensor.dim() == 3 and tensor.shape[0] == members
    if (tensor.dim() != 2 and not own) or tensor.shape[-2] == 0:
        more = "" if members is None else f", or ({members}, n, d) with those of each member"
        raise ValueError(f"states must be {ACCEPTED}{more}, got shape {tuple(tensor.shape)}")
    if not tensor.isfinite().all():
        raise ValueError("states must be finite, got NaN or infinity")
    return StateSet(tensor)
