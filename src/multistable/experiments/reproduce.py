"""Plan the runs of experiments, and run those that are left."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multistable.experiments.experiment import Experiment
from multistable.experiments.runners import Local, Runner
from multistable.experiments.scales import Scale
from multistable.training import Callback, Config, RunFolder
from multistable.training.trainer import groups


class OutOfTimeError(Exception):
    """The minutes that were given are over; everything done so far is kept."""

    @property
    def problems(self) -> list[str]:
        """Why groups could not run until then, from the notes of the runner."""
        return getattr(self, "__notes__", [])


@dataclass(frozen=True)
class Plan:
    """The runs of some experiments, and how many are left.

    Attributes:
        groups: runs that are trained together, finished ones included.
        unfinished: how many runs of each group are not finished.
    """

    groups: list[list[Config]]
    unfinished: list[int]

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return sum(len(group) for group in self.groups)

    @property
    def left(self) -> int:
        """How many runs are not finished."""
        return sum(self.unfinished)


def plan(experiments: Sequence[Experiment], scale: Scale, out: Path | str, together: int = 32) -> Plan:
    """The plan of some experiments; a run that several of them share is in it once."""
    configs = {config.name: config for experiment in experiments for config in experiment.at(scale, out)}
    parts = groups(configs.values(), together)
    return Plan(parts, [sum(not RunFolder.of(config, out).finished for config in part) for part in parts])


class Deadline(Callback):
    """Stops a training at the end of the first epoch after some minutes."""

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + 60 * minutes

    def on_epoch(self, configs: Sequence[Config], metrics: Sequence[dict[str, Any]]) -> None:
        if self._clock() >= self._end:
            raise OutOfTimeError


def reproduce(
    todo: Plan,
    out: Path | str,
    *,
    runner: Runner | None = None,
    callbacks: Sequence[Callback] = (),
) -> list[str]:
    """Run the unfinished groups of a plan.

    A group that cannot run, since its data is missing or another process works on it, does not stop the others.

    Args:
        todo: the plan.
        out: where each run has its folder.
        runner: trains the groups, and has been entered; by default they are trained in this process.
        callbacks: are told of what happens.

    Returns:
        Messages that say why groups could not run.
    """
    left = [part for part, unfinished in zip(todo.groups, todo.unfinished, strict=True) if unfinished]
    return (runner or Local()).run(left, Path(out), callbacks)
