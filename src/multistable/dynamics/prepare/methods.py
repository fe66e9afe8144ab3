"""The ways to prepare a network, by name."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from multistable.arguments import shown
from multistable.dynamics.prepare.chrono import chrono
from multistable.dynamics.prepare.drawn import Drawn
from multistable.dynamics.prepare.flossing import flossing
from multistable.dynamics.prepare.identity import identity
from multistable.dynamics.prepare.nothing import nothing
from multistable.dynamics.prepare.orthogonal import orthogonal
from multistable.dynamics.prepare.uniform_gates import uniform_gates
from multistable.dynamics.prepare.warming_up import by_algorithm_3, by_default

OTHERS: dict[str, Callable[..., Any]] = {
    "chrono": chrono,
    "orthogonal": orthogonal,
    "identity": identity,
    "uniform-gates": uniform_gates,
    "flossing": flossing,
}
"""Those that are no warmup."""

METHODS: dict[str, Callable[..., Any]] = {
    "warmup": by_default,
    "paper": by_algorithm_3,
    **OTHERS,
    "none": nothing,
}
"""Called as :func:`prepare` without its ``method``; what a method returns is the history of what happened."""

COMMON = ("generator", "part", "forward")


def find(name: Any, options: dict[str, Any]) -> Callable[..., Any]:
    """A method by its name; an error for another name, or for options that it does not take."""
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {shown(name)}")
    method = METHODS[name]
    known = _options_of(method)
    unknown = [option for option in options if option not in known]
    if unknown:
        taken = ", ".join(known) or "no options"
        raise TypeError(f"method {name!r} takes no option {unknown[0]!r}: it takes {taken}")
    return method


def check_fits(name: str, network: nn.Module) -> None:
    """Raise unless a method fits the cells of a network."""
    method = METHODS[name]
    if isinstance(method, Drawn):
        method.check(network)


def _options_of(method: Callable[..., Any]) -> list[str]:
    """The options of a method, beyond what all of them take; what is set already is none."""
    set_already = getattr(method, "keywords", {})
    function = method.draw if isinstance(method, Drawn) else method
    parameters = inspect.signature(function).parameters.values()
    named = [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    return [name for name in named if name not in COMMON and name not in set_already]
