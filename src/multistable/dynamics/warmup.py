"""Warming up: gradient steps that make a network multistable before training (Algorithm 3)."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import positive_integer
from multistable.dynamics.checks import check_positive_number, check_target
from multistable.dynamics.contexts import ieee_float32
from multistable.dynamics.draws import Draws, Generators
from multistable.dynamics.history import WarmupHistory, WarmupStep
from multistable.dynamics.measure import DivergedError, estimate
from multistable.dynamics.sequences import SequenceSet
from multistable.dynamics.states import random_hidden_states
from multistable.dynamics.system import States, System, at_time, flat, members_of, studying
from multistable.dynamics.vaa import proxy

# The true measure after warmup. A network may be multistable under one constant input and not under another: as
# many inputs as the paper's measure has, and enough states under each to tell few attractors from many.
FINAL_BATCHES, FINAL_BATCH_SIZE, FINAL_STABILISATION = 10, 32, 10_000

ALGORITHMS = ("paper",)


class WarmupWarning(UserWarning):
    """A warmup ended without making the network multistable."""


class WarmupDivergedError(DivergedError):
    """A warmup met a loss, gradient or state that is not finite; the network is as it was before."""


def warmup(
    rnn: nn.Module,
    sequences: Any,
    *,
    algorithm: str = "paper",
    steps: int = 100,
    batch_size: int = 200,
    lr: float = 1e-2,
    target: float | Sequence[float] = 0.95,
    max_stabilisation: int = 200,
    increment: int = 10,
    eps: float = 1e-4,
    generator: Generators = None,
    optimiser: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    on_step: Callable[[WarmupStep], None] | None = None,
) -> WarmupHistory:
    """Make a network multistable, in place (Algorithm 3).

    Each step takes the states that a batch of sequences leads to, lets every layer stabilise by itself under a
    constant input, and moves the layers' VAA* towards ``target``. Only the parameters of recurrent layers change,
    of double layers only those of the half to warm up; parameters that do not require gradients stay.

    At the end the true VAA is measured. A network that is not multistable then gets a :class:`WarmupWarning`, and
    ``history.outcome`` says why. If anything stops the procedure, the parameters are as they were before.

    Args:
        rnn: the network, see :func:`measure`. All members of an ensemble are warmed up at once.
        sequences: the input sequences, see :func:`measure`.
        algorithm: ``"paper"``, Algorithm 3 to the letter.
        steps: S, the gradient steps.
        batch_size: n, the sequences of a step.
        lr: alpha, the learning rate.
        target: k, the VAA* that each layer is brought to; for an ensemble also one for each member.
        max_stabilisation: M*, the longest stabilisation period.
        increment: c; the period of step s is drawn from {1, ..., min(M*, 1 + c s)}.
        eps: the tolerance of VAA* and of the final VAA.
        generator: where batches, time steps, periods and inputs are drawn from; see :func:`measure`.
        optimiser: called as ``optimiser(parameters, lr=lr)``.
        on_step: called after each step, for progress.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    sizes = {"steps": steps, "batch_size": batch_size}
    sizes |= {"max_stabilisation": max_stabilisation, "increment": increment}
    for name, value in sizes.items():
        positive_integer(name, value)
    check_positive_number("eps", eps)
    check_positive_number("lr", lr)
    goal = check_target(target, members_of(rnn))
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        studying(rnn, sequences, batch_size=batch_size) as (system, data),
    ):
        parameters = _parameters(rnn, system)
        draws = Draws(generator, system.members)
        final = min(FINAL_BATCH_SIZE, len(data))
        history = WarmupHistory(target=goal, batch_size=batch_size, final_batch_size=final)
        with _restoring(parameters):
            adjust = optimiser(parameters, lr=lr)
            for step in range(1, steps + 1):
                states = random_hidden_states(system, data, draws.batch(len(data), batch_size), draws)
                period = draws.integer(min(max_stabilisation, 1 + increment * step))
                values = _layer_values(system, states, period, draws, eps)
                loss = ((values - goal.to(values)) ** 2).mean(dim=0)
                _descend(loss.sum(), parameters, adjust, step, lr)
                history.record(WarmupStep(step, values.detach().cpu(), loss.detach().cpu(), period))
                if on_step is not None:
                    on_step(history.last)
            history.vaa = _true_vaa(system, data, draws, final, eps)
    for message in history.failures():
        warnings.warn(message, WarmupWarning, stacklevel=2)
    return history


def _layer_values(system: System, states: States, period: Tensor, draws: Draws, eps: float) -> Tensor:
    """v_i = VAA*(f^i, X, u) of each layer by itself, with a new u for each: ``(layers, ...)``."""
    values = []
    for index, (layer, state) in enumerate(zip(system.layers, states, strict=True)):
        u = system.constant_input(index, draws)
        n = state[0][0].shape[-2]
        u = u.expand(int(period.max()), *system.leading, n, u.shape[-1])
        _, over_time = layer.warmable(u, layer.warmable_state(state))
        last = (period.to(system.device) - 1).unsqueeze(-1).expand(*system.leading, n)
        values.append(proxy(flat(at_time([over_time], last)), eps))
    return torch.stack(values)


def _descend(
    loss: Tensor, parameters: list[nn.Parameter], optimiser: torch.optim.Optimizer, step: int, lr: float
) -> None:
    """One gradient step, by BPTT over the stabilisation period and the input sequence."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    norms = [torch.linalg.vector_norm(g) for g in gradients if g is not None]
    if not torch.isfinite(torch.stack([loss.detach(), *norms])).all():
        advice = "were they finite?" if step == 1 else f"a smaller lr than {lr:g} may help"
        raise WarmupDivergedError(
            f"the loss or its gradient is not finite at warmup step {step}: loss {loss.item():.3g}. The parameters are "
            f"as they were before the call; {advice}"
        )
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimiser.step()


def _true_vaa(system: System, data: SequenceSet, draws: Draws, size: int, eps: float) -> Any:
    try:
        with torch.no_grad(), ieee_float32():
            return estimate(system, data, draws, FINAL_BATCHES, size, FINAL_STABILISATION, eps).vaa
    except DivergedError as error:
        raise WarmupDivergedError(
            f"after the warmup {error}. The parameters are as they were before the call"
        ) from error


def _parameters(rnn: nn.Module, system: System) -> list[nn.Parameter]:
    """The parameters of the layers to warm up, each once."""
    found = {id(p): p for layer in system.layers for p in layer.warmable.parameters() if p.requires_grad}
    if not found:
        raise ValueError(f"the recurrent layers of {type(rnn).__name__} have no parameters that require gradients")
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in found.values()):
        raise ValueError(
            f"warmup needs float32 or float64 parameters, got {system.dtype}; convert the network after it"
        )
    return list(found.values())


@contextmanager
def _restoring(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Put back each ``.grad`` in any case, and the values of the parameters if an exception passes."""
    before = [(p, p.detach().clone(), p.grad) for p in parameters]
    for p in parameters:
        p.grad = None
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for p, value, _ in before:
                p.copy_(value)
        raise
    finally:
        for p, _, gradient in before:
            p.grad = gradient
