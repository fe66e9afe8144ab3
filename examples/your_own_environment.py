"""Agents with a memory in a Gymnasium environment of your own: say at the end what was shown at the beginning.

Run: python examples/your_own_environment.py
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

import multistable as ms
from multistable.rl import DRQN, Settings, input_size, watch
from multistable.rl.gym_agent import GymPOMDP


class Recall(gymnasium.Env[np.ndarray[Any, Any], np.int64]):
    """A sign is shown once, then noise; the last action should name it."""

    def __init__(self, wait: int = 5) -> None:
        self.wait = wait
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), dtype=np.float64)

    def _observe(self) -> np.ndarray[Any, Any]:
        return np.array([2 * self.sign - 1 if self.t == 0 else 0, self.np_random.normal()])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new sign."""
        super().reset(seed=seed)
        self.sign, self.t = int(self.np_random.integers(2)), 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait, or be right."""
        self.t += 1
        over = self.t > self.wait
        return self._observe(), float(over and action == self.sign), over, False, {}


def main() -> None:
    """Two agents, each with an environment of its own."""
    pomdp = GymPOMDP(Recall, horizon=10)
    seeds = [0, 1]
    networks = [ms.RNN("gru", input_size(pomdp), 32, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    settings = Settings(capacity=1000, target_period=5, lr=3e-3)
    agents = DRQN(pomdp, networks, seeds=seeds, warm=True, settings=settings)
    for evaluation in watch(agents, 150, evaluate_every=30):
        print(f"after {evaluation.episode:3d} episodes: share of right answers {evaluation.returns}", flush=True)


if __name__ == "__main__":
    main()
