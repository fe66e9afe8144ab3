"""A setting is declared once: one field of a dataclass says what it is, what it may be and how a command takes it.

The checks of the dataclass, its documentation and the options of commands are made from the field.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from inspect import cleandoc
from textwrap import fill
from typing import Any, TypeVar

from multistable import arguments
from multistable.arguments import plain

TASK, NETWORK, TRAINING, MEASURE = "Task", "Network", "Training", "Warmup and measure"
"""The panels of a command's help that settings have their options in."""

Check = Callable[[str, Any], Any]
"""From the name and the value of a setting to the value that is kept; an error for a value that is not accepted."""

T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """What a field says of a setting, beside its type and its default.

    Attributes:
        help: a sentence or two, for the documentation of the class and the help of commands.
        check: what it may be; anything when not given.
        panel: where its option stands in the help of a command; without one, ``--set NAME=VALUE`` alone sets it.
        names: of its option; made of the field's name when not given.
        unless_given: what is taken where it is not given, in words; the default of the field when these are not given.
        parsed: the type of its option, where that is not the type of the field.
        matters: whether it has an influence on a run; settings without one are no part of the name of the run.
    """

    help: str
    check: Check = lambda name, value: value
    panel: str | None = None
    names: tuple[str, ...] = ()
    unless_given: str | None = None
    parsed: type | None = None
    matters: Callable[[Any], bool] = lambda run: True


def setting(default: Any, help: str, *args: Any, **more: Any) -> Any:
    """A field of a dataclass that is a :class:`Setting`, with a default."""
    return field(default=default, metadata=about(help, *args, **more))


def about(help: str, *args: Any, **more: Any) -> dict[str, Setting]:
    """The ``metadata`` of a field that is a :class:`Setting`."""
    return {"setting": Setting(help, *args, **more)}


def again(kind: type, name: str, default: Any = MISSING, **changes: Any) -> Any:
    """A field that is declared as in another dataclass, perhaps with another default.

    Args:
        kind: the other dataclass.
        name: of the field.
        default: as it is there, where it is not given.
        changes: attributes of the :class:`Setting` that are not as there.
    """
    there = {entry.name: entry for entry in fields(kind)}[name]
    metadata = {"setting": replace(there.metadata["setting"], **changes)}
    return field(default=there.default if default is MISSING else default, metadata=metadata)


def declared(kind: Any) -> dict[str, tuple[Field, Setting]]:
    """The settings of a dataclass, or of an object of one, by name."""
    return {entry.name: (entry, entry.metadata["setting"]) for entry in fields(kind) if "setting" in entry.metadata}


def check_settings(instance: Any) -> None:
    """Check every setting of a frozen dataclass, and make numbers of NumPy and the like Python's own."""
    for name, (_, setting) in declared(instance).items():
        object.__setattr__(instance, name, setting.check(name, plain(getattr(instance, name))))


def documented(kind: type[T]) -> type[T]:
    """The dataclass with its settings listed in its documentation."""
    told = [cleandoc(kind.__doc__ or ""), "", "Args:"]
    for name, (_, setting) in declared(kind).items():
        otherwise = f" When not given: {setting.unless_given}." if setting.unless_given else ""
        told.append(fill(f"{name}: {setting.help}{otherwise}", 116, initial_indent=4 * " ", subsequent_indent=8 * " "))
    kind.__doc__ = "\n".join(told)
    return kind


def default_of(entry: Field) -> Any:
    """The value of a field that is not given; ``MISSING`` where it must be."""
    return entry.default if entry.default_factory is MISSING else entry.default_factory()


def one_of(accepted: Iterable[str]) -> Check:
    """One of some names."""
    names = list(accepted)

    def check(name: str, value: Any) -> Any:
        if value not in names:
            raise ValueError(f"{name} must be one of {', '.join(names)}, got {value!r}")
        return value

    return check


def optional(check: Check) -> Check:
    """``None`` too, where a setting need not be given."""
    return lambda name, value: None if value is None else check(name, value)


def unchanged(check: Check) -> Check:
    """The value is kept as it is given: 1 and 1.0 are two values in the names of runs."""

    def checked(name: str, value: Any) -> Any:
        check(name, value)
        return value

    return checked


positive_number = unchanged(arguments.positive_number)
