"""The kinds of runs. What a kind consists of is named here, and imported when a run of it is met."""

from importlib import import_module
from typing import Any, NamedTuple

from multistable.training.settings import Config


class Kind(NamedTuple):
    """A kind of run, each part as ``"module:name"``."""

    config: str
    """The class of its configurations, a :class:`Config`."""
    tasks: str
    """What its runs can be trained on: classes by name."""
    group: str
    """The class that trains runs together, a :class:`Group`."""


KINDS = [
    Kind(
        "multistable.training.config:RunConfig",
        "multistable.tasks:TASKS",
        "multistable.training.supervised:SupervisedGroup",
    ),
    Kind("multistable.rl.config:AgentConfig", "multistable.rl.config:PROCESSES", "multistable.rl.group:AgentGroup"),
]


def config_class(task: str) -> type[Config]:
    """The class of the configurations of runs on a task, by the task's name; the first kind's for an unknown one."""
    kind = next((kind for kind in KINDS if task in _part(kind.tasks)), KINDS[0])
    return _part(kind.config)


def group_class(config: Config) -> Any:
    """The class that trains runs with such a configuration together."""
    names = [f"{base.__module__}:{base.__qualname__}" for base in type(config).__mro__]
    return _part(next(kind.group for kind in KINDS if kind.config in names))


def _part(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
