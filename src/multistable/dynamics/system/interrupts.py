"""Keyboard interrupts of a call: the first ends it, and no other breaks in while things are put back."""

import signal
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LONGEST_WAIT = 10.0
"""Seconds after which an interrupt is no longer held back: then something else must have caught the first one."""


_present: ContextVar["_Interrupts | None"] = ContextVar("interrupts", default=None)


def interrupted_once(function: Callable[P, R]) -> Callable[P, R]:
    """Let the first keyboard interrupt end a call at once, and hold back those after it until the call has ended."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        interrupts = _Interrupts()
        token = _present.set(interrupts)
        try:
            interrupts.install()
            return function(*args, **kwargs)
        finally:
            interrupts.ended = True
            _present.reset(token)
            interrupts.remove()

    return call


def hold_back() -> None:
    """Hold back interrupts from here to the end of the call that is :func:`interrupted_once`.

    To be called where something begins to be put back, inside the contexts that do so: one that is interrupted before
    its first line puts nothing back.
    """
    interrupts = _present.get()
    if interrupts is not None:
        interrupts.ended = True


class _Interrupts:
    """The handler of interrupts during a call, installed only where there are any."""

    def __init__(self) -> None:
        self.ended = False
        self._first: float | None = None
        self._waits = False
        self._before: Any = None

    def install(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        if callable(before) and threading.current_thread() is threading.main_thread():
            self._before = before
            signal.signal(signal.SIGINT, self._handle)

    def remove(self) -> None:
        """Put back the handler of before. It gets an interrupt that came too late to end the call."""
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._before)
        if self._waits:
            signal.raise_signal(signal.SIGINT)

    def _handle(self, number: int, frame: Any) -> None:
        if self.ended or (self._first is not None and time.monotonic() - self._first < LONGEST_WAIT):
            self._waits = self._first is None
            return
        self._first = time.monotonic()
        self._before(number, frame)
        self._first = None  # a handler of the user's, which raised nothing
