"""A replay buffer of histories: transitions in a ring, each the end of a prefix of its episode."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from multistable.arguments import positive_integer
from multistable.dynamics.system.sequences import SequenceSet


class Episodes(NamedTuple):
    """One episode of each of R agents, padded to H steps; entries beyond an agent's own length have no meaning."""

    inputs: Tensor
    """x_0, ..., x_H, ``(H + 1, R, features)``: x_t is the last input of the history at time t."""
    actions: Tensor
    """``(H, R)``"""
    rewards: Tensor
    """``(H, R)``"""
    lengths: Tensor
    """How many transitions, ``(R,)``."""
    terminated: Tensor
    """``(R,)``, whether the last state is terminal; that of a truncated episode is not."""


class Passes(NamedTuple):
    """The histories to compute for a batch: one of each episode, since the others are prefixes of it."""

    slots: Tensor
    """The transitions whose histories contain all others, longest first, ``(..., R, B)``."""
    lengths: Tensor
    """The lengths of these histories, ``(..., R, B)``; 0 for those that are not needed."""
    rows: Tensor
    """The number of the history that contains each transition of the batch, ``(..., R, B)``."""


class Transitions(NamedTuple):
    """Sampled transitions (eta_{0:t}, a_t, r_t, o_{t+1}, eta_{0:t+1}), B of each of R agents."""

    inputs: Tensor
    """x_0, x_1, ... of each pass, then zeros: ``(T, R, passes, features)``."""
    rows: Tensor
    """The pass that has eta_{0:t}, ``(R, B)``."""
    times: Tensor
    """t, the index of the last input of eta_{0:t}: ``(R, B)``."""
    actions: Tensor
    rewards: Tensor
    terminal: Tensor
    """Whether o_{t+1} is terminal, ``(R, B)``."""
    next_values: Tensor
    """max_a Q_theta'(eta_{0:t+1}, a), ``(R, B)``, as :attr:`Replay.next_values` has it."""


class Stored(NamedTuple):
    """The transitions of a buffer, oldest first, and their episodes, of which an agent has at most E."""

    slots: Tensor
    """``(R, size)``; the last is repeated for an agent with fewer transitions than another."""
    episodes: Tensor
    """The number of the episode of each, ``(R, size)``."""
    last: Tensor
    """The slot of the last transition of each episode, ``(R, E)``; some are repeated for agents with fewer."""


class Replay:
    """The latest ``capacity`` transitions of each of R agents.

    A transition is stored as its own last input, its action, its reward and its next input. Earlier inputs of its
    history are those of the transitions before it, so that memory grows with the number of transitions. There are 2 H
    more slots: H for the inputs of histories whose first transitions were replaced, and H for the padding of the latest
    episode, which the next one overwrites.

    Args:
        capacity: N, in transitions.
        horizon: H, the longest episode.
        agents: R.
        features: of an input.
    """

    def __init__(
        self,
        capacity: int,
        horizon: int,
        agents: int,
        features: int,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.capacity = positive_integer("capacity", capacity)
        self.horizon = positive_integer("horizon", horizon)
        slots = self.capacity + 2 * self.horizon

        def empty(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(agents, *shape, device=device, dtype=dtype)

        self.inputs, self.next_inputs = empty(slots, features), empty(slots, features)
        self.actions, self.times = empty(slots, dtype=torch.long), empty(slots, dtype=torch.long)
        self.rewards, self.terminal = empty(slots), empty(slots, dtype=torch.bool)
        self.next_values = empty(slots)
        """max_a Q_theta'(eta_{0:t+1}, a), written by the owner of the target network, which changes seldom."""
        self.written = empty(dtype=torch.long)
        """How many transitions each agent has ever added, ``(R,)``; the next goes to slot ``written % slots``."""
        self._agents = torch.arange(agents, device=device).unsqueeze(-1)
        self._steps = torch.arange(self.horizon + 1, device=device)

    @property
    def sizes(self) -> Tensor:
        """|B|, how many transitions each agent has, ``(R,)``."""
        return self.written.clamp(max=self.capacity)

    @property
    def _slots(self) -> int:
        return self.inputs.shape[1]

    def append(self, episodes: Episodes, agents: Tensor | None = None, next_values: Tensor | None = None) -> None:
        """Add an episode to each agent's buffer, replacing the oldest transitions.

        Args:
            agents: whose buffers, ``(R,)``; all by default.
            next_values: :attr:`next_values` of its transitions, ``(H, R)``.
        """
        steps = self._steps[:-1]
        slots = (self.written.unsqueeze(-1) + steps) % self._slots
        last = episodes.lengths.unsqueeze(-1) - 1
        self.inputs[self._agents, slots] = episodes.inputs[:-1].movedim(0, 1)
        self.next_inputs[self._agents, slots] = episodes.inputs[1:].movedim(0, 1)
        self.actions[self._agents, slots] = episodes.actions.T
        self.rewards[self._agents, slots] = episodes.rewards.T
        self.times[self._agents, slots] = steps.expand_as(slots)
        self.terminal[self._agents, slots] = episodes.terminated.unsqueeze(-1) & (steps == last)
        if next_values is not None:
            self.next_values[self._agents, slots] = next_values.T
        self.written += episodes.lengths if agents is None else episodes.lengths * agents

    def sample(self, draws: Tensor) -> Tensor:
        """The slots ``(..., R, B)`` of random transitions, by as many float64 ``draws`` from U(0, 1)."""
        self._check_filled()
        return self.slots_of((draws * self.sizes.unsqueeze(-1)).long())

    def slots_of(self, numbers: Tensor) -> Tensor:
        """The slots ``(..., R, B)`` of transitions by their numbers, from 0 for the oldest."""
        return ((self.written - self.sizes).unsqueeze(-1) + numbers) % self._slots

    def lengths(self, slots: Tensor) -> Tensor:
        """The number of inputs of the histories eta_{0:t} of transitions in ``slots (..., R, B)``, in that shape."""
        return self.times[self._agents, slots] + 1

    def passes(self, slots: Tensor) -> Passes:
        """The histories to compute for batches of transitions in ``slots (..., R, B)``."""
        lengths, order = self.lengths(slots).sort(dim=-1, descending=True, stable=True)
        begins = (slots.gather(-1, order) - lengths) % self._slots
        numbers = torch.arange(slots.shape[-1], device=slots.device)
        same = begins.unsqueeze(-1) == begins.unsqueeze(-2)
        longest = torch.where(same, numbers, len(numbers)).amin(dim=-1)  # the first of an episode is its longest
        needed = longest == numbers
        rows = (needed.long().cumsum(dim=-1) - 1).gather(-1, longest)
        first = needed.long().sort(dim=-1, descending=True, stable=True).indices
        return Passes(
            slots.gather(-1, order).gather(-1, first),
            (lengths * needed).gather(-1, first),
            torch.empty_like(rows).scatter_(-1, order, rows),
        )

    def prefixes(self, slots: Tensor, time: int) -> Tensor:
        """The first ``time`` inputs x_0, ..., x_t, x_{t+1} of transitions in ``slots (R, n)``, then zeros.

        Returns:
            ``(time, R, n, features)``.
        """
        times = self.times[self._agents, slots]
        steps = self._steps[:time].view(-1, 1, 1)
        inputs = self.inputs[self._agents, (slots - times + steps) % self._slots]
        beyond = (steps > times).unsqueeze(-1)
        after = (steps == times + 1).unsqueeze(-1)
        return torch.where(after, self.next_inputs[self._agents, slots], inputs.masked_fill(beyond, 0))

    def transitions(self, slots: Tensor, passes: Tensor, rows: Tensor, longest: int) -> Transitions:
        """The transitions in ``slots (R, B)``, with histories of at most ``longest`` inputs.

        Args:
            passes: the slots of the histories to compute, ``(R, passes)``; see :meth:`passes`.
            rows: the number of the history that contains each transition, ``(R, B)``.
        """
        fields = (self.times, self.actions, self.rewards, self.terminal, self.next_values)
        return Transitions(self.prefixes(passes, longest), rows, *(field[self._agents, slots] for field in fields))

    def stored(self) -> Stored:
        """All transitions of each agent."""
        self._check_filled()
        size = self.sizes.unsqueeze(-1)
        order = torch.arange(int(size.max()), device=size.device).minimum(size - 1)
        slots = (self.written.unsqueeze(-1) - size + order) % self._slots
        times = self.times[self._agents, slots]
        begins = (times[:, 1:] == 0).long().cumsum(dim=-1)
        episodes = torch.cat([torch.zeros_like(times[:, :1]), begins], dim=-1)
        last = torch.zeros(len(slots), int(episodes.max()) + 1, dtype=torch.long, device=size.device)
        last.scatter_reduce_(1, episodes, order, "amax")
        return Stored(slots, episodes, slots.gather(1, last))

    def histories(self, agent: int) -> list[Tensor]:
        """The history eta_{0:t} of each transition of an agent, oldest first, each ``(t + 1, features)``."""
        written, size = int(self.written[agent]), int(self.sizes[agent])
        first = max(0, written - size - self.horizon)
        slots = torch.arange(first, written, device=self.inputs.device) % self._slots
        inputs = self.inputs[agent, slots]
        ends = range(len(inputs) - size + 1, len(inputs) + 1)
        lengths = (self.times[agent, slots][len(inputs) - size :] + 1).tolist()
        return [inputs[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def _check_filled(self) -> None:
        if not bool(self.written.all()):
            raise RuntimeError("the replay buffer is empty, so nothing can be learnt: DRQN.prepare() fills it")

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint keeps, by name."""
        names = ("inputs", "next_inputs", "actions", "times", "rewards", "terminal", "next_values", "written")
        return {name: getattr(self, name) for name in names}


class Histories(SequenceSet):
    """The histories eta_{0:t} of all transitions of a filled buffer, oldest first: sequences of R members.

    They are not copied: what is read is what the buffer has at that time.
    """

    before = None

    def __init__(self, replay: Replay) -> None:
        replay._check_filled()
        self._replay = replay

    def __len__(self) -> int:
        return int(self._replay.sizes.min())

    @property
    def numbers(self) -> Tensor:
        return self._replay.inputs

    def lengths_of(self, indices: Tensor) -> Tensor:
        return self._replay.lengths(self._slots(indices)).cpu()

    def select(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        lengths = self.lengths_of(indices)
        return self._replay.prefixes(self._slots(indices), int(lengths.max())), lengths

    def of_members(self, members: Sequence[int]) -> Self:
        raise NotImplementedError("the histories of a buffer are those of all agents")

    def _slots(self, indices: Tensor) -> Tensor:
        return self._replay.slots_of(indices.to(self._replay.written.device))
