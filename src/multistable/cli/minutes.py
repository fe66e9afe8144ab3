"""``--minutes``: commands that stop by themselves, and go on when they are given again."""

from collections.abc import Callable
from types import TracebackType

import typer

from multistable.experiments.reproduce import Deadline, OutOfTimeError
from multistable.training import Callback


class Limit:
    """A context in which training ends in order when the minutes are over, and says so.

    Args:
        minutes: from now on; no limit when not given.
        left: how many runs are not finished, when it comes to that; not said when not given.

    Attributes:
        callbacks: to train with.
        problems: why some runs could not run until then.
    """

    def __init__(self, minutes: float | None, left: Callable[[], int] | None = None) -> None:
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
