"""Any Gymnasium environment with discrete actions as a process for the agents of this library."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multistable.arguments import positive_integer, share
from multistable.extras import missing
from multistable.rl.pomdp import POMDP, Outcome

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError as error:
    raise missing("a Gymnasium environment", "gymnasium") from error

_SEEDS = 2**31


class GymPOMDP(POMDP):
    """A Gymnasium environment for each agent; the host steps them one after the other.

    Observations are flattened to vectors, discrete ones to one-hot vectors. Each episode begins with
    ``reset(seed=...)``. The agent's own seed decides this seed, and so everything that is random.

    Args:
        environment: an id for ``gymnasium.make``, or a function that makes an environment.
        horizon: H; by default the ``max_episode_steps`` that the environment was registered with.
        exploration: the probability of each action under the exploration policy; all alike by default.
        discount: gamma.
        device: of the agents.
        dtype: of the agents.
    """

    def __init__(
        self,
        environment: str | Callable[[], gymnasium.Env[Any, Any]],
        *,
        horizon: int | None = None,
        exploration: Sequence[float] | None = None,
        discount: float = 0.98,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._make = environment if callable(environment) else lambda: gymnasium.make(environment)
        self._environments: dict[tuple[int, ...], gymnasium.Env[Any, Any]] = {}
        self._over: set[tuple[int, ...]] = set()
        first = self._environment((0, 0))
        if not isinstance(first.action_space, spaces.Discrete):
            raise ValueError(f"the action space must be Discrete, got {first.action_space}")
        if not first.observation_space.is_np_flattenable:
            raise ValueError(f"the observation space must flatten to a vector, got {first.observation_space}")
        self.actions = int(first.action_space.n)
        self._first_action = int(first.action_space.start)
        self.observation_size = spaces.flatdim(first.observation_space)
        self.exploration = _probabilities(exploration, self.actions)
        self.horizon = _horizon(horizon, first)
        self.discount = share("discount", discount)
        self.device = torch.empty(0, device=device).device
        self.dtype = dtype

    def reset(self, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Begin an episode in every environment; they are made when they are first needed."""
        self._over.clear()
        observations = np.zeros((*draws.shape, self.observation_size))
        for index in np.ndindex(*draws.shape):
            environment = self._environment(index)
            observation, _ = environment.reset(seed=int(draws[index] * _SEEDS))
            observations[index] = spaces.flatten(environment.observation_space, observation)
        # The environments keep their state themselves.
        return torch.zeros(draws.shape, device=self.device), self._tensor(observations)

    def step(self, state: Tensor, action: Tensor) -> Outcome:
        """One step of every environment whose episode is not over."""
        actions = self.checked(action).cpu().numpy() + self._first_action
        observations, rewards = np.zeros((*actions.shape, self.observation_size)), np.zeros(actions.shape)
        terminated, ended = np.zeros(actions.shape, dtype=bool), np.ones(actions.shape, dtype=bool)
        for index in np.ndindex(*actions.shape):
            if index in self._over:
                continue
            environment = self._environments[index]
            observation, rewards[index], terminated[index], truncated, _ = environment.step(actions[index])
            observations[index] = spaces.flatten(environment.observation_space, observation)
            ended[index] = terminated[index] or truncated
            if ended[index]:
                self._over.add(index)
        flags = (torch.from_numpy(flag).to(self.device) for flag in (terminated, ended))
        return Outcome(state, self._tensor(observations), self._tensor(rewards), *flags)

    def close(self) -> None:
        """Close all environments."""
        for environment in self._environments.values():
            environment.close()

    def _environment(self, index: tuple[int, ...]) -> gymnasium.Env[Any, Any]:
        if index not in self._environments:
            self._environments[index] = self._make()
        return self._environments[index]

    def _tensor(self, array: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device, self.dtype)


def _probabilities(given: Sequence[float] | None, actions: int) -> tuple[float, ...]:
    if given is None:
        return (1 / actions,) * actions
    if len(given) != actions or not all(0 <= p <= 1 for p in given) or abs(sum(given) - 1) > 1e-6:
        raise ValueError(f"exploration must be {actions} probabilities that sum to 1, got {given!r}")
    return tuple(given)


def _horizon(given: int | None, environment: gymnasium.Env[Any, Any]) -> int:
    registered = environment.spec.max_episode_steps if environment.spec is not None else None
    if given is None and registered is None:
        raise ValueError("horizon must be given: the environment was registered without max_episode_steps")
    return positive_integer("horizon", registered if given is None else given)
