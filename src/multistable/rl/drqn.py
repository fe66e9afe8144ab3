"""Deep recurrent Q-learning (Algorithm 4, appendix C), of several agents at once."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from multistable.arguments import count, positive_integer
from multistable.dynamics.prepare import Preparation, prepare
from multistable.dynamics.warmup import WarmupHistory, warmup
from multistable.dynamics.warmup.keep import WEIGHT
from multistable.networks import RNN, Ensemble
from multistable.rl.checks import check_agents, flags_of, networks_of, seeds_of
from multistable.rl.network import QNetwork, Stage, stages_of
from multistable.rl.play import Chance, Player
from multistable.rl.pomdp import POMDP
from multistable.rl.replay import Episodes, Histories, Replay, Transitions
from multistable.rl.settings import Settings
from multistable.scan.graphs import Graphed
from multistable.training.adam import Adam
from multistable.training.keeping import Keeping
from multistable.training.model import Readout
from multistable.training.seeds import generator

# A gradient step over histories of different lengths divides their time steps into so many stages.
STAGES = 4
# A recorded gradient step has fixed sizes: its time steps, and its rows, are rounded up to one of so many sizes.
RECORDED_SIZES = 4
# The episodes of one pass over the stored transitions, which bound its memory.
EPISODES_AT_ONCE = 256
# n of Algorithm 3.
WARMUP_BATCH_SIZE = 200


class Episode(NamedTuple):
    """The outcome of an episode of training for each of R agents; the tensors are on the agents' device."""

    number: int
    """The number of the episode, counted from 1."""
    returns: Tensor
    """The non-discounted return of the episode played, exploration included, ``(R,)``."""
    lengths: Tensor
    """``(R,)``"""
    loss: Tensor
    """The mean loss of the gradient steps, ``(R,)``."""


class DRQN:
    """R agents that play and learn together, each exactly as if alone.

    All that is random in an agent follows from its own seed. So an agent does not depend on those beside it, and two
    agents of one seed, one of them warmed up, start with the same weights and the same replay buffer.

    Args:
        pomdp: the process to play; each agent plays by itself.
        networks: the recurrent part of each agent's Q-network, an ``ms.RNN`` with :func:`input_size` inputs; copied.
        seeds: one for each agent.
        warm: which agents are warmed up before they learn; one value for all, or one for each.
        settings: the parameters of the algorithm.
    """

    def __init__(
        self,
        pomdp: POMDP,
        networks: Sequence[RNN] | Ensemble,
        *,
        seeds: Sequence[int],
        warm: bool | Sequence[bool] = False,
        settings: Settings | None = None,
    ) -> None:
        settings = Settings() if settings is None else settings
        members = networks.unstack() if isinstance(networks, Ensemble) else networks_of(networks)
        self.pomdp, self.settings, self.seeds = pomdp, settings, seeds_of(seeds)
        self.warm = [warm] * len(members) if isinstance(warm, bool) else flags_of(warm)
        check_agents(members[0], len(members), self)
        self.network, self.target = (QNetwork(members, self._readouts(members)) for _ in range(2))
        self.target.requires_grad_(False)
        self.acting = self.network
        """The network of the greedy policy."""
        if settings.averaged_episodes is not None:
            self.acting = QNetwork(members, self._readouts(members)).requires_grad_(False)
        self.replay = Replay(
            settings.capacity,
            pomdp.horizon,
            len(members),
            members[0].input_size,
            device=pomdp.device,
            dtype=pomdp.dtype,
        )
        self.player = Player(self.network, len(members), pomdp, 1, **settings.inputs)
        self.parameters = dict(self.network.named_parameters())
        self.optimiser = self._adam(0)
        self.episode = 0
        self.prepared = False
        self.warmups: list[WarmupHistory | None] = [None] * len(members)
        self.keeping = self._keeping(0)
        self._recorded: dict[tuple[int, int], Graphed] = {}

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def at_once(self) -> int:
        """Episodes of an agent between two moments at which it can be looked at."""
        return 1

    def train(self, episodes: int) -> Iterator[Episode]:
        """Train by Algorithm 4 until ``episodes`` episodes have been played, from where training stopped before.

        Each time the iterator is asked for the next item, an episode is played and learnt from.
        """
        count("episodes", episodes)
        self.prepare()
        while self.episode < episodes:
            if self.episode % self.settings.target_period == 0:
                self.update_target()
            played = self.play()
            self.remember(played)
            loss = self.learn()
            self.episode += 1
            self.average()
            yield Episode(self.episode, played.rewards.sum(dim=0), played.lengths.clone(), loss)

    def prepare(self) -> None:
        """Fill the replay buffer and warm up, unless this has been done; both come before the first episode."""
        if not self.prepared:
            self.fill()
            self.warm_up()
            self.prepared = True

    def fill(self) -> None:
        """Fill the replay buffer with episodes of the exploration policy.

        An agent whose buffer is full plays on until all buffers are full, but these episodes are not stored.
        """
        number = 0
        while bool((filling := self.replay.written < self.settings.capacity).any()):
            self.player.play(self._chance("fill", number), explore_only=True)
            self.replay.append(self.player.episodes(), filling)
            number += 1

    def warm_up(self) -> None:
        """Warm up the agents that ask for it, each on the histories of its own buffer."""
        for index, warm in enumerate(self.warm):
            if warm:
                self.warm_up_agent(index)

    def warm_up_agent(self, index: int, **options: Any) -> WarmupHistory:
        """Warm up the network of one agent on the histories of its buffer.

        Args:
            options: those of :func:`multistable.warmup`; the paper's by default.
        """
        options = dict[str, Any](algorithm="paper", batch_size=WARMUP_BATCH_SIZE) | options
        size, capacity = positive_integer("batch_size", options["batch_size"]), self.settings.capacity
        if size > capacity:
            raise ValueError(f"capacity must be at least the batch_size of the warmup, {size}, got {capacity}")
        self.warmups[index] = history = self._changed(index, warmup, options)
        return history

    def prepare_agent(self, index: int, **options: Any) -> Preparation:
        """Prepare the network of one agent on the histories of its buffer; options are those of ``ms.prepare``."""
        return self._changed(index, prepare, options)

    def _changed(self, index: int, change: Callable[..., Any], options: dict[str, Any]) -> Any:
        (member,) = self.network.rnn.select([index]).unstack()
        draws = generator(self.seeds[index], "warmup")
        result = change(member, self.histories(index), generator=draws, **options)
        for network in (self.network, self.acting):
            network.replace(index, member)
        return result

    def histories(self, index: int) -> list[Tensor]:
        """The histories in the buffer of one agent, each ``(time, features)``."""
        return self.replay.histories(index)

    def looks_on(self) -> list[int] | None:
        """At how many looks since the last time the term that keeps attractors was on; ``None`` without such a term."""
        return self.keeping.looks_on()

    def members(self) -> list[RNN]:
        """The recurrent part of each agent's greedy policy as it is now, copied."""
        return self.acting.rnn.unstack()

    def play(self) -> Episodes:
        """Play the next episode of each agent, epsilon-greedy. The episode after it overwrites its tensors."""
        self.player.play(self._chance("episode", self.episode))
        return self.player.episodes()

    @torch.no_grad()
    def update_target(self) -> None:
        """theta' <- theta. The values of all stored transitions are computed anew, those of an episode in one pass."""
        torch._foreach_copy_(list(self.target.parameters()), list(self.network.parameters()))
        stored = self.replay.stored()
        longest = int(self.replay.lengths(stored.last).max())
        parts = stored.last.split(EPISODES_AT_ONCE, dim=1)
        values = torch.cat([self.target.all_values(self.replay.prefixes(last, longest + 1)) for last in parts], dim=2)
        agents = torch.arange(len(self), device=values.device).unsqueeze(-1)
        after = self.replay.lengths(stored.slots)  # eta_{0:t+1} ends where eta_{0:t} has its length
        here, there = (values[at, agents, stored.episodes] for at in (after - 1, after))
        actions = self.replay.actions[agents, stored.slots]
        self.replay.next_values[agents, stored.slots] = self._next_values(here, actions, there)

    @torch.no_grad()
    def remember(self, episodes: Episodes) -> None:
        """Store an episode of each agent, with the values of its next histories."""
        H = self.pomdp.horizon
        longest = H if self.pomdp.device.type == "cuda" else int(episodes.lengths.max())
        values = self.target.all_values(episodes.inputs[: longest + 1].unsqueeze(2))[:, :, 0]
        following = self._next_values(values[:-1], episodes.actions[:longest], values[1:])
        self.replay.append(episodes, next_values=torch.nn.functional.pad(following, (0, 0, 0, H - longest)))

    def _next_values(self, here: Tensor, actions: Tensor, there: Tensor) -> Tensor:
        """max_a Q_theta'(eta_{0:t+1}, a), less a share of what a_t missed: max_a Q_theta'(eta_{0:t}, a) less its own.

        Args:
            here: Q_theta'(eta_{0:t}, .), ``(..., actions)``.
            actions: a_t, ``(...)``.
            there: Q_theta'(eta_{0:t+1}, .), ``(..., actions)``.
        """
        best, share = there.amax(dim=-1), self.settings.advantage_learning
        if not share:
            return best
        return best - share * (here.amax(dim=-1) - here.gather(-1, actions.unsqueeze(-1)).squeeze(-1))

    def learn(self) -> Tensor:
        """Take I gradient steps on transitions of the buffer. Returns the mean of their losses, ``(R,)``."""
        shape = (self.settings.gradient_steps, self.settings.batch_size)
        draws = [torch.rand(shape, generator=g, dtype=torch.float64) for g in self._generators("batch", self.episode)]
        slots = self.replay.sample(torch.stack(draws, dim=1).to(self.pomdp.device))
        passes = self.replay.passes(slots)
        step = self._recorded_step if self.pomdp.device.type == "cuda" else self._staged_step
        batches = zip(slots, passes.slots, passes.rows, passes.lengths.cpu(), strict=True)
        losses = []
        for batch in batches:
            self.keeping.look()
            losses.append(step(*batch).clone())
        return torch.stack(losses).mean(dim=0)

    def targets(self, batch: Transitions) -> Tensor:
        """y = r + gamma max_a Q_theta'(eta_{0:t+1}, a), or r where o_{t+1} is terminal: ``(R, B)``."""
        return batch.rewards + self.pomdp.discount * batch.next_values.masked_fill(batch.terminal, 0)

    def loss(self, batch: Transitions, stages: Sequence[Stage] = ()) -> Tensor:
        """L, the sum over the batch of (y - Q_theta(eta_{0:t}, a_t))^2, of each agent ``(R,)``."""
        values = self.network.values(batch.inputs, batch.rows, batch.times, stages)
        predictions = values.gather(-1, batch.actions.unsqueeze(-1)).squeeze(-1)
        return (self.targets(batch) - predictions).square().sum(dim=-1)

    @torch.no_grad()
    def average(self) -> None:
        """Let the weights of the greedy policy follow those that learn: their mean over the first episodes, then on."""
        if self.settings.averaged_episodes is not None:
            share = 1 / min(self.episode, self.settings.averaged_episodes)
            torch._foreach_lerp_(list(self.acting.parameters()), list(self.network.parameters()), share)

    def descend(self, loss: Tensor) -> Tensor:
        """One step of Adam for each agent on its own entry of ``loss (R,)``."""
        self.optimiser.step(self.keeping.added_to(torch.autograd.grad(loss.sum(), list(self.parameters.values()))))
        return loss.detach()

    def _staged_step(self, slots: Tensor, passes: Tensor, rows: Tensor, lengths: Tensor) -> Tensor:
        """A gradient step on the transitions in ``slots``; the other arguments are the fields of :class:`Passes`."""
        stages = stages_of(lengths, STAGES)
        batch = self.replay.transitions(slots, passes[:, : stages[0].rows], rows, stages[-1].end)
        return self.descend(self.loss(batch, stages))

    def _recorded_step(self, slots: Tensor, passes: Tensor, rows: Tensor, lengths: Tensor) -> Tensor:
        """A gradient step on a GPU, where all passes take all time steps: a few sizes have a recorded step each."""
        longest = _rounded(int(lengths.max()), self.pomdp.horizon)
        count = _rounded(int((lengths > 0).sum(dim=-1).max()), self.settings.batch_size)
        if (longest, count) not in self._recorded:

            def step(slots: Tensor, passes: Tensor, rows: Tensor) -> Tensor:
                return self.descend(self.loss(self.replay.transitions(slots, passes, rows, longest)))

            self._recorded[longest, count] = Graphed(step)
        return self._recorded[longest, count](slots, passes[:, :count].contiguous(), rows)

    def _chance(self, purpose: str, number: int) -> Chance:
        """All that is random in an episode of each agent."""
        H = self.pomdp.horizon
        draws = [torch.rand(1 + 2 * H, generator=g, dtype=torch.float64) for g in self._generators(purpose, number)]
        start, explores, action = torch.stack(draws, dim=1).unsqueeze(-1).split([1, H, H])
        edges = torch.tensor(self.pomdp.exploration, dtype=torch.float64).cumsum(0)[:-1]
        return Chance(start[0], explores < self.settings.epsilon, torch.bucketize(action, edges, right=True))

    def _generators(self, *purpose: str | int) -> list[torch.Generator]:
        return [generator(seed, *purpose) for seed in self.seeds]

    def _readouts(self, members: Sequence[RNN]) -> list[Readout]:
        hidden, actions = members[0].hidden_size, self.pomdp.actions
        draws = self._generators("readout")
        return [Readout(hidden, actions, generator=g, dtype=self.pomdp.dtype) for g in draws]

    def _adam(self, steps: int) -> Adam:
        rates, limit = torch.full((len(self),), self.settings.lr, dtype=torch.float64), self.settings.max_norm
        max_norms = None if limit is None else torch.full_like(rates, limit)
        return Adam(list(self.parameters.values()), rates, steps, max_norms)

    def _keeping(self, steps: int) -> Keeping:
        """The term that keeps attractors, for the histories of the buffers; like the loss a sum over the batch."""
        made = self.settings.keep, self.network.rnn, partial(Histories, self.replay), list(self.parameters.values())
        return Keeping(*made, seeds=self.seeds, steps=steps, weight=WEIGHT * self.settings.batch_size)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that is needed to go on exactly from here, between two episodes: tensors by name, and notes for JSON.

        Training goes on to change these tensors: write them to a file, or copy them.
        """
        tensors = {f"network.{name}": value.detach() for name, value in self.parameters.items()}
        tensors |= {f"target.{name}": value for name, value in self.target.named_parameters()}
        if self.acting is not self.network:
            tensors |= {f"acting.{name}": value for name, value in self.acting.named_parameters()}
        tensors |= {f"replay.{name}": value for name, value in self.replay.tensors().items()}
        for kind, values in (("mean", self.optimiser.means), ("square", self.optimiser.squares)):
            tensors |= {f"adam.{kind}.{name}": value for name, value in zip(self.parameters, values, strict=True)}
        tensors |= {f"keep.{name}": value for name, value in self.keeping.tensors.items()}
        return tensors, {"episode": self.episode, "prepared": self.prepared, **self._identity()}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
        """Go on from a :meth:`state` of agents made with the same arguments."""
        mine, _ = self.state()
        _check_state(mine, tensors, self._identity(), notes)
        self.episode, self.prepared = notes["episode"], notes["prepared"]
        self.optimiser = self._adam(self.episode * self.settings.gradient_steps)
        self.keeping = self._keeping(self.episode * self.settings.gradient_steps)
        self._recorded.clear()  # they step the old optimiser
        for name, value in self.state()[0].items():
            value.copy_(tensors[name])

    def _identity(self) -> dict[str, Any]:
        """What a stored state must agree with, besides the networks."""
        settings = dataclasses.asdict(self.settings)
        return {"seeds": self.seeds, "warm": self.warm, "settings": settings, "horizon": self.pomdp.horizon}


def _rounded(size: int, most: int) -> int:
    """``size`` rounded up to one of few parts of ``most``."""
    part = -(-most // RECORDED_SIZES)
    return min(most, -(-size // part) * part)


def _check_state(
    mine: dict[str, Tensor], tensors: dict[str, Tensor], identity: dict[str, Any], notes: dict[str, Any]
) -> None:
    """Check that a stored state is one of these agents. A setting that the state lacks had its default value."""
    stored = notes | {"settings": dataclasses.asdict(Settings()) | notes.get("settings", {})}
    other = [name for name, value in identity.items() if stored.get(name) != value]
    if other:
        raise ValueError(f"the state is that of agents with other {', '.join(other)}")
    if mine.keys() != tensors.keys() or any(mine[name].shape != tensors[name].shape for name in mine):
        raise ValueError("the state is that of agents with other networks")
