"""What the time loop asks of a cell, and the loop itself as operations of PyTorch, written in place."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain, cycle, repeat
from typing import ClassVar

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]

AT_ONCE = 131_072
"""Elements of a block for which backward finds slopes at once: enough to be worth two threads, and still in cache."""


class Equations(ABC):
    """A cell for the shared loop, which hands the views of one time step to ``step`` and ``step_back``.

    The other methods see many steps at once, as tensors with time first: ``(time, [N,] n, blocks * hidden)`` for the
    projected input and what is kept, ``(time, [N,] n, blocks, hidden)`` for gradients ``d``; slopes ``k`` are
    ``(blocks, time, [N,] n, hidden)``.
    """

    kept: ClassVar[tuple[int, ...]]
    """The buffers kept for backward: how many blocks lie side by side in each."""
    gates: ClassVar[int]
    """Blocks of pre-activation gradients, those that the step before needs first."""
    recurrent: ClassVar[int]
    """How many of these blocks ``step_back`` writes; the others are ``g * k``, for many steps at once."""
    of_input: ClassVar[slice]
    """Which of these blocks are the gradient of the projected input."""
    slopes: ClassVar[int]
    """Blocks of slopes: one for each gate, then what else the cell needs."""
    weight_dim: ClassVar[int] = 2
    """Dimensions of the recurrent weight of one recurrence."""
    few_threads: ClassVar[float] = 4
    """With more threads than these, PyTorch's passes over many elements beat one compiled pass between products."""
    may_have_bias: ClassVar[bool] = False
    """Whether the cell may have a recurrent bias."""
    overwrites: ClassVar[bool] = False
    """Whether ``go_back`` leaves the gradients in the memory of what was kept."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias
        many = weight.dim() > self.weight_dim
        self.multiply: Callable[..., Tensor] = torch.bmm if many else torch.mm
        self.multiply_add: Callable[..., Tensor] = torch.baddbmm if many else torch.addmm

    @cached_property
    def zero(self) -> Tensor:
        """As a tensor, since some operations take no number."""
        return self.weight.new_zeros(())

    @cached_property
    def one(self) -> Tensor:
        """As a tensor, since some operations take no number."""
        return self.weight.new_ones(())

    @cached_property
    def transposed(self) -> Tensor:
        """The recurrent weight for gradients, ``([N,] recurrent * hidden, hidden)``."""
        return self.weight.mT.contiguous()

    def advance(self, steps: int, x: Tensor, states: Tensors, kept: Tensors) -> None:
        """Fill ``states``; one that has two times only is filled in turns, and ``kept`` that has one is overwritten."""
        moments = [field.unbind(0) for field in states]
        old = [cycle(times) for times in moments]
        new = [chain(times[1:], cycle(times)) for times in moments]
        views = [_each(view, steps) for view in self.views(x, kept)]
        for _, *step in zip(range(steps), *old, *new, *views, strict=False):
            self.step(*step)

    def go_back(self, upstream: tuple[Tensor | None, ...], states: Tensors, kept: Tensors) -> tuple[Tensor, Tensors]:
        """Gradients of the pre-activations, ``(steps, [N,] n, gates, hidden)``, and of the state before the first step.

        ``states`` are those before each step.
        """
        steps, *leading, hidden = states[0].shape
        nothing = states[0].new_zeros((*leading, hidden))
        add = [(nothing, *(repeat(nothing, steps) if field is None else field.unbind(0))) for field in upstream]
        at_once = min(steps, max(1, AT_ONCE // max(1, nothing.numel())))
        d = nothing.new_empty(steps, *leading, self.gates, hidden)
        k = nothing.new_empty(self.slopes, at_once, *leading, hidden)
        gradients = tuple(nothing.new_empty(at_once + 1, *leading, hidden) for _ in states)
        now = [moments[steps] for moments in add]
        for stop in range(steps, 0, -at_once):
            start = max(0, stop - at_once)
            for field, last in zip(gradients, now, strict=True):
                field[stop - start].copy_(last)
            part = slice(start, stop)
            d_part, k_part = d[part], k[:, : stop - start]
            state_part, kept_part = (tuple(buffer[part] for buffer in buffers) for buffers in (states, kept))
            g = tuple(field[1 : stop - start + 1] for field in gradients)
            before = tuple(field[: stop - start] for field in gradients)
            self.find_slopes(state_part, kept_part, k_part)
            views = [view.unbind(0) for view in (*g, *before)]
            views += [moments[part] for moments in add]
            views += [view.unbind(0) for view in self.views_back(g, kept_part, k_part, d_part)]
            for step in zip(*map(reversed, views), strict=True):
                self.step_back(*step)
            self.finish(state_part, g, k_part, d_part)
            now = [field[0] for field in gradients]
        return d, tuple(now)

    @abstractmethod
    def views(self, x: Tensor, kept: Tensors) -> Tensors:
        """What ``step`` takes of the projected input and of the buffers to keep."""

    @abstractmethod
    def step(self, *views: Tensor) -> None:
        """One step. Takes the fields of the state, those of the new state and ``views``."""

    @abstractmethod
    def find_slopes(self, state: Tensors, kept: Tensors, k: Tensor) -> None:
        """Write the slopes ``k`` from the states before the steps and what the steps kept."""

    @abstractmethod
    def views_back(self, g: Tensors, kept: Tensors, k: Tensor, d: Tensor) -> Tensors:
        """What ``step_back`` takes of the gradients, the slopes and what was kept."""

    @abstractmethod
    def step_back(self, *views: Tensor) -> None:
        """One step back. Takes the fields of ``g``, ``before`` and ``add``, and ``views_back``.

        ``add`` is the part of ``before`` that comes from the outputs directly.
        """

    def finish(self, state: Tensors, g: Tensors, k: Tensor, d: Tensor) -> None:
        """What is left of the gradients once ``step_back`` has been through these steps."""
        if self.recurrent < self.gates:
            rest = slice(self.recurrent, self.gates)
            torch.mul(g[0].unsqueeze(-2), k[rest].movedim(0, -2), out=d[..., rest, :])

    @abstractmethod
    def weight_gradients(self, state: Tensors, kept: Tensors, d: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of ``weight`` and ``bias``: one product over all steps."""


def _each(tensor: Tensor, steps: int) -> Iterable[Tensor]:
    return tensor.unbind(0) if len(tensor) == steps else repeat(tensor[0])


def sigmoid_slope(g: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """``g * y * (1 - y)`` in one pass."""
    return torch.ops.aten.sigmoid_backward.grad_input(g, y, grad_input=out)


def tanh_slope(g: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """``g * (1 - y**2)`` in one pass."""
    return torch.ops.aten.tanh_backward.grad_input(g, y, grad_input=out)


def sum_of_products(a: Tensor, b: Tensor) -> Tensor:
    """The sum over time and batch of outer products: ``(t, [N,] n, i)``, ``(t, [N,] n, o)`` to ``([N,] i, o)``."""
    if a.dim() == 4:
        a, b = a.transpose(0, 1), b.transpose(0, 1)
    return a.flatten(-3, -2).mT @ b.flatten(-3, -2)
