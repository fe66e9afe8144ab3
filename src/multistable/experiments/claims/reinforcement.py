"""Claims on agents in the T-Maze (sections 5.3 and 6.2)."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from multistable.experiments.claims.base import (
    Answer,
    Check,
    Claim,
    above,
    covering,
    enough,
    judged,
    less,
    settings,
    title,
)
from multistable.experiments.claims.learning import MONOSTABLE
from multistable.experiments.experiment import Kind, Result, Spread, grouped, kind_of, rank_correlation, spread_of
from multistable.rl import Maze, TMaze

CLASSIC: tuple[Kind, ...] = tuple((cell, "classic") for cell in MONOSTABLE)
WARMED: tuple[Kind, ...] = tuple((cell, "warmup") for cell in MONOSTABLE)
BETTER: tuple[Kind, ...] = (*WARMED, ("brc", "classic"), ("nbrc", "classic"))
LENGTHS = 3
CORRELATED = 0.5
"""From this rank correlation on, two curves rise together."""
WITHOUT_MEMORY = (TMaze.treasure + TMaze.penalty) / 2
"""The highest mean return of both layouts without memory: that of always turning to the same side at the end."""


def in_mazes(results: Sequence[Result]) -> list[Result]:
    """The agents in T-Mazes that learn as the paper's do."""
    return [r for r in results if isinstance(r.config.task, Maze) and r.config.algorithm == "drqn"]


@dataclass(frozen=True)
class Learning:
    """How an agent's VAA goes with what it has learned.

    Attributes:
        before: its mean VAA until the first evaluation whose return takes memory.
        after: its mean VAA from then on.
        correlation: the rank correlation of VAA with the best return so far, over all measures of VAA.
    """

    before: float
    after: float
    correlation: float


def learning(agent: Result) -> Learning | None:
    """How VAA goes with what an agent has learned; ``None`` if it never learns, or without VAA before or after.

    The best return so far is what it has learned: the return itself falls by tens whenever the greedy policy runs into
    a wall until the episode is truncated, which has nothing to do with memory.
    """
    episodes, returns = agent.curve("return")
    best = dict(zip(episodes, accumulate(returns, max), strict=True))
    learned = next((episode for episode, value in best.items() if value > WITHOUT_MEMORY + 1e-6), math.inf)
    vaa = {episode: value for episode, value in zip(*agent.curve("vaa"), strict=True) if episode in best}
    before = [value for episode, value in vaa.items() if episode < learned]
    after = [value for episode, value in vaa.items() if episode >= learned]
    if not before or not after:
        return None
    correlation = rank_correlation([best[episode] for episode in vaa], list(vaa.values()))
    return Learning(statistics.fmean(before), statistics.fmean(after), correlation)


def return_and_vaa(results: Sequence[Result]) -> list[Check]:
    """C7: VAA before and after an agent learns to remember, for classic GRUs in the longest maze."""
    chosen = [r for r in in_mazes(results) if kind_of(r.config) == ("gru", "classic")]
    checks = []
    for task in settings(chosen)[-1:]:
        courses = [course for r in chosen if r.config.task == task and (course := learning(r)) is not None]
        before, after, correlation = (
            spread_of(getattr(course, name) for course in courses) for name in ("before", "after", "correlation")
        )
        names = (
            f"{title(task)}, gru, VAA until the first return above {WITHOUT_MEMORY:g}, which takes memory,",
            "from then on",
        )
        together = f"{title(task)}, gru, rank correlation of VAA and the best return so far"
        checks += [less(names, (before, after)), above(together, correlation, CORRELATED)]
    return checks


@dataclass(frozen=True)
class Quality:
    """What makes agents better than others.

    Attributes:
        name: in words.
        of: its value for an agent.
        direction: 1 if more is better, -1 if less is.
    """

    name: str
    of: Callable[[Result], float]
    direction: int


def until_optimal(agent: Result) -> float:
    """The episodes until the policy was first optimal; all episodes if it never was, as in the paper's figure."""
    first = agent.results["first_optimal"]
    return agent.config.episodes if first is None else first


def stays_optimal(agent: Result) -> float:
    """The share of optimal policies among the evaluations after the first optimal one; 0 without any of these."""
    first = agent.results["first_optimal"]
    later = [] if first is None else [value for at, value in zip(*agent.curve("optimal"), strict=True) if at > first]
    return statistics.fmean(later) if later else 0.0


QUALITIES = (
    Quality("episodes until optimal", until_optimal, -1),
    Quality("share of later evaluations that are optimal", stays_optimal, 1),
)


def warmed_up_agents(results: Sequence[Result]) -> list[Check]:
    """C12: which agents are optimal first and stay so, in each maze, and how much warmup gains in longer ones.

    That warmed-up agents are optimal before any classic one in the longest maze is among these comparisons.
    """
    chosen = in_mazes(results)
    checks = covering(chosen, LENGTHS, "lengths of the maze")
    for quality in QUALITIES:
        gains = []
        for task in settings(chosen):
            kinds = grouped([r for r in chosen if r.config.task == task], kind_of)
            values = {kind: spread_of(map(quality.of, kinds.get(kind, ()))) for kind in (*CLASSIC, *BETTER)}
            for worse in CLASSIC:
                for better in BETTER:
                    lower, higher = (worse, better)[:: quality.direction]
                    names = f"{title(task)}, {quality.name} of {_said(lower, kinds)}", _said(higher, kinds)
                    checks.append(less(names, (values[lower], values[higher])))
            gains.append(_gain(values, quality.direction))
        if len(gains) >= LENGTHS:  # with fewer, the longest maze so far may not be the paper's longest
            checks.append(_growing(quality.name, gains[0], gains[-1]))
    return checks


def _gain(values: dict[Kind, Spread | None], direction: int) -> tuple[float, float] | None:
    """The mean gain of the cells by warmup, and its standard error; ``None`` without enough runs."""
    gains, errors = [], []
    for warmed, classic in zip(WARMED, CLASSIC, strict=True):
        mine, other = values[warmed], values[classic]
        if mine is None or other is None or not enough(mine, other):
            return None
        gains.append(direction * (mine.mean - other.mean))
        errors += [mine.error, other.error]
    return statistics.fmean(gains), math.hypot(*errors) / len(gains)


def _growing(name: str, shortest: tuple[float, float] | None, longest: tuple[float, float] | None) -> Check:
    said = f"gain by warmup in {name}, from the shortest to the longest maze"
    if shortest is None or longest is None:
        return Check(f"{said}: not enough runs", Answer.OPEN)
    error = math.hypot(shortest[1], longest[1])
    return judged(f"{said}: {shortest[0]:.3g} to {longest[0]:.3g}, more", longest[0] - shortest[0], error)


def _said(kind: Kind, agents: dict[Kind, list[Result]]) -> str:
    """Cell and version, and how many of the agents ever were optimal."""
    cell, version = kind
    there = agents.get(kind, [])
    reached = sum(agent.results["first_optimal"] is not None for agent in there)
    named = f"{cell} warmed up" if version == "warmup" else f"{cell} {version}"
    return named if reached == len(there) else f"{named} ({reached} of {len(there)} ever optimal)"


CLAIMS = (
    Claim("C7", "T-Maze, L = 200, GRU: return and VAA rise together", ("fig:tmaze200_gru",), return_and_vaa),
    Claim(
        "C12",
        "T-Maze: warmed-up cells, BRC and NBRC beat classic ones, the more so the longer the maze; in the longest, all "
        "warmed-up cells are optimal before any classic one",
        ("fig:tmaze_warmup",),
        warmed_up_agents,
        why=(
            "Open for MGUs, which a warmup slows down, and for the short maze, where classic GRUs are seen to"
            " stay optimal more often than warmed-up ones. No agent stays optimal in the maze of length 100 "
            "([T-Maze](results/tmaze.md))."
        ),
    ),
)
