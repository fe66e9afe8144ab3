"""What an experiment is: which runs, what is drawn of them, and which of the paper's claims it bears on."""

import importlib
import pkgutil
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from multistable.experiments.scales import Scale
from multistable.training import Config, DamagedRunError, RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        config: its configuration.
        metrics: what was recorded at each epoch or evaluation.
        results: the summary's results.
        record: the summary's record of how the run came about.
        warmup: the course of its warmup, if it had one.
    """

    config: Any
    metrics: list[dict[str, Any]]
    results: dict[str, Any]
    record: dict[str, Any]
    warmup: dict[str, Any] | None = None

    @classmethod
    def of(cls, folder: RunFolder) -> "Result":
        """The result in the folder of a finished run; an error if its last epochs or episodes are missing."""
        summary, config = folder.summary(), folder.config()
        metrics = folder.metrics(config.unit)
        last = metrics[-1][config.unit] if metrics else None
        if last is None or last < config.duration:
            ends = "has no line" if last is None else f"ends with {config.unit} {last} of {config.duration}"
            raise DamagedRunError(f"{folder.path / 'metrics.jsonl'} {ends}. Delete {folder.path} to run it again")
        return cls(config, metrics, summary["results"], summary["record"], folder.warmup())

    def curve(self, quantity: str) -> tuple[list[int], list[float]]:
        """The epochs or episodes at which a quantity was recorded, and its values."""
        rows = [row for row in self.metrics if row.get(quantity) is not None]
        return [row[self.config.unit] for row in rows], [row[quantity] for row in rows]

    def first_epoch(self, learned: Callable[[float], bool]) -> int | None:
        """The first epoch after which the validation loss is one of a network that has ``learned``, if there is one."""
        epochs, losses = self.curve("validation_loss")
        return next((epoch for epoch, loss in zip(epochs, losses, strict=True) if learned(loss)), None)


Kind = tuple[str, str]
"""Cell and version."""


def kind_of(config: Config) -> Kind:
    """The cell and the version of a run."""
    return config.cell, config.version


def cell_of(config: Config) -> str:
    """The cell of a run."""
    return config.cell


def task_of(config: Config) -> Any:
    """The task of a run."""
    return config.task


Source = Path | str | Mapping[str, Result]
"""Where results are: a folder with the folders of runs, or a mapping from the names of runs."""


def results_of(configs: Iterable[Config], source: Source) -> dict[str, Result]:
    """The results of the finished ones of some runs, by the names of the runs."""
    names = {config.name: config for config in configs}
    if isinstance(source, Mapping):
        return {name: source[name] for name in names if name in source}
    folders = {name: RunFolder.of(config, source) for name, config in names.items()}
    return {name: Result.of(folder) for name, folder in folders.items() if folder.finished}


def finished(configs: Iterable[Config], source: Source) -> list[Result]:
    """The results of the finished ones of some runs."""
    return list(results_of(configs, source).values())


class Picture(Protocol):
    """One figure of an experiment."""

    @property
    def name(self) -> str:
        """The name of its files, unique within the experiment."""

    @property
    def caption(self) -> str:
        """What the figure shows."""

    def draw(self, results: Sequence[Result]) -> "Figure":
        """The figure of some results."""

    def table(self, results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
        """Its numbers: a header and rows."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """Figures and tables of the paper that are made from the same runs.

    Attributes:
        name: its name on the command line.
        order: its place in the paper's order.
        labels: of the paper's figures and tables, see ``paper/contents.py``; none for a question of our own.
        title: in a few words.
        runs: the paper's runs, without seeds.
        pictures: what is drawn.
        claims: the names of the claims it bears on.
        then: makes the runs that follow from the results of ``runs`` at a scale; by default there are none.
        sized: makes of a scale that of this experiment, with other sizes or seeds; by default it stays as it is.
    """

    name: str
    order: int
    labels: tuple[str, ...]
    title: str
    runs: tuple[Config, ...]
    pictures: tuple[Picture, ...]
    claims: tuple[str, ...]
    then: Callable[[Sequence[Result], Scale], Sequence[Config]] | None = None
    sized: Callable[[Scale], Scale] = lambda scale: scale

    def at(self, scale: Scale, source: Source | None = None) -> list[Config]:
        """The runs at a scale, each once, and the runs that follow from them once all of them have results."""
        first = list(_planned(self, scale))
        if self.then is None or source is None:
            return first
        there = results_of(first, source)
        if len(there) < len(first):
            return first
        # The runs that follow have the settings that were asked for: stored results may be of another precision.
        results = [replace(there[config.name], config=config) for config in first]
        return [*first, *filter(scale.wants, self.then(results, scale))]


def declared_in(package: str, path: Iterable[str]) -> dict[str, Experiment]:
    """The ``EXPERIMENTS`` of the modules of a package by name, in their order.

    Args:
        package: its name.
        path: where its modules are, its ``__path__``.
    """
    modules = [importlib.import_module(f"{package}.{found.name}") for found in pkgutil.iter_modules(path)]
    found = [experiment for module in modules for experiment in getattr(module, "EXPERIMENTS", ())]
    return {experiment.name: experiment for experiment in sorted(found, key=lambda experiment: experiment.order)}


@lru_cache
def _planned(experiment: Experiment, scale: Scale) -> tuple[Config, ...]:
    """The runs at a scale, kept in memory: there are thousands, and the verdict on every claim asks for them."""
    return tuple({config.name: config for config in experiment.sized(scale).of(experiment.runs)}.values())


def grouped(results: Iterable[Result], key: Callable[[Config], Any]) -> dict[Any, list[Result]]:
    """Results by what ``key`` says of their configurations; those with ``None`` are left out."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        value = key(result.config)
        if value is not None:
            groups.setdefault(value, []).append(result)
    return groups


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over ``runs`` runs; ``diverged`` other runs have no finite value."""

    mean: float
    deviation: float
    runs: int
    diverged: int = 0

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The spread of one value or more. The deviation is that of a sample, 0 for one value."""
        known = list(values)
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0, len(known))

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.deviation / self.runs**0.5

    def __str__(self) -> str:
        return f"{_plain(self.mean, 3)} ± {_plain(self.deviation, 2)}"


def _plain(value: float, digits: int) -> str:
    """A number with some significant digits; from a hundred on all of those before the point, without an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """The spread of the values that are not ``None``; ``None`` without any."""
    known = [value for value in values if value is not None]
    return Spread.of(known) if known else None


def spread(results: Iterable[Result], quantity: str) -> Spread | None:
    """The spread of a quantity of the summaries; ``None`` if no run has it."""
    return spread_of(result.results.get(quantity) for result in results)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rank correlation: equal values share the mean of their ranks; 0 where one side never changes."""
    ranks = [_ranks(values) for values in (x, y)]
    return float(np.corrcoef(ranks)[0, 1]) if all(side.std() for side in ranks) else 0.0


def _ranks(values: Sequence[float]) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    return (array[:, None] > array).sum(axis=1) + (array[:, None] == array).sum(axis=1) / 2
