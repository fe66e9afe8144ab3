"""The kinds of runs. They are named here, and imported when a run of the kind is met."""

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
    """The class of the configurations of runs on a task, by its name; the first kind's for a name that none has."""
    return next((kind for kind in _config_classes() if task in kind.tasks), next(_config_classes()))


def group_class(config: Config) -> Any:
    """The class that trains runs with such a configuration together."""
    names = (f"{base.__module__}:{base.__qualname__}" for base in type(config).__mro__)
    return _imported(next(KINDS[name] for name in names if name in KINDS))


def _config_classes() -> Iterator[type[Config]]:
    """Each is imported when it is asked for."""
    return map(_imported, KINDS)


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
