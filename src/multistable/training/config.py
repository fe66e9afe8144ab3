"""What a run of a supervised benchmark is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from multistable.arguments import check_positive_number, count, positive_integer, truth_value
from multistable.tasks import (
    CopyFirstInput,
    Denoising,
    PermutedLineSequentialMNIST,
    Task,
    make_task,
    name_of,
)
from multistable.training.settings import Config, Version

AUXILIARY_LOSSES = ("reconstruction", "prediction")
ANCHORS = ("cut", "random")
WARMUP_SEQUENCES = ("data", "random")
# A size that is not given is known once the task is.
_OF_THE_TASK: Any = None


VERSIONS = {
    "classic": Version(double=False, warmed=False, about="one cell a layer, as it is initialised"),
    "warmup": Version(double=False, warmed=True, about="one cell a layer, warmed up"),
    "double": Version(double=True, warmed=True, about="double layers, one half of each warmed up"),
    "double-classic": Version(double=True, warmed=False, about="double layers without warmup"),
    "auxiliary": Version(
        double=False,
        warmed=False,
        about="one cell a layer, pretrained and trained with an auxiliary loss",
        auxiliary=True,
    ),
}


@dataclass(frozen=True)
class RunConfig(Config):
    """A run of a supervised benchmark; the defaults are the paper's.

    Args:
        hidden_size: units of a layer; those of :func:`paper_sizes` for the task when not given.
        num_layers: how many layers; those of :func:`paper_sizes` for the task when not given.
        data_seed: the seed of the learning set and the test set, where it is not that of the run: runs that differ in
            their seed alone then divide one learning set in different ways.
        epochs: passes over the training set.
        training_sequences: size of the learning set; the task's own size when not given.
        testing_sequences: size of the test set; the task's own size when not given.
        validation: the share of the learning set that is kept to choose the best epoch by.
        selection: the share of the learning set that is kept to choose hyperparameters by.
        pretraining_epochs: passes over the training set on the auxiliary loss alone, before the ``epochs`` on both.
        auxiliary_weight: of the auxiliary loss beside the task's.
        auxiliary_loss: ``"reconstruction"`` of the stretch before a state, or ``"prediction"`` of the one after it.
        stretch_length: time steps of a stretch; the appendix's for the task when not given.
        stretches: how many of each sequence.
        anchors: where stretches end: ``"cut"`` for one after another from the beginning, ``"random"`` for times drawn
            anew for each sequence and epoch.
        teacher_forcing: the decoder is given the true value of the step before.
        warmup_sequences: what a network is warmed up on: ``"data"``, the sequences that it trains on, or ``"random"``,
            as many sequences as long, of numbers from N(0, 1).
        warmup_vaa_every: measure VAA before the warmup, after every so many of its steps, and at its end; 0 for never.
            It only adds to what is recorded: a run is the same with it, and has the same name.

    The others are those of :class:`Config`.
    """

    unit: ClassVar[str] = "epoch"
    # The defaults that all tasks once had: the runs there are keep their names.
    unnamed: ClassVar[Mapping[str, Any]] = {"hidden_size": 128, "num_layers": 1}

    task: Task
    hidden_size: int = _OF_THE_TASK
    num_layers: int = _OF_THE_TASK
    data_seed: int | None = None
    epochs: int = 50
    training_sequences: int | None = None
    testing_sequences: int | None = None
    validation: float = 0.2
    selection: float = 0.0
    pretraining_epochs: int = 20
    auxiliary_weight: float = 1.0
    auxiliary_loss: str = "reconstruction"
    stretch_length: int | None = None
    stretches: int = 1
    anchors: str = "cut"
    teacher_forcing: bool = True
    warmup_sequences: str = "data"
    warmup_vaa_every: int = 0

    def __post_init__(self) -> None:
        for name, size in paper_sizes(self.task).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, size)
        super().__post_init__()
        for name, accepted in _CHOICES.items():
            if getattr(self, name) not in accepted:
                raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {getattr(self, name)!r}")
        for name in _COUNTS:
            positive_integer(name, getattr(self, name))
        for name in ("training_sequences", "testing_sequences", "stretch_length"):
            if getattr(self, name) is not None:
                positive_integer(name, getattr(self, name))
        if self.data_seed is not None:
            object.__setattr__(self, "data_seed", count("data_seed", self.data_seed))
        check_positive_number("auxiliary_weight", self.auxiliary_weight)
        for name in ("pretraining_epochs", "warmup_vaa_every"):
            count(name, getattr(self, name))
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must be a share between 0 and 1, got {self.validation!r}")
        if not 0 <= self.selection < 1 - self.validation:
            left = f"what validation leaves, 1 - {self.validation!r}"
            raise ValueError(f"selection must be a share from 0 to less than {left}, got {self.selection!r}")
        truth_value("teacher_forcing", self.teacher_forcing)
        if self.kind.auxiliary:
            many = self.stretches if self.anchors == "cut" else 1
            check_stretches(self.stretch, many, self.task.length, ahead=self.looks_ahead)
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
        sizes += ["vaa_batch_size"] if self.vaa_every or (self.kind.warmed and self.warmup_vaa_every) else []
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

    @property
    def input_size(self) -> int:
        """That of the task."""
        return self.task.input_size

    @property
    def output_size(self) -> int:
        """That of the task."""
        return self.task.output_size

    @classmethod
    def make_task(cls, name: str, settings: dict[str, Any], data: Path | str | None = None) -> Task:
        """A task by its name and settings; ``data`` is the folder of its files."""
        return make_task(name, settings, data)

    @property
    def pretraining(self) -> int:
        """The epochs of pretraining that the run has; they count from 1, those of training go on from there."""
        return self.pretraining_epochs if self.kind.auxiliary else 0

    @property
    def looks_ahead(self) -> bool:
        """Whether the auxiliary loss is one of prediction."""
        return self.auxiliary_loss == "prediction"

    @property
    def stretch(self) -> int:
        """The time steps of a stretch: as given, or the appendix's."""
        return paper_stretch(self.task) if self.stretch_length is None else self.stretch_length

    def without_meaning(self) -> tuple[str, ...]:
        """Settings that have no influence on this run."""
        of_warmup = () if self.kind.warmed else ("warmup_sequences",)
        of_auxiliary = () if self.kind.auxiliary else _OF_AUXILIARY
        return (*super().without_meaning(), "warmup_vaa_every", *of_warmup, *of_auxiliary)

    @property
    def duration(self) -> int:
        """The epochs of pretraining and of training, see :attr:`unit`."""
        return self.pretraining + self.epochs

    def goes_with(self) -> "RunConfig":
        """What runs must share to be trained in one launch: all but the seed, learning rate, k and the warmup."""
        alike = "double-classic" if self.kind.double else "auxiliary" if self.kind.auxiliary else "classic"
        return replace(self, seed=0, version=alike, learning_rate=1.0, target=1.0)


def paper_sizes(task: Task) -> dict[str, int]:
    """The paper's network for a task: one layer of 128 units for copy first input, two of 256 for the others."""
    if isinstance(task, CopyFirstInput):
        return {"num_layers": 1, "hidden_size": 128}
    return {"num_layers": 2, "hidden_size": 256}


def paper_stretch(task: Task) -> int:
    """The time steps that the appendix evaluates the reconstruction loss on; two thirds of tasks it does not have."""
    match task:
        case CopyFirstInput(T=T) if T in _STRETCHES_OF_COPY:
            return _STRETCHES_OF_COPY[T]
        case Denoising(T=200):
            return 150
        case PermutedLineSequentialMNIST(N=N) if N in _STRETCHES_OF_LINES:
            return _STRETCHES_OF_LINES[N]
    return max(1, 2 * task.length // 3)


def check_stretches(stretch: int, stretches: int, length: int, *, ahead: bool) -> None:
    """So many stretches, and the one to be predicted, fit one after another into a sequence."""
    if stretch * (stretches + ahead) > length:
        many = "1 stretch" if stretches == 1 else f"{stretches} stretches"
        then = " and as much to be predicted" if ahead else ""
        raise ValueError(
            f"stretch_length must leave room for {many}{then} in a sequence of {length} time steps, got {stretch}"
        )


_STRETCHES_OF_COPY = {50: 30, 300: 200, 600: 400}
_STRETCHES_OF_LINES = {72: 50, 472: 350}

_CHOICES = {"auxiliary_loss": AUXILIARY_LOSSES, "anchors": ANCHORS, "warmup_sequences": WARMUP_SEQUENCES}
_OF_AUXILIARY = (
    *("pretraining_epochs", "auxiliary_weight", "auxiliary_loss", "stretch_length", "stretches", "anchors"),
    "teacher_forcing",
)
_COUNTS = ("epochs", "stretches")
