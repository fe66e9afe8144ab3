"""The base of configurations of all kinds of runs: the network, its warmup, its measure, and a name."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from multistable.arguments import count, positive_integer, truth_value
from multistable.cells import CELLS
from multistable.dynamics.prepare.methods import OTHERS, check_fits
from multistable.dynamics.system.contexts import ieee_float32, tf32
from multistable.dynamics.warmup.goal import Goal
from multistable.dynamics.warmup.run_warmup import DEFAULT_STEPS, FINAL_BATCH_SIZE
from multistable.networks.cell_specs import JOINED, check_options, halves
from multistable.networks.rnn import RNN
from multistable.registry import Registry
from multistable.setting import (
    MEASURE,
    NETWORK,
    TRAINING,
    about,
    check_settings,
    declared,
    default_of,
    documented,
    one_of,
    optional,
    positive_number,
    setting,
    unchanged,
)
from multistable.tasks import make_task, settings_of

DTYPES = ("float32", "float64")
# Not "tf32x3": in it, products that need a gradient are float32, so it would be another name for "ieee".
PRECISIONS = {"ieee": ieee_float32, "tf32": tf32}


@dataclass(frozen=True)
class Version:
    """How the network of a cell is built and prepared (sections 6.2 and 6.3, appendix H)."""

    double: bool
    warmed: bool
    about: str
    auxiliary: bool = False


def warmed(run: "Config") -> bool:
    """Whether the network of a run is prepared: some settings matter to such runs alone."""
    return run.kind.warmed


def by_warmup(run: "Config") -> bool:
    """Whether it is prepared by a warmup."""
    return run.kind.warmed and run.warmup_algorithm in DEFAULT_STEPS


def checked_cell(name: str, value: Any) -> str:
    """The name of a cell, or the names of a pair."""
    return JOINED.join(CELLS.checked(name, half) for half in halves(value))


@documented
@dataclass(frozen=True)
class Config(ABC):
    """A run: everything that its result depends on. A kind of runs is a frozen dataclass of this class.

    Two runs with equal configurations are the same run. The folder, the device and the other runs that a run is
    trained with are not part of its configuration.
    """

    unit: ClassVar[str]
    """What training is counted in, ``"epoch"`` or ``"episode"``: each line of metrics has the number of its unit."""

    tasks: ClassVar[Registry[Any]]
    """The tasks of this kind of runs."""

    unnamed: ClassVar[Mapping[str, Any]]
    """Values that a run's hash leaves out like defaults, of settings whose default depends on the task."""

    task: Any = field(metadata=about("What is to be learned, a frozen dataclass with a ``length``."))
    cell: str = field(
        metadata=about(
            "A name in ``ms.CELLS``, or ``module:Class``; for double layers also two, the half to warm up first: "
            "``gru+lstm``.",
            checked_cell,
            NETWORK,
        )
    )
    version: str = setting("classic", "How the network is built and prepared.", panel=NETWORK)
    hidden_size: int = setting(
        None,
        "Units of a layer.",
        positive_integer,
        NETWORK,
        names=("--hidden", "--hidden-size"),
        unless_given="the paper's",
    )
    num_layers: int = setting(
        None,
        "Recurrent layers.",
        positive_integer,
        NETWORK,
        names=("--layers", "--num-layers"),
        unless_given="the paper's",
    )
    cell_options: dict[str, Any] = field(
        default_factory=dict,
        metadata=about('Further arguments of the cell, for instance {"t_max": 600} of chrono.'),
    )
    seed: int = setting(0, "Seed that every random number of the run follows from.", count, TRAINING)
    batch_size: int = setting(
        32, "Sequences, or transitions of an agent, of a gradient step.", positive_integer, TRAINING
    )
    learning_rate: float = setting(
        1e-3, "Learning rate of Adam.", positive_number, TRAINING, names=("--learning-rate", "--rate")
    )
    vaa_every: int = setting(
        1,
        "Measure VAA before training and after every so many epochs or episodes; 0 for never.",
        count,
        MEASURE,
    )
    vaa_batches: int = setting(10, "Batches of the measure (I).", positive_integer)
    vaa_batch_size: int = setting(32, "States of a batch of the measure.", positive_integer)
    stabilisation: int = setting(10_000, "Stabilisation period of the measure (M).", positive_integer)
    eps: float = setting(1e-4, "Tolerance of the measure and the warmup.", positive_number)
    warmup_algorithm: str = setting(
        "paper",
        "How a network is prepared: paper (Algorithm 3), fast (until the network is multistable; as ms.warmup does) or "
        f"reliable (slower); or without a warmup, by a method of ms.prepare: {', '.join(OTHERS)}.",
        one_of([*DEFAULT_STEPS, *OTHERS]),
        MEASURE,
        names=("--warmup-algorithm", "--prepare"),
        matters=warmed,
    )
    target: float = setting(
        0.95,
        "The VAA* that warmup brings each layer to, or the VAA that reliable brings the network to.",
        unchanged(lambda name, value: Goal.of(value, "paper")),
        MEASURE,
        names=("--k", "--target"),
        matters=by_warmup,
    )
    warmup_steps: int = setting(100, "Gradient steps of the warmup (S).", positive_integer, matters=by_warmup)
    warmup_batch_size: int = setting(200, "Sequences of a step of the warmup (n).", positive_integer, matters=by_warmup)
    warmup_learning_rate: float = setting(
        1e-2, "Learning rate of the warmup (alpha).", positive_number, matters=by_warmup
    )
    warmup_robust: float | None = setting(
        None,
        "Noise from which states should come back to their attractors after the fast warmup.",
        optional(positive_number),
        MEASURE,
        unless_given="not asked for",
        matters=by_warmup,
    )
    max_stabilisation: int = setting(
        200, "Longest stabilisation period of the warmup (M*).", positive_integer, matters=by_warmup
    )
    increment: int = setting(
        10, "What a step of the warmup may add to the stabilisation period (c).", positive_integer, matters=by_warmup
    )
    keep: bool = setting(
        False,
        "Keep attractors while training, by a term in the loss (ms.Keep).",
        truth_value,
        MEASURE,
    )
    precision: str = setting(
        "ieee", "Precision of matrix products on a GPU: ieee or tf32.", one_of(PRECISIONS), TRAINING
    )
    dtype: str = setting("float32", "Type of weights and data: float32 or float64.", one_of(DTYPES))

    def __post_init__(self) -> None:
        _ = self.task_name  # An error for a task without a name.
        for name, size in self.task.paper_sizes.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, size)
        one_of(self.versions())("version", self.version)
        check_settings(self)
        if by_warmup(self):
            if self.warmup_robust is not None and self.warmup_algorithm != "fast":
                raise ValueError(f"warmup_algorithm must be fast with warmup_robust, got {self.warmup_algorithm!r}")
            Goal.of(self.target, self.warmup_algorithm, robust=self.warmup_robust or False).check(FINAL_BATCH_SIZE)
        if self.kind.double and self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even, double layers have two halves, got {self.hidden_size}")
        if len(halves(self.cell)) == 2 and not self.kind.double:
            double = ", ".join(name for name, version in self.versions().items() if version.double)
            raise ValueError(f"version must be one of {double} where cell is a pair, got {self.version!r}")
        self._check_cell_options()
        if self.preparation is not None:
            check_fits(self.preparation, self._like())

    def _check_cell_options(self) -> None:
        """Raise unless the cell can be made with its options."""
        options = self.cell_options
        if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
            raise ValueError(f"cell_options must be a dict, arguments of the cell by their names, got {options!r}")
        if not options:
            return
        check_options(self.cell, options)
        try:
            self._like()
        except TypeError as error:
            raise ValueError(
                f"cell_options must be as the cell {self.cell!r} takes them, got {options}: {error}"
            ) from error

    def _like(self) -> RNN:
        """A network of one layer such as the run has."""
        sizes, draw = (self.input_size, self.hidden_size), torch.Generator()
        return RNN(self.cell, *sizes, double=self.kind.double, generator=draw, **self.cell_options)

    @property
    def preparation(self) -> str | None:
        """The method of ``ms.prepare`` that prepares the network; None where a warmup does, or nothing."""
        return self.warmup_algorithm if warmed(self) and not by_warmup(self) else None

    @classmethod
    @abstractmethod
    def versions(cls) -> Mapping[str, Version]:
        """The versions of this kind of runs."""

    @property
    def task_name(self) -> str:
        """The name that finds the task's class: the one that it is registered by, or ``module:Class``."""
        return self.tasks.name_of(type(self.task), self.task)

    @classmethod
    def make_task(cls, name: str, settings: dict[str, Any], data: Path | str | None = None) -> Any:
        """A task by its name and settings; ``data`` is the folder of its files."""
        return make_task(name, settings, data, cls.tasks)

    @property
    @abstractmethod
    def input_size(self) -> int:
        """Features of the network's input."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Features of the network's answer."""

    @property
    @abstractmethod
    def duration(self) -> int:
        """How many epochs or episodes training takes, see :attr:`unit`."""

    @property
    @abstractmethod
    def recorded_every(self) -> int:
        """Something is recorded before training, after every so many epochs or episodes, and at the end."""

    def recorded(self, until: int) -> list[int]:
        """The epochs or episodes at which something is recorded, up to one of them."""
        return [*range(0, until, self.recorded_every), until]

    @abstractmethod
    def goes_with(self) -> Self:
        """A key: runs with equal keys can be trained in one launch."""

    @property
    def kind(self) -> Version:
        """The version that ``version`` names."""
        return self.versions()[self.version]

    @property
    def most_warmup_steps(self) -> int:
        """S for Algorithm 3; the reliable warmup may take more steps, in the ratio of the two defaults.

        A preparation that is no warmup takes none.
        """
        return self.warmup_steps * DEFAULT_STEPS.get(self.warmup_algorithm, 0) // DEFAULT_STEPS["paper"]

    def computing(self) -> AbstractContextManager[Any]:
        """The context of training, in which products have the ``precision`` asked for.

        Warmups and measures are computed outside it, because rounding states to TF32 keeps them apart.
        """
        return PRECISIONS[self.precision]()

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON has them; :meth:`from_dict` is the inverse."""
        settings = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return settings | {"task": {"name": self.task_name} | settings_of(self.task)}

    @classmethod
    def from_dict(cls, settings: dict[str, Any], data: Path | str | None = None) -> Self:
        """The configuration that :meth:`to_dict` or :meth:`stored` gave; ``data`` is the folder of the task's files."""
        settings, task = dict(settings), dict(settings["task"])
        imports = settings.pop("imports", {})
        unknown = settings.keys() - {entry.name for entry in fields(cls)}
        if unknown:
            raise ValueError(
                f"{cls.__name__} has no setting {min(unknown)!r}: another version of multistable may have written it"
            )
        names, places = (halves(cell) for cell in (settings["cell"], imports.get("cell", settings["cell"])))
        for name, place in zip(names, places, strict=True):
            CELLS.learn(str(name), None if name == place else str(place))
        cls.tasks.learn(task["name"], imports.get("task"))
        return cls(**settings | {"task": cls.make_task(task.pop("name"), task, data)})

    def stored(self) -> dict[str, Any]:
        """:meth:`to_dict`, and the places from which another process can import classes that are registered here."""
        cell = JOINED.join(CELLS.imported_as(str(half)) or str(half) for half in halves(self.cell))
        imports = {"cell": None if cell == self.cell else cell, "task": self.tasks.imported_as(self.task_name)}
        imports = {name: place for name, place in imports.items() if place is not None}
        return self.to_dict() | ({"imports": imports} if imports else {})

    def without_meaning(self) -> tuple[str, ...]:
        """Settings that have no influence on this run."""
        return tuple(name for name, (_, setting) in declared(self).items() if not setting.matters(self))

    @cached_property
    def key(self) -> str:
        """The hash of the settings that the result depends on and that are not at their defaults.

        A later version may add a setting without renaming stored runs, if its default means the former behaviour.
        """
        return hashlib.sha256(json.dumps(self._chosen(self.to_dict()), sort_keys=True).encode()).hexdigest()[:12]

    def _chosen(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that have an influence on this run and are not at their defaults."""
        without = self.without_meaning()
        defaults = {entry.name: default_of(entry) for entry in fields(self)} | dict(self.unnamed)
        return {
            name: value
            for name, value in settings.items()
            if name not in without and value != defaults.get(name, MISSING)
        }

    def unlike(self, stored: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """The stored settings that make another run, by name: the stored value and this run's."""
        there = self._chosen({name: value for name, value in stored.items() if name != "imports"})
        here = self._chosen(json.loads(json.dumps(self.to_dict())))
        return {
            name: (there.get(name, "the default"), here.get(name, "the default"))
            for name in sorted(there.keys() | here.keys())
            if there.get(name, MISSING) != here.get(name, MISSING)
        }

    @property
    def name(self) -> str:
        """The name of its folder: readable, and unique by its hash."""
        readable = re.sub(r'[<>:"/\\|?*]', ".", f"{self.task_name}-{self.cell}")
        return f"{readable}-{self.version}-{self.seed}-{self.key}"
