"""Gradient flossing: the first Lyapunov exponents are pushed to zero (Engelken, 2023)."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import positive_integer, positive_integers, positive_number
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.contexts import ieee_float32, on_the_cpu
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.models import Turn, at_least, each_part
from multistable.dynamics.system.sequences import AtMost, SequenceSet
from multistable.dynamics.system.step import Step
from multistable.dynamics.system.system import System, flat, studying
from multistable.dynamics.warmup.gradient_steps import WarmupDivergedError, warmable_parameters

EXPONENTS, BATCH_SIZE = 16, 16


@dataclass(frozen=True)
class Flossing:
    """What happened during a flossing.

    Attributes:
        exponents: the mean of each of the first exponents over a batch, before each gradient step:
            ``(steps, ..., k)``, where ``...`` is empty for a single network and R for an ensemble.
    """

    exponents: Tensor

    def __str__(self) -> str:
        first, last = (step.reshape(-1, step.shape[-1]).mean(dim=0) for step in (self.exponents[0], self.exponents[-1]))
        ranges = (f"{values[-1]:.3f} to {values[0]:.3f}" for values in (first, last))
        return " -> ".join(ranges) + f", the first {len(first)} exponents in {len(self.exponents)} gradient steps"


def flossing(
    rnn: nn.Module,
    sequences: Any,
    *,
    generator: Generators = None,
    part: str | None = None,
    forward: Forward | None = None,
    exponents: int | None = None,
    steps: int = 100,
    batch_size: int | None = None,
    lr: float = 1e-2,
    longest: int = 100,
) -> Any:
    """Push the first Lyapunov exponents of a network to zero, in place, by steps of Adam on the sum of their squares.

    The exponents are those along the user's sequences, from their first step on; as in :func:`lyapunov` the second half
    of the steps is counted. Gradients flow through the Jacobians, through the QR decomposition that keeps directions at
    right angles, and through the states.

    Args:
        rnn: see :func:`prepare`.
        sequences: see :func:`prepare`.
        generator: where batches and first directions are drawn from.
        part: see :func:`prepare`.
        forward: see :func:`prepare`.
        exponents: k, how many; if not given 16, or as many as the network's state has entries.
        steps: gradient steps.
        batch_size: sequences of a step; if not given 16, or all where there are fewer.
        lr: learning rate of Adam.
        longest: the time steps that a sequence is followed at most.

    Returns:
        A :class:`Flossing`; for several parts a dict of them.
    """
    size: Any = AtMost(BATCH_SIZE) if batch_size is None else positive_integer("batch_size", batch_size)
    k = None if exponents is None else positive_integer("exponents", exponents)
    steps, longest = positive_integers(steps=steps, longest=longest)
    lr = positive_number("lr", lr)

    _load_forward_mode()

    def one(network: nn.Module, sequences: Any, _: Turn) -> Flossing:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            ieee_float32(),
            studying(network, sequences, batch_size=size) as (system, data),
        ):
            course = _Course(network, system, data, Draws(generator, system.members), k, min(size, len(data)), longest)
            return _descend(warmable_parameters(network, system), course, steps, lr)

    return each_part(one, rnn, sequences, part=part, forward=forward, least=at_least(size), changes=True)


@dataclass
class _Course:
    """What gradient steps are taken on: a network and its sequences."""

    network: nn.Module
    system: System
    data: SequenceSet
    draws: Draws
    asked: int | None
    batch_size: int
    longest: int

    def __post_init__(self) -> None:
        system = self.system
        u = torch.zeros(1, *system.leading, 1, system.input_size, device=system.device, dtype=system.dtype)
        self.like = system.only_last(u)
        size = flat(self.like).shape[-1]
        if self.asked is not None and self.asked > size:
            raise ValueError(f"exponents must not exceed the size of the state, {size}, got {self.asked}")
        self.k = min(EXPONENTS, size) if self.asked is None else self.asked

    def exponents(self) -> Tensor:
        """The first k exponents along a new batch of sequences, ``(..., n, k)``, with a gradient."""
        system = self.system.with_present_weights()
        step = Step(self.network, system, self.like, None)
        indices = self.draws.batch(len(self.data), self.batch_size)
        u, lengths = self.data.select(indices)
        u, lengths = u[: self.longest].to(system.device, system.dtype), lengths.clamp(max=self.longest)
        before = system.before(self.data, indices)
        n, size = lengths.shape[-1], flat(self.like).shape[-1]
        x = u.new_zeros(*u.shape[1:-1], size) if before is None else flat(before)
        ways = torch.linalg.qr(self.draws.normal(n, size, self.k).to(x))[0]
        total, longest, lengths = x.new_zeros(*x.shape[:-1], self.k), int(lengths.max()), lengths.to(x.device)
        for time in range(longest):
            x, grown = after_step(step, x, u[time], ways)
            ways, r = torch.linalg.qr(grown)
            counts = ((time >= lengths // 2) & (time < lengths)).unsqueeze(-1)
            growth = r.diagonal(dim1=-2, dim2=-1).abs().log()
            total = torch.where(counts, total + growth, total)
        return total / (lengths - lengths // 2).unsqueeze(-1)


def after_step(step: Step, x: Tensor, u: Tensor, ways: Tensor) -> tuple[Tensor, Tensor]:
    """The states ``(..., n, d)`` after a step from ``x``, and what it makes of small ``ways (..., n, d, k)`` from them.

    It multiplies the Jacobian with each way, without the Jacobian itself.
    """

    def along(way: Tensor) -> Any:
        return torch.func.jvp(lambda x: step(x, u), (x,), (way,))

    dims: Any = (None, -1)  # the states are the same for every way
    after, grown = torch.func.vmap(along, in_dims=-1, out_dims=dims)(ways)
    return after, grown


def _load_forward_mode() -> None:
    """PyTorch loads what ``torch.func.jvp`` needs when it is first called, and then warns of code of its own."""
    nothing = torch.zeros((), device="cpu")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        torch.func.jvp(torch.sin, (nothing,), (nothing,))


def _descend(parameters: list[nn.Parameter], course: _Course, steps: int, lr: float) -> Flossing:
    # The optimiser has parameters of its own, over the same memory, so that those of the user keep their gradients.
    own = [nn.Parameter(parameter.detach()) for parameter in parameters]
    adam, told = torch.optim.Adam(own, lr=lr), []
    for number in range(1, steps + 1):
        exponents = course.exponents()
        loss = exponents.square().sum(dim=-1).mean(dim=-1).sum()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        norms = [torch.linalg.vector_norm(gradient) for gradient in gradients if gradient is not None]
        if not torch.stack([loss.detach(), *norms]).isfinite().all():
            raise WarmupDivergedError(
                f"the Lyapunov exponents or their gradient are not finite at step {number} of the flossing. The "
                "parameters are as they were before the call; fewer exponents may help, as units that are at rest lose "
                "directions altogether"
            )
        for parameter, gradient in zip(own, gradients, strict=True):
            parameter.grad = gradient
        with on_the_cpu():  # where it has its numbers
            adam.step()
        told.append(exponents.detach().mean(dim=-2).cpu())
    return Flossing(torch.stack(told))
