"""Warming up: gradient steps that make a network multistable before training (Algorithm 3)."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import check_callable, check_positive_number, positive_integer, positive_integers, shown
from multistable.dynamics.measure.algorithm_1 import DivergedError, estimate
from multistable.dynamics.system.contexts import measured_float32
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.sequences import AtMost, SequenceSet
from multistable.dynamics.system.system import System, members_of, studying
from multistable.dynamics.warmup.default import reliable_warmup
from multistable.dynamics.warmup.history import WarmupHistory, WarmupStep
from multistable.dynamics.warmup.paper_algorithm_3 import paper_warmup
from multistable.dynamics.warmup.progress import showing
from multistable.dynamics.warmup.targets import check_target, check_wanted
from multistable.dynamics.warmup.verification import Verification
from multistable.dynamics.warmup.wanted_vaa import Storage, levels_for
from multistable.dynamics.warmup.warming import Warming, WarmupDivergedError, restoring, warmable_parameters

# The true measure after warmup. A network may be multistable under one constant input and not under another: as
# many inputs as the paper's measure has, and enough states under each to tell few attractors from many.
FINAL_BATCHES, FINAL_BATCH_SIZE, FINAL_STABILISATION = 10, 32, 10_000

# Targets below this are a VAA that is wanted and not to be exceeded.
AS_MANY_AS_POSSIBLE = 0.95

# What ``steps`` is where it is not given: the paper's S, and bounds that few networks come near. Steps towards a VAA
# that is wanted are many and short.
DEFAULT_STEPS, WANTED_STEPS = {"reliable": 500, "paper": 100}, 2000


class WarmupWarning(UserWarning):
    """A warmup ended without making the network multistable, or without a wanted VAA that is verified."""


def warmup(
    rnn: nn.Module,
    sequences: Any,
    *,
    algorithm: str = "reliable",
    steps: int | None = None,
    batch_size: int = AtMost(200),
    lr: float = 1e-2,
    target: float | Sequence[float] = 0.95,
    tolerance: float = 0.1,
    max_stabilisation: int = 200,
    increment: int = 10,
    eps: float = 1e-4,
    generator: Generators = None,
    optimiser: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    on_step: Callable[[WarmupStep], None] | None = None,
    progress: bool = False,
) -> WarmupHistory:
    """Make a network multistable, in place.

    Each step takes the states that a batch of sequences leads to, lets every layer stabilise by itself under a
    constant input, and moves the parameters so that the states stay apart. Only the parameters of recurrent layers
    change, of double layers only those of the half to warm up; parameters that do not require gradients stay.

    The default looks at the true VAA every few steps and goes on until it has reached ``target``, and, up to step 100,
    until states have come to rest as well; the weights are the last with which VAA had reached it. With a target below
    0.95 it gives sequences few attractors, far from each other, until the VAA is the target within ``tolerance``; where
    it does not get there, ``history.outcome`` is ``"missed"`` (docs/reference/warmup.md). The paper's procedure,
    Algorithm 3, takes ``steps`` steps towards a VAA* of ``target``, and measures at the end.

    A network that is not multistable in the end gets a :class:`WarmupWarning`, and ``history.outcome`` says why. So
    does one of several layers with one that the paper's procedure left behind (``history.behind``). If anything stops
    the procedure, the parameters are as they were before.

    Args:
        rnn: the network, see :func:`measure`. All members of an ensemble are warmed up at once, each as if alone.
        sequences: the input sequences, see :func:`measure`.
        algorithm: ``"reliable"``, or ``"paper"`` for Algorithm 3 to the letter.
        steps: for the default at most how many gradient steps, if not given 500, or 2,000 short ones where a VAA is
            wanted; for ``"paper"`` S, 100 if not given.
        batch_size: n, the sequences of a step; where it is not given and there are fewer than 200, all of them.
        lr: alpha, the learning rate.
        target: k. For the default the VAA to reach, if it is at least 0.95, and else a VAA that is wanted, neither more
            nor less, and not below 1/32, which a single attractor has; for ``"paper"`` the VAA* of each layer. For an
            ensemble also one for each member.
        tolerance: how near the default comes to a VAA that is wanted; says nothing where none is.
        max_stabilisation: M*, the longest stabilisation period.
        increment: c; for ``"paper"`` the period of step s is drawn from {1, ..., min(M*, 1 + c s)}. The default lets
            periods grow with success.
        eps: the tolerance of VAA* and VAA.
        generator: where batches, time steps, periods and inputs are drawn from; see :func:`measure`.
        optimiser: called as ``optimiser(parameters, lr=lr)``.
        on_step: called after each step.
        progress: show on the standard error where the warmup is: a line that is written over on a terminal, a new one
            every ten seconds elsewhere.
    """
    _check_ways(algorithm, optimiser, on_step)
    steps = None if steps is None else positive_integer("steps", steps)
    batch_size, max_stabilisation, increment = positive_integers(
        batch_size=batch_size, max_stabilisation=max_stabilisation, increment=increment
    )
    for name, value in (("eps", eps), ("lr", lr), ("tolerance", tolerance)):
        check_positive_number(name, value)
    goal = check_target(target, members_of(rnn))
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        measured_float32(),
        studying(rnn, sequences, batch_size=batch_size) as (system, data),
    ):
        batch_size = min(batch_size, len(data))
        if batch_size < 2:
            raise ValueError(
                f"sequences and batch_size must be at least two, a warmup drives their states apart, got {len(data)} "
                f"sequences and batch_size = {batch_size}"
            )
        parameters = warmable_parameters(rnn, system)
        draws = Draws(generator, system.members)
        final = min(FINAL_BATCH_SIZE, len(data))
        wants = (goal < AS_MANY_AS_POSSIBLE) & (algorithm == "reliable")
        check_wanted(goal[wants], final)
        limit = torch.where(wants, WANTED_STEPS, DEFAULT_STEPS[algorithm])
        limit = limit if steps is None else torch.full_like(limit, steps)
        history = WarmupHistory(goal, torch.where(wants, tolerance, torch.nan), batch_size, final)
        with restoring(parameters), showing(history, int(limit.max()), progress) as line:
            adjust = optimiser(parameters, lr=lr)
            warming = Warming(
                *(system, data, draws, parameters, adjust, history, on_step, line),
                *(limit, batch_size, lr, max_stabilisation, increment, eps, tolerance),
            )
            history.vaa = _run(algorithm, warming, final)
    for message in history.failures():
        warnings.warn(message, WarmupWarning, stacklevel=2)
    return history


def _check_ways(algorithm: str, optimiser: Any, on_step: Any) -> None:
    if algorithm not in DEFAULT_STEPS:
        raise ValueError(f"algorithm must be one of {', '.join(map(repr, DEFAULT_STEPS))}, got {shown(algorithm)}")
    check_callable("optimiser", optimiser, "called as optimiser(parameters, lr=lr), such as torch.optim.Adam")
    if on_step is not None:
        check_callable("on_step", on_step, "a function of a WarmupStep, or None")


def _run(algorithm: str, warming: Warming, size: int) -> Any:
    """Warm up; returns the true VAA, measured at the end where it was not on the way."""
    measured = (FINAL_BATCHES, size, FINAL_STABILISATION, warming.eps)
    if algorithm == "paper":
        paper_warmup(warming)
        warming.measuring(FINAL_BATCHES * size, FINAL_STABILISATION)
        return _true_vaa(warming.system, warming.data, warming.draws, *measured)
    seeds = warming.draws.integer(2**31)
    multistable = warming.target.clamp(min=AS_MANY_AS_POSSIBLE)
    verification = Verification(warming.system, warming.data, seeds, multistable, *measured, warming.measuring)
    vaa = reliable_warmup(warming, verification, _storage(warming, seeds, size))
    if bool(vaa.isnan().any()):
        warming.measuring(FINAL_BATCHES * size, FINAL_STABILISATION)
        system, data, draws = verification.of(vaa.isnan(), step=0)
        failed = torch.as_tensor(_true_vaa(system, data, draws, *measured), dtype=vaa.dtype)
        vaa = vaa.masked_scatter(vaa.isnan(), failed)
    return vaa.tolist()


def _storage(warming: Warming, seeds: Tensor, states: int) -> Storage | None:
    """Where sequences should lead to in networks with a wanted VAA, where there are any."""
    if not warming.storing.any():
        return None
    system = warming.system
    draws = Draws([torch.Generator().manual_seed(seed - 1) for seed in seeds.reshape(-1).tolist()], system.members)
    levels = levels_for(torch.where(warming.storing, warming.target, 0), states)
    return Storage.of(system, warming.data, draws, levels)


def _true_vaa(system: System, data: SequenceSet, draws: Draws, *measured: Any) -> Any:
    try:
        with torch.no_grad():
            return estimate(system, data, draws, *measured).vaa
    except DivergedError as error:
        raise WarmupDivergedError(
            f"after the warmup {error}. The parameters are as they were before the call"
        ) from error
