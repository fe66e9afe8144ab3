"""CartPole of which only positions are seen: velocities have to be remembered from one step to the next."""

import math

import torch
from torch import Tensor

from multistable.rl.numbers import uniforms
from multistable.rl.pomdp import POMDP, Outcome

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, STEP = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
FARTHEST, STEEPEST = 2.4, math.radians(12)
INITIAL = 0.05


class CartPole(POMDP):
    """Poles on carts, any number of them at once, by the equations of Gymnasium's ``CartPole-v1``.

    Each step until the pole has fallen, or the cart left the track, gives a reward of 1; after 500 steps the episode is
    cut. A state ``(..., 4)`` is the position of the cart, its velocity, the angle of the pole and its angular velocity,
    in float64. The position and the angle are seen, as shares of the largest ones at which the episode goes on.

    Args:
        device: where all is computed.
        dtype: of observations and rewards.
    """

    actions = 2
    observation_size = 2
    exploration = (0.5, 0.5)
    horizon = 500
    discount = 0.99
    recordable = True
    action_names = ("left", "right")

    def __init__(self, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.device = torch.empty(0, device=device).device
        self.dtype = dtype
        self._limits = torch.tensor([FARTHEST, STEEPEST], device=self.device, dtype=torch.float64)

    def reset(self, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Initial states ``(..., 4)``, each number from U(-0.05, 0.05), and what is seen of them."""
        state = INITIAL * (2 * uniforms(draws.to(self.device), 4) - 1)
        return state, self._seen(state)

    def step(self, state: Tensor, action: Tensor) -> Outcome:
        """Push each cart to the left (0) or to the right (1); a state in which the episode is over stays."""
        push = FORCE * (2 * self.checked(action).double() - 1)
        x, speed, angle, turning = state.unbind(dim=-1)
        sine, cosine, mass = angle.sin(), angle.cos(), CART + POLE
        shared = (push + POLE * HALF_LENGTH * turning.square() * sine) / mass
        turn = (GRAVITY * sine - cosine * shared) / (HALF_LENGTH * (4 / 3 - POLE * cosine.square() / mass))
        pull = shared - POLE * HALF_LENGTH * turn * cosine / mass
        moved = torch.stack([x + STEP * speed, speed + STEP * pull, angle + STEP * turning, turning + STEP * turn], -1)
        fallen = self._fallen(state)
        after = torch.where(fallen.unsqueeze(-1), state, moved)
        over = self._fallen(after)
        return Outcome(after, self._seen(after), (~fallen).to(self.dtype), over, over)

    def optimal(self, returns: Tensor, lengths: Tensor) -> Tensor:
        """Whether no pole fell before the end."""
        return (lengths == self.horizon).all(dim=-1)

    def _seen(self, state: Tensor) -> Tensor:
        return (state[..., ::2] / self._limits).to(self.dtype)

    def _fallen(self, state: Tensor) -> Tensor:
        return (state[..., ::2].abs() > self._limits).any(dim=-1)
