"""Options of commands, made from the settings that dataclasses declare."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field
from inspect import Parameter
from statistics import mode
from types import GenericAlias, UnionType
from typing import Annotated, Any, get_args

import typer

from multistable.setting import MEASURE, NETWORK, TASK, TRAINING, Setting, declared, default_of
from multistable.training import Config

SEARCH, OUTPUT = "Search", "Output"
"""Panels of options that set no setting."""

PANELS = (TASK, NETWORK, SEARCH, TRAINING, MEASURE, OUTPUT)
"""In the order of the help."""

SEVERAL = "May be given several times."


def options_of_tasks(tasks: Mapping[str, type]) -> list[Parameter]:
    """An option for each setting of some tasks, by their names."""
    having: dict[str, list[str]] = {}
    for task, kind in tasks.items():
        for name in declared(kind):
            having.setdefault(name, []).append(task)
    return [_option(*declared(tasks[names[0]])[name], note=", ".join(names)) for name, names in having.items()]


def options_of_runs(kinds: Sequence[type[Config]], several: Iterable[str] = ()) -> list[Parameter]:
    """An option for each setting of some kinds of runs but ``several``, whose values commands combine.

    What the first kind does not have is said to be of the tasks of the others.
    """
    found: dict[str, list[type[Config]]] = {}
    for kind in kinds:
        for name, (_, setting) in declared(kind).items():
            if setting.panel and name not in several:
                found.setdefault(name, []).append(kind)
    made = []
    for name, having in found.items():
        entry, setting = declared(having[0])[name]
        note = "" if kinds[0] in having else ", ".join(having[0].tasks)
        made.append(_option(entry, setting, note=note, default=_default(name, having)))
    return made


def several(kind: type[Config], name: str, default: Sequence[Any] | None, help: str = "") -> Parameter:
    """An option that takes several values of a setting; its help is that of the setting when not given."""
    entry, setting = declared(kind)[name]
    told = f"{help or setting.help} {SEVERAL}"
    info = typer.Option(*_names(entry, setting), help=told, rich_help_panel=setting.panel)
    values = GenericAlias(list, (_type(entry, setting),))
    return parameter(name, values if default else values | None, info, list(default) if default else None)


def parameter(name: str, kind: Any, info: Any, default: Any = None) -> Parameter:
    """An option as a parameter of the function of a command."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def with_options(made: Iterable[Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the options, sorted by panels with those of the function itself, in place of its ``**settings``."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function).parameters.values()
        named = [parameter for parameter in own if parameter.kind is not Parameter.VAR_KEYWORD]
        every = sorted([*made, *named], key=_place)
        arranged = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in every]
        function.__signature__ = inspect.Signature(arranged)  # type: ignore[attr-defined]
        function.__annotations__ = {parameter.name: parameter.annotation for parameter in arranged}
        return function

    return decorate


def option_name(kind: type[Config], name: str) -> str:
    """How the option of a setting is called in the first place."""
    return _names(*declared(kind)[name])[0]


def _option(entry: Field, setting: Setting, note: str = "", default: str | None = None) -> Parameter:
    """The option of a setting, which is ``None`` where it is not given."""
    told = default or _in_words(entry, setting)
    info = typer.Option(
        *_names(entry, setting),
        help=f"{setting.help.removesuffix('.')} ({note})." if note else setting.help,
        show_default=told or False,
        rich_help_panel=setting.panel,
    )
    return parameter(entry.name, _type(entry, setting) | None, info)


def _names(entry: Field, setting: Setting) -> tuple[str, ...]:
    if setting.names:
        return setting.names
    name = entry.name.replace("_", "-")
    return (f"--{name}/--no-{name}",) if _type(entry, setting) is bool else (f"--{name}",)


def _type(entry: Field, setting: Setting) -> Any:
    """The type of the option of a setting, which need not be told that it may be ``None``."""
    if setting.parsed is not None:
        return setting.parsed
    if isinstance(entry.type, UnionType):
        return next(kind for kind in get_args(entry.type) if kind is not type(None))
    return entry.type


def _in_words(entry: Field, setting: Setting) -> str:
    """What is taken where a setting is not given."""
    value = default_of(entry)
    if isinstance(value, bool):
        return entry.name if value else f"no-{entry.name}"
    return setting.unless_given or ("" if value is MISSING else str(value))


def _default(name: str, kinds: Sequence[type[Config]]) -> str:
    """What is taken by runs of some kinds, and on some tasks, where a setting is not given."""
    sizes = {task: getattr(made, "paper_sizes", {}) for kind in kinds for task, made in kind.tasks.items()}
    if all(name in of_task for of_task in sizes.values()):
        usual = mode(of_task[name] for of_task in sizes.values())
        others = [f"{of_task[name]} for {task}" for task, of_task in sizes.items() if of_task[name] != usual]
        return f"the paper's: {', '.join([*others, f'else {usual}'])}"
    defaults = {kind: _in_words(*declared(kind)[name]) for kind in kinds}
    first = defaults[kinds[0]]
    others = [f"{', '.join(kind.tasks)} {told}" for kind, told in defaults.items() if told != first]
    return ", ".join([first, *others])


def _place(parameter: Parameter) -> int:
    panel = parameter.annotation.__metadata__[0].rich_help_panel
    return PANELS.index(panel) if panel in PANELS else -1
