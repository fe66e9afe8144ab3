"""What an agent plays: a partially observable Markov decision process (appendix B), many copies of it at once."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from multistable.arguments import shown


class Outcome(NamedTuple):
    """The outcome of one step of every copy; ``...`` are the dimensions of the copies, any number of them."""

    state: Tensor
    observation: Tensor
    """``(..., observation_size)``"""
    reward: Tensor
    """``(...)``"""
    terminated: Tensor
    """``(...)``, whether the new state is terminal, where nothing more can be gained."""
    ended: Tensor
    """``(...)``, whether the episode is over: terminated, or cut off by the environment's own limit."""


class POMDP(ABC):
    """A process with few actions, in batched and functional form: methods take a state and return the next.

    A copy whose episode has ended is stepped with the others until all have ended; what it returns then does not
    matter.

    Attributes:
        actions: how many there are.
        observation_size: the features of an observation.
        exploration: the probability of each action under the exploration policy.
        horizon: H, after which episodes are truncated.
        discount: gamma.
        device, dtype: of observations and rewards.
        recordable: whether a step stays on the device, so that it can be recorded as a CUDA graph.
        starts: draws that lead :meth:`reset` to the different initial states, all equally likely; empty where there
            are too many.
        action_names: for errors, in the order of the actions; empty where they have none.
    """

    actions: int
    observation_size: int
    exploration: tuple[float, ...]
    horizon: int
    discount: float
    device: torch.device
    dtype: torch.dtype
    recordable: bool = False
    starts: tuple[float, ...] = ()
    action_names: tuple[str, ...] = ()

    @abstractmethod
    def reset(self, draws: Tensor) -> tuple[Tensor, Tensor]:
        """New episodes: their states and first observations ``(..., observation_size)``.

        Args:
            draws: ``(...)`` on the CPU, from U(0, 1), one for each copy: all that is random in its initial state.
        """

    @abstractmethod
    def step(self, state: Tensor, action: Tensor) -> Outcome:
        """One step of every copy: ``action (...)`` from {0, ..., actions - 1}."""

    def checked(self, action: Any) -> Tensor:
        """Actions ``(...)`` as indices; an error if one of them is not in {0, ..., actions - 1}.

        Without this check, -1 would be the last row of a table. While a CUDA graph is recorded no value can be read:
        the actions then come from the agents themselves.
        """
        try:
            given = torch.as_tensor(action)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{self._accepted}, got {shown(action)}") from error
        if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
            raise ValueError(f"{self._accepted}, got {given.dtype}")
        given = given.long()  # Not all unsigned types have a minimum.
        if given.numel() and not (given.is_cuda and torch.cuda.is_current_stream_capturing()):
            least, most = map(int, given.aminmax())
            if least < 0 or most >= self.actions:
                raise ValueError(f"{self._accepted}, got {least if least < 0 else most}")
        return given

    @property
    def _accepted(self) -> str:
        names = f" ({', '.join(self.action_names)})" if self.action_names else ""
        return f"action must be integers of 0 to {self.actions - 1}{names}"

    def optimal(self, returns: Tensor, lengths: Tensor) -> Tensor | None:
        """Whether policies are optimal, ``(...)``, judged by an episode from each of :attr:`starts`.

        Args:
            returns: non-discounted returns, ``(..., starts)``.
            lengths: of the episodes, ``(..., starts)``.

        Returns:
            ``None`` where this is not known.
        """
        return None


def input_size(pomdp: POMDP, *, action_input: bool = True, reward_input: bool = False) -> int:
    """The features of an agent's inputs: (a_{t-1}, o_t), and the previous reward where asked for.

    Args:
        pomdp: what the agent plays.
        action_input: whether the previous action is among the inputs.
        reward_input: whether the previous reward is.
    """
    if not isinstance(pomdp, POMDP):
        raise TypeError(
            f"pomdp must be a POMDP, for instance TMaze(20), got {pomdp!r}; multistable.rl.gym_agent.GymPOMDP makes "
            "one from the id of a Gymnasium environment, or from a function that makes the environment"
        )
    return action_input * pomdp.actions + pomdp.observation_size + reward_input
