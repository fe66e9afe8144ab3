"""The passive T-Maze: a corridor that passes by itself, and a turn at its end that only the first observation shows."""

import math

import torch
from torch import Tensor

from multistable.arguments import positive_integer, positive_number
from multistable.rl.numbers import MODULUS, following, seeded
from multistable.rl.pomdp import POMDP, Outcome
from multistable.rl.tmaze import OBSERVATIONS

TURNS = ("up", "down")
NOISY_STARTS = 20
"""Where there is noise, policies are judged by so many episodes."""


class PassiveTMaze(POMDP):
    """Passive T-Mazes of length L, any number of them at once: memory alone decides, not exploration.

    Observations are those of the T-Maze: the cue at the first step, then the corridor, and after L steps the junction.
    Actions are the two turns. Whatever they are, the agent moves on by one place a step. At the junction the episode
    ends with a reward of 1 if the action is the turn that the cue named, and 0 if not.

    After Ni, Ma, Eysenbach and Bacon (2023), *When Do Transformers Shine in RL? Decoupling Memory from Credit
    Assignment*. In theirs, as here, the cue is seen at once, an episode has L + 1 steps and the right turn gives 1. But
    their agent walks by itself, with four actions, and each step in which it lags behind costs it 1 / L.

    A state is one integer, made of the steps taken, the cue, up (0) or down (1), and the state of the noise.

    Args:
        length: L, the steps from the cue to the junction.
        noise: standard deviation of a normal random number that each observation has as a further feature; 0 for none.
        device: where all is computed.
        dtype: of observations and rewards.
    """

    actions = len(TURNS)
    exploration = (0.5, 0.5)
    discount = 0.98
    recordable = True
    action_names = TURNS

    def __init__(
        self,
        length: int,
        *,
        noise: float = 0.0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.length = positive_integer("length", length)
        self.noise = positive_number("noise", noise) if noise else 0.0
        self.horizon = self.length + 1
        self.observation_size = len(OBSERVATIONS) + (self.noise > 0)
        starts = NOISY_STARTS if self.noise else 2
        self.starts = tuple((i + 0.5) / starts for i in range(starts))
        self.device = torch.empty(0, device=device).device
        self.dtype = dtype
        self._one_hot = torch.eye(len(OBSERVATIONS), device=self.device, dtype=dtype)

    def reset(self, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Initial states, with the cue up for draws below one half and down for the others, and their observations."""
        draws = draws.to(self.device, torch.float64)
        chance = seeded(draws) if self.noise else torch.zeros_like(draws).long()
        state = self._state(torch.zeros_like(chance), (draws >= 0.5).long(), chance)
        return state, self._observation(state)

    def step(self, state: Tensor, action: Tensor) -> Outcome:
        """One step of every maze: states and actions ``(...)``; after the junction no time passes."""
        action = self.checked(action)
        time, cue, chance = self._parts(state)
        reward = ((time == self.length) & (action == cue)).to(self.dtype)
        time = (time + 1).clamp(max=self.length + 1)
        after, ended = self._state(time, cue, following(chance)), time > self.length
        return Outcome(after, self._observation(after), reward, ended, ended)

    def observe(self, state: Tensor) -> Tensor:
        """The observations of states ``(...)`` but for noise, as indices into ``OBSERVATIONS``."""
        time, cue, _ = self._parts(state)
        corridor = OBSERVATIONS.index("corridor")
        return torch.where(time == 0, cue, corridor + (time >= self.length))  # no number is copied to a GPU

    def optimal(self, returns: Tensor, lengths: Tensor) -> Tensor:
        """Whether policies turned right in every episode, the last dimension."""
        return (returns == 1).all(dim=-1)

    def _observation(self, state: Tensor) -> Tensor:
        seen = self._one_hot[self.observe(state)]
        if not self.noise:
            return seen
        uniform = self._parts(state)[2].double() / MODULUS
        normal = math.sqrt(2) * torch.erfinv(2 * uniform - 1)
        return torch.cat([seen, (self.noise * normal).to(self.dtype).unsqueeze(-1)], dim=-1)

    def _state(self, time: Tensor, cue: Tensor, chance: Tensor) -> Tensor:
        return (2 * chance + cue) * (self.length + 2) + time

    def _parts(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The steps taken, the cue, and the state of the noise."""
        time, rest = state % (self.length + 2), state // (self.length + 2)
        return time, rest % 2, rest // 2
