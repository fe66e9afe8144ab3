"""The benchmarks by name.

A new task is one file and one line here, or ``TASKS["a name"] = MyTask`` in a user's own code.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from multistable.arguments import plain
from multistable.registry import Registry
from multistable.tasks.adding import Adding
from multistable.tasks.associative_recall import AssociativeRecall
from multistable.tasks.base import Task
from multistable.tasks.copy_first_input import CopyFirstInput
from multistable.tasks.counting import Counting
from multistable.tasks.delayed_match import DelayedMatch
from multistable.tasks.denoising import Denoising
from multistable.tasks.flip_flop import FlipFlop
from multistable.tasks.line_sequential_mnist import PermutedLineSequentialMNIST
from multistable.tasks.noisy_sine import NoisySine
from multistable.tasks.parity import Parity, SparseParity
from multistable.tasks.repeat_previous import RepeatPrevious
from multistable.tasks.selective_copying import SelectiveCopying
from multistable.tasks.sequential_mnist import PermutedSequentialMNIST
from multistable.tasks.small_mnist import SmallPermutedMNIST
from multistable.tasks.temporal_order import TemporalOrder
from multistable.tasks.words import FirstWord, WordCounts


def _is_task(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Task) and is_dataclass(kind)


TASKS: Registry[type[Task]] = Registry(
    "task",
    "multistable.tasks",
    {
        "copy": CopyFirstInput,
        "denoising": Denoising,
        "psmnist": PermutedSequentialMNIST,
        "plmnist": PermutedLineSequentialMNIST,
        # Beyond the paper.
        "adding": Adding,
        "counting": Counting,
        "delayed-match": DelayedMatch,
        "first-word": FirstWord,
        "flip-flop": FlipFlop,
        "noisy-sine": NoisySine,
        "parity": Parity,
        "recall": AssociativeRecall,
        "repeat-previous": RepeatPrevious,
        "selective-copying": SelectiveCopying,
        "small-psmnist": SmallPermutedMNIST,
        "sparse-parity": SparseParity,
        "temporal-order": TemporalOrder,
        "word-counts": WordCounts,
    },
    accepts=_is_task,
)


def settings_of(task: Any) -> dict[str, Any]:
    """What a task is: its fields as JSON has them, without where its files lie."""
    return {field.name: plain(getattr(task, field.name)) for field in fields(task) if field.compare}


def make_task(
    name: str, settings: dict[str, Any], data: Path | str | None = None, registry: Registry[Any] = TASKS
) -> Any:
    """A task by its name and fields.

    Args:
        name: one that the ``registry`` finds.
        settings: the fields that :func:`settings_of` gives.
        data: the folder of its files, for tasks that read any.
        registry: dataclasses by name.
    """
    kind: Callable[..., Any] = registry.find(name)
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = [key for key in settings if key not in known]
    if unknown:
        accepted = ", ".join(known) or "none"
        raise ValueError(f"the task {name!r} has no setting {unknown[0]!r}; its settings are: {accepted}")
    try:
        return kind(**settings, **({"data": data} if "data" in known and data is not None else {}))
    except TypeError as error:
        missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in settings]  # type: ignore[arg-type]
        raise ValueError(f"the task {name!r} needs {', '.join(missing)}") from error
