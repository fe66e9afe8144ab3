"""The parts that both warmups share: a network under warmup, a gradient step on it, and what is put back afterwards."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from multistable.dynamics.measure.algorithm_1_measure import DivergedError
from multistable.dynamics.measure.algorithm_2_reachable_states import random_hidden_states
from multistable.dynamics.system.contexts import on_the_cpu
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.sequences import SequenceSet
from multistable.dynamics.system.system import System
from multistable.dynamics.system.whole_states import States
from multistable.dynamics.warmup.goal import Goal
from multistable.dynamics.warmup.history import WarmupHistory, WarmupStep
from multistable.dynamics.warmup.progress import Line


class WarmupDivergedError(DivergedError):
    """A loss, gradient or state of a warmup, or of a flossing, is not finite; the network is as it was before."""


@dataclass(frozen=True)
class Warming:
    """A network, or an ensemble, under warmup, with the arguments of :func:`warmup`."""

    system: System
    data: SequenceSet
    draws: Draws
    parameters: list[nn.Parameter]
    optimiser: torch.optim.Optimizer
    history: WarmupHistory
    on_step: Callable[[WarmupStep], None] | None
    line: Line
    limit: Tensor
    """The most gradient steps that each network takes, ``(...)``."""
    batch_size: int
    lr: float
    max_stabilisation: int
    increment: int
    eps: float
    deadline: float = math.inf
    """The ``time.monotonic()`` after which no step is begun."""

    @property
    def goal(self) -> Goal:
        """The goal of each network."""
        return self.history.goal

    def states(self, system: System) -> States:
        """The states that a new batch of sequences leads to."""
        return random_hidden_states(system, self.data, self.draws.batch(len(self.data), self.batch_size), self.draws)

    def record(self, step: WarmupStep, took: Tensor | bool = True) -> None:
        """Add a step, which the networks ``took (...)``, to the history, and report it."""
        self.history.record(step, took)
        self.line.step(step)
        if self.on_step is not None:
            self.on_step(step)

    def time_is_up(self) -> bool:
        """Whether no more steps are to be taken; the history then says so."""
        self.history.time_was_up = time.monotonic() > self.deadline
        return self.history.time_was_up


def gradients_of(loss: Tensor, warming: Warming) -> list[Tensor | None]:
    """The gradient of the sum of ``loss (...)``, by BPTT over the stabilisation period and the input sequence."""
    return list(torch.autograd.grad(loss.sum(), warming.parameters, allow_unused=True))


def check_finite(loss: Tensor, gradients: list[Tensor | None], warming: Warming, step: int) -> None:
    """Raise if a loss or a gradient is not finite."""
    norms = [torch.linalg.vector_norm(g) for g in gradients if g is not None]
    if not torch.isfinite(torch.stack([loss.detach().sum(), *norms])).all():
        advice = "were they finite?" if step == 1 else f"a smaller lr than {warming.lr:g} may help"
        raise WarmupDivergedError(
            f"the loss or its gradient is not finite at warmup step {step}: loss {loss.sum().item():.3g}. The "
            f"parameters are as they were before the call; {advice}"
        )


def descend(gradients: list[Tensor | None], warming: Warming) -> None:
    """One step of the optimiser."""
    for parameter, gradient in zip(warming.parameters, gradients, strict=True):
        parameter.grad = gradient
    with on_the_cpu():  # where optimisers have their numbers, such as how many steps they took
        warming.optimiser.step()


def normalised(gradients: list[Tensor | None], system: System) -> tuple[list[Tensor | None], Tensor]:
    """The gradient of each network scaled to a norm of 1, and which gradients are finite, ``(...)``.

    A gradient that is not finite becomes 0: over a long period it may overflow though the states are as they should be.
    """
    squares = [g.double().square().reshape(*system.leading, -1).sum(dim=-1) for g in gradients if g is not None]
    norm = torch.stack(squares).sum(dim=0).sqrt()
    finite = norm.isfinite()
    scale = torch.where(finite & (norm > 0), 1 / norm, 0)

    def one(g: Tensor) -> Tensor:
        return torch.where(for_weights(finite, g), g * for_weights(scale, g), 0).to(g.dtype)

    return [None if g is None else one(g) for g in gradients], finite.cpu()


def copies(weights: Sequence[Tensor]) -> list[Tensor]:
    """The present values of weights."""
    return [weight.detach().clone() for weight in weights]


@torch.no_grad()
def interpolate(weights: Sequence[Tensor], start: Sequence[Tensor], share: Tensor, system: System) -> None:
    """Set each network's weights to ``share (...)`` of the way from ``start`` to where they are."""
    share = share.to(device=system.device, dtype=system.dtype)
    for p, first in zip(weights, start, strict=True):
        p.copy_(torch.lerp(first, p, for_weights(share, p)))


def for_weights(values: Tensor, weights: Tensor) -> Tensor:
    """Values ``(...)``, one for each network, reshaped to be multiplied with weights ``(..., any)``."""
    return values.reshape(*values.shape, *[1] * (weights.dim() - values.dim()))


def warmable_parameters(rnn: nn.Module, system: System, purpose: str = "warmup") -> list[nn.Parameter]:
    """The parameters of the layers to warm up; a parameter that layers share is listed once."""
    found = {id(p): p for layer in system.layers for p in layer.warmable.parameters() if p.requires_grad}
    if not found:
        raise ValueError(f"the recurrent layers of {type(rnn).__name__} have no parameters that require gradients")
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in found.values()):
        raise ValueError(
            f"{purpose} needs float32 or float64 parameters, got {system.dtype}; convert the network after it"
        )
    return list(found.values())


class Kept:
    """Parameters as they were before a warmup."""

    def __init__(self) -> None:
        self._before: list[tuple[nn.Parameter, Tensor, Tensor | None]] = []

    def keep(self, parameters: Sequence[nn.Parameter]) -> None:
        """Keep the values of the parameters and their ``.grad``, which they do without from now on."""
        self._before = [(p, p.detach().clone(), p.grad) for p in parameters]
        for p in parameters:
            p.grad = None

    def put_back(self) -> None:
        """Put back the values and each ``.grad``."""
        with torch.inference_mode(False), torch.no_grad():
            for p, value, _ in self._before:
                p.copy_(value)
        self.put_back_gradients()

    def put_back_gradients(self) -> None:
        """Put back each ``.grad``."""
        for p, _, gradient in self._before:
            p.grad = gradient
