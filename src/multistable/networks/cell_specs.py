"""How the cells of a network are given: by a name, a class or a function, or as a pair for double layers."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from inspect import Parameter
from typing import Any

import torch
from torch import nn

from multistable.cells import CELLS, Cell

CellSpec = str | Callable[..., Cell[Any]]

JOINED = "+"
"""Between the names of the two cells of a double layer."""

# The arguments with which every cell makes its weights. They are passed on only if they are given.
_FACTORY = ("generator", "device", "dtype")
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def check_options(cell: CellSpec | Sequence[CellSpec], options: Iterable[str]) -> None:
    """Raise if one of the names is no argument of the cell, or of one of a pair, beyond its sizes.

    That is as far as its signature tells.
    """
    for half in halves(cell):
        known = options_of(cell_maker(half))
        unknown = [] if known is None else [name for name in options if name not in known]
        if unknown:
            named = repr(half) if isinstance(half, str) else getattr(half, "__name__", repr(half))
            raise TypeError(
                f"the cell {named} takes no argument {unknown[0]!r}; beyond its sizes it takes: "
                f"{', '.join(known or ()) or 'nothing'}"
            )


def halves(cell: CellSpec | Sequence[CellSpec]) -> list[CellSpec]:
    """The cell of a layer, or the two of a double layer, given as a pair or as two names joined by ``+``."""
    given: Any = cell.split(JOINED) if isinstance(cell, str) and cell not in CELLS else cell
    cells: list[Any] = list(given) if isinstance(given, tuple | list) else [given]
    if not 1 <= len(cells) <= 2:
        raise ValueError(f"cell must be one cell, or a pair of cells for double layers, got {len(cells)}: {cell!r}")
    return cells


def options_of(make: Callable[..., Any]) -> list[str] | None:
    """The names of the arguments that a cell takes beyond its sizes; ``None`` where it may take any."""
    bound = 0
    while isinstance(make, partial):
        bound += len(make.args)
        make = make.func
    if not isinstance(make, type):
        return _named([make], first=2 + bound)
    # The ``__init__`` of a cell hands on what it does not name, to the class above it and to the initial weights.
    return _named([vars(kind)["__init__"] for kind in make.__mro__ if "__init__" in vars(kind)], first=3 + bound)


def _named(functions: Iterable[Callable[..., Any]], first: int) -> list[str] | None:
    """The arguments of functions after the ``first`` ones; each function hands on to the next what it does not name."""
    names: list[str] = []
    for function in functions:
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
        positional = [p.name for p in parameters if p.kind in _POSITIONAL]
        names += positional[first:] + [p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
        if not any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
            return [name for name in dict.fromkeys(names) if name not in _FACTORY]
    return None


def cell_maker(spec: CellSpec) -> Callable[..., Cell[Any]]:
    """What makes a cell of two sizes, or an error that names what was given in place of a cell."""
    other_class = isinstance(spec, type) and not issubclass(spec, Cell)
    if inspect.isabstract(spec) and spec is not Cell and not other_class:
        raise TypeError(f"cell must be a Cell class that defines step(projected, state), got {spec!r}, which does not")
    if callable(spec) and not (other_class or spec is Cell or isinstance(spec, nn.Module)):
        return spec
    if not isinstance(spec, str):
        raise TypeError(f"cell must be a name ({', '.join(CELLS)}) or a Cell class, got {spec!r}")
    return CELLS.find(spec)


def made_cell(make: Callable[..., Any], input_size: int, hidden_size: int, factory: dict[str, Any]) -> Cell[Any]:
    """A cell of these sizes, or an error if the user's function makes something else."""
    cell = make(input_size, hidden_size, **factory)
    if not isinstance(cell, Cell):
        raise TypeError(f"cell must make a Cell, got one that makes a {type(cell).__name__}")
    if (cell.input_size, cell.hidden_size) != (input_size, hidden_size):
        raise ValueError(
            f"cell must make a Cell of the sizes it is given, input_size = {input_size} and hidden_size = "
            f"{hidden_size}, got one of input_size = {cell.input_size} and hidden_size = {cell.hidden_size}"
        )
    return cell


def without_bias(cell: Cell[Any]) -> None:
    """Set the biases of a cell to zero, and freeze them."""
    biases = [p for name, p in cell.named_parameters() if name in ("bias", "recurrent_bias")]
    if not biases:
        raise ValueError(f"bias=False is for cells with a parameter 'bias', {type(cell).__name__} has none")
    for bias in biases:
        with torch.no_grad():
            bias.zero_()
        bias.requires_grad_(False)
