"""A line that shows the progress of a warmup."""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from multistable.dynamics.warmup.history import WarmupHistory, WarmupStep

PAUSE = 10.0
"""Seconds between two lines where a line cannot be written over, as in a notebook or a log."""


class Line:
    """One line that is written over on a terminal; elsewhere a new line every ``PAUSE`` seconds.

    Args:
        most: the steps that the warmup may take.
        out: where to write; ``None`` for nowhere.
    """

    def __init__(self, most: int, out: TextIO | None) -> None:
        self._most, self._out = most, out
        self._began = time.monotonic()
        self._due = 0.0
        self._length = 0

    def step(self, step: WarmupStep) -> None:
        """Show a step that was taken and its VAA*, of several layers or members the lowest and the highest."""
        if self._out is None:
            return
        low, high = (f"{value:.2f}" for value in step.vaa_star.aminmax())
        self._tell(f"{self._at(step.step)}, VAA* {low if low == high else f'{low} to {high}'}")

    def measuring(self, step: int, states: int, steps: int) -> None:
        """Show that the true VAA is about to be measured, which may take longer than all gradient steps before."""
        self._tell(f"{self._at(step)}, measuring VAA of {states} states over {steps:,} steps", always=True)

    def ended(self, history: WarmupHistory) -> None:
        """Show how the warmup ended."""
        self._tell(repr(history), always=True, whole=True)

    def close(self) -> None:
        """End the line, so that what is written next begins a new one."""
        if self._out is not None and self._length:
            self._out.write("\n")

    def _at(self, step: int) -> str:
        return f"warmup: step {step} of at most {self._most}"

    def _tell(self, text: str, always: bool = False, whole: bool = False) -> None:
        if self._out is None:
            return
        seconds = time.monotonic() - self._began
        text = f"{text}, {seconds:.0f} s"
        if self._out.isatty():
            # A line that is wider than the terminal cannot be written over.
            text = text if whole else text[: shutil.get_terminal_size().columns - 1]
            self._out.write(f"\r{text:<{self._length}}")
            self._length = len(text)
        elif always or seconds >= self._due:
            self._out.write(f"{text}\n")
            self._due = seconds + PAUSE
        self._out.flush()


@contextmanager
def showing(history: WarmupHistory, most: int, progress: bool) -> Iterator[Line]:
    """The line of a warmup of at most ``most`` steps, on the standard error or nowhere; it ends with the outcome."""
    line = Line(most, sys.stderr if progress else None)
    try:
        yield line
        line.ended(history)
    finally:
        line.close()
