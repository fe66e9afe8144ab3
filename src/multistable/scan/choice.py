"""Which time loop advances a cell, and how precisely its products are computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan import cpu, fused, reference

BACKENDS = ("auto", "reference", "fused")
FUSED_LOOPS = ("triton", "cpu")


@dataclass(frozen=True)
class Settings:
    """What :func:`engine` sets.

    Attributes:
        backend: ``"fused"`` for one launch or loop over the whole sequence, ``"reference"`` for the plain loop,
            ``"auto"`` for the first where it can be had.
        precision: of the float32 products with recurrent matrices on a GPU, at least: ``"ieee"``; ``"tf32x3"``, almost
            float32 where no gradient is needed, as measures have it whatever is set outside, and of those with the
            input as well; or ``"tf32"``.
    """

    backend: str = "auto"
    precision: str = "ieee"

    def __post_init__(self) -> None:
        for name, accepted in (("backend", BACKENDS), ("precision", fused.PRECISIONS)):
            if getattr(self, name) not in accepted:
                hint = ', the loop that "fused" has on that device' if self.backend in FUSED_LOOPS else ""
                raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {getattr(self, name)!r}{hint}")


_settings: ContextVar[Settings] = ContextVar("settings", default=Settings())  # noqa: B039 (it is frozen)


@contextmanager
def engine(*, backend: str | None = None, precision: str | None = None) -> Iterator[Settings]:
    """Choose the time loop and the precision of its products, for what is computed inside.

    ``with ms.engine(backend="fused", precision="tf32"): ...``. What is not given stays as it is outside. The fused
    loops have first derivatives only; ``backend="reference"`` has all. ``ms.backends(rnn)`` tells which loop a network
    gets: fused ones by their device, ``"triton"`` or ``"cpu"``.

    Args:
        backend: ``"auto"`` for a fused loop where there is one, ``"fused"`` for an error where there is none,
            ``"reference"`` for the plain loop.
        precision: of float32 products on a GPU, at least: ``"ieee"``, ``"tf32x3"`` (almost) or ``"tf32"``.
    """
    given = {name: value for name, value in (("backend", backend), ("precision", precision)) if value is not None}
    token = _settings.set(replace(_settings.get(), **given))
    try:
        yield _settings.get()
    finally:
        _settings.reset(token)


@dataclass(frozen=True)
class Choice:
    """The time loop for a cell and its input.

    Attributes:
        name: ``"triton"``, ``"cpu"`` or ``"reference"``.
        reason: why no fused loop was chosen; empty where one was.
    """

    name: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}" if self.reason else self.name


def choose(cell: Cell[Any], u: Tensor) -> Choice:
    """The time loop that the present settings lead to; an explicit ``"fused"`` that cannot be had is an error."""
    backend = _settings.get().backend
    if backend == "reference":
        return Choice("reference", "asked for")
    name, module = ("cpu", cpu) if u.device.type == "cpu" else ("triton", fused)
    reason = module.supported(cell, u)
    if reason is None:
        return Choice(name)
    if backend == "fused":
        raise RuntimeError(f"the fused time loop was asked for, but {reason}")
    return Choice("reference", reason)


def advance(cell: Cell[Any], u: Tensor, state: Any, steps: int) -> Any:
    """All states of ``cell`` over ``steps`` steps, by the chosen time loop.

    Args:
        u: inputs ``(time, ..., n, input_size)``, or ``(1, ...)`` for one that is constant over the steps.
        state: the state before the first step, or ``None`` for zero.
        steps: how many.
    """
    name = choose(cell, u).name
    backend, precision = _settings.get().backend, _settings.get().precision
    if name == "triton" and (len(u) == steps or not torch.is_grad_enabled()):
        return fused.scan_input(cell, u, state, precision=precision, steps=None if len(u) == steps else steps)
    projected = cell.project(u)
    state = _given(cell, projected, state)
    # A fused loop has more to set up than one step takes. Without a gradient it keeps it all the same: a stabilisation
    # ends early by steps that are equal to the bit, however many are taken at once.
    plainly = steps == 1 and backend == "auto" and torch.is_grad_enabled() and projected.requires_grad
    if name == "cpu" and not plainly:
        return cpu.scan(cell, projected, state, steps)
    expanded = projected.expand(steps, *projected.shape[1:])
    if name == "triton":
        return fused.scan(cell, expanded, state, precision=precision)
    return reference.scan(cell, expanded, state)


@torch.no_grad()
def settle(cell: Cell[Any], u: Tensor, state: Any, steps: int) -> Any:
    """The state of ``cell`` after the last step alone, none in between stored; arguments as for :func:`advance`."""
    name = choose(cell, u).name
    if name == "triton":
        precision = _settings.get().precision
        return fused.last_of_input(cell, u, state, precision=precision, steps=None if len(u) == steps else steps)
    projected = cell.project(u)
    state = _given(cell, projected, state)
    if name == "cpu":
        return cpu.last(cell, projected, state, steps)
    return reference.last(cell, projected.expand(steps, *projected.shape[1:]), state)


def _given(cell: Cell[Any], projected: Tensor, state: Any) -> Any:
    """The given state in the cell's own form, or zero."""
    return cell.zero_state(projected[0]) if state is None else cell.State(*state)
