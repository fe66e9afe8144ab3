"""A line that shows where a long call is, and how long it may still take."""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self, TextIO

PAUSE = 10.0
"""Seconds between two lines where a line cannot be written over, as in a notebook or a log."""
PATIENCE = 3.0
"""On a terminal a call that takes longer than so many seconds is shown without being asked."""


class Line:
    """One line that is written over on a terminal; elsewhere a new line every ``PAUSE`` seconds.

    Args:
        name: what is going on.
        out: where to write; ``None`` for nowhere.
        patience: the seconds after which the line is first written.
    """

    def __init__(self, name: str, out: TextIO | None, patience: float = 0.0) -> None:
        self._name, self._out, self._patience = name, out, patience
        self._began = time.monotonic()
        self._due = 0.0
        self._length = 0

    @classmethod
    @contextmanager
    def showing(cls, name: str, progress: bool | None) -> Iterator[Self]:
        """The line of a call, on the standard error.

        Args:
            name: what is going on.
            progress: whether to show it; ``None`` for on a terminal only, once the call has taken a while.
        """
        shown = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress
        line = cls(name, sys.stderr if shown else None, PATIENCE if progress is None else 0.0)
        try:
            yield line
        except KeyboardInterrupt as interrupt:
            line.interrupted(interrupt)
            raise
        finally:
            line.close()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def tell(self, text: str, *, left: float | None = None, always: bool = False, whole: bool = False) -> None:
        """Show the text, the time so far, and the seconds that are ``left`` at most.

        Args:
            text: what to show.
            left: an upper bound of the seconds left; ``None`` where there is none.
            always: also where lines are written now and then.
            whole: also what does not fit a terminal.
        """
        if self._out is None or (self.seconds < self._patience and not self._length):
            return
        text = f"{self._name}: {text}, {duration(self.seconds)}"
        if left is not None:
            text += f", at most {duration(left)} left"
        if self._out.isatty():
            # A line that is wider than the terminal cannot be written over.
            text = text if whole else text[: shutil.get_terminal_size().columns - 1]
            self._out.write(f"\r{text:<{self._length}}")
            self._length = len(text)
        elif always or self.seconds >= self._due:
            self._out.write(f"{text}\n")
            self._due = self.seconds + PAUSE
        self._out.flush()

    def stabilising(self, states: int, done: int, steps: int) -> None:
        """Show that ``done`` of ``steps`` steps of a stabilisation were computed."""
        left = self.seconds * (steps - done) / done if done else None
        self.tell(f"{states:,} states, step {done:,} of {steps:,}", left=left)

    def interrupted(self, interrupt: KeyboardInterrupt) -> None:
        """Nothing has to be said where nothing was changed."""

    def close(self) -> None:
        """End the line, so that what is written next begins a new one."""
        if self._out is not None and self._length:
            self._out.write("\n")


def duration(seconds: float) -> str:
    """So many seconds, in words."""
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"
