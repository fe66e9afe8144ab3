"""What a claim of the paper is, and how stored results confirm or refute it."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from multistable.experiments.experiment import Result, Spread, grouped
from multistable.experiments.paper.grids import TASKS
from multistable.experiments.pictures import setting
from multistable.experiments.scales import PAPER, Scale
from multistable.tasks import Denoising, Task
from multistable.training import Config

HOLDS, FAILS, UNDECIDED, OPEN = "holds", "does not hold", "undecided", "not enough runs"


class Answer(StrEnum):
    """Whether a comparison came out as claimed."""

    YES = "yes"
    NO = "no"
    EITHER = "cannot be told apart"
    OPEN = "open"


ENOUGH = 3
"""The least number of runs from which a kind of run is judged."""

CLEARLY = 2.0
"""Two means that are fewer standard errors apart than this cannot be told apart.

This is lenient for three to five runs of each kind: by Student's t, equal means are that far apart in 8 to 12 cases of
a hundred.
"""

UNLIKELY = 20.0
"""A mean this many times as high as a limit refutes that it is below the limit, whatever its standard error.

A loss is never negative. By Markov's inequality, the mean of any number of losses is 20 times its expectation in at
most one case of 20. The standard error cannot say so where one network of five fails: the failure raises both.
"""

NEGLIGIBLE = 0.01
"""Below this loss it does not matter that another loss is lower."""


@dataclass(frozen=True)
class Check:
    """One of the comparisons that a claim makes.

    Attributes:
        said: what was compared, with its numbers.
        answer: whether it came out as claimed; open without enough runs.
        cases: the comparisons that were counted, if this check counts cases.
        expected: how many cases there are in all.
    """

    said: str
    answer: Answer
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
        why: what is known of the reason where it does not hold or stays undecided, in Markdown whose links begin in
            ``docs``; empty where nothing is known.
        authors: what the authors' own code gives, where it was measured.
    """

    name: str
    statement: str
    labels: tuple[str, ...]
    judge: Callable[[Sequence[Result]], list[Check]]
    tasks: tuple[Any, ...] = TASKS
    why: str = ""
    authors: str = ""

    def finding(self, results: Sequence[Result]) -> "Finding":
        """The verdict of the results: one clear comparison refutes the claim, all of them together confirm it.

        It is undecided where chance may have decided a comparison, whatever the others without enough runs would say.
        """
        checks = self.judge(results)
        return Finding(self, _verdict(checks), checks)


def _verdict(checks: Sequence[Check]) -> str:
    answers = {check.answer for check in checks}
    if Answer.NO in answers:
        return FAILS
    if answers == {Answer.YES}:
        return HOLDS
    return UNDECIDED if Answer.EITHER in answers else OPEN


@dataclass(frozen=True)
class Count:
    """How many of some comparisons came out as claimed.

    Attributes:
        checks: the comparisons.
        expected: how many cases there are in all; ``None`` if the comparisons are not cases.
    """

    checks: tuple[Check, ...]
    expected: int | None = None

    def of(self, *answers: Answer) -> list[Check]:
        """The comparisons with one of some answers."""
        return [check for check in self.checks if check.answer in answers]

    @property
    def made(self) -> int:
        """How many have enough runs."""
        return len(self.checks) - len(self.of(Answer.OPEN))

    @property
    def planned(self) -> int:
        """How many there are in all."""
        return len(self.checks) if self.expected is None else self.expected

    def __str__(self) -> str:
        what = "" if self.expected is None else " cases"
        no, either = (len(self.of(answer)) for answer in (Answer.NO, Answer.EITHER))
        told = f"{len(self.of(Answer.YES))} of {self.made}{what} as claimed"
        told += f", {no} not" if no else ""
        told += f", {either} cannot be told apart" if either else ""
        return told if self.made == self.planned else f"{told}, of {self.planned} in all"


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
        """The counts in words."""
        return [str(count) for count in self.counts if count.made] or ["none"]

    def reason_at(self, scale: Scale) -> str:
        """Why the claim does not hold or stays undecided, in Markdown; empty for other verdicts.

        Causes are known of runs at the paper's scale alone: elsewhere, and where none is known, the reason is open.
        """
        known = self.claim.why if scale.name == PAPER.name else ""
        return (known or "open") if self.verdict in (FAILS, UNDECIDED) else ""


def without_links(markdown: str) -> str:
    """Markdown as plain text: of each link its words, then its target in ``docs`` in square brackets."""
    return re.sub(r"\[([^\]]*)\]\(([^)]*)\)", r"\1 [docs/\2]", markdown)


def enough(*spreads: Spread | None) -> bool:
    """Whether every spread has enough runs and none that diverged: a mean of the other runs alone would flatter."""
    return all(entry is not None and entry.runs >= ENOUGH and not entry.diverged for entry in spreads)


def judged(said: str, ahead: float | None, error: float = 0.0, beside: str = "apart") -> Check:
    """The answer to a comparison of two numbers.

    Args:
        said: what was compared, with its numbers.
        ahead: by how much they differ in the claimed direction; ``None`` without enough runs.
        error: the standard error of that.
        beside: what follows on how many standard errors that is.
    """
    if ahead is None:
        return Check(f"{said}?", Answer.OPEN)
    apart = abs(ahead) / error if error else math.inf
    answer = Answer.EITHER if apart < CLEARLY else Answer.YES if ahead > 0 else Answer.NO
    told = f"{apart:.1f}" if apart < 10 else f"{apart:.0f}"
    return Check(f"{said}? {told} standard errors {beside}" if error else f"{said}?", answer)


def below(name: str, value: Spread | None, limit: float) -> Check:
    """Whether a mean of numbers that are never negative is below a limit."""
    if value is not None and enough(value) and value.mean >= UNLIKELY * limit:
        return Check(f"{name}: {_said(value)}, below {limit:g}? {value.mean / limit:.0f} times that", Answer.NO)
    return _beside(name, value, "below", limit, -1)


def below_times_one(name: str, value: Spread | None, times: float, results: Sequence[Result]) -> Check:
    """Whether a mean VAA is below ``times`` / n; 1/n is the VAA of one attractor, and the results tell n."""
    n = max((r.config.vaa_batch_size for r in results), default=None)
    return below(name, value, times / n) if n else Check(f"{name}: {_said(value)}, below {times:g}/n?", Answer.OPEN)


def above(name: str, value: Spread | None, limit: float) -> Check:
    """Whether a mean is above a limit."""
    return _beside(name, value, "above", limit, 1)


def _beside(name: str, value: Spread | None, where: str, limit: float, direction: int) -> Check:
    said = f"{name}: {_said(value)}, {where} {limit:g}"
    if value is None or not enough(value):
        return judged(said, None)
    return judged(said, direction * (value.mean - limit), value.error, "from it")


def less(names: tuple[str, str], values: tuple[Spread | None, Spread | None], factor: float = 1.0) -> Check:
    """Whether one mean is less than ``factor`` times another."""
    first, second = values
    times = "" if factor == 1 else f"{factor:g} times "
    said = f"{names[0]} {_said(first)}, less than {times}{names[1]} {_said(second)}"
    if first is None or second is None or not enough(first, second):
        return judged(said, None)
    error = math.hypot(first.error, factor * second.error)
    return judged(said, factor * second.mean - first.mean, error, f"from {times}that mean" if times else "apart")


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
    """Whether more than half of the ``expected`` cases are as claimed; decided once open cases cannot change it.

    Cases that cannot be told apart count for neither side.
    """
    count, half = Count(tuple(cases), expected), expected / 2
    right, wrong = (len(count.of(answer)) for answer in (Answer.YES, Answer.NO))
    missing = expected - count.made
    if right > half:
        answer = Answer.YES
    elif wrong >= half:
        answer = Answer.NO
    else:
        answer = Answer.OPEN if right + missing > half or wrong + missing >= half else Answer.EITHER
    return Check(f"{claimed}: {count}; in more than half?", answer, tuple(cases), expected)


def settings(results: Sequence[Result]) -> list[Task]:
    """The tasks of some results, from the easiest to the hardest."""
    return sorted({r.config.task for r in results}, key=lambda task: (task.length, getattr(task, "N", 0)))


def title(task: Task | type) -> str:
    """A task, or a kind of task, in words: ``denoising, T = 200, N = 5``."""
    kind = task if isinstance(task, type) else type(task)
    words = re.findall(r"[A-Z]{2,}|[A-Z][a-z]*", kind.__name__)
    named = " ".join(word if word.isupper() else word.lower() for word in words)
    return named if isinstance(task, type) else ", ".join(filter(None, (named, setting(task))))


def forgets_long(task: Task) -> bool:
    """Whether a task is denoising with the longer of the paper's two forgetting periods: the shorter is always 5."""
    return isinstance(task, Denoising) and task.N > 5


def covering(
    results: Sequence[Result], expected: int, what: str = "sequence lengths or forgetting periods"
) -> list[Check]:
    """An open check as long as results are missing for some of the ``expected`` settings of a claim."""
    there = len(settings(results))
    return [] if there >= expected else [Check(f"{there} of {expected} {what}", Answer.OPEN)]


def all_of(name: str, each: Iterable[bool | None], what: str) -> Check:
    """Whether every run is as claimed; ``each`` has ``None`` for a run that diverged, which cannot be judged."""
    answers = list(each)
    known = [answer for answer in answers if answer is not None]
    lost = len(answers) - len(known)
    open_ = len(known) < ENOUGH or (lost and all(known))
    answer = Answer.OPEN if open_ else Answer.YES if all(known) else Answer.NO
    return Check(f"{name}: {sum(known)} of {len(answers)} runs {what}{_lost(lost)}", answer)


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
