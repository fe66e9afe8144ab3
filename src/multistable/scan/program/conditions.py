"""What a step depends on beside its arguments and the weights of its cell.

A step is recorded once for all cells that agree in this. So a change of it must be seen, and a cell with something that
may change unseen is refused.
"""

import functools
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import count
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from multistable.cells.base import Cell
from multistable.scan.program.trace import RefusedError

_OF_EVERY_MODULE = frozenset(vars(nn.Module())) | {"_abc_impl"}
_NUMBERS = (bool, int, float, complex, str, bytes, type(None))


def dependence(cell: Cell[Any]) -> tuple[Any, ...]:
    """Modes, options, functions and globals that the step of a cell may read, to be compared with those of others."""
    modules = cell.named_modules() if cell._modules else [("", cell)]
    return (*[_of_module(name, module) for name, module in modules], _of_class(type(cell)))


def _of_module(name: str, module: nn.Module) -> tuple[Any, ...]:
    options = [(key, frozen(key, value, [])) for key, value in vars(module).items() if key not in _OF_EVERY_MODULE]
    return name, type(module), module.training, *options


Reads = list[tuple[Callable[[str], Any], str, Any]]
"""What gave a value for a name, the name, and the value."""


class _Known(NamedTuple):
    """What was found of a class, valid as long as all that was read is the same: to look is faster than to find."""

    mro: tuple[type, ...]
    names: list[tuple[str, ...]]
    reads: Reads
    number: int


_known: dict[type, _Known] = {}
_numbers: dict[tuple[Any, ...], int] = {}
_next_number = count()


def _of_class(kind: type) -> int:
    """A number for what a cell's own classes have, and the globals that their methods name."""
    own = kind.__mro__[: kind.__mro__.index(Cell)]
    names, known = [tuple(vars(base)) for base in own], _known.get(kind)
    if known is None or known.mro != own or known.names != names or _differs(known.reads):
        reads: Reads = []
        found = tuple(entry for base in own for entry in _of_base(base, reads))
        known = _known[kind] = _Known(own, names, reads, _numbers.setdefault(found, next(_next_number)))
    return known.number


def _differs(reads: Reads) -> bool:
    """Whether anything that was read has another value now."""
    for get, name, value in reads:  # noqa: SIM110 (a generator takes three times as long, and every call asks)
        if get(name) is not value:
            return True
    return False


def _of_base(base: type, reads: Reads) -> Iterator[tuple[Any, ...]]:
    for name, value in vars(base).items():
        if name.startswith("__") or name in _OF_EVERY_MODULE:
            continue
        reads.append((vars(base).get, name, value))
        if isinstance(value, FunctionType):
            yield name, value, tuple(_globals_of(value, reads))
        elif isinstance(value, property | classmethod | staticmethod | functools.cached_property):
            yield name, value
        else:
            yield name, frozen(name, value, reads)


def _globals_of(function: FunctionType, reads: Reads) -> Iterator[tuple[str, Any]]:
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        reads.append((function.__globals__.get, name, value))
        if value is not None and not isinstance(value, ModuleType):
            yield name, frozen(name, value, reads)


def frozen(name: str, value: Any, reads: Reads) -> Any:
    """A value as something that is equal for equal values alone; ``RefusedError`` for one that may change unseen."""
    if isinstance(value, _NUMBERS):
        return type(value), repr(value)  # 1, 1.0 and True are equal, and are not the same to a step
    if isinstance(value, tuple):
        return type(value), tuple(frozen(name, entry, reads) for entry in value)
    if isinstance(value, FunctionType):
        cells = value.__closure__ or ()
        reads += [(cell.__getattribute__, "cell_contents", cell.cell_contents) for cell in cells]
        return value, tuple(frozen(name, cell.cell_contents, reads) for cell in cells)
    if isinstance(value, type | torch.dtype | torch.device) or (callable(value) and hasattr(value, "__name__")):
        return value  # a class, or a function that is not written in Python
    if isinstance(value, Enum) or type(value).__module__ == "typing":
        return value
    what = "a tensor that is neither a parameter nor a buffer" if isinstance(value, Tensor) else type(value).__name__
    raise RefusedError(
        f"its step may read {name}, {what}, which may change unseen; numbers, texts, tuples of these and functions may "
        "be read"
    )
