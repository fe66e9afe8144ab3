"""One step of a network in float64, as a function of whole states, and its derivative."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from multistable.dynamics.system.contexts import evaluating
from multistable.dynamics.system.derivatives import Linear, jacobians, linear_layers
from multistable.dynamics.system.system import System, system_of
from multistable.dynamics.system.whole_states import States, divided, flat

ENTRIES = {"cpu": 2**20}
MOST_ENTRIES = 2**26
"""Derivatives of so many entries are in memory at once. On a CPU, 8 MiB stay in the cache: more take twice as long."""


def at_once(x: Tensor) -> int:
    """For how many of the states ``(n, d)`` derivatives are computed at once."""
    return max(1, ENTRIES.get(x.device.type, MOST_ENTRIES) // x.shape[-1] ** 2)


@dataclass(frozen=True)
class Step:
    """x -> f(x, u) of one network as it was when this was made, for whole states ``(n, d)``.

    Attributes:
        rnn: a copy of the network in float64.
        system: the copy as a system over its present weights.
        like: the states of its layers for one sequence, which tell how a whole state is divided.
        linear: the cells of the layers, where the derivatives of all are made of their weights.
    """

    rnn: nn.Module
    system: System
    like: States
    linear: list[list[Linear]] | None

    @property
    def size(self) -> int:
        """d, the size of a whole state."""
        return flat(self.like).shape[-1]

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        """The states ``(n, d)`` after one step from ``x (n, d)`` under ``u (n, features)`` or ``(1, features)``."""
        if not len(x):  # not every module takes batches of none
            return x
        u, after = u.expand(*x.shape[:-1], u.shape[-1]), []
        for layer, state in zip(self.system.layers, divided(x, self.like), strict=True):
            u, state = layer.step(u, state)
            after.append(state)
        return flat(after)

    def after(self, x: Tensor, u: Tensor, steps: int) -> Tensor:
        """The states ``(n, d)`` after so many steps under ``u (1, features)``, by the fastest loop there is."""
        return flat(self.system.only_last(u.expand(steps, len(x), -1), divided(x, self.like)))

    def checked(self, x: Tensor) -> Tensor:
        """Whole states ``(n, d)``; an error if they are not of the network's size."""
        self.system.split(x)
        return x

    def jacobians(self, x: Tensor, u: Tensor) -> Tensor:
        """The derivatives ``(n, d, d)`` of the step at ``x (n, d)``: rows are units after it, columns before it."""
        if not len(x):
            return x.new_zeros(0, x.shape[-1], x.shape[-1])
        u = u.expand(*x.shape[:-1], u.shape[-1])
        pairs = zip(x.split(at_once(x)), u.split(at_once(x)), strict=True)
        return torch.cat([self._jacobians(some, inputs) for some, inputs in pairs])

    def _jacobians(self, x: Tensor, u: Tensor) -> Tensor:
        if self.linear is not None:
            return jacobians(self.linear, divided(x, self.like), u)

        def one(x: Tensor, u: Tensor) -> Tensor:
            return self(x.unsqueeze(0), u.unsqueeze(0)).squeeze(0)

        try:
            return torch.func.vmap(torch.func.jacrev(one))(x, u)
        except (RuntimeError, NotImplementedError):
            return self._row_by_row(x, u)

    def _row_by_row(self, x: Tensor, u: Tensor) -> Tensor:
        """The same for modules that ``vmap`` does not know: a backward pass for each unit, of all states at once."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            after = self(x, u)
            rows = [torch.autograd.grad(unit.sum(), x, retain_graph=True)[0] for unit in after.unbind(dim=-1)]
        return torch.stack(rows, dim=-2)


@contextmanager
def precise_step(rnn: nn.Module, features: int) -> Iterator[Step]:
    """A copy of a single network in float64, ready to step; the network itself is not touched.

    Args:
        rnn: see :func:`measure`; not an ensemble.
        features: the size of its input.
    """
    with stepping(copy.deepcopy(rnn).double(), features) as step:
        yield step


@contextmanager
def stepping(precise: nn.Module, features: int) -> Iterator[Step]:
    """A network with float64 parameters and buffers, ready to step, without gradients."""
    with torch.no_grad(), evaluating(precise):
        system = in_float64(precise, features)
        u = torch.zeros(1, *system.leading, 1, features, device=system.device, dtype=torch.float64)
        yield Step(precise, system, system.only_last(u), linear_layers(system.layers))


def in_float64(rnn: nn.Module, features: int) -> System:
    """A network with float64 parameters and buffers as a system; an error if it still computes in lower precision."""
    accepted = f"{type(rnn).__name__} must compute in float64 when its parameters and buffers are in float64"
    try:
        system = system_of(rnn, features).with_present_weights()
        u = torch.zeros(2, *system.leading, 1, features, device=system.device, dtype=torch.float64)
        found = flat(system.only_last(u)).dtype
    except (RuntimeError, TypeError) as error:
        raise TypeError(f"{accepted}, as tensors made by x.new_zeros or kept as buffers do: {error}") from error
    if found != torch.float64:
        raise TypeError(f"{accepted}, got states in {found}")
    return system
