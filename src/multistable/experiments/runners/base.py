"""What a runner is, and how each of them trains a group of runs."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import torch

from multistable.tasks import MNISTError
from multistable.training import BusyRunError, Callback, Config, train

Group = Sequence[Config]
"""Runs that are trained as one ensemble."""


class Runner(Protocol):
    """Trains groups of runs, each run in its own folder. A runner is a context, entered before it runs anything."""

    @property
    def device(self) -> str:
        """The kind of device: ``"cpu"`` or ``"cuda"``."""

    def run(self, groups: Sequence[Group], out: Path, callbacks: Sequence[Callback]) -> list[str]:
        """Train groups; a group that cannot run does not stop the others.

        An exception of a callback stops all groups, each at the end of its epoch; an interruption stops them at once.
        The messages so far become notes of the exception.

        Returns:
            Messages that say why groups could not run, each once.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...


class NoData(str):
    """The message that a group could not run because the data of its task is missing."""


def train_group(
    group: Group, out: Path, device: torch.device | str | None, callbacks: Sequence[Callback]
) -> str | None:
    """Train one group. Returns a message if it could not run: its data is missing or another process works on it."""
    try:
        train(group, out, device=device, callbacks=callbacks, together=len(group))
    except MNISTError as error:
        return NoData(error)
    except BusyRunError as error:
        return str(error)
    return None


@contextlib.contextmanager
def noting(problems: Iterable[str]) -> Iterator[None]:
    """A context that adds notes to an exception: why groups could not run before it."""
    try:
        yield
    except Exception as error:
        for problem in problems:
            error.add_note(problem)
        raise
