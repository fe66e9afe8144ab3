"""What the configurations of all kinds of runs share: the network, its warmup, its measure, and a name."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from multistable.arguments import check_positive_number, count, plain, positive_integer
from multistable.cells import CELLS
from multistable.dynamics.system.contexts import ieee_float32, tf32
from multistable.dynamics.warmup.goal import Goal
from multistable.dynamics.warmup.run_warmup import DEFAULT_STEPS, FINAL_BATCH_SIZE
from multistable.networks.rnn import RNN, check_options
from multistable.tasks import settings_of

DTYPES = ("float32", "float64")
# Not "tf32x3": products that a gradient is needed of are float32 in it, so that it would be another name for "ieee".
PRECISIONS = {"ieee": ieee_float32, "tf32": tf32}


@dataclass(frozen=True)
class Version:
    """How the network of a cell is built and prepared (sections 5.2 and 5.3, appendix H)."""

    double: bool
    warmed: bool
    about: str
    auxiliary: bool = False


@dataclass(frozen=True)
class Config(ABC):
    """A run: everything that its result depends on. A kind of runs is a frozen dataclass of this class.

    Two runs with equal configurations are the same run. Where its files lie, the device and which other runs it
    shares a launch with are not part of it.

    Args:
        task: what is to be learned, a frozen dataclass with a ``length``.
        cell: a name in ``ms.CELLS``.
        version: a name in :meth:`versions`.
        hidden_size: units of a layer.
        num_layers: how many layers.
        cell_options: further arguments of the cell, for instance ``{"t_max": 600}`` of ``"chrono"``.
        seed: every random number of the run follows from it.
        batch_size: of a gradient step.
        learning_rate: of Adam.
        vaa_every: measure VAA before training and after every so many epochs or episodes; 0 for never.
        vaa_batches: I of the measure.
        vaa_batch_size: states of a batch of the measure.
        stabilisation: M of the measure.
        eps: tolerance of the measure and the warmup.
        warmup_algorithm: ``"paper"`` or ``"reliable"``, see ``ms.warmup``.
        target: k of the warmup.
        warmup_steps: S, its gradient steps; see :attr:`most_warmup_steps`.
        warmup_batch_size: n, its sequences a step.
        warmup_learning_rate: alpha.
        max_stabilisation: M*.
        increment: c.
        precision: of the products of training on a GPU, ``"ieee"`` or ``"tf32"``, PyTorch's own among them.
        dtype: of weights and data.
    """

    unit: ClassVar[str]
    """What training is counted in, ``"epoch"`` or ``"episode"``: each line of metrics says which it is of."""

    unnamed: ClassVar[Mapping[str, Any]] = {}
    """What a run's hash leaves out in place of a default, for settings whose default depends on the task."""

    task: Any
    cell: str
    version: str = "classic"
    hidden_size: int = 128
    num_layers: int = 1
    cell_options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    batch_size: int = 32
    learning_rate: float = 1e-3
    vaa_every: int = 1
    vaa_batches: int = 10
    vaa_batch_size: int = 32
    stabilisation: int = 10_000
    eps: float = 1e-4
    warmup_algorithm: str = "paper"
    target: float = 0.95
    warmup_steps: int = 100
    warmup_batch_size: int = 200
    warmup_learning_rate: float = 1e-2
    max_stabilisation: int = 200
    increment: int = 10
    precision: str = "ieee"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        _ = self.task_name  # An error for one that is not registered.
        for entry in fields(self):
            if entry.name != "task":
                object.__setattr__(self, entry.name, plain(getattr(self, entry.name)))
        choices: dict[str, Sequence[str]] = {"cell": list(CELLS), "version": list(self.versions())}
        for name, accepted in (choices | _CHOICES).items():
            if getattr(self, name) not in accepted:
                raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {getattr(self, name)!r}")
        for name in _COUNTS:
            positive_integer(name, getattr(self, name))
        object.__setattr__(self, "seed", count("seed", self.seed))
        for name in ("learning_rate", "warmup_learning_rate", "eps"):
            check_positive_number(name, getattr(self, name))
        count("vaa_every", self.vaa_every)
        goal = Goal.of(self.target, self.warmup_algorithm)
        if self.kind.warmed:
            goal.check(FINAL_BATCH_SIZE)
        if self.kind.double and self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even, double layers have two halves, got {self.hidden_size}")
        self._check_cell_options()

    def _check_cell_options(self) -> None:
        """The cell can be made with its options."""
        options = self.cell_options
        if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
            raise ValueError(f"cell_options must be a dict, arguments of the cell by their names, got {options!r}")
        if not options:
            return
        check_options(self.cell, options)
        try:
            RNN(self.cell, self.input_size, self.hidden_size, generator=torch.Generator(), **options)
        except TypeError as error:
            raise ValueError(
                f"cell_options must be as the cell {self.cell!r} takes them, got {options}: {error}"
            ) from error

    @classmethod
    @abstractmethod
    def versions(cls) -> Mapping[str, Version]:
        """What ``version`` may be."""

    @property
    @abstractmethod
    def task_name(self) -> str:
        """The name that the task is registered by."""

    @classmethod
    @abstractmethod
    def make_task(cls, name: str, settings: dict[str, Any], data: Path | str | None = None) -> Any:
        """A task by its name and settings; ``data`` is the folder of its files."""

    @property
    @abstractmethod
    def input_size(self) -> int:
        """The features of what the network is given."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """The features of what it answers."""

    @property
    @abstractmethod
    def duration(self) -> int:
        """How many epochs or episodes training takes, see :attr:`unit`."""

    @abstractmethod
    def goes_with(self) -> Self:
        """What runs must share to be trained in one launch: runs with equal ones can be."""

    @property
    def kind(self) -> Version:
        """What ``version`` stands for."""
        return self.versions()[self.version]

    @property
    def most_warmup_steps(self) -> int:
        """S for Algorithm 3; a warmup that goes on until it succeeds may take as many times S as it may by default."""
        return self.warmup_steps * DEFAULT_STEPS[self.warmup_algorithm] // DEFAULT_STEPS["paper"]

    def computing(self) -> AbstractContextManager[Any]:
        """The context of training, in which products have the ``precision`` asked for.

        A warmup is not computed in it, no more than a measure is: rounding states to TF32 keeps them apart.
        """
        return PRECISIONS[self.precision]()

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; :meth:`from_dict` is the inverse."""
        settings = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return settings | {"task": {"name": self.task_name} | settings_of(self.task)}

    @classmethod
    def from_dict(cls, settings: dict[str, Any], data: Path | str | None = None) -> Self:
        """The configuration that :meth:`to_dict` wrote; ``data`` is the folder of the task's files."""
        task = dict(settings["task"])
        return cls(**settings | {"task": cls.make_task(task.pop("name"), task, data)})

    def without_meaning(self) -> tuple[str, ...]:
        """Settings that have no influence on this run."""
        return () if self.kind.warmed else _OF_WARMUP

    @property
    def key(self) -> str:
        """The hash of what the run's result depends on and is not at its default.

        A setting that is added later, with a default that means what was before, does not rename the runs there are.
        """
        without, defaults = self.without_meaning(), _defaults(type(self)) | dict(self.unnamed)
        settings = {name: value for name, value in self.to_dict().items() if name not in without}
        differing = {name: value for name, value in settings.items() if value != defaults.get(name, MISSING)}
        return hashlib.sha256(json.dumps(differing, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The name of its folder: readable, and unique by its hash."""
        return f"{self.task_name}-{self.cell}-{self.version}-{self.seed}-{self.key}"


_CHOICES: dict[str, Sequence[str]] = {
    "precision": list(PRECISIONS),
    "dtype": DTYPES,
    "warmup_algorithm": list(DEFAULT_STEPS),
}
_OF_WARMUP = (
    *("warmup_algorithm", "target", "warmup_steps", "warmup_batch_size", "warmup_learning_rate"),
    *("max_stabilisation", "increment"),
)
_COUNTS = (
    *("hidden_size", "num_layers", "batch_size", "vaa_batches", "vaa_batch_size", "stabilisation"),
    *("warmup_steps", "warmup_batch_size", "max_stabilisation", "increment"),
)


def _defaults(kind: type[Config]) -> dict[str, Any]:
    return {
        entry.name: entry.default if entry.default is not MISSING else {}
        for entry in fields(kind)
        if entry.default is not MISSING or entry.default_factory is not MISSING
    }
