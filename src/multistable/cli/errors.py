"""Errors and interruptions without a traceback: what was wrong, and what to do."""

import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import typer

FAILED, WRONG_ARGUMENTS, INTERRUPTED = 1, 2, 130
"""Exit codes."""


@contextmanager
def reporting(debug: bool = False, if_interrupted: str = "Interrupted.") -> Iterator[None]:
    """A context that turns errors into a message on stderr and an exit code.

    Errors of the program itself pass through with their traceback.

    Args:
        debug: show the traceback of every error.
        if_interrupted: the message after Ctrl-C or SIGTERM.
    """
    interruptions = _Interruptions()
    try:
        with interruptions:
            yield
    except (KeyboardInterrupt, Exception) as error:
        # An error after an interruption is a consequence of it, for instance an import that was cut off.
        interrupted = interruptions.came or isinstance(error, KeyboardInterrupt)
        told = (INTERRUPTED, if_interrupted) if interrupted else _told(error)
        if told is None:
            raise
        if debug:
            traceback.print_exc()
        code, message = told
        typer.echo(message if interrupted else f"Error: {shown(message)}", err=True)
        raise typer.Exit(code) from None


def _told(error: BaseException) -> tuple[int, str] | None:
    """The exit code and the message of an error that a user can do something about."""
    import torch

    from multistable.experiments.runners.cluster import ClusterError
    from multistable.tasks import MNISTError
    from multistable.training import BusyRunError, DamagedRunError

    match error:
        case ValueError() | TypeError():
            return WRONG_ARGUMENTS, f"{error}\n--help tells what is accepted, --debug shows where this comes from."
        case torch.OutOfMemoryError():
            return FAILED, (
                "the GPU has not enough memory for this. A smaller --together trains fewer runs at once, a smaller "
                "--batch-size takes less for each.\nFinished runs are kept; --debug shows where this comes from."
            )
        case BrokenPipeError():
            return None  # The reader of the output has closed it; typer ends quietly.
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return FAILED, f"{where}{error.strerror or error}"
        case MNISTError() | BusyRunError() | ClusterError() | DamagedRunError() | ModuleNotFoundError():
            return FAILED, str(error)
    return None


def shown(text: str) -> str:
    """A text with control characters written out: it may be from a file, and a terminal would obey them."""
    return "".join(sign if sign.isprintable() or sign == "\n" else repr(sign)[1:-1] for sign in text)


class _Interruptions:
    """A context that treats SIGTERM like Ctrl-C, and remembers that one of them came."""

    def __init__(self) -> None:
        self.came = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, self._interrupt)}
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as it is for commands in the background
                self._handlers[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> NoReturn:
        self.came = True
        raise KeyboardInterrupt
