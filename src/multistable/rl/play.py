"""Episodes of all agents in lockstep. The hidden state is carried from step to step, so nothing is computed twice."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from multistable.rl.network import fields_of, initial_state
from multistable.rl.pomdp import POMDP, input_size
from multistable.rl.replay import Episodes
from multistable.scan.graphs import Graphed

# On a GPU the host asks only once in so many steps whether all episodes are over: the answer waits for all launches.
LOOK_EVERY = 32


class Chance(NamedTuple):
    """All that is random in some episodes, drawn before they begin."""

    starts: Tensor
    """The draws for :meth:`POMDP.reset`, from U(0, 1), ``(R, n)`` on the CPU."""
    explores: Tensor
    """Whether each step is one of exploration, ``(H, R, n)``."""
    actions: Tensor
    """What the exploration policy does at each step, ``(H, R, n)``."""


class Player:
    """R agents, each in n copies of a process. All episodes are written into the same tensors.

    Args:
        network: of the agents, called as ``network(x, state) -> (values, state)`` with inputs ``(R, n, features)`` and
            values ``(R, n, actions)``; agents act greedily on these.
        agents: R.
        pomdp: the process to play.
        copies: n.
        reward_input: inputs are (a_{t-1}, o_t, r_{t-1}) instead of (a_{t-1}, o_t).
        action_input: whether a_{t-1} is among them.
    """

    def __init__(
        self,
        network: nn.Module,
        agents: int,
        pomdp: POMDP,
        copies: int,
        *,
        reward_input: bool,
        action_input: bool,
    ) -> None:
        self.network, self.pomdp, self.reward_input, self.action_input = network, pomdp, reward_input, action_input
        shape, H = (agents, copies), pomdp.horizon
        features = input_size(pomdp, action_input=action_input, reward_input=reward_input)
        options: dict[str, Any] = {"device": pomdp.device, "dtype": pomdp.dtype}
        self.inputs = torch.zeros(H + 1, *shape, features, **options)
        self.actions = torch.zeros(H, *shape, device=pomdp.device, dtype=torch.long)
        self.rewards = torch.zeros(H, *shape, **options)
        self.lengths = torch.zeros(shape, device=pomdp.device, dtype=torch.long)
        self.terminated = torch.zeros(shape, device=pomdp.device, dtype=torch.bool)
        self._alive = torch.zeros_like(self.terminated)
        self._explores = torch.zeros(H, *shape, device=pomdp.device, dtype=torch.bool)
        self._exploration = torch.zeros_like(self.actions)
        self._memory = initial_state(network, agents, copies, features)
        self._state: Tensor | None = None
        self._times = torch.arange(H, device=pomdp.device)
        self._one_hot = torch.eye(pomdp.actions, **options)
        self._greedy = Graphed(self._greedy_step) if pomdp.recordable else self._greedy_step
        self._explore = Graphed(self._exploring_step) if pomdp.recordable else self._exploring_step

    @torch.no_grad()
    def play(self, chance: Chance, *, explore_only: bool = False) -> None:
        """Play an episode in every copy, and write what happens into the tensors of this object.

        Args:
            chance: all that is random in it.
            explore_only: follow the exploration policy throughout, without the network.
        """
        self._begin(chance)
        step = self._explore if explore_only else self._greedy
        look_every = LOOK_EVERY if self._alive.is_cuda else 1
        for t in range(self.pomdp.horizon):
            step(self._times[t : t + 1])
            if (t + 1) % look_every == 0 and not bool(self._alive.any()):
                break

    def _begin(self, chance: Chance) -> None:
        state, observation = self.pomdp.reset(chance.starts)
        if self._state is None:
            self._state = state.clone()
        self._state.copy_(state)
        for field in (self.inputs[0], self.rewards, self.lengths, self.terminated, *self._memory):
            field.zero_()
        first = self.pomdp.actions if self.action_input else 0
        self.inputs[0, ..., first : first + self.pomdp.observation_size] = observation
        self._alive.fill_(True)
        self._explores.copy_(chance.explores, non_blocking=True)
        self._exploration.copy_(chance.actions, non_blocking=True)

    def _greedy_step(self, t: Tensor) -> Tensor:
        """Act on the values of the history so far, or explore."""
        memory = self._memory[0] if len(self._memory) == 1 else self._memory
        values, after = self.network(self.inputs[t][0], memory)
        for field, new in zip(self._memory, fields_of(after), strict=True):
            field.copy_(new)
        return self._act(t, self._choose(t, values))

    def _choose(self, t: Tensor, values: Tensor) -> Tensor:
        """The action in every copy: the best, or one of exploration."""
        return torch.where(self._explores[t][0], self._exploration[t][0], values.argmax(dim=-1))

    def _exploring_step(self, t: Tensor) -> Tensor:
        return self._act(t, self._exploration[t][0])

    def _act(self, t: Tensor, action: Tensor) -> Tensor:
        """Take an action in every copy, and store what follows."""
        assert self._state is not None
        outcome = self.pomdp.step(self._state, action)
        self._state.copy_(outcome.state)
        reward = outcome.reward * self._alive
        self.actions[t] = action
        self.rewards[t] = reward
        parts = [self._one_hot[action]] if self.action_input else []
        parts += [outcome.observation, *([reward.unsqueeze(-1)] if self.reward_input else [])]
        self.inputs[t + 1] = torch.cat(parts, dim=-1)
        self.lengths += self._alive
        self.terminated |= outcome.terminated & self._alive
        self._alive &= ~outcome.ended
        return self._alive

    def episodes(self) -> Episodes:
        """The episodes of the first copy of each agent."""
        return Episodes(
            self.inputs[:, :, 0], self.actions[..., 0], self.rewards[..., 0], self.lengths[:, 0], self.terminated[:, 0]
        )
