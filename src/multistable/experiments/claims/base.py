"""What a claim of the paper is, and how stored results confirm or refute it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from multistable.experiments.experiment import Result, Spread, grouped
from multistable.experiments.paper.grids import TASKS
from multistable.experiments.scales import PAPER, Scale
from multistable.tasks import Denoising, Task
from multistable.training import Config

HOLDS, FAILS, OPEN = "holds", "does not hold", "not enough runs"

ENOUGH = 3
"""The least number of runs from which a kind of run is judged."""

CLEARLY = 2.0
"""Two means differ clearly if they are at least this many standard errors apart.

This is lenient for three to five runs of each kind: by Student's t, equal means are that far apart in 8 to 12 cases of
a hundred.
"""

NEGLIGIBLE = 0.01
"""Below this loss it does not matter that another loss is lower."""


@dataclass(frozen=True)
class Check:
    """One of the comparisons that a claim makes.

    Attributes:
        said: what was compared, with its numbers.
        right: whether it came out as claimed; ``None`` without enough runs.
        apart: how many standard errors its two means are apart; ``None`` without two means or without a spread.
        cases: the comparisons that were counted, if this check counts cases.
        expected: how many cases there are in all.
    """

    said: str
    right: bool | None
    apart: float | None = None
    cases: tuple["Check", ...] = ()
    expected: int = 0


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and how results decide whether it holds.

    Attributes:
        name: its number.
        statement: a sentence.
        labels: of the figures, tables and sections of the paper that say so, see ``paper/contents.py``.
        judge: makes the comparisons from whatever results there are.
        tasks: the tasks that it is about, at the paper's scale; runs on other tasks do not count. By default all of
            the paper's.
    """

    name: str
    statement: str
    labels: tuple[str, ...]
    judge: Callable[[Sequence[Result]], list[Check]]
    tasks: tuple[Any, ...] = TASKS

    def finding(self, results: Sequence[Result]) -> "Finding":
        """The verdict of the results: one comparison refutes the claim, all of them together confirm it."""
        checks = self.judge(results)
        if any(check.right is False for check in checks):
            return Finding(self, FAILS, checks)
        enough = bool(checks) and all(check.right for check in checks)
        return Finding(self, HOLDS if enough else OPEN, checks)


@dataclass(frozen=True)
class Count:
    """How many of some comparisons came out as claimed.

    Attributes:
        checks: the comparisons.
        expected: how many cases there are in all; ``None`` if the comparisons are not cases.
    """

    checks: tuple[Check, ...]
    expected: int | None = None

    @property
    def right(self) -> int:
        """How many came out as claimed."""
        return sum(check.right is True for check in self.checks)

    @property
    def wrong(self) -> list[Check]:
        """The comparisons that contradict the claim."""
        return [check for check in self.checks if check.right is False]

    @property
    def decided(self) -> int:
        """How many have enough runs."""
        return self.right + len(self.wrong)

    @property
    def of_all(self) -> str:
        """How many cases there are in all, in words; empty once all are decided."""
        return "" if self.expected in (None, self.decided) else f", of {self.expected}"


@dataclass(frozen=True)
class Finding:
    """The verdict on a claim and the comparisons behind it."""

    claim: Claim
    verdict: str
    checks: list[Check]

    def verdict_at(self, scale: Scale) -> str:
        """The verdict; with the scale, if it is smaller than the paper's and there are enough runs to judge."""
        smaller = scale.name != PAPER.name and self.verdict != OPEN
        return f"{self.verdict}, {scale.name} scale" if smaller else self.verdict

    @property
    def counts(self) -> list[Count]:
        """The count of the single comparisons, if any; then a count for each comparison that counts cases."""
        single = tuple(check for check in self.checks if not check.cases)
        counted = [Count(check.cases, check.expected) for check in self.checks if check.cases]
        return [Count(single), *counted] if single else counted

    @property
    def tally(self) -> list[str]:
        """The counts in words: how many comparisons with enough runs came out as claimed."""
        told = []
        for count in self.counts:
            what = "" if count.expected is None else " cases"
            told += [f"{count.right} of {count.decided}{what} as claimed{count.of_all}"] if count.decided else []
        return told or ["none"]


def enough(*spreads: Spread | None) -> bool:
    """Whether every spread has enough runs and none that diverged: a mean of the other runs alone would flatter."""
    return all(entry is not None and entry.runs >= ENOUGH and not entry.diverged for entry in spreads)


def below(name: str, value: Spread | None, limit: float) -> Check:
    """Whether a mean is below a limit."""
    right = value.mean < limit if value is not None and enough(value) else None
    return Check(f"{name}: {_said(value)}, below {limit:g}?", right)


def below_times_one(name: str, value: Spread | None, times: float, results: Sequence[Result]) -> Check:
    """Whether a mean VAA is below ``times`` / n; 1/n is the VAA of one attractor, and the results tell n."""
    n = max((r.config.vaa_batch_size for r in results), default=None)
    return below(name, value, times / n) if n else Check(f"{name}: {_said(value)}, below {times:g}/n?", None)


def above(name: str, value: Spread | None, limit: float) -> Check:
    """Whether a mean is above a limit."""
    right = value.mean > limit if value is not None and enough(value) else None
    return Check(f"{name}: {_said(value)}, above {limit:g}?", right)


def less(
    names: tuple[str, str], values: tuple[Spread | None, Spread | None], factor: float = 1.0, clearly: bool = False
) -> Check:
    """Whether one mean is less than ``factor`` times another, and how many standard errors they are apart.

    With ``clearly``, they have to be :data:`CLEARLY` standard errors apart.
    """
    first, second = values
    right = apart = None
    if first is not None and second is not None and enough(first, second):
        right = first.mean < factor * second.mean
        error = math.hypot(first.error, factor * second.error)
        apart = abs(first.mean - factor * second.mean) / error if error else None
        right = right and not (clearly and apart is not None and apart < CLEARLY)
    times = "" if factor == 1 else f"{factor:g} times "
    than = f"{'clearly ' if clearly else ''}less than {times}{names[1]}"
    errors = f" {_errors(apart, factor)}" if apart is not None else ""
    return Check(f"{names[0]} {_said(first)}, {than} {_said(second)}?{errors}", right, apart)


def _errors(apart: float, factor: float) -> str:
    return f"{apart:.1f} standard errors " + ("apart" if factor == 1 else f"from {factor:g} times that mean")


def as_low(
    name: str, mine: Spread | None, others: Mapping[str, Spread | None], unlearned: float = math.inf
) -> list[Check]:
    """Whether a mean loss is below :data:`NEGLIGIBLE`, or at most twice as high as each of some others, by name.

    It must be below any other loss above ``unlearned``: no loss is twice that of a network that has not learned.
    """
    if mine is not None and mine.mean < NEGLIGIBLE:
        return [below(f"{name}, test loss", mine, NEGLIGIBLE)]
    return [
        less((name, its), (mine, other), factor=1.0 if other is not None and other.mean > unlearned else 2.0)
        for its, other in others.items()
    ]


def mostly(claimed: str, cases: Sequence[Check], expected: int) -> Check:
    """Whether more than half of the ``expected`` cases are as claimed; decided once open cases cannot change it."""
    right, wrong = ([case for case in cases if case.right is answer] for answer in (True, False))
    half = expected / 2
    verdict = True if len(right) > half else False if len(wrong) >= half else None
    clear = [sum(case.apart is not None and case.apart >= CLEARLY for case in some) for some in (right, wrong)]
    decided = len(right) + len(wrong)
    open_ones = f" so far, of {expected} in all" if decided < expected else ""
    counted = f"{claimed} in {len(right)} of {decided} cases{open_ones}"
    errors = f"by {CLEARLY:g} standard errors or more: so in {clear[0]}, not so in {clear[1]}"
    return Check(f"{counted} ({errors})", verdict, cases=tuple(cases), expected=expected)


def settings(results: Sequence[Result]) -> list[Task]:
    """The tasks of some results, from the easiest to the hardest."""
    return sorted({r.config.task for r in results}, key=lambda task: (task.length, getattr(task, "N", 0)))


def forgets_long(task: Task) -> bool:
    """Whether a task is denoising with the longer of the paper's two forgetting periods: the shorter is always 5."""
    return isinstance(task, Denoising) and task.N > 5


def covering(
    results: Sequence[Result], expected: int, what: str = "sequence lengths or forgetting periods"
) -> list[Check]:
    """An open check as long as results are missing for some of the ``expected`` settings of a claim."""
    there = len(settings(results))
    return [] if there >= expected else [Check(f"{there} of {expected} {what}", None)]


def all_of(name: str, each: Iterable[bool | None], what: str) -> Check:
    """Whether every run is as claimed; ``each`` has ``None`` for a run that diverged, which cannot be judged."""
    answers = list(each)
    known = [answer for answer in answers if answer is not None]
    lost = len(answers) - len(known)
    right = None if len(known) < ENOUGH or (lost and all(known)) else all(known)
    return Check(f"{name}: {sum(known)} of {len(answers)} runs {what}{_lost(lost)}", right)


def by(results: Sequence[Result], key: Callable[[Config], Any], quantity: str) -> dict[Any, Spread | None]:
    """The spread of a quantity over the runs of each kind; ``None`` for a kind without runs."""
    groups = grouped((result for result in results if quantity in result.results), key)
    return _Missing({kind: spread_of_runs(_value(run, quantity) for run in group) for kind, group in groups.items()})


def spread_of_runs(values: Iterable[float | None]) -> Spread | None:
    """The spread over runs; a run that diverged has the value ``None``. ``None`` without any run."""
    every = list(values)
    known = [value for value in every if value is not None]
    spread = Spread.of(known) if known else Spread(math.nan, math.nan, 0)
    return replace(spread, diverged=len(every) - len(known)) if every else None


def diverges(result: Result, quantity: str) -> bool:
    """Whether a quantity that every epoch has is not finite in some epoch."""
    return len(result.curve(quantity)[1]) < len(result.metrics)


def _value(result: Result, quantity: str) -> float | None:
    """A quantity of the summary. An accuracy without a loss does not count: the answers were not finite."""
    lost = quantity == "test_accuracy" and result.results.get("test_loss", 0.0) is None
    return None if lost else result.results[quantity]


class _Missing(dict[Any, Spread | None]):
    def __missing__(self, key: Any) -> None:
        return None


def _said(value: Spread | None) -> str:
    if value is None:
        return "(no run)"
    mean = f"{value} " if value.runs else ""
    return f"{mean}({value.runs} {'run' if value.runs == 1 else 'runs'}{_lost(value.diverged)})"


def _lost(diverged: int) -> str:
    return f", {diverged} diverged" if diverged else ""
