"""How large an experiment is run: as the paper did, or small enough for a laptop."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from multistable.rl import AgentConfig, Maze
from multistable.tasks import CopyFirstInput, Denoising, PermutedLineSequentialMNIST, settings_of
from multistable.training import Config, RunConfig


@dataclass(frozen=True, eq=False)
class Scale:
    """How large the paper's runs are made, and how many of each there are.

    Attributes:
        name: its name on the command line.
        about: in a few words.
        seeds: how many runs of each kind.
        changes: settings of every supervised run that are not the paper's.
        agents: settings of every agent that are not the paper's.
        agent_seeds: how many agents of each kind.
        units: the hidden size in place of each of the paper's.
        tasks: the task in place of each of the paper's; any other task stays as it is.
        keeps: whether one of the paper's runs is made at all.
        conditions: the values that settings of a run, or of its task, must have, see :meth:`only`.
        cells: cells of the user's own; every kind of run is made with them too.
    """

    name: str
    about: str
    seeds: int
    changes: dict[str, Any] = field(default_factory=dict)
    agents: dict[str, Any] = field(default_factory=dict)
    agent_seeds: int = 3
    units: Callable[[int], int] = lambda units: units
    tasks: Callable[[Any], Any] = lambda task: task
    keeps: Callable[[Config], bool] = lambda config: True
    conditions: Mapping[str, Collection[str]] = field(default_factory=dict)
    cells: tuple[str, ...] = ()

    def of(self, configs: Sequence[Config]) -> list[Config]:
        """The runs at this scale in place of the paper's, one for each seed."""
        others = [replace(config, cell=cell, cell_options={}) for cell in self.cells for config in configs]
        scaled = [
            replace(
                config,
                **self.changes_of(config),
                task=self.tasks(config.task),
                hidden_size=self.units(config.hidden_size),
                seed=seed,
            )
            for config in (*configs, *others)
            if self.keeps(config)
            for seed in range(self.seeds_of(config))
        ]
        return list(filter(self.wants, scaled))

    def computed_in(self, precision: str) -> "Scale":
        """The same scale with runs trained in ``precision``."""
        if precision == "ieee":
            return self
        change = {"precision": precision}
        about = f"{self.about}; trained in {precision}"
        return replace(self, about=about, changes=self.changes | change, agents=self.agents | change)

    def times(self, factor: int) -> "Scale":
        """The same scale with so many times as many seeds."""
        return replace(self, seeds=self.seeds * factor, agent_seeds=self.agent_seeds * factor)

    def only(self, conditions: Mapping[str, Collection[str]]) -> "Scale":
        """The same scale, limited to runs in which each named setting, of the run or its task, has a value given.

        Numbers are compared as numbers, and words in any case. A run without such a setting is left out.
        """
        return replace(self, conditions={**self.conditions, **conditions}) if conditions else self

    def also(self, cells: Sequence[str]) -> "Scale":
        """The same scale, with every kind of run made with these cells too."""
        return replace(self, cells=tuple(cells)) if tuple(cells) != self.cells else self

    @property
    def where(self) -> list[str]:
        """The conditions, as ``--where`` takes them."""
        return [f"{name}={','.join(values)}" for name, values in self.conditions.items()]

    def wants(self, config: Config) -> bool:
        """Whether a run fulfils the conditions."""
        settings = settings_in(config) if self.conditions else {}
        return all(
            name in settings and comparable(settings[name]) in map(comparable, values)
            for name, values in self.conditions.items()
        )

    def changes_of(self, config: Config) -> dict[str, Any]:
        """The settings of a run that are not the paper's.

        A run that never measures VAA does not at any scale, and a small batch of the warmup stays as it is.
        """
        changes = dict(self.agents if isinstance(config, AgentConfig) else self.changes)
        if not config.vaa_every:
            changes["vaa_every"] = 0
        if config.warmup_batch_size < changes.get("warmup_batch_size", 0):
            del changes["warmup_batch_size"]
        return changes

    def seeds_of(self, config: Config) -> int:
        """How many runs are made of such a run, each with its own seed."""
        return self.agent_seeds if isinstance(config, AgentConfig) else self.seeds


def settings_in(config: Config) -> dict[str, Any]:
    """The settings of a run and of its task."""
    return config.to_dict() | settings_of(config.task) | {"task": config.task_name}


def comparable(value: Any) -> float | str:
    """A setting in the form in which it is compared with a condition: a number, or a text in lower case."""
    text = str(value)
    try:
        return float(text)
    except ValueError:
        return text.lower()


def _small_task(task: Any) -> Any:
    """Tasks of the same kind as the paper's, five to ten times shorter."""
    match task:
        case Maze(L=L):
            return Maze({20: 5, 100: 10, 200: 20}.get(L, L))
        case CopyFirstInput(T=T):
            return CopyFirstInput({50: 20, 300: 50, 600: 100}.get(T, T))
        case Denoising(T=200, N=5 | 100):
            return replace(task, T=40, N={5: 5, 100: 20}[task.N])
        case PermutedLineSequentialMNIST(N=N):
            return replace(task, N={72: 12, 472: 72}.get(N, N))
    return task


def _smoke_task(task: Any) -> Any:
    """Tasks of a few steps in place of the paper's."""
    match task:
        case Maze(L=L):
            return Maze({20: 1, 100: 2, 200: 3}.get(L, L))
        case CopyFirstInput(T=T):
            return CopyFirstInput({50: 4, 300: 6, 600: 8}.get(T, T))
        case Denoising(T=200, N=5 | 100):
            return replace(task, T=14, N={5: 5, 100: 7}[task.N])
        case PermutedLineSequentialMNIST(N=N):
            return replace(task, N={72: 1, 472: 3}.get(N, N))
    return task


def _smoke_keeps(config: Config) -> bool:
    """Whether to keep a run: a few settings are enough to select among and to draw."""
    selecting = isinstance(config, RunConfig) and config.selection > 0
    return config.num_layers < 3 and config.learning_rate > 1e-4 and not (selecting and config.hidden_size > 256)


PAPER = Scale("paper", "the paper's sizes, five seeds (agents: three): hours on one GPU", seeds=5)

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
    agents={
        "episodes": 500,
        "vaa_every": 20,
        "capacity": 2048,
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
    agents={
        "episodes": 4,
        "evaluate_every": 2,
        "vaa_every": 2,
        "capacity": 64,
        "target_period": 2,
        "gradient_steps": 2,
        "batch_size": 8,
        "vaa_batches": 1,
        "vaa_batch_size": 8,
        "stabilisation": 50,
        "warmup_steps": 4,
        "warmup_batch_size": 16,
        "max_stabilisation": 10,
    },
    agent_seeds=2,
    units=lambda units: units // 32,
    tasks=_smoke_task,
    keeps=_smoke_keeps,
)

SCALES = {scale.name: scale for scale in (SMOKE, SMALL, PAPER)}
