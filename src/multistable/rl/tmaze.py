"""The T-Maze (appendix D): a corridor, and a turn at its end that only the first observation shows."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from multistable.arguments import positive_integer
from multistable.rl.pomdp import POMDP, Outcome

ACTIONS = ("right", "up", "left", "down")
OBSERVATIONS = ("up", "down", "corridor", "junction")

_MOVES = torch.tensor([(1, 0), (0, 1), (-1, 0), (0, -1)])
_EXPLORATION = {"right": Fraction(1, 2), "up": Fraction(1, 6), "left": Fraction(1, 6), "down": Fraction(1, 6)}

Policy = Callable[[Tensor, Any], tuple[Tensor, Any]]
"""``(observations (n,), memory) -> (actions (n,), memory)``, both as indices; the memory is ``None`` at first."""


class TMaze(POMDP):
    """T-Mazes of length L, any number of them at once.

    A state is an integer: the layout, Up (0) or Down (1), times L + 3, plus the place. The places 0 to L are those
    of the corridor, (0, 0) to (L, 0); L + 1 is (L, 1) and L + 2 is (L, -1), the terminal ones. The functions of
    appendix D are tables over all states and actions.

    Args:
        length: L, the length of the corridor.
        device: where the tables are, and all that is computed.
        dtype: of observations and rewards.
    """

    actions = len(ACTIONS)
    observation_size = len(OBSERVATIONS)
    exploration = tuple(float(_EXPLORATION[name]) for name in ACTIONS)
    discount = 0.98
    treasure = 4.0
    penalty = -0.1
    recordable = True
    action_names = ACTIONS
    starts = (0.25, 0.75)

    def __init__(self, length: int, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.length = positive_integer("length", length)
        self.device = torch.empty(0, device=device).device
        self.dtype = dtype
        self.horizon = math.ceil(self.length / (_EXPLORATION["right"] - _EXPLORATION["left"]))
        self._transition, self._reward = (table.to(self.device) for table in self._transitions())
        states = torch.arange(2 * (self.length + 3))
        self._terminal = (self.coordinates(states)[2] != 0).to(self.device)
        self._observation = self._observations(states).to(self.device)
        self._one_hot = torch.nn.functional.one_hot(self._observation, len(OBSERVATIONS)).to(dtype)

    @property
    def optimal_return(self) -> float:
        """The non-discounted return of an optimal policy."""
        return self.treasure

    @property
    def optimal_length(self) -> int:
        """How many steps an optimal policy takes."""
        return self.length + 1

    def state(self, layout: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """States ``(...)`` out of the layout (0 for Up, 1 for Down) and the position c = (x, y), each ``(...)``."""
        place = torch.where(y == 0, x, torch.where(y == 1, self.length + 1, self.length + 2))
        return layout * (self.length + 3) + place

    def coordinates(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The inverse of :meth:`state`: layout, x and y."""
        place = state % (self.length + 3)
        y = (place == self.length + 1).long() - (place == self.length + 2).long()
        return state // (self.length + 3), place.clamp(max=self.length), y

    def _transitions(self) -> tuple[Tensor, Tensor]:
        """f(s, a) and R(s, a, f(s, a)) of every state and action, ``(states, actions)``."""
        layout, x, y = (field.unsqueeze(-1) for field in self.coordinates(torch.arange(2 * (self.length + 3))))
        to_x, to_y = x + _MOVES[:, 0], y + _MOVES[:, 1]
        in_corridor = (to_x >= 0) & (to_x <= self.length) & (to_y == 0)
        past_junction = (to_x == self.length) & (to_y.abs() == 1)
        terminal = y != 0
        moves = ~terminal & (in_corridor | past_junction)
        to_x, to_y = torch.where(moves, to_x, x), torch.where(moves, to_y, y)
        found = (to_y == 1) & (layout == 0) | (to_y == -1) & (layout == 1)
        free = terminal | moves & (to_y == 0)
        reward = torch.full(found.shape, self.penalty, dtype=self.dtype)
        reward = reward.masked_fill(found, self.treasure).masked_fill(free, 0.0)
        return self.state(layout, to_x, to_y), reward

    def _observations(self, state: Tensor) -> Tensor:
        """What is seen in each state, as an index into ``OBSERVATIONS``."""
        layout, x, _ = self.coordinates(state)
        return torch.where(x == 0, layout, torch.where(x < self.length, 2, 3))

    def reset(self, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Initial states, Up for draws below one half and Down for the others, and their observations."""
        state = (draws >= 0.5).to(self.device).long() * (self.length + 3)
        return state, self._one_hot[state]

    def step(self, state: Tensor, action: Tensor) -> Outcome:
        """One step of every maze: states and actions ``(...)``; terminal states stay."""
        action = self.checked(action)
        try:
            after = self._transition[state, action]
        except IndexError as error:
            raise ValueError(f"state must be as reset and step return it, one for each action: {error}") from error
        ended = self._terminal[after]
        return Outcome(after, self._one_hot[after], self._reward[state, action], ended, ended)

    def observe(self, state: Tensor) -> Tensor:
        """The observations of states ``(...)``, as indices into ``OBSERVATIONS``."""
        return self._observation[state]

    def terminal(self, state: Tensor) -> Tensor:
        """Whether states ``(...)`` are terminal."""
        return self._terminal[state]

    def optimal(self, returns: Tensor, lengths: Tensor) -> Tensor:
        """Whether policies reached the treasure in the fewest steps in both layouts, the last dimension."""
        return ((returns == self.optimal_return) & (lengths == self.optimal_length)).all(dim=-1)

    def is_optimal(self, policy: Policy) -> bool:
        """Whether a deterministic policy is optimal; it plays both layouts."""
        state, _ = self.reset(torch.tensor(self.starts))
        returns, lengths = torch.zeros(2, dtype=self.dtype, device=self.device), torch.zeros(2, device=self.device)
        memory = None
        for _ in range(self.optimal_length):
            lengths += ~self.terminal(state)
            action, memory = policy(self.observe(state), memory)
            state, _, reward, *_ = self.step(state, action)
            returns += reward
        return bool(self.terminal(state).all() & self.optimal(returns, lengths))

    def optimal_policy(self, observations: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """Go right, and at the junction turn to the side that the first observation named."""
        memory = observations if memory is None else memory
        turn = torch.where(memory == 0, ACTIONS.index("up"), ACTIONS.index("down"))
        at_junction = observations == OBSERVATIONS.index("junction")
        return torch.where(at_junction, turn, ACTIONS.index("right")), memory
