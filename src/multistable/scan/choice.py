"""Which time loop advances a cell, and how precisely its products are computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from multistable.cells.base import Cell
from multistable.scan import cpu, fused, of_torch, reference
from multistable.scan.program import RefusedError
from multistable.scan.program.members import Members
from multistable.scan.surroundings import in_own_precision, uncompiled

BACKENDS = ("auto", "reference", "fused", "torch")
LOOPS: dict[str, Any] = {"cpu": ("cpu", cpu), "cuda": ("triton", fused)}
"""The fused loop of each type of device, by its name; others are asked of the one on a GPU, which says why not."""
FUSED_LOOPS = tuple(name for name, _ in LOOPS.values())


@dataclass(frozen=True)
class Settings:
    """What :func:`engine` sets.

    Attributes:
        backend: which time loop. ``"fused"`` is one launch or loop over the whole sequence, ``"reference"`` the plain
            loop, ``"auto"`` the fused loop where there is one and the plain loop elsewhere.
        precision: the least precision of float32 products on a GPU. ``"ieee"`` is float32 and ``"tf32"`` is TF32, both
            for the products with recurrent matrices. ``"tf32x3"`` is almost float32, for these and for the products
            with the input; where a gradient is needed, it is float32. Measures have it whatever is set outside.
    """

    backend: str = "auto"
    precision: str = "ieee"

    def __post_init__(self) -> None:
        for name, accepted in (("backend", BACKENDS), ("precision", fused.PRECISIONS)):
            if getattr(self, name) not in accepted:
                hint = ', the loop that "fused" has on that device' if self.backend in FUSED_LOOPS else ""
                raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {getattr(self, name)!r}{hint}")


FASTEST_ON_THE_CPU = ("LSTM",)
MOST_UNITS, MOST_NUMBERS = 512, 2**19
"""Where ``"auto"`` takes PyTorch's own kernels, by ``benchmarks/calls.py`` (``docs/results/calls.txt``).

On the CPU for these recurrences. On a GPU in layers of more units, and, where each row of a product takes as long, in
float32 with so many numbers in the gates of a step.
"""

_settings: ContextVar[Settings] = ContextVar("settings", default=Settings())  # noqa: B039 (it is frozen)


@contextmanager
def engine(*, backend: str | None = None, precision: str | None = None) -> Iterator[Settings]:
    """Choose the time loop, and the precision of its products, for what is computed inside.

    ``with ms.engine(backend="fused", precision="tf32"): ...``. What is not given stays as it is outside. The fused
    loops have first derivatives only; ``backend="reference"`` has all. ``ms.backends(rnn)`` tells which loop a network
    gets: ``"triton"`` is the fused loop on a GPU, ``"cpu"`` the one on the CPU.

    Args:
        backend: ``"reference"`` for the plain loop; ``"fused"`` for the fused loop, or an error where there is none;
            ``"torch"`` for PyTorch's own kernels where the output alone is wanted, or an error where there are none;
            ``"auto"`` for the fastest of these that there is.
        precision: the least precision of float32 products on a GPU: ``"ieee"`` (float32), ``"tf32x3"`` (almost float32)
            or ``"tf32"``.
    """
    given = {name: value for name, value in (("backend", backend), ("precision", precision)) if value is not None}
    token = _settings.set(replace(_settings.get(), **given))
    try:
        yield _settings.get()
    finally:
        _settings.reset(token)


RECORDED = 'it cannot be exported or traced: ms.engine(backend="reference") can, and is what "auto" takes'


def _is_recorded() -> bool:
    """Whether what is computed becomes a program of ``torch.export``, ``torch.jit.trace`` or ONNX."""
    return torch._C._is_tracing() or torch.compiler.is_exporting()


@dataclass(frozen=True)
class Choice:
    """The time loop for a cell and its input.

    Attributes:
        name: ``"triton"``, ``"cpu"`` or ``"reference"``.
        reason: why no fused loop was chosen; empty where one was.
        members: what the fused loop takes of the cell.
    """

    name: str
    reason: str = ""
    members: Members | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}" if self.reason else self.name


def choose(cell: Cell[Any], u: Tensor) -> Choice:
    """The time loop that the present settings lead to; an error if they ask for a fused loop that cannot run."""
    return Choice(*_chosen(cell, u))


def _chosen(cell: Cell[Any], u: Tensor) -> tuple[str, str, Members | None]:
    """The fields of :class:`Choice`."""
    backend = _settings.get().backend
    if backend == "reference":
        return "reference", "asked for", None
    name, module = LOOPS.get(u.device.type, ("triton", fused))
    try:
        if _is_recorded():
            raise RefusedError(RECORDED)
        return name, "", module.prepared(cell, u)
    except RefusedError as reason:
        if backend == "fused":
            raise RuntimeError(f"the fused time loop was asked for, but {reason}") from reason
        return "reference", str(reason), None


@uncompiled
@in_own_precision
def scan(cell: Cell[Any], u: Tensor, state: Any = None, *, only_last: bool = False) -> Any:
    """Advance ``cell`` over a whole sequence of inputs, by the chosen time loop.

    An input that is constant in time, made with ``u.expand(time, ...)``, costs one product instead of one a step,
    unless its gradient is wanted. Under ``torch.autocast`` it computes in the type of the weights all the same.

    Args:
        u: inputs, ``(time, ..., n, input_size)`` with ``time >= 1``; ``...`` are the cell's leading dimensions.
        state: the state before the first step, each field ``(..., n, hidden_size)``; zero if not given.
        only_last: return the state after the last step alone, without gradient; no other is stored.

    Returns:
        ``cell.State`` after each step, each field ``(time, ..., n, hidden_size)``; without time if ``only_last``.
    """
    return _scan(cell, u, state, only_last=only_last)


def _scan(cell: Cell[Any], u: Tensor, state: Any, *, only_last: bool = False) -> Any:
    steps = len(u)
    if steps == 0:
        raise ValueError("sequences must have at least one time step, got length 0")
    if u.stride(0) == 0 and not u.requires_grad:
        u = u[:1]
    if only_last:
        with torch.no_grad():
            return _only_last(cell, u, state, steps)
    (name, _, members), settings = _chosen(cell, u), _settings.get()
    if name == "triton" and (len(u) == steps or not torch.is_grad_enabled()):
        return fused.scan_input(cell, u, state, precision=settings.precision, steps=steps, members=members)
    projected = cell.project(u)
    state = _given(cell, projected, state)
    # A fused loop has more to set up than one step takes. Without a gradient it is used all the same: a stabilisation
    # ends early because steps are equal to the last bit, however many are taken at once.
    plainly = steps == 1 and settings.backend == "auto" and torch.is_grad_enabled() and projected.requires_grad
    if name == "cpu" and not plainly:
        return cpu.scan(cell, projected, state, steps, members=members)
    expanded = projected.expand(steps, *projected.shape[1:])
    if name == "triton":
        return fused.scan(cell, expanded, state, precision=settings.precision, members=members)
    return reference.scan(cell, expanded, state)


@in_own_precision
def read(cell: Cell[Any], u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    """The output of ``cell`` after each step ``(time, ..., n, hidden_size)``, and its state after the last.

    Arguments as for :func:`scan`. Called by ``ms.RNN`` alone, which ``torch.compile`` leaves as it is.
    """
    settings = _settings.get()
    backend, precision = settings.backend, settings.precision
    if backend == "torch" or (backend == "auto" and torch_is_fastest(cell, u, precision) and not _is_recorded()):
        try:
            return of_torch.read(cell, u, state, precision=precision)
        except RefusedError as reason:
            if backend == "torch":
                raise RuntimeError(f"PyTorch's own kernels were asked for, but {reason}") from reason
    states = _scan(cell, u, state)
    return states[0], cell.State(*[field[-1].clone() for field in states])


def torch_is_fastest(cell: Cell[Any], u: Tensor, precision: str) -> bool:
    """Whether PyTorch's kernels, where they are, take less time than the loop made from the cell's step."""
    kind = cell.torch_kind
    if kind is None or not u.is_cuda:
        return kind in FASTEST_ON_THE_CPU
    of_a_step = len(cell.torch_gates) * cell.hidden_size * u.shape[1]
    return cell.hidden_size > MOST_UNITS or (precision == "ieee" and of_a_step >= MOST_NUMBERS)


def _only_last(cell: Cell[Any], u: Tensor, state: Any, steps: int) -> Any:
    """The state after the last of so many steps; ``u`` has one time step if it is constant."""
    (name, _, members), precision = _chosen(cell, u), _settings.get().precision
    if name == "triton":
        return fused.scan_input(cell, u, state, precision=precision, steps=steps, only_last=True, members=members)
    projected = cell.project(u)
    state = _given(cell, projected, state)
    if name == "cpu":
        return cpu.last(cell, projected, state, steps, members=members)
    return reference.only_last(cell, projected.expand(steps, *projected.shape[1:]), state)


def _given(cell: Cell[Any], projected: Tensor, state: Any) -> Any:
    """The given state in the cell's own form, or zero."""
    return cell.zero_state(projected[0]) if state is None else cell.State(*state)
