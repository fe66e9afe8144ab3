"""The benchmarks by name.

A new task is one file and one line here, or ``TASKS["a name"] = MyTask`` in a user's own code.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from multistable.arguments import plain
from multistable.tasks.base import Task
from multistable.tasks.copy_first_input import CopyFirstInput
from multistable.tasks.denoising import Denoising
from multistable.tasks.line_sequential_mnist import PermutedLineSequentialMNIST
from multistable.tasks.sequential_mnist import PermutedSequentialMNIST

TASKS: dict[str, type[Task]] = {
    "copy": CopyFirstInput,
    "denoising": Denoising,
    "psmnist": PermutedSequentialMNIST,
    "plmnist": PermutedLineSequentialMNIST,
}


def name_of(task: object, registry: Mapping[str, type] = TASKS) -> str:
    """The name a task is registered by."""
    for name, kind in registry.items():
        if type(task) is kind:
            return name
    hint = ""
    if isinstance(task, str) and task in registry:
        hint = f", which is the name of {registry[task].__name__}"
    elif isinstance(task, Task) and registry is TASKS:
        hint = f'; TASKS["a name"] = {type(task).__name__} registers it'
    known = ", ".join(kind.__name__ for kind in registry.values())
    raise ValueError(f"task must be an object of a registered class, {known}, got {task!r}{hint}")


def settings_of(task: Any) -> dict[str, Any]:
    """What a task is: its fields as JSON has them, without where its files lie."""
    return {field.name: plain(getattr(task, field.name)) for field in fields(task) if field.compare}


def make_task(
    name: str,
    settings: dict[str, Any],
    data: Path | str | None = None,
    registry: Mapping[str, type] = TASKS,
) -> Any:
    """A task by its name and fields.

    Args:
        name: one of the ``registry``.
        settings: the fields that :func:`settings_of` gives.
        data: the folder of its files, for tasks that read any.
        registry: dataclasses by name.
    """
    if name not in registry:
        raise ValueError(f"task must be one of {', '.join(registry)}, got {name!r}")
    kind: Any = registry[name]
    known = [field.name for field in fields(kind)]
    unknown = [key for key in settings if key not in known]
    if unknown:
        accepted = ", ".join(known) or "none"
        raise ValueError(f"the task {name!r} has no setting {unknown[0]!r}; its settings are: {accepted}")
    try:
        return kind(**settings, **({"data": data} if "data" in known and data is not None else {}))
    except TypeError as error:
        missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in settings]
        raise ValueError(f"the task {name!r} needs {', '.join(missing)}") from error
