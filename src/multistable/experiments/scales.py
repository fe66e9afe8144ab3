"""How large an experiment is run: as the paper did, or small enough for a laptop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST, Task
from multistable.training import RunConfig


@dataclass(frozen=True)
class Scale:
    """What becomes of the paper's runs.

    Attributes:
        name: as on the command line.
        about: in a few words.
        seeds: how many runs of each kind.
        changes: settings of every run that are not the paper's.
        units: the hidden size for each of the paper's; the others stay.
        tasks: the task in place of each of the paper's; the others stay.
        keeps: whether a run of the paper is run at all.
    """

    name: str
    about: str
    seeds: int
    changes: dict[str, Any] = field(default_factory=dict)
    units: Callable[[int], int] = lambda units: units
    tasks: Callable[[Task], Task] = lambda task: task
    keeps: Callable[[RunConfig], bool] = lambda config: True

    def of(self, configs: Sequence[RunConfig]) -> list[RunConfig]:
        """Runs at this scale in place of the paper's, one for each seed."""
        return [
            replace(
                config,
                **self.changes,
                task=self.tasks(config.task),
                hidden_size=self.units(config.hidden_size),
                seed=seed,
            )
            for config in configs
            if self.keeps(config)
            for seed in range(self.seeds)
        ]


def _small_task(task: Task) -> Task:
    """Tasks of the same kind, five to ten times shorter."""
    match task:
        case CopyFirstInput(T=T):
            return CopyFirstInput({50: 20, 300: 50, 600: 100}.get(T, T))
        case Denoising(N=N):
            return replace(task, T=40, N={5: 5, 100: 20}.get(N, N))
        case PermutedLineSequentialMNIST(N=N):
            return replace(task, N={72: 12, 472: 72}.get(N, N))
    return task


def _smoke_task(task: Task) -> Task:
    """Tasks of a few steps."""
    match task:
        case CopyFirstInput(T=T):
            return CopyFirstInput({50: 4, 300: 6, 600: 8}.get(T, T))
        case Denoising(N=N):
            return replace(task, T=14, N={5: 5, 100: 7}.get(N, N))
        case PermutedLineSequentialMNIST(N=N):
            return replace(task, N={72: 1, 472: 3}.get(N, N))
    return task


PAPER = Scale("paper", "the paper's sizes, five seeds: hours on one GPU", seeds=5)

SMALL = Scale(
    "small",
    "short sequences, small networks, three seeds: minutes to hours on two CPU cores",
    seeds=3,
    changes={
        "epochs": 10,
        "pretraining_epochs": 4,
        "training_sequences": 4000,
        "testing_sequences": 2000,
        "vaa_every": 2,
        "vaa_batches": 4,
        "stabilisation": 2000,
        "warmup_batch_size": 100,
        "max_stabilisation": 100,
    },
    units=lambda units: units // 4,
    tasks=_small_task,
)

SMOKE = Scale(
    "smoke",
    "does everything run? Tiny networks, two epochs: nothing can be learned from it",
    seeds=2,
    changes={
        "epochs": 2,
        "pretraining_epochs": 2,
        "training_sequences": 40,
        "testing_sequences": 20,
        "batch_size": 16,
        "vaa_batches": 1,
        "vaa_batch_size": 8,
        "stabilisation": 50,
        "warmup_steps": 4,
        "warmup_batch_size": 16,
        "max_stabilisation": 10,
    },
    units=lambda units: units // 32,
    tasks=_smoke_task,
    keeps=lambda config: config.num_layers < 3 and config.learning_rate > 1e-4,
)

SCALES = {scale.name: scale for scale in (SMOKE, SMALL, PAPER)}
