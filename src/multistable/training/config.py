"""The configuration of a run of a supervised benchmark."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from multistable.arguments import count, positive_integer, share, truth_value
from multistable.registry import Registry
from multistable.setting import (
    MEASURE,
    TRAINING,
    about,
    documented,
    one_of,
    optional,
    positive_number,
    setting,
    unchanged,
)
from multistable.tasks import TASKS, Task
from multistable.training.settings import Config, Version, by_warmup, warmed

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


def auxiliary(run: Config) -> bool:
    """Whether a run has an auxiliary loss: some settings matter to such runs alone."""
    return run.kind.auxiliary


def never(run: Config) -> bool:
    """False: some settings have no influence on any run."""
    return False


@documented
@dataclass(frozen=True)
class RunConfig(Config):
    """A run of a supervised benchmark; the defaults are the paper's."""

    unit: ClassVar[str] = "epoch"
    tasks: ClassVar[Registry[type[Task]]] = TASKS
    # All tasks once had these defaults, and stored runs keep their names.
    unnamed: ClassVar[Mapping[str, Any]] = {"hidden_size": 128, "num_layers": 1}

    task: Task = field(metadata=about("What is to be learned, one of the benchmarks or a task of your own."))
    data_seed: int | None = setting(
        None,
        "Seed of the learning set and the test set. With one, runs that differ in their seed alone divide one "
        "learning set in different ways.",
        optional(count),
        unless_given="that of the run",
    )
    epochs: int = setting(50, "Passes over the training set, after any pretraining.", positive_integer, TRAINING)
    training_sequences: int | None = setting(
        None,
        "Size of the learning set, a part of which is for validation.",
        optional(positive_integer),
        TRAINING,
        unless_given="the task's own",
    )
    testing_sequences: int | None = setting(
        None, "Size of the test set.", optional(positive_integer), TRAINING, unless_given="the task's own"
    )
    validation: float = setting(0.2, "Share of the learning set to choose the best epoch by.", unchanged(share))
    selection: float = setting(0.0, "Share of the learning set to choose hyperparameters by.", unchanged(share))
    pretraining_epochs: int = setting(
        20,
        "Passes over the training set on the auxiliary loss alone, before the epochs on both.",
        count,
        matters=auxiliary,
    )
    auxiliary_weight: float = setting(
        1.0, "Weight of the auxiliary loss beside that of the task.", positive_number, matters=auxiliary
    )
    auxiliary_loss: str = setting(
        "reconstruction",
        "reconstruction of the stretch before a state, or prediction of the one after it.",
        one_of(("reconstruction", "prediction")),
        matters=auxiliary,
    )
    stretch_length: int | None = setting(
        None, "Time steps of a stretch.", optional(positive_integer), unless_given="the appendix's", matters=auxiliary
    )
    stretches: int = setting(1, "Stretches of each sequence.", positive_integer, matters=auxiliary)
    anchors: str = setting(
        "cut",
        "Where stretches end: cut, one after another from the beginning, or random, at times drawn anew for each "
        "sequence and epoch.",
        one_of(("cut", "random")),
        matters=auxiliary,
    )
    teacher_forcing: bool = setting(
        True, "Give the decoder the true value of the step before.", truth_value, matters=auxiliary
    )
    warmup_sequences: str = setting(
        "data",
        "What a network is warmed up on: data, the sequences that it trains on, or random, as many equally long "
        "sequences of numbers from N(0, 1).",
        one_of(("data", "random")),
        matters=warmed,
    )
    warmup_vaa_every: int = setting(
        0,
        "Measure VAA before the warmup, after every so many of its steps, and at its end; 0 for never. It changes "
        "neither the results of a run nor its name.",
        count,
        matters=never,
    )
    memory_before: bool = setting(
        False,
        "Record before training how long a small difference between states lasts, and the share of states that can be "
        "told after noise.",
        truth_value,
    )

    attractors_every: int = setting(
        0,
        "Record the attractors while the input is zero, before training, after every so many epochs, and at the end; 0 "
        "for never. It changes neither the results of a run nor its name.",
        count,
        MEASURE,
        matters=never,
    )
    attractors_saddles: bool = setting(
        False,
        "Record all fixed points too, saddles and repellors included, wherever attractors are recorded.",
        truth_value,
        matters=never,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must be a share between 0 and 1, got {self.validation!r}")
        if not 0 <= self.selection < 1 - self.validation:
            left = f"what validation leaves, 1 - {self.validation!r}"
            raise ValueError(f"selection must be a share from 0 to less than {left}, got {self.selection!r}")
        if self.kind.auxiliary:
            many = self.stretches if self.anchors == "cut" else 1
            check_stretches(self.stretch, many, self.task.length, ahead=self.looks_ahead)
        if self.training_sequences is not None:
            self.check_sizes(self.training_sequences)

    def parts(self, learning: int) -> tuple[int, int, int]:
        """The numbers of sequences for training, validation and selection in a learning set of ``learning``."""
        validation, selection = round(learning * self.validation), round(learning * self.selection)
        return learning - validation - selection, validation, selection

    def check_sizes(self, learning: int) -> None:
        """Raise unless a learning set of ``learning`` sequences is enough for what is drawn from it."""
        training, validation, selection = self.parts(learning)
        if training < 1 or validation < 1:
            raise ValueError(
                f"training_sequences must leave something to train on and to validate on: of {learning}, {validation} "
                f"are for validation and {selection} for selection"
            )
        sizes = ["batch_size"]
        measured = self.vaa_every or self.attractors_every or (self.kind.warmed and self.warmup_vaa_every)
        sizes += ["vaa_batch_size"] if measured else []
        sizes += ["warmup_batch_size"] if by_warmup(self) else []
        for name in sizes:
            if getattr(self, name) > training:
                raise ValueError(f"{name} must not exceed the {training} training sequences, got {getattr(self, name)}")

    @classmethod
    def versions(cls) -> dict[str, Version]:
        """The versions by name."""
        return VERSIONS

    @property
    def input_size(self) -> int:
        """The features of the task's input."""
        return self.task.input_size

    @property
    def output_size(self) -> int:
        """The features of the task's answer."""
        return self.task.output_size

    @property
    def pretraining(self) -> int:
        """How many epochs of pretraining the run has. They count from 1, and training counts on from them."""
        return self.pretraining_epochs if self.kind.auxiliary else 0

    @property
    def looks_ahead(self) -> bool:
        """Whether the auxiliary loss is prediction."""
        return self.auxiliary_loss == "prediction"

    @property
    def stretch(self) -> int:
        """The time steps of a stretch: as given, or the appendix's."""
        return self.task.paper_stretch if self.stretch_length is None else self.stretch_length

    @property
    def duration(self) -> int:
        """The number of epochs of pretraining and of training."""
        return self.pretraining + self.epochs

    @property
    def recorded_every(self) -> int:
        """Each epoch."""
        return 1

    def goes_with(self) -> "RunConfig":
        """The settings that runs trained in one launch must share: all but seed, learning rate, k and warmup."""
        alike = "double-classic" if self.kind.double else "auxiliary" if self.kind.auxiliary else "classic"
        return replace(self, seed=0, version=alike, learning_rate=1.0, target=1.0)


def check_stretches(stretch: int, stretches: int, length: int, *, ahead: bool) -> None:
    """Raise unless the stretches, and the one to be predicted, fit one after another into a sequence."""
    if stretch * (stretches + ahead) > length:
        many = "1 stretch" if stretches == 1 else f"{stretches} stretches"
        then = " and as much to be predicted" if ahead else ""
        raise ValueError(
            f"stretch_length must leave room for {many}{then} in a sequence of {length} time steps, got {stretch}"
        )
