"""Progress of training: bars with the time left on a terminal, plain lines elsewhere."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from multistable.cli.console import console, table
from multistable.cli.results import mean
from multistable.dynamics.warmup import WarmupStep
from multistable.training import Callback, Config, RunConfig

Configs = Sequence[Config]
Metrics = Sequence[dict[str, Any]]

REPORTED_WARMUP_STEPS = 4
"""How many lines a log has on one warmup."""


@contextmanager
def progress(configs: Iterable[Config]) -> Iterator[Callback]:
    """A callback that shows the progress of these runs: bars on a terminal, lines elsewhere."""
    pace, here = Pace(configs), console()
    if here.file.isatty() and os.environ.get("TERM") != "dumb":
        with Bars(pace, here) as bars:
            yield bars
    else:
        yield Lines(pace)


@dataclass
class Work:
    """A part of the work of all runs: how much there is, and how much is done."""

    total: float
    done: float = 0.0
    done_here: float = 0.0  # by this process
    seconds: float = 0.0  # that this process took

    def add(self, amount: float, seconds: float) -> None:
        """Count what this process has done."""
        self.done += amount
        self.done_here += amount
        self.seconds += seconds

    @property
    def left(self) -> float | None:
        """Seconds that the rest takes at the pace so far; ``None`` before there is a pace."""
        if self.done_here == 0:
            return None
        return max(0.0, self.total - self.done) * self.seconds / self.done_here


class Pace(Callback):
    """How much of the training of some runs is done, and how long the rest may take.

    The preparation of runs, warmup included, has a pace of its own.
    """

    def __init__(self, configs: Iterable[Config], clock: Callable[[], float] = time.monotonic) -> None:
        runs = list(configs)
        self.beginnings = Work(total=len(runs))
        self.epochs = Work(total=sum(config.duration for config in runs))
        self._clock = clock
        self._start = self._mark = clock()
        self._part = 0.0  # since the last recorded epoch or episode
        self._steps = 1
        self._recorded: dict[str, int] = {}  # by the first of the runs that are trained together

    def on_start(self, configs: Configs, epoch: int, steps: int) -> None:
        self._mark, self._part, self._steps = self._clock(), 0.0, steps
        before = self._recorded.get(configs[0].name)
        self._recorded[configs[0].name] = epoch
        if before is not None:  # Their worker was lost, and all that it did after this epoch.
            self.epochs.done += (epoch - before) * len(configs)
        elif epoch:
            self.beginnings.done += len(configs)
            self.epochs.done += epoch * len(configs)

    def on_step(self, configs: Configs, epoch: int, step: int) -> None:
        since = epoch - 1 - self._recorded.get(configs[0].name, epoch - 1)
        self._part = len(configs) * (since + step / self._steps)

    def on_epoch(self, configs: Configs, metrics: Metrics) -> None:
        now, reached = self._clock(), number_of(configs, metrics)
        seconds, since = now - self._mark, reached - self._recorded.get(configs[0].name, 0)
        if reached:
            self.epochs.add(len(configs) * since, seconds)
        else:
            self.beginnings.add(len(configs), seconds)
        self._recorded[configs[0].name] = reached
        self._mark, self._part = now, 0.0

    @property
    def done(self) -> float:
        """The share of the training that is done."""
        return (self.epochs.done + self._part) / max(self.epochs.total, 1)

    @property
    def elapsed(self) -> float:
        """Seconds since this object was made."""
        return self._clock() - self._start

    @property
    def left(self) -> float | None:
        """Seconds that the rest may take; ``None`` before the first gradient step."""
        epochs = replace(self.epochs)
        if self._part:
            epochs.add(self._part, self._clock() - self._mark)
        return None if epochs.left is None else epochs.left + (self.beginnings.left or 0.0)

    @property
    def times(self) -> str:
        """The time taken and the time left in words."""
        left = "time left not known yet" if self.left is None else f"{duration(self.left)} left"
        return f"{duration(self.elapsed)}, {left}"


class Lines(Callback):
    """Writes a line for each epoch of the runs that are trained together."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def on_start(self, configs: Configs, epoch: int, steps: int) -> None:
        self.pace.on_start(configs, epoch, steps)
        unit = configs[0].unit
        after = f", after {unit} {epoch}" if epoch else ""
        much = f"{steps} gradient steps an epoch" if unit == "epoch" else f"{configs[0].duration} {unit}s"
        self._say(f"{names(configs)}: {much}{after}")

    def on_warmup_step(self, configs: Configs, step: WarmupStep) -> None:
        if step.step % -(-configs[0].most_warmup_steps // REPORTED_WARMUP_STEPS) == 0:
            self._say(f"{names(configs)}: {warmup_state(configs, step)}")

    def on_step(self, configs: Configs, epoch: int, step: int) -> None:
        self.pace.on_step(configs, epoch, step)

    def on_epoch(self, configs: Configs, metrics: Metrics) -> None:
        self.pace.on_epoch(configs, metrics)
        epoch = told(configs[0], number_of(configs, metrics))
        self._say(f"{names(configs)}: {epoch}: {in_words(configs, metrics)}")

    def on_end(self, configs: Configs, summaries: Metrics) -> None:
        self._say(f"{names(configs)}: finished: {in_words(configs, [entry['results'] for entry in summaries])}")

    def _say(self, what: str) -> None:
        typer.echo(f"[{self.pace.times}] {what}")


class Bars(Callback):
    """Draws bars and the latest numbers a few times a second.

    The callbacks only store numbers: a gradient step must not wait for the terminal.
    """

    def __init__(self, pace: Pace, where: Console) -> None:
        self.pace = pace
        self._configs: Configs = []
        self._metrics: Metrics = []
        self._steps, self._epoch, self._step = 1, 0, 0
        self._warmup: WarmupStep | None = None
        self._live = Live(console=where, get_renderable=self.render, transient=True)

    def __enter__(self) -> "Bars":
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def on_start(self, configs: Configs, epoch: int, steps: int) -> None:
        self.pace.on_start(configs, epoch, steps)
        self._metrics, self._warmup = [], None
        self._configs, self._steps, self._epoch, self._step = configs, steps, epoch, 0

    def on_warmup_step(self, configs: Configs, step: WarmupStep) -> None:
        self._warmup = step

    def on_step(self, configs: Configs, epoch: int, step: int) -> None:
        self.pace.on_step(configs, epoch, step)
        if configs is not self._configs and configs != self._configs:
            # This group is trained at the same time as the one before, on another machine.
            self._configs, self._metrics, self._warmup = configs, [], None
        self._epoch, self._step = epoch, step

    def on_epoch(self, configs: Configs, metrics: Metrics) -> None:
        self.pace.on_epoch(configs, metrics)
        self._configs, self._metrics, self._warmup = configs, metrics, None
        self._epoch, self._step = number_of(configs, metrics) + 1, 0

    def on_end(self, configs: Configs, summaries: Metrics) -> None:
        last = in_words(configs, [entry["results"] for entry in summaries])
        self._live.console.print(f"{names(configs)}: {last}")

    def render(self) -> RenderableType:
        """What the terminal shows now."""
        bars = Table.grid(padding=(0, 1))
        bars.add_row("all runs", _bar(1, self.pace.done), self.pace.times)
        if not self._configs:
            return Group(bars, "preparing the data")
        epochs = self._configs[0].duration
        if self._warmup is not None:
            total = self._configs[0].most_warmup_steps
            bars.add_row("warmup", _bar(total, self._warmup.step), warmup_state(self._configs, self._warmup))
        elif 0 < self._epoch <= epochs:
            bars.add_row(told(self._configs[0], self._epoch), *self._within())
        return Group(bars, names(self._configs), *([self._latest()] if self._metrics else []))

    def _within(self) -> tuple[ProgressBar, str]:
        """A bar for the present epoch; for agents, whose episodes are short, one for all episodes."""
        if self._configs[0].unit != "epoch":
            return _bar(self._configs[0].duration, self._epoch), ""
        now = f"step {self._step}/{self._steps}" if self._step < self._steps else "validation and VAA"
        return _bar(self._steps, self._step), now

    def _latest(self) -> Table:
        usual = USUAL[self._configs[0].unit]
        shown = {name: title for name, title in COLUMNS.items() if name in usual or name in self._metrics[0]}
        latest = table("", *shown.values(), numbers=True)
        for label, rows in by_kind(self._configs, self._metrics).items():
            latest.add_row(label, *(mean([row.get(name) for row in rows], short) for name in shown))
        return latest


COLUMNS = {"training_loss": "training loss", "validation_loss": "validation loss"}
COLUMNS |= {"reconstruction_loss": "reconstruction loss", "return": "return", "optimal": "optimal", "vaa": "VAA"}
"""The columns of the latest numbers, of an epoch or an evaluation."""

USUAL = {"epoch": ("training_loss", "validation_loss", "vaa"), "episode": ("return", "optimal", "vaa")}
"""The quantities that every run of a unit has, though not at every epoch."""

SAID = {"validation_loss": "validation loss", "test_loss": "test loss", "test_accuracy": "accuracy"}
SAID |= {"validation_accuracy": "accuracy", "reconstruction_loss": "reconstruction loss"}
SAID |= {"return": "return", "final_return": "return", "optimal": "optimal", "vaa": "VAA", "final_vaa": "VAA"}
"""The quantities in a line of a log, of an epoch or of the results."""


def number_of(configs: Configs, metrics: Metrics) -> int:
    """The epoch or episode that metrics are of."""
    return metrics[0][configs[0].unit]


def told(config: Config, epoch: int) -> str:
    """The epoch or episode, and how many there are."""
    phase = " (pretraining)" if isinstance(config, RunConfig) and 0 < epoch <= config.pretraining else ""
    return f"{config.unit} {epoch}/{config.duration}{phase}"


def names(configs: Configs) -> str:
    """The runs that are trained together, in words."""
    versions = ", ".join(dict.fromkeys(config.version for config in configs))
    return f"{configs[0].cell} {versions} ({len(configs)} {'run' if len(configs) == 1 else 'runs'})"


def by_kind(configs: Configs, metrics: Metrics) -> dict[str, list[dict[str, Any]]]:
    """The metrics of the runs of each version."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for config, row in zip(configs, metrics, strict=True):
        kinds.setdefault(config.version, []).append(row)
    return kinds


def in_words(configs: Configs, metrics: Metrics) -> str:
    """The means over the runs of each version."""
    kinds = []
    for kind, rows in by_kind(configs, metrics).items():
        present = [name for name in SAID if any(row.get(name) is not None for row in rows)]
        said = [f"{SAID[name]} {mean([row.get(name) for row in rows], short)}" for name in present]
        kinds.append(f"{kind} {', '.join(said) or 'diverged'}")
    return "; ".join(kinds)


def warmup_state(configs: Configs, step: WarmupStep) -> str:
    """The step of a warmup and its VAA*."""
    # The values are on the CPU already: nothing waits for the device here.
    return f"warmup step {step.step}/{configs[0].most_warmup_steps}, VAA* {step.vaa_star.mean():.3f}"


def short(value: float) -> str:
    """A number with three digits."""
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Seconds as ``h:mm:ss``."""
    return str(timedelta(seconds=round(seconds)))


def _bar(total: float, done: float) -> ProgressBar:
    return ProgressBar(total=total, completed=done, width=40)
