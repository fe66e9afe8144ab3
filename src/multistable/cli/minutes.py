"""The option ``--minutes``: a command stops by itself, and goes on when it is given again."""

from collections.abc import Callable
from types import TracebackType

import typer

from multistable.experiments.reproduce import Deadline, OutOfTimeError
from multistable.training import Callback


class Limit:
    """A context that stops training in order when the minutes are over, and says so.

    Args:
        minutes: how long training may take from now on; no limit when not given.
        left: counts the unfinished runs, for the message; the message has no count when not given.

    Attributes:
        callbacks: those that training needs for the limit.
        problems: why some runs could not run before the minutes were over.
    """

    def __init__(self, minutes: float | None, left: Callable[[], int] | None = None) -> None:
        if minutes is not None and not minutes >= 0:
            raise ValueError(f"--minutes must be 0 or more, got {minutes}")
        self.callbacks: list[Callback] = [] if minutes is None else [Deadline(minutes)]
        self.problems: list[str] = []
        self._minutes, self._left = minutes, left

    def __enter__(self) -> "Limit":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, OutOfTimeError):
            return False
        left = self._left() if self._left is not None else None
        runs = "" if left is None else f", {left} {'run is' if left == 1 else 'runs are'} left"
        over = "minute is over" if self._minutes == 1 else "minutes are over"
        typer.echo(f"The {self._minutes:g} {over}{runs}: the same command goes on from there.")
        self.problems = error.problems
        return True
