"""Two agents learn to balance a pole without seeing velocities, by recurrent PPO; one of them is warmed up.

Run: python examples/recurrent_ppo.py [episodes]
"""

import sys
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import multistable as ms
from multistable.rl import PPO, PPOSettings, input_size, watch
from multistable.rl.gym_agent import GymPOMDP


class PositionsOnly(gymnasium.ObservationWrapper[NDArray[np.float32], Any, NDArray[np.float32]]):
    """CartPole of which only the position and the angle are seen."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,))

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Two of the four numbers."""
        return observation[[0, 2]]


def main(episodes: int = 640, copies: int = 16, hidden_size: int = 64) -> PPO:
    """Print how many steps the greedy policies of both balance the pole."""
    pomdp = GymPOMDP(PositionsOnly, horizon=500, discount=0.99)
    settings = PPOSettings(copies=copies, action_input=False)
    features = input_size(pomdp, action_input=False)
    networks = [ms.RNN("gru", features, hidden_size, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    agents = PPO(pomdp, networks, seeds=[0, 0], warm=[False, True], settings=settings)
    for evaluation in watch(agents, episodes, evaluate_every=5 * copies):
        print(f"after {evaluation.episode:4d} episodes: steps classic, warmed up: {evaluation.returns}", flush=True)
    return agents


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
