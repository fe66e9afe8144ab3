"""Run experiments: what there is to do, how long it may take, and doing it."""

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
        """Why groups could not run until then, as the runner notes it."""
        return getattr(self, "__notes__", [])


@dataclass(frozen=True)
class Plan:
    """What there is to do.

    Attributes:
        groups: runs that go together, finished ones included.
        unfinished: how many runs of each group are not finished.
    """

    groups: list[list[Config]]
    unfinished: list[int]

    @property
    def runs(self) -> int:
        """All runs."""
        return sum(len(group) for group in self.groups)

    @property
    def left(self) -> int:
        """Those that are not finished."""
        return sum(self.unfinished)


def plan(experiments: Sequence[Experiment], scale: Scale, out: Path | str, together: int = 32) -> Plan:
    """The runs of some experiments, each once, and what is left to do of them."""
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
    """Run what is left of a plan.

    A group that cannot run, for want of its data or because another process works on it, does not stop the others.

    Args:
        todo: the plan.
        out: where each run has its folder.
        runner: where the groups are trained, entered already; in this process when not given.
        callbacks: told of what happens.

    Returns:
        Why groups could not run, a message for each.
    """
    left = [part for part, unfinished in zip(todo.groups, todo.unfinished, strict=True) if unfinished]
    return (runner or Local()).run(left, Path(out), callbacks)
