"""Claims of the paper, and how stored results say yes or no to them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from multistable.experiments.experiment import Result, Spread, grouped, spread
from multistable.tasks import Denoising, Task
from multistable.training import Config

HOLDS, FAILS, OPEN = "holds", "does not hold", "not enough runs"

ENOUGH = 3
"""Runs of each kind without which nothing is said of it."""

CLEARLY = 2.0
"""Standard errors: means that are fewer apart may be so by chance."""


@dataclass(frozen=True)
class Check:
    """One comparison that a claim consists of.

    Attributes:
        said: what was compared, with its numbers.
        right: whether it came out as claimed; ``None`` without enough runs.
        apart: how many standard errors two means differ by; ``None`` where there are no two or none has a spread.
    """

    said: str
    right: bool | None
    apart: float | None = None


@dataclass(frozen=True)
class Claim:
    """What the paper says, and how to look whether it is so.

    Attributes:
        name: its number.
        statement: in a sentence.
        section: where the paper says it.
        judge: the comparisons that it consists of, from whatever results there are.
    """

    name: str
    statement: str
    section: str
    judge: Callable[[Sequence[Result]], list[Check]]

    def finding(self, results: Sequence[Result]) -> "Finding":
        """What the results say: it takes one comparison to refute, and all of them to confirm."""
        checks = self.judge(results)
        if any(check.right is False for check in checks):
            return Finding(self, FAILS, checks)
        enough = bool(checks) and all(check.right for check in checks)
        return Finding(self, HOLDS if enough else OPEN, checks)


@dataclass(frozen=True)
class Finding:
    """The verdict on a claim and the comparisons behind it."""

    claim: Claim
    verdict: str
    checks: list[Check]


def enough(*spreads: Spread | None) -> bool:
    """Whether something can be said of all of them."""
    return all(entry is not None and entry.runs >= ENOUGH for entry in spreads)


def below(name: str, value: Spread | None, limit: float) -> Check:
    """A mean is below a limit."""
    right = value.mean < limit if value is not None and enough(value) else None
    return Check(f"{name}: {_said(value)}, below {limit:g}?", right)


def above(name: str, value: Spread | None, limit: float) -> Check:
    """A mean is above a limit."""
    right = value.mean > limit if value is not None and enough(value) else None
    return Check(f"{name}: {_said(value)}, above {limit:g}?", right)


def less(names: tuple[str, str], values: tuple[Spread | None, Spread | None], factor: float = 1.0) -> Check:
    """One mean is less than another, or than ``factor`` times it. Says how many standard errors they are apart."""
    first, second = values
    right = apart = None
    if first is not None and second is not None and enough(first, second):
        right = first.mean < factor * second.mean
        error = math.hypot(first.error, factor * second.error)
        apart = abs(first.mean - factor * second.mean) / error if error else None
    times = "" if factor == 1 else f"{factor:g} times "
    errors = "" if apart is None else f" {apart:.1f} standard errors apart"
    return Check(f"{names[0]} {_said(first)}, less than {times}{names[1]} {_said(second)}?{errors}", right, apart)


def as_low(names: tuple[str, str], values: tuple[Spread | None, Spread | None]) -> Check:
    """A mean loss is as low as another, which is: at most twice as high, or below 0.01."""
    mine = values[0]
    if mine is not None and mine.mean < 0.01:
        return below(f"{names[0]}, test loss", mine, 0.01)
    return less(names, values, factor=2.0)


def settings(results: Sequence[Result]) -> list[Task]:
    """The tasks there are, from the easiest to the hardest."""
    return sorted({r.config.task for r in results}, key=lambda task: (task.length, getattr(task, "N", 0)))


def forgets_long(task: Task) -> bool:
    """Whether a task is denoising with the longer of the paper's two forgetting periods: the shorter is always 5."""
    return isinstance(task, Denoising) and task.N > 5


def covering(results: Sequence[Result], expected: int) -> list[Check]:
    """A claim on several settings needs all of them."""
    there = len(settings(results))
    said = f"{there} of {expected} sequence lengths or forgetting periods"
    return [] if there >= expected else [Check(said, None)]


def all_of(name: str, each: Iterable[bool], what: str) -> Check:
    """Every one of some runs is as claimed."""
    answers = list(each)
    right = all(answers) if len(answers) >= ENOUGH else None
    return Check(f"{name}: {sum(answers)} of {len(answers)} runs {what}", right)


def by(results: Sequence[Result], key: Callable[[Config], Any], quantity: str) -> dict[Any, Spread | None]:
    """The spread of a quantity over the runs of each kind; ``None`` for a kind there is nothing of."""
    return _Missing({kind: spread(group, quantity) for kind, group in grouped(results, key).items()})


class _Missing(dict[Any, Spread | None]):
    def __missing__(self, key: Any) -> None:
        return None


def _said(value: Spread | None) -> str:
    if value is None:
        return "(no run)"
    return f"{value} ({value.runs} {'run' if value.runs == 1 else 'runs'})"
