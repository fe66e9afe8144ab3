"""What a run is: everything that its result depends on, and the name that follows from it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from multistable.arguments import positive_integer
from multistable.cells import CELLS
from multistable.dynamics.checks import check_positive_number, check_target
from multistable.scan.fused import PRECISIONS
from multistable.tasks import CopyFirstInput, Task, make_task, name_of, settings_of

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Version:
    """How the network of a cell is built and prepared (sections 5.2 and 5.3)."""

    double: bool
    warmed: bool
    about: str


VERSIONS = {
    "classic": Version(double=False, warmed=False, about="one cell a layer, as it is initialised"),
    "warmup": Version(double=False, warmed=True, about="one cell a layer, warmed up"),
    "double": Version(double=True, warmed=True, about="double layers, one half of each warmed up"),
    "double-classic": Version(double=True, warmed=False, about="double layers without warmup"),
}


@dataclass(frozen=True)
class RunConfig:
    """A run of a supervised benchmark; the defaults are the paper's.

    Two runs with equal configurations are the same run. Where its files lie, the device and which other runs it
    shares a launch with are not part of it.

    Args:
        task: what is to be learned.
        cell: a name in ``ms.CELLS``.
        version: a name in ``VERSIONS``.
        hidden_size: units of a layer.
        num_layers: how many layers.
        cell_options: further arguments of the cell, for instance ``{"t_max": 600}`` of ``"chrono"``.
        seed: every random number of the run follows from it.
        data_seed: the seed of the learning set and the test set, where it is not that of the run: runs that differ in
            their seed alone then divide one learning set in different ways.
        epochs: passes over the training set.
        batch_size: sequences of a gradient step.
        learning_rate: of Adam.
        training_sequences: size of the learning set; the task's own size when not given.
        testing_sequences: size of the test set; the task's own size when not given.
        validation: the share of the learning set that is kept to choose the best epoch by.
        selection: the share of the learning set that is kept to choose hyperparameters by.
        vaa_every: measure VAA before training and after every so many epochs; 0 for never.
        vaa_batches: I of the measure.
        vaa_batch_size: states of a batch of the measure.
        stabilisation: M of the measure.
        eps: tolerance of the measure and the warmup.
        target: k of the warmup.
        warmup_steps: S, its gradient steps.
        warmup_batch_size: n, its sequences a step.
        warmup_learning_rate: alpha.
        max_stabilisation: M*.
        increment: c.
        precision: of the products in the recurrence, at least, see ``ms.engine``.
        dtype: of weights and data.
    """

    task: Task
    cell: str
    version: str = "classic"
    hidden_size: int = 128
    num_layers: int = 1
    cell_options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    data_seed: int | None = None
    epochs: int = 50
    batch_size: int = 32
    learning_rate: float = 1e-3
    training_sequences: int | None = None
    testing_sequences: int | None = None
    validation: float = 0.2
    selection: float = 0.0
    vaa_every: int = 1
    vaa_batches: int = 10
    vaa_batch_size: int = 32
    stabilisation: int = 10_000
    eps: float = 1e-4
    target: float = 0.95
    warmup_steps: int = 100
    warmup_batch_size: int = 200
    warmup_learning_rate: float = 1e-2
    max_stabilisation: int = 200
    increment: int = 10
    precision: str = "ieee"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        name_of(self.task)
        for name, accepted in _choices().items():
            if getattr(self, name) not in accepted:
                raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {getattr(self, name)!r}")
        for name in _COUNTS:
            positive_integer(name, getattr(self, name))
        for name in ("training_sequences", "testing_sequences"):
            if getattr(self, name) is not None:
                positive_integer(name, getattr(self, name))
        for name in ("learning_rate", "warmup_learning_rate", "eps"):
            check_positive_number(name, getattr(self, name))
        if self.vaa_every != 0:
            positive_integer("vaa_every", self.vaa_every)
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must be a share between 0 and 1, got {self.validation!r}")
        if not 0 <= self.selection < 1 - self.validation:
            left = f"what validation leaves, 1 - {self.validation!r}"
            raise ValueError(f"selection must be a share from 0 to less than {left}, got {self.selection!r}")
        check_target(self.target, None)
        if self.kind.double and self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even, double layers have two halves, got {self.hidden_size}")

        if self.training_sequences is not None:
            self.check_sizes(self.training_sequences)

    def parts(self, learning: int) -> tuple[int, int, int]:
        """How many of ``learning`` sequences are for training, validation and selection."""
        validation, selection = round(learning * self.validation), round(learning * self.selection)
        return learning - validation - selection, validation, selection

    def check_sizes(self, learning: int) -> None:
        """A learning set of so many sequences is enough for what is drawn from it."""
        training, validation, selection = self.parts(learning)
        if training < 1 or validation < 1:
            raise ValueError(
                f"training_sequences must leave something to train on and to validate on: of {learning}, {validation} "
                f"are for validation and {selection} for selection"
            )
        sizes = ["batch_size"]
        sizes += ["vaa_batch_size"] if self.vaa_every else []
        sizes += ["warmup_batch_size"] if self.kind.warmed else []
        for name in sizes:
            if getattr(self, name) > training:
                raise ValueError(f"{name} must not exceed the {training} training sequences, got {getattr(self, name)}")

    @property
    def kind(self) -> Version:
        """What ``version`` stands for."""
        return VERSIONS[self.version]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; :meth:`from_dict` is the inverse."""
        settings = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return settings | {"task": {"name": name_of(self.task)} | settings_of(self.task)}

    @classmethod
    def from_dict(cls, settings: dict[str, Any], data: Path | str | None = None) -> "RunConfig":
        """The configuration that :meth:`to_dict` wrote; ``data`` is the folder of the task's files."""
        task = dict(settings["task"])
        return cls(**settings | {"task": make_task(task.pop("name"), task, data)})

    @property
    def key(self) -> str:
        """The hash of what the run's result depends on and is not at its default.

        A setting that is added later, with a default that means what was before, does not rename the runs there are.
        """
        without = () if self.kind.warmed else _OF_WARMUP
        settings = {name: value for name, value in self.to_dict().items() if name not in without}
        differing = {name: value for name, value in settings.items() if value != _DEFAULTS.get(name, MISSING)}
        return hashlib.sha256(json.dumps(differing, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The name of its folder: readable, and unique by its hash."""
        return f"{name_of(self.task)}-{self.cell}-{self.version}-{self.seed}-{self.key}"

    def goes_with(self) -> "RunConfig":
        """What runs must share to be trained in one launch: all but the seed, learning rate, k and the warmup."""
        alike = "double-classic" if self.kind.double else "classic"
        return replace(self, seed=0, version=alike, learning_rate=1.0, target=1.0)


def paper_sizes(task: Task) -> dict[str, int]:
    """The paper's network for a task: one layer of 128 units for copy first input, two of 256 for the others."""
    if isinstance(task, CopyFirstInput):
        return {"num_layers": 1, "hidden_size": 128}
    return {"num_layers": 2, "hidden_size": 256}


def _choices() -> dict[str, Sequence[str]]:
    return {"cell": list(CELLS), "version": list(VERSIONS), "precision": PRECISIONS, "dtype": DTYPES}


_OF_WARMUP = ("target", "warmup_steps", "warmup_batch_size", "warmup_learning_rate", "max_stabilisation", "increment")
_COUNTS = (
    *("hidden_size", "num_layers", "epochs", "batch_size", "vaa_batches", "vaa_batch_size", "stabilisation"),
    *("warmup_steps", "warmup_batch_size", "max_stabilisation", "increment"),
)

_DEFAULTS = {
    entry.name: entry.default if entry.default is not MISSING else {}
    for entry in fields(RunConfig)
    if entry.default is not MISSING or entry.default_factory is not MISSING
}
