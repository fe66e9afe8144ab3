"""The kinds of runs. Each is named here, and imported when it is needed."""

from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from typing import Any

from multistable.training.settings import Config

KINDS = {
    "multistable.training.config:RunConfig": "multistable.training.supervised:SupervisedGroup",
    "multistable.rl.config:AgentConfig": "multistable.rl.group:AgentGroup",
}
"""The class of a kind's configurations, and the class that trains its runs together, each as ``"module:name"``."""


def config_class(task: str, place: str | None = None) -> type[Config]:
    """The configuration class of runs on a task, by the task's name; the first kind's if no kind has that task.

    Args:
        task: its name.
        place: ``module:Class`` of a task whose name another process has added, for where the name is not known.
    """
    registered = (kind for kind in _config_classes() if task in kind.tasks)
    names = (task,) if place is None else (task, place)
    found = (kind for name in names for kind in _config_classes() if _finds(kind, name))
    return next(chain(registered, found, _config_classes()))


def group_class(config: Config) -> Any:
    """The class that trains runs with such a configuration together."""
    names = (f"{base.__module__}:{base.__qualname__}" for base in type(config).__mro__)
    return _imported(next(KINDS[name] for name in names if name in KINDS))


def _config_classes() -> Iterator[type[Config]]:
    """The configuration classes, each imported when it is asked for."""
    return map(_imported, KINDS)


def _finds(kind: type[Config], name: str) -> bool:
    """Whether a kind has a task of that name. What is wrong with the name is told when its class is looked up."""
    try:
        kind.tasks.find(name)
    except (ValueError, TypeError, ImportError):
        return False
    return True


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
