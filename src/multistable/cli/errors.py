"""Errors and interruptions as a user should see them: what was wrong and what to do, without a traceback."""

import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, NoReturn

import typer

FAILED, WRONG_ARGUMENTS, INTERRUPTED = 1, 2, 130
"""Exit codes."""

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel="Output")]


@contextmanager
def reporting(debug: bool = False, if_interrupted: str = "Interrupted.") -> Iterator[None]:
    """Turn what goes wrong inside into a message on stderr and an exit code.

    Errors that are nobody's fault but the program's pass through with their traceback.

    Args:
        debug: show the traceback of every error.
        if_interrupted: said after Ctrl-C or SIGTERM.
    """
    try:
        with _terminated_as_interrupted():
            yield
    except KeyboardInterrupt:
        typer.echo(if_interrupted, err=True)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise  # Whoever reads the output has closed it; typer ends quietly.
    except Exception as error:
        told = _told(error)
        if told is None:
            raise
        if debug:
            traceback.print_exc()
        code, message = told
        typer.echo(f"Error: {message}", err=True)
        raise typer.Exit(code) from None


def _told(error: Exception) -> tuple[int, str] | None:
    """The exit code and the message of an error that a user can do something about."""
    import torch

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
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return FAILED, f"{where}{error.strerror or error}"
        case MNISTError() | BusyRunError() | DamagedRunError() | ModuleNotFoundError():
            return FAILED, str(error)
    return None


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM as if it were Ctrl-C: what is running ends in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
