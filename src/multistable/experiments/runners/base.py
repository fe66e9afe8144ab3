"""What the runners have in common."""

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
    """Trains groups of runs, each run in its own folder. It is entered before it runs anything."""

    @property
    def device(self) -> str:
        """The kind of device: ``"cpu"`` or ``"cuda"``."""

    def run(self, groups: Sequence[Group], out: Path, callbacks: Sequence[Callback]) -> list[str]:
        """Train groups; one that cannot run does not stop the others.

        An exception of a callback stops all of them, each at the end of its epoch; an interruption stops them at once.
        The exception has the messages so far as its notes.

        Returns:
            Why groups could not run, each message once.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...


class NoData(str):
    """Why a group could not run: the data of its task is not to be had."""


def train_group(
    group: Group, out: Path, device: torch.device | str | None, callbacks: Sequence[Callback]
) -> str | None:
    """Train one group. Returns why it could not run, for want of its data or because another process works on it."""
    try:
        train(group, out, device=device, callbacks=callbacks, together=len(group))
    except MNISTError as error:
        return NoData(error)
    except BusyRunError as error:
        return str(error)
    return None


@contextlib.contextmanager
def noting(problems: Iterable[str]) -> Iterator[None]:
    """A context that adds to an exception why groups could not run before it."""
    try:
        yield
    except Exception as error:
        for problem in problems:
            error.add_note(problem)
        raise
