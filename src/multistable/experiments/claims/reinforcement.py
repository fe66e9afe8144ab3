"""Claims on agents in the T-Maze (sections 5.3 and 6.2)."""

import statistics
from collections.abc import Sequence

from multistable.experiments.claims.base import ENOUGH, Check, Claim, above, covering, enough, less, settings
from multistable.experiments.claims.learning import MONOSTABLE
from multistable.experiments.experiment import Kind, Result, Spread, grouped, kind_of, rank_correlation, spread_of
from multistable.rl import Maze
from multistable.tasks import Task

CLASSIC: tuple[Kind, ...] = tuple((cell, "classic") for cell in MONOSTABLE)
WARMED: tuple[Kind, ...] = tuple((cell, "warmup") for cell in MONOSTABLE)
BETTER: tuple[Kind, ...] = (*WARMED, ("brc", "classic"), ("nbrc", "classic"))
LENGTHS = 3
CORRELATED = 0.5
"""From this rank correlation on, two curves rise together."""


def in_mazes(results: Sequence[Result]) -> list[Result]:
    """The agents in T-Mazes."""
    return [r for r in results if isinstance(r.config.task, Maze)]


def correlation(result: Result) -> float | None:
    """The rank correlation of return and VAA over the training; ``None`` where the return never changes."""
    vaa = dict(zip(*result.curve("vaa"), strict=True))
    returns = dict(zip(*result.curve("return"), strict=True))
    both = [episode for episode in vaa if episode in returns]
    x, y = ([curve[episode] for episode in both] for curve in (returns, vaa))
    return rank_correlation(x, y) if len(set(x)) > 1 else None


def return_and_vaa(results: Sequence[Result]) -> list[Check]:
    """C7: the correlation of return and VAA, for classic GRUs in the longest maze."""
    chosen = [r for r in in_mazes(results) if kind_of(r.config) == ("gru", "classic")]
    return [
        above(
            f"{task}, gru, rank correlation of return and VAA during training",
            spread_of(correlation(r) for r in chosen if r.config.task == task),
            CORRELATED,
        )
        for task in settings(chosen)[-1:]
    ]


def mean_return(result: Result) -> float | None:
    """The mean return over all evaluations during training: the higher, the sooner the agent plays well."""
    values = [value for episode, value in zip(*result.curve("return"), strict=True) if episode > 0]
    return statistics.fmean(values) if values else None


def warmed_up_agents(results: Sequence[Result]) -> list[Check]:
    """C12: mean returns, how their gain by warmup grows with the maze, and who is optimal first in the longest."""
    chosen = in_mazes(results)
    checks, advantages = covering(chosen, LENGTHS, "lengths of the maze"), []
    for task in settings(chosen):
        kinds = grouped([r for r in chosen if r.config.task == task], kind_of)
        returns = {kind: spread_of(map(mean_return, kinds.get(kind, ()))) for kind in (*CLASSIC, *BETTER)}
        for worse in CLASSIC:
            for better in BETTER:
                names = f"{task}, mean return of {_said(worse)}", _said(better)
                checks.append(less(names, (returns[worse], returns[better])))
        advantages.append(_advantage(returns))
    if len(advantages) >= LENGTHS:  # with fewer, the longest maze so far may not be the paper's longest
        checks += [_growing(advantages), *_earlier_in_the_longest(chosen)]
    return checks


def _advantage(returns: dict[Kind, Spread | None]) -> float | None:
    """How much warmup raises the mean return, as a mean over the cells; ``None`` without enough runs."""
    gains = []
    for warmed, classic in zip(WARMED, CLASSIC, strict=True):
        high, low = returns[warmed], returns[classic]
        if high is None or low is None or not enough(high, low):
            return None
        gains.append(high.mean - low.mean)
    return statistics.fmean(gains)


def _growing(advantages: Sequence[float | None]) -> Check:
    shortest, longest = advantages[0], advantages[-1]
    said = " to ".join("(not enough runs)" if gain is None else f"{gain:.3g}" for gain in (shortest, longest))
    right = None if shortest is None or longest is None else longest > shortest
    return Check(f"gain in mean return by warmup, from the shortest to the longest maze: {said}, more?", right)


def _earlier_in_the_longest(chosen: Sequence[Result]) -> list[Check]:
    """In the longest maze every warmed-up cell is optimal before any classic one, in the mean over agents."""
    task = settings(chosen)[-1]
    kinds = grouped([r for r in chosen if r.config.task == task], kind_of)
    return [_earlier(task, kinds, warmed, classic) for warmed in WARMED for classic in CLASSIC]


def _earlier(task: Task, kinds: dict[Kind, list[Result]], one: Kind, other: Kind) -> Check:
    """Whether one kind of agents is optimal before another; a kind whose agents never are cannot be the first."""
    mine, others = kinds.get(one, []), kinds.get(other, [])
    right = None
    if min(len(mine), len(others)) >= ENOUGH:
        right = _episodes_until_optimal(mine) < _episodes_until_optimal(others)
    return Check(f"{task}, {_when_optimal(one, mine)}, before {_when_optimal(other, others)}?", right)


def _episodes_until_optimal(agents: Sequence[Result]) -> float:
    """The mean over agents; an agent that never was optimal counts with all its episodes, as in the figure."""
    first = [(agent.results["first_optimal"], agent.config.episodes) for agent in agents]
    return statistics.fmean(every if reached is None else reached for reached, every in first)


def _when_optimal(kind: Kind, agents: Sequence[Result]) -> str:
    if not agents:
        return f"{_said(kind)} (no run)"
    reached = sum(agent.results["first_optimal"] is not None for agent in agents)
    bound = "" if reached == len(agents) else "at least "
    mean = f"after {bound}{_episodes_until_optimal(agents):.0f} episodes"
    return f"{_said(kind)} optimal {mean} ({reached} of {len(agents)} agents)"


def _said(kind: Kind) -> str:
    cell, version = kind
    return f"{cell} warmed up" if version == "warmup" else f"{cell} {version}"


CLAIMS = (
    Claim("C7", "T-Maze, L = 200, GRU: return and VAA rise together", ("fig:tmaze200_gru",), return_and_vaa),
    Claim(
        "C12",
        "T-Maze: warmed-up cells, BRC and NBRC beat classic ones, the more so the longer the maze; in the longest, all "
        "warmed-up cells are optimal before any classic one",
        ("fig:tmaze_warmup",),
        warmed_up_agents,
    ),
)
