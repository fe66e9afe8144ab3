"""Proximal policy optimisation (Schulman et al., 2017) with recurrent networks, of several agents at once.

Before each update an agent plays some whole episodes. It learns from whole episodes too, each read from its first step
on by the weights of the moment. So no state is ever one of former weights, and before the first gradient step the
probabilities that are computed are those that the episodes were played with.

What the article leaves open: the value is a second readout of the same network, its loss is not clipped, advantages are
normalised over all steps of an update, and the readout of the policy begins near zero, which makes all actions alike.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from multistable.arguments import count, positive_integer, share, truth_value
from multistable.dynamics.prepare import Preparation, prepare
from multistable.dynamics.warmup import WarmupHistory, warmup
from multistable.networks import RNN, Ensemble
from multistable.rl.actor_critic import ActorCritic, Sampler
from multistable.rl.checks import check_agents, flags_of, seeds_of
from multistable.rl.pomdp import POMDP, input_size
from multistable.setting import check_settings, documented, optional, positive_number, setting, unchanged
from multistable.training.adam import Adam
from multistable.training.model import Readout
from multistable.training.seeds import generator

# A warmup reads so many episodes of each agent, and a measure so many: those of as many rounds as that takes.
WARMUP_EPISODES, MEASURED_EPISODES = 256, 64


@documented
@dataclass(frozen=True)
class PPOSettings:
    """The parameters of the algorithm; the process adds its horizon and discount."""

    copies: int = setting(64, "Episodes that an agent plays before each update.", positive_integer)
    passes: int = setting(4, "Passes over these episodes.", positive_integer)
    minibatches: int = setting(4, "Parts that a pass divides them into, a gradient step each.", positive_integer)
    clip: float = setting(0.2, "How far from 1 the ratio of probabilities still counts (epsilon).", positive_number)
    trace: float = setting(0.95, "The decay of advantages (lambda).", unchanged(share))
    value_weight: float = setting(0.5, "Weight of the loss of the value.", positive_number)
    entropy_weight: float = setting(0.01, "Weight of the entropy of the policy.", unchanged(share))
    lr: float = setting(1e-3, "The learning rate of Adam.", positive_number)
    max_norm: float | None = setting(
        0.5, "The largest norm of an agent's gradient; None for no limit.", optional(positive_number)
    )
    action_input: bool = setting(True, "Whether a_{t-1} is among the inputs (a_{t-1}, o_t).", truth_value)
    reward_input: bool = setting(False, "Add the previous reward to the inputs.", truth_value)

    @property
    def inputs(self) -> dict[str, bool]:
        """What is read beside the observation, as :func:`input_size` and players take it."""
        return {"action_input": self.action_input, "reward_input": self.reward_input}

    def rounds(self, least: int) -> int:
        """How often ``copies`` episodes are played to have at least so many."""
        return -(-least // self.copies)

    @property
    def histories(self) -> dict[str, int]:
        """How many histories there are to choose a batch from, by the names of the batches in runs."""
        least = {"vaa_batch_size": MEASURED_EPISODES, "warmup_batch_size": WARMUP_EPISODES}
        return {name: self.rounds(episodes) * self.copies for name, episodes in least.items()}

    def __post_init__(self) -> None:
        check_settings(self)
        if self.copies % self.minibatches:
            raise ValueError(f"copies must be a multiple of minibatches = {self.minibatches}, got {self.copies}")


class Update(NamedTuple):
    """The outcome of an update of each of R agents; the tensors are on the agents' device."""

    episode: int
    """How many episodes each agent has played."""
    returns: Tensor
    """The mean non-discounted return of the episodes of this update, ``(R,)``."""
    lengths: Tensor
    """Their mean length, ``(R,)``."""
    loss: Tensor
    """The mean loss of the gradient steps, ``(R,)``."""
    entropy: Tensor
    """The mean entropy of the policy in them, ``(R,)``."""


class Batch(NamedTuple):
    """Whole episodes, n of each of R agents, padded to T steps."""

    inputs: Tensor
    """``(T, R, n, features)``"""
    actions: Tensor
    """``(T, R, n)``, and so are all below."""
    log_probabilities: Tensor
    """Of these actions when they were taken."""
    advantages: Tensor
    returns: Tensor
    """What the value should be."""
    valid: Tensor
    """Whether the episode was under way."""


class PPO:
    """R agents that play and learn together, each exactly as if alone.

    All that is random in an agent follows from its own seed, and so does not depend on the agents beside it.

    Args:
        pomdp: the process to play, many copies of it for each agent.
        networks: the recurrent part of each agent, ``ms.RNN`` with :func:`input_size` inputs in a list or an
            ``ms.Ensemble``; or that of one agent, any module called as ``(input, state) -> (output, state)``. Copied.
        seeds: one for each agent.
        warm: which agents are warmed up before they learn; one value for all, or one for each.
        settings: the parameters of the algorithm.
    """

    def __init__(
        self,
        pomdp: POMDP,
        networks: Sequence[RNN] | nn.Module,
        *,
        seeds: Sequence[int],
        warm: bool | Sequence[bool] = False,
        settings: PPOSettings | None = None,
    ) -> None:
        self.pomdp, self.settings, self.seeds = pomdp, settings or PPOSettings(), seeds_of(seeds)
        rnn = copy.deepcopy(networks) if isinstance(networks, nn.Module) else Ensemble(networks)
        agents = len(rnn) if isinstance(rnn, Ensemble) else 1
        self.warm = [warm] * agents if isinstance(warm, bool) else flags_of(warm)
        check_agents(rnn.network if isinstance(rnn, Ensemble) else rnn, agents, self)
        self.network = self.acting = ActorCritic(rnn, self._readouts(rnn))
        self.player = Sampler(self.network, agents, pomdp, self.settings.copies, **self.settings.inputs)
        self.parameters = {name: p for name, p in self.network.named_parameters() if p.requires_grad}
        self.optimiser = self._adam(0)
        self.episode = 0
        self.prepared = False
        self.warmups: list[WarmupHistory | None] = [None] * agents
        self._histories: tuple[int, list[list[Tensor]]] | None = None
        self._read: list[list[Tensor]] = []

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def at_once(self) -> int:
        """Episodes of an agent between two moments at which it can be looked at."""
        return self.settings.copies

    def train(self, episodes: int) -> Iterator[Update]:
        """Train until each agent has played ``episodes`` episodes, or a few more, from where training stopped before.

        Each time the iterator is asked for the next item, ``copies`` episodes are played and learnt from.
        """
        count("episodes", episodes)
        self.prepare()
        while self.episode < episodes:
            yield self.update()

    def prepare(self) -> None:
        """Warm up the agents that ask for it, unless this has been done; it comes before the first episode."""
        if not self.prepared:
            self.warm_up()
            self.prepared = True

    def warm_up(self, **options: Any) -> None:
        """Warm up the agents that ask for it, each on episodes of its own.

        Args:
            options: those of :func:`multistable.warmup`.
        """
        if any(self.warm):
            self.fill()
        for index, warm in enumerate(self.warm):
            if warm:
                self.warm_up_agent(index, **options)
        self._read.clear()

    def fill(self) -> None:
        """Play the episodes that warmups read, with the policies of the moment."""
        self._read = self._histories_of(WARMUP_EPISODES, "warmup episodes")

    def warm_up_agent(self, index: int, **options: Any) -> WarmupHistory:
        """Warm up the network of one agent on the episodes that :meth:`fill` has played.

        Args:
            index: of the agent.
            options: those of :func:`multistable.warmup`.
        """
        self.warmups[index] = history = self._changed(index, warmup, options)
        return history

    def prepare_agent(self, index: int, **options: Any) -> Preparation:
        """Prepare the network of one agent on these episodes; options are those of ``ms.prepare``."""
        return self._changed(index, prepare, options)

    def _changed(self, index: int, change: Callable[..., Any], options: dict[str, Any]) -> Any:
        if not self._read:
            self.fill()
        rnn: Any = self.network.rnn
        (member,) = rnn.select([index]).unstack() if self._stacked else (rnn,)
        result = change(member, self._read[index], generator=generator(self.seeds[index], "warmup"), **options)
        if self._stacked:
            rnn.replace([index], Ensemble([member]))
        self._histories = None  # they were those of other weights
        return result

    def looks_on(self) -> None:
        """``None``: there is no term that keeps attractors."""

    def histories(self, index: int) -> list[Tensor]:
        """The inputs of new episodes of an agent with its present policy, each ``(time, features)``."""
        if self._histories is None or self._histories[0] != self.episode:
            self._histories = self.episode, self._histories_of(MEASURED_EPISODES, "histories", self.episode)
        return self._histories[1][index]

    def members(self) -> list[nn.Module]:
        """The recurrent part of each agent as it is now, copied."""
        rnn = self.network.rnn
        return [*rnn.unstack()] if isinstance(rnn, Ensemble) else [copy.deepcopy(rnn)]

    def play(self, *purpose: str | int) -> None:
        """Play ``copies`` episodes of each agent. What is random in them follows from its seed and ``purpose``."""
        H, n = self.pomdp.horizon, self.settings.copies
        draws = [torch.rand(1 + H, n, generator=generator(seed, *purpose), dtype=torch.float64) for seed in self.seeds]
        start, actions = torch.stack(draws, dim=1).split([1, H])
        self.player.sample(start[0], actions)

    def update(self) -> Update:
        """Play and learn: one update of each agent."""
        self._read.clear()
        self.play("episodes", self.episode)
        batch, passes = self.batch(), range(self.settings.passes)
        told = [self.descend(self.losses(part)) for number in passes for part in self._parts(batch, number)]
        self.episode += self.settings.copies
        returns, lengths = self.player.rewards.sum(dim=0).mean(dim=-1), self.player.lengths.to(self.pomdp.dtype)
        loss, entropy = torch.stack(told).mean(dim=0)
        return Update(self.episode, returns, lengths.mean(dim=-1), loss, entropy)

    @torch.no_grad()
    def batch(self) -> Batch:
        """The episodes just played, with their advantages under the present weights."""
        player, settings = self.player, self.settings
        T = int(player.lengths.max())
        inputs, actions, rewards = player.inputs[: T + 1], player.actions[:T], player.rewards[:T]
        log_probabilities, values = self.network.sequences(inputs)
        discounts = self.pomdp.discount, settings.trace
        found = advantages(rewards, values, player.lengths, player.terminated, *discounts)
        valid = torch.arange(T, device=values.device).view(-1, 1, 1) < player.lengths
        taken = log_probabilities[:T].gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        return Batch(inputs[:T], actions, taken, normalised(found, valid), found + values[:T], valid)

    def losses(self, batch: Batch) -> Tensor:
        """The loss of each agent, and the entropy of its policy: ``(2, R)``."""
        log_probabilities, values = self.network.sequences(batch.inputs)
        taken = log_probabilities.gather(-1, batch.actions.unsqueeze(-1)).squeeze(-1)
        policy = clipped_loss(taken, batch.log_probabilities, batch.advantages, self.settings.clip)
        value = 0.5 * (values - batch.returns).square()
        entropy = -(log_probabilities.exp() * log_probabilities).sum(dim=-1)
        loss = policy + self.settings.value_weight * value - self.settings.entropy_weight * entropy
        return torch.stack([mean_where(term, batch.valid) for term in (loss, entropy)])

    def descend(self, told: Tensor) -> Tensor:
        """One step of Adam for each agent on its own entry of the losses ``told[0] (R,)``."""
        gradients = torch.autograd.grad(told[0].sum(), list(self.parameters.values()))
        self.optimiser.step([self._by_agent(g, name) for name, g in zip(self.parameters, gradients, strict=True)])
        return told.detach()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that is needed to go on exactly from here, between two updates: tensors by name, and notes for JSON.

        Training goes on to change these tensors: write them to a file, or copy them.
        """
        tensors = {f"network.{name}": value.detach() for name, value in self.parameters.items()}
        for kind, values in (("mean", self.optimiser.means), ("square", self.optimiser.squares)):
            tensors |= {f"adam.{kind}.{name}": value for name, value in zip(self.parameters, values, strict=True)}
        return tensors, {"episode": self.episode, "prepared": self.prepared, **self._identity()}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
        """Go on from a :meth:`state` of agents made with the same arguments."""
        mine, _ = self.state()
        other = [name for name, value in self._identity().items() if notes.get(name) != value]
        if other or {n: t.shape for n, t in mine.items()} != {n: t.shape for n, t in tensors.items()}:
            raise ValueError(f"the state is that of agents with other {', '.join(other) or 'networks'}")
        self.episode, self.prepared = notes["episode"], notes["prepared"]
        updates = self.episode // self.settings.copies
        self.optimiser = self._adam(updates * self.settings.passes * self.settings.minibatches)
        self._histories = None  # they were those of other weights
        for name, value in self.state()[0].items():
            value.copy_(tensors[name])

    def _identity(self) -> dict[str, Any]:
        """What a stored state must agree with, besides the networks."""
        settings = dataclasses.asdict(self.settings)
        return {"seeds": self.seeds, "warm": self.warm, "settings": settings, "horizon": self.pomdp.horizon}

    @property
    def _stacked(self) -> bool:
        return isinstance(self.network.rnn, Ensemble)

    def _histories_of(self, least: int, *purpose: str | int) -> list[list[Tensor]]:
        """The inputs of at least so many episodes of each agent, played for this purpose."""
        played: list[list[Tensor]] = [[] for _ in self.seeds]
        for number in range(self.settings.rounds(least)):
            self.play(*purpose, number)
            lengths, inputs = self.player.lengths.tolist(), self.player.inputs
            for index, own in enumerate(lengths):
                played[index] += [inputs[:length, index, episode].clone() for episode, length in enumerate(own)]
        return played

    def _parts(self, batch: Batch, number: int) -> Iterator[Batch]:
        """The minibatches of a pass, each with its own episodes of each agent."""
        n, draws = self.settings.copies, [generator(seed, "order", self.episode, number) for seed in self.seeds]
        orders = torch.stack([torch.randperm(n, generator=draw) for draw in draws])
        agents = torch.arange(len(self)).unsqueeze(-1).to(batch.valid.device)
        for chosen in orders.to(agents.device).chunk(self.settings.minibatches, dim=1):
            yield Batch(*(field[:, agents, chosen] for field in batch))

    def _readouts(self, rnn: nn.Module) -> list[Readout]:
        with torch.no_grad():
            like = next(rnn.parameters())
            one = like.new_zeros(1, 1, input_size(self.pomdp, **self.settings.inputs))
            hidden = rnn(one)[0].shape[-1]
        outputs, dtype = self.pomdp.actions + 1, self.pomdp.dtype
        return [Readout(hidden, outputs, generator=generator(seed, "readout"), dtype=dtype) for seed in self.seeds]

    def _adam(self, steps: int) -> Adam:
        full, limit = torch.full((len(self),), 1.0, dtype=torch.float64), self.settings.max_norm
        parameters = [self._by_agent(p.detach(), name) for name, p in self.parameters.items()]
        return Adam(parameters, self.settings.lr * full, steps, None if limit is None else limit * full)

    def _by_agent(self, tensor: Tensor, name: str) -> Tensor:
        """A parameter or its gradient as ``(R, ...)``, without a copy."""
        return tensor if self._stacked or name.startswith("readout.") else tensor.unsqueeze(0)


def advantages(
    rewards: Tensor, values: Tensor, lengths: Tensor, terminated: Tensor, discount: float, trace: float
) -> Tensor:
    """Generalised advantage estimates (Schulman et al., 2016), 0 beyond the end of an episode.

    Args:
        rewards: ``(T, ...)``.
        values: of the states before each step and after the last, ``(T + 1, ...)``.
        lengths: of the episodes, ``(...)``.
        terminated: whether they ended in a terminal state, whose value is 0, ``(...)``.
        discount: gamma.
        trace: lambda.
    """
    times = torch.arange(len(rewards), device=rewards.device).view(-1, *[1] * lengths.dim())
    after = values[1:].masked_fill((times == lengths - 1) & terminated, 0)
    sums = (rewards + discount * after - values[:-1]).masked_fill(times >= lengths, 0)
    # A_t = delta_t + (gamma lambda) A_{t+1}: after each turn a sum reaches twice as far.
    reach, decay = 1, discount * trace
    while reach < len(sums):
        sums = sums + decay**reach * torch.nn.functional.pad(sums[reach:], (0, 0) * lengths.dim() + (0, reach))
        reach *= 2
    return sums


def normalised(values: Tensor, valid: Tensor) -> Tensor:
    """``values (T, R, n)`` less the mean of each agent's valid ones, divided by their standard deviation."""
    mean = mean_where(values, valid).unsqueeze(-1)
    spread = mean_where((values - mean).square(), valid).sqrt().unsqueeze(-1)
    return (values - mean) / (spread + 1e-8)


def clipped_loss(now: Tensor, before: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """The clipped objective with its sign changed, of each step; ``now`` and ``before`` are log-probabilities."""
    ratio = (now - before).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def mean_where(values: Tensor, valid: Tensor) -> Tensor:
    """The mean of the valid ``values (T, R, n)`` of each agent, ``(R,)``."""
    return (values * valid).sum(dim=(0, 2)) / valid.sum(dim=(0, 2))
