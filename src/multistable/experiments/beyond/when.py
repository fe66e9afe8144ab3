"""When to warm up: tasks that need long memory and tasks that do not, each classic, warmed up and double."""

from dataclasses import fields, replace
from itertools import product
from typing import Any

from multistable.experiments.experiment import Experiment
from multistable.experiments.panels import Panels
from multistable.experiments.pictures import by_version
from multistable.experiments.scales import Scale
from multistable.experiments.score_pictures import Scores, task_name
from multistable.tasks import (
    Adding,
    AssociativeRecall,
    CopyFirstInput,
    Counting,
    DelayedMatch,
    Denoising,
    FirstWord,
    FlipFlop,
    NoisySine,
    Parity,
    RepeatPrevious,
    SelectiveCopying,
    SmallPermutedMNIST,
    SparseParity,
    Task,
    TemporalOrder,
    WordCounts,
)
from multistable.training import Config, RunConfig

NEEDS: dict[type[Task], str] = {
    FirstWord: "the first input",
    WordCounts: "all inputs, in any order",
    CopyFirstInput: "the first input, a number",
    NoisySine: "the last few inputs",
    Adding: "two marked inputs, numbers",
    TemporalOrder: "two events and their order",
    SelectiveCopying: "four events and their order",
    Parity: "one bit, that inputs turn",
    DelayedMatch: "the first input, to compare with the last",
    Denoising: "five marked inputs, numbers, in order",
    FlipFlop: "three bits, that inputs set",
    RepeatPrevious: "the last five inputs, in order",
    Counting: "all inputs, in any order",
    AssociativeRecall: "two pairs, to look one up",
    SparseParity: "two inputs, far apart",
    SmallPermutedMNIST: "all inputs: a picture",
}
"""What the answer takes."""

TASKS: tuple[Task, ...] = (
    FirstWord(50),
    WordCounts(50),
    CopyFirstInput(50),
    NoisySine(50),
    TemporalOrder(50),
    Parity(50),
    SelectiveCopying(50),
    DelayedMatch(50),
    Adding(100),
    Counting(50),
    RepeatPrevious(50),
    FlipFlop(50),
    Denoising(50, 20),
    AssociativeRecall(50),
    SparseParity(50),
    SmallPermutedMNIST(7),
    TemporalOrder(200),
    Denoising(200, 100),
    SelectiveCopying(200),
    Adding(400),
    Adding(1000),
)
"""In the order in which they are run."""

LONGEST = 200
"""Time steps of the longest task that is trained on a CPU."""


def shortened(task: Any) -> Any:
    """A task of a few steps of the same kind."""
    small = {"T": 16, "N": 6, "side": 4}
    return replace(task, **{field.name: small[field.name] for field in fields(task) if field.name in small})


SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "seeds": 5,
        "changes": {
            "learning_rate": 3e-3,
            "testing_sequences": 1000,
            "vaa_every": 5,
            "vaa_batches": 2,
            "stabilisation": 1000,
            "max_stabilisation": 200,
        },
        "tasks": lambda task: task,
        "keeps": lambda config: config.task.length <= LONGEST,
    },
    "smoke": {"tasks": shortened},
}
"""What is not as at the shared scale, by the name of the scale."""


def sized(scale: Scale) -> Scale:
    """The sizes at a scale: at the scale small five seeds, and sequences as long as at the paper's scale."""
    own = SIZES.get(scale.name, {})
    return replace(scale, **own | {"changes": scale.changes | own.get("changes", {})})


def contrasted(config: Config) -> str | None:
    """The two tasks that look alike, and of which one needs long memory."""
    alike = isinstance(config.task, FirstWord | WordCounts) and config.cell == "gru"
    return task_name(config.task) if alike else None


EXPERIMENTS = (
    Experiment(
        name="when",
        order=1,
        labels=(),
        title="When to warm up: tasks that need long memory and tasks that do not",
        runs=tuple(
            RunConfig(
                task,
                cell,
                version,
                num_layers=1,
                hidden_size=128,
                vaa_every=5,
                warmup_algorithm="fast",
                warmup_batch_size=32,
            )
            for task, cell, version in product(TASKS, ("gru", "lstm"), ("classic", "warmup", "double"))
        ),
        pictures=(
            Scores(
                name="scores",
                caption="Test loss as a share of that of guessing: 0 is perfect, 1 has learned nothing. The mean, the "
                "standard deviation and every run.",
                needs=NEEDS,
            ),
            Panels(
                name="contrast",
                caption="GRUs on two tasks that look alike: the answer is in the first word, or in all words.",
                part=contrasted,
                series=by_version,
                quantities=("validation_loss", "vaa"),
                abreast=1,
                names=("task", "version"),
            ),
        ),
        claims=(),
        sized=sized,
    ),
)
