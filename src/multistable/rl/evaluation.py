"""How good and how multistable agents are while they learn."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import count, positive_integer
from multistable.dynamics.measure import DivergedError, measure
from multistable.rl.drqn import DRQN
from multistable.rl.play import Chance, Player
from multistable.rl.ppo import PPO
from multistable.rl.tmaze import Policy
from multistable.training.adam import warn_of_passed_over
from multistable.training.seeds import generator

Agents = DRQN | PPO

STARTS = 10
"""The number of episodes of an evaluation, if there are too many initial states to play all of them."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of the greedy policies of all agents; each list has one entry for each agent.

    Attributes:
        episode: how many episodes of training came before.
        returns: the mean non-discounted return.
        discounted: the mean discounted return.
        lengths: the mean length of an episode.
        optimal: whether the policy is optimal; ``None`` for processes that do not say.
        passed_over: how many gradients since the last evaluation were not finite, and passed over.
        vaa: the VAA of the network; ``None`` where it was not measured, or where states do not stay finite.
    """

    episode: int
    returns: list[float]
    discounted: list[float]
    lengths: list[float]
    optimal: list[bool] | None
    passed_over: list[int]
    vaa: list[float | None] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The evaluation as JSON has it."""
        return asdict(self)


class Evaluator:
    """Plays the greedy policies of agents. This has no influence on their training.

    It warns of agents that have had gradients that were not finite since the last evaluation.

    Args:
        agents: the agents.
        names: what warnings call them; their number and seed by default.
        starts: how many episodes each agent plays, always the same ones, where the process has no list of initial
            states.
    """

    def __init__(self, agents: Agents, *, names: Sequence[str] | None = None, starts: int = STARTS) -> None:
        self.agents = agents
        self._names = [f"agent {n} (seed {s})" for n, s in enumerate(agents.seeds)] if names is None else names
        given = agents.pomdp.starts
        self._starts = torch.stack(
            [
                torch.tensor(given, dtype=torch.float64)
                if given
                else torch.rand(positive_integer("starts", starts), generator=g, dtype=torch.float64)
                for g in (generator(seed, "evaluation") for seed in agents.seeds)
            ]
        )
        copies = self._starts.shape[1]
        self._player = Player(agents.acting, len(agents), agents.pomdp, copies, **agents.settings.inputs)

    def evaluate(self, *, vaa: bool = False, warn: bool = True, **measure_options: Any) -> Evaluation:
        """Play; with ``vaa`` also measure the networks on their histories (Algorithm 1).

        Args:
            warn: of gradients that were passed over; otherwise :meth:`warn` does it later.
            measure_options: those of :func:`multistable.measure`.
        """
        pomdp, player = self.agents.pomdp, self._player
        never = torch.zeros(pomdp.horizon, *self._starts.shape, dtype=torch.long)
        player.play(Chance(self._starts, never.bool(), never))
        returns = player.rewards.sum(dim=0)
        weights = pomdp.discount ** torch.arange(pomdp.horizon, device=returns.device, dtype=returns.dtype)
        discounted = (player.rewards * weights.view(-1, 1, 1)).sum(dim=0)
        optimal = pomdp.optimal(returns, player.lengths)
        passed_over = self.agents.optimiser.passed_over()
        if warn:
            self.warn(passed_over)
        return Evaluation(
            self.agents.episode,
            returns.double().mean(dim=-1).tolist(),
            discounted.double().mean(dim=-1).tolist(),
            player.lengths.double().mean(dim=-1).tolist(),
            None if optimal is None else optimal.tolist(),
            passed_over,
            network_vaa(self.agents, **measure_options) if vaa else None,
        )

    def warn(self, passed_over: Sequence[int]) -> None:
        """Warn of the agents that passed gradients over, as :class:`Evaluation` tells of them."""
        limit = "a limit to the norm of gradients, max_norm," if self.agents.settings.max_norm is None else "max_norm"
        warn_of_passed_over(self._names, passed_over, f"A smaller learning rate or {limit} may help")


def network_vaa(agents: Agents, **options: Any) -> list[float | None]:
    """The VAA of each agent's network for its histories; ``None`` where states become infinite.

    They are those of the replay buffer of a DRQN, and new episodes of a PPO.

    Args:
        options: those of :func:`multistable.measure`.
    """

    def vaa(index: int, member: nn.Module) -> float | None:
        draws = generator(agents.seeds[index], "measure")
        try:
            return measure(member, agents.histories(index), generator=draws, **({"progress": False} | options)).vaa
        except DivergedError:
            return None

    return [vaa(index, member) for index, member in enumerate(agents.members())]


def watch(
    agents: Agents,
    episodes: int,
    *,
    evaluate_every: int = 20,
    measure_every: int | None = None,
    on_evaluation: Callable[[Evaluation], None] | None = None,
    **measure_options: Any,
) -> Iterator[Evaluation]:
    """Train until ``episodes`` episodes have been played. Evaluate before the first one, and then every few episodes.

    Args:
        evaluate_every: episodes between two evaluations; for a PPO a multiple of the ``copies`` of its settings.
        measure_every: episodes between two measures of VAA, a multiple of ``evaluate_every``; none by default.
        on_evaluation: called with each evaluation before it is yielded.
        measure_options: those of :func:`multistable.measure`.
    """
    episodes, evaluate_every = count("episodes", episodes), positive_integer("evaluate_every", evaluate_every)
    measure_every = None if measure_every is None else positive_integer("measure_every", measure_every)
    if evaluate_every % agents.at_once:
        raise ValueError(f"evaluate_every must be a multiple of copies = {agents.at_once}, got {evaluate_every}")
    if measure_every is not None and measure_every % evaluate_every:
        raise ValueError(f"measure_every must be a multiple of evaluate_every = {evaluate_every}, got {measure_every}")
    evaluator = Evaluator(agents)

    def evaluation() -> Evaluation:
        due = measure_every is not None and agents.episode % measure_every == 0
        result = evaluator.evaluate(vaa=due, **measure_options)
        if on_evaluation is not None:
            on_evaluation(result)
        return result

    agents.prepare()
    if agents.episode == 0:
        yield evaluation()
    for _ in agents.train(episodes):
        if agents.episode % evaluate_every == 0 or agents.episode >= episodes:
            yield evaluation()


def first_optimal(evaluations: Sequence[Evaluation]) -> list[int | None]:
    """The number of episodes after which each agent was first seen to be optimal; ``None`` where it never was."""
    found: list[int | None] = [None] * len(evaluations[0].returns) if evaluations else []
    for evaluation in evaluations:
        for index, optimal in enumerate(evaluation.optimal or ()):
            if optimal and found[index] is None:
                found[index] = evaluation.episode
    return found


def greedy_policy(agents: DRQN, index: int) -> Policy:
    """The greedy policy of one agent as a function, for instance for ``TMaze.is_optimal``."""
    if agents.settings.reward_input:
        raise ValueError("agents whose input has the reward have no policy of observations alone")
    network, pomdp = agents.acting, agents.pomdp
    one_hot = torch.eye(max(pomdp.actions, pomdp.observation_size), device=pomdp.device, dtype=pomdp.dtype)

    @torch.no_grad()
    def policy(observations: Tensor, memory: Any) -> tuple[Tensor, Any]:
        if observations.dim() != 1 or observations.is_floating_point():
            raise TypeError(
                "a policy takes observations as indices, a tensor (n,) of integers, not as vectors, "
                f"got {tuple(observations.shape)} of {observations.dtype}"
            )
        seen = one_hot[observations, : pomdp.observation_size]
        previous = torch.zeros(len(seen), pomdp.actions, device=pomdp.device, dtype=pomdp.dtype)
        state = None
        if memory is not None:
            state, previous = memory[0], one_hot[memory[1], : pomdp.actions]
        x = torch.cat([previous, seen], dim=-1).expand(len(agents), -1, -1)
        values, state = network(x, state)
        action = values[index].argmax(dim=-1)
        return action, (state, action)

    return policy
