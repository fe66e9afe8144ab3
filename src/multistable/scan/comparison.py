"""Whether a fused loop computes what the plain one does."""

import copy
import math
from typing import Any

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan.choice import choose, engine, scan

SIZES = [(1, 1), (1, 5), (2, 3), (17, 5)]
"""Steps and sequences: of one, and of numbers that no vector and no tile divides."""

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}
"""The largest error beyond four times that of the plain loop in the same precision."""


def check(cell: Cell[Any]) -> dict[str, dict[str, float]]:
    """Compare the fused loop of a cell with the plain one: all states and every gradient.

    The fused loop runs in float64 and in float32, where the cell's device has it, on random inputs and states, with
    random gradients of every state, with the cell's own weights. The plain loop runs in float64. An error is the
    largest difference of all sizes, relative to the largest number; what is not finite is wrong.

    Returns:
        ``"float64"`` and ``"float32"``, each with the largest error of each field of the state, as ``"h"``, and of each
    gradient, as ``"gradient of input"``, ``"gradient of h"`` for the initial state, and ``"gradient of bias"``.

    Raises:
        ValueError: there is no fused loop for this cell; the message says why.
        ArithmeticError: an error is larger than 1e-9 in float64, or in float32 than 1e-4 and four times that of the
            plain loop; the message says which.
    """
    if not isinstance(cell, Cell):
        raise TypeError(f"cell must be a Cell, got {type(cell).__name__}")
    device = next((weight.device for weight in cell.parameters()), torch.device("cpu"))
    found: dict[str, dict[str, float]] = {}
    reasons = []
    for dtype, tolerance in TOLERANCES.items():
        own = copy.deepcopy(cell).to(dtype)
        choice = choose(own, torch.zeros(1, 1, cell.input_size, dtype=dtype, device=device))
        if choice.reason:
            reasons.append(choice.reason)
            continue
        precision = str(dtype).removeprefix("torch.")
        found[precision], rounding = _errors(own, device)
        limits = {name: tolerance + 4 * error for name, error in rounding.items()}
        wrong = {n: error for n, error in found[precision].items() if not error <= limits[n] < math.inf}
        if wrong:
            listed = ", ".join(f"{name} {error:.1e}" for name, error in wrong.items())
            raise ArithmeticError(
                f"the fused loop of {type(cell).__name__} on {device} is not the plain one in {precision}, "
                f"by more than {tolerance:g}: {listed}"
            )
    if not found:
        raise ValueError(f"there is no fused loop to check: {reasons[0]}")
    return found


def _errors(cell: Cell[Any], device: torch.device) -> tuple[dict[str, float], dict[str, float]]:
    """The largest errors over all sizes, and those of the plain loop in the same precision."""
    generator = torch.Generator().manual_seed(0)
    differences: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    largest: dict[str, Tensor] = {}
    for steps, rows in SIZES:
        shapes = [(steps, rows, cell.input_size), *[(rows, cell.hidden_size)] * len(cell.State._fields)]
        shapes += [(steps, rows, cell.hidden_size)] * len(cell.State._fields)
        # In float32, so that they are the same in both precisions.
        tensors = [torch.randn(shape, generator=generator).to(device) for shape in shapes]
        with engine(backend="fused", precision="ieee"):
            fused = _results(cell, tensors)
        with engine(backend="reference"):
            plain, expected = _results(cell, tensors), _results(copy.deepcopy(cell).double(), tensors)
        for name, value in expected.items():
            _raise_to(largest, name, value)
            for found, actual in zip(differences, (fused, plain), strict=True):
                _raise_to(found, name, actual[name].double() - value)
    of_fused, of_plain = (
        {name: (value / largest[name].clamp_min(1e-30)).item() for name, value in found.items()}
        for found in differences
    )
    return of_fused, of_plain


def _raise_to(found: dict[str, Tensor], name: str, value: Tensor) -> None:
    """The largest so far; NaN stays."""
    size = value.abs().max()
    found[name] = torch.maximum(found.get(name, size), size)


def _results(cell: Cell[Any], tensors: list[Tensor]) -> dict[str, Tensor]:
    """States and gradients by name, from the input, the fields of the state and the gradients of these fields."""
    fields, weights = cell.State._fields, dict(cell.named_parameters())
    dtype = next(iter(weights.values())).dtype
    tensors = [tensor.to(dtype, copy=True) for tensor in tensors]
    leaves = [*tensors[: 1 + len(fields)], *weights.values()]
    with torch.enable_grad():
        for leaf in leaves:
            leaf.requires_grad_()
        states = scan(cell, leaves[0], cell.State(*leaves[1 : 1 + len(fields)]))
        found = torch.autograd.grad(states, leaves, tensors[1 + len(fields) :], allow_unused=True)
    results = {name: field.detach() for name, field in zip(fields, states, strict=True)}
    named = zip(["input", *fields, *weights], found, leaves, strict=True)
    return results | {f"gradient of {name}": torch.zeros_like(leaf) if g is None else g for name, g, leaf in named}
