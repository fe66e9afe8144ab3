"""What a run of a supervised benchmark is."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from multistable.arguments import positive_integer
from multistable.tasks import CopyFirstInput, Task, make_task, name_of
from multistable.training.settings import Config, Version


VERSIONS = {
    "classic": Version(double=False, warmed=False, about="one cell a layer, as it is initialised"),
    "warmup": Version(double=False, warmed=True, about="one cell a layer, warmed up"),
    "double": Version(double=True, warmed=True, about="double layers, one half of each warmed up"),
    "double-classic": Version(double=True, warmed=False, about="double layers without warmup"),
}


@dataclass(frozen=True)
class RunConfig(Config):
    """A run of a supervised benchmark; the defaults are the paper's.

    Args:
        data_seed: the seed of the learning set and the test set, where it is not that of the run: runs that differ in
            their seed alone then divide one learning set in different ways.
        epochs: passes over the training set.
        training_sequences: size of the learning set; the task's own size when not given.
        testing_sequences: size of the test set; the task's own size when not given.
        validation: the share of the learning set that is kept to choose the best epoch by.
        selection: the share of the learning set that is kept to choose hyperparameters by.

    The others are those of :class:`Config`.
    """

    unit: ClassVar[str] = "epoch"

    task: Task
    data_seed: int | None = None
    epochs: int = 50
    training_sequences: int | None = None
    testing_sequences: int | None = None
    validation: float = 0.2
    selection: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("epochs", self.epochs)
        for name in ("training_sequences", "testing_sequences"):
            if getattr(self, name) is not None:
                positive_integer(name, getattr(self, name))
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must be a share between 0 and 1, got {self.validation!r}")
        if not 0 <= self.selection < 1 - self.validation:
            left = f"what validation leaves, 1 - {self.validation!r}"
            raise ValueError(f"selection must be a share from 0 to less than {left}, got {self.selection!r}")
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

    @classmethod
    def versions(cls) -> dict[str, Version]:
        """What ``version`` may be."""
        return VERSIONS

    @property
    def task_name(self) -> str:
        """The name that the task is registered by."""
        return name_of(self.task)

    @classmethod
    def make_task(cls, name: str, settings: dict[str, Any], data: Path | str | None = None) -> Task:
        """A task by its name and settings; ``data`` is the folder of its files."""
        return make_task(name, settings, data)

    @property
    def duration(self) -> int:
        """How many epochs training takes in all, see :attr:`unit`."""
        return self.epochs

    def goes_with(self) -> "RunConfig":
        """What runs must share to be trained in one launch: all but the seed, learning rate, k and the warmup."""
        alike = "double-classic" if self.kind.double else "classic"
        return replace(self, seed=0, version=alike, learning_rate=1.0, target=1.0)


def paper_sizes(task: Task) -> dict[str, int]:
    """The paper's network for a task: one layer of 128 units for copy first input, two of 256 for the others."""
    if isinstance(task, CopyFirstInput):
        return {"num_layers": 1, "hidden_size": 128}
    return {"num_layers": 2, "hidden_size": 256}
