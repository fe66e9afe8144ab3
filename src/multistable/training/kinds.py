"""The kinds of runs. Each is named here, and imported when it is needed."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from multistable.training.settings import Config

KINDS = {
    "multistable.training.config:RunConfig": "multistable.training.supervised:SupervisedGroup",
    "multistable.rl.config:AgentConfig": "multistable.rl.group:AgentGroup",
}
"""The class of a kind's configurations, and the class that trains its runs together, each as ``"module:name"``."""


def config_class(task: str) -> type[Config]:
    """The configuration class of runs on a task, by the task's name; the first kind's if no kind has that task."""
    return next((kind for kind in _config_classes() if task in kind.tasks), next(_config_classes()))


def group_class(config: Config) -> Any:
    """The class that trains runs with such a configuration together."""
    names = (f"{base.__module__}:{base.__qualname__}" for base in type(config).__mro__)
    return _imported(next(KINDS[name] for name in names if name in KINDS))


def _config_classes() -> Iterator[type[Config]]:
    """The configuration classes, each imported when it is asked for."""
    return map(_imported, KINDS)


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
