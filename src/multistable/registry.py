"""Classes by name: those of the library, those that a user adds, and those that can be imported."""

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from multistable.arguments import shown

T = TypeVar("T")

REFERENCE = "module:Class"
"""How something that can be imported is named, for instance ``my_cells:Leaky``."""


class Registry(dict[str, T]):
    """Classes by name. An assignment adds one, ``CELLS["leaky"] = Leaky``.

    :meth:`find` also knows the names that installed packages give in a group of entry points, and ``module:Class``.

    Args:
        what: the word for what is made of its classes.
        group: the group of entry points.
        entries: the library's own.
        accepts: whether something that was imported can be one.
    """

    def __init__(self, what: str, group: str, entries: dict[str, T], accepts: Callable[[Any], bool] = callable) -> None:
        super().__init__(entries)
        self.what, self.group = what, group
        self._own, self._accepts = dict(entries), accepts

    def __missing__(self, name: Any) -> T:
        raise KeyError(f"{self.what} must be one of {', '.join(self.names())}, got {shown(name)}")

    def names(self) -> list[str]:
        """All names, those of entry points last."""
        return list(dict.fromkeys([*self, *(point.name for point in self._points())]))

    def find(self, name: str) -> T:
        """The class of a name, of an entry point or of ``module:Class``."""
        if isinstance(name, str) and name in self:
            return self[name]
        points = [point for point in self._points() if point.name == name]
        if not points and not (isinstance(name, str) and all(name.partition(":"))):
            raise ValueError(f"{self.what} must be one of {', '.join(self.names())} or {REFERENCE}, got {shown(name)}")
        found = self._imported(points[0].value if points else name)
        if not self._accepts(found):
            raise ValueError(f"{self.what} {name!r} must be the class of a {self.what}, got {shown(found)}")
        return found

    def name_of(self, kind: Any, given: Any = None) -> str:
        """The name that finds a class; ``given`` is what it is the class of, for errors."""
        for name, entry in self.items():
            if entry is kind:
                return name
        package = getattr(kind, "__module__", "").partition(".")[0]
        for point in self._points():
            if point.module.partition(".")[0] == package and point.load() is kind:
                return point.name
        accepted = self._accepts(kind)
        found = reference(kind) if accepted else None
        if found is None:
            registry, classes = self.group.rpartition(".")[2].upper(), ", ".join(map(_called, self.values()))
            hint = f'; {registry}["a name"] = {_called(kind)} registers it' if accepted else ""
            if isinstance(given, str) and given in self:
                hint = f", which is the name of {_called(self[given])}"
            raise ValueError(
                f"{self.what} must be of a class that is registered, {classes}, or that can be imported, got "
                f"{shown(kind if given is None else given)}{hint}"
            )
        return found

    def checked(self, name: str, value: Any) -> str:
        """The name of a class, given by its name or as it is; ``name`` is that of the argument, for errors."""
        if callable(value):
            return self.name_of(value)
        self.find(value)
        return value

    def imported_as(self, name: str) -> str | None:
        """``module:Class`` of a name that this process alone knows, because its user has added it."""
        return reference(self[name]) if name in self and self._own.get(name) is not self[name] else None

    def learn(self, name: str, reference: str | None) -> None:
        """Add a name that another process has added, with what :meth:`imported_as` told of it there."""
        if reference is not None and name not in self.names():
            self[name] = self._imported(reference)

    def _points(self) -> Iterable[EntryPoint]:
        return entry_points(group=self.group)

    def _imported(self, reference: str) -> Any:
        module, _, path = reference.partition(":")
        try:
            found: Any = sys.modules["__main__"] if module == _name_of_main() else import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise  # The module is there, and imports something that is not.
            raise ModuleNotFoundError(
                f"the {self.what} {reference} cannot be imported: there is no module {error.name} on Python's path. "
                f"The current folder is {Path.cwd()}; PYTHONPATH=FOLDER adds another one",
                name=error.name,
            ) from error
        for name in path.split("."):
            if not hasattr(found, name):
                raise ValueError(f"the {self.what} {reference} cannot be imported: {module} has no {path}")
            found = getattr(found, name)
        return found


def reference(entry: Any) -> str | None:
    """``module:Class`` of something, if it can be imported by that."""
    module, path = getattr(entry, "__module__", None), getattr(entry, "__qualname__", None)
    if module not in sys.modules or not path:
        return None
    found: Any = sys.modules[module]
    for name in path.split("."):
        found = getattr(found, name, None)
    where = _name_of_main() if module == "__main__" else module
    return f"{where}:{path}" if found is entry and where else None


def _called(kind: Any) -> str:
    return getattr(kind, "__name__", repr(kind))


def _name_of_main() -> str | None:
    """The name by which another process imports the program that runs; ``None`` for what is typed in."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return spec.name if spec else Path(file).stem if file else None
