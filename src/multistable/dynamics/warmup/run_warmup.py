"""``ms.warmup``: its arguments, the algorithm they choose, and the true VAA at the end."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from multistable.arguments import check_callable, check_positive_number, positive_integer, positive_integers, shown
from multistable.dynamics.measure.algorithm_1_measure import DivergedError, estimate
from multistable.dynamics.system.contexts import measured_float32
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.sequences import AtMost, SequenceSet
from multistable.dynamics.system.system import System, members_of, studying
from multistable.dynamics.warmup.algorithm_3_paper import paper_warmup
from multistable.dynamics.warmup.default import reliable_warmup
from multistable.dynamics.warmup.goal import AS_MANY_AS_POSSIBLE, Goal
from multistable.dynamics.warmup.gradient_steps import Warming, WarmupDivergedError, restoring, warmable_parameters
from multistable.dynamics.warmup.history import WarmupHistory, WarmupStep
from multistable.dynamics.warmup.progress import showing
from multistable.dynamics.warmup.verification import Verification
from multistable.dynamics.warmup.wanted_vaa import Corners, levels_for

# The true measure after warmup. A network may be multistable under one constant input and not under another: it has as
# many inputs as the paper's measure, and enough states under each to tell few attractors from many.
FINAL_BATCHES, FINAL_BATCH_SIZE, FINAL_STABILISATION = 10, 32, 10_000

# The default of ``steps``: the paper's S, and bounds that few networks come near. Steps towards a wanted VAA are many
# and short.
DEFAULT_STEPS, WANTED_STEPS = {"reliable": 500, "paper": 100}, 2000


class WarmupWarning(UserWarning):
    """A warmup ended without making the network multistable, or without verifying its wanted VAA."""


def warmup(
    rnn: nn.Module,
    sequences: Any,
    *,
    inputs: Any = "normal",
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

    Each gradient step takes the states that a batch of sequences leads to, lets every layer stabilise by itself under a
    constant input, and moves the parameters so that the states stay apart. Only the parameters of recurrent layers
    change, and of double layers only those of the half to warm up. Parameters that do not require gradients stay.

    The default algorithm measures the true VAA every few steps. It goes on until VAA has reached ``target`` and, up to
    step 100, until the states have come to rest as well. The network ends with the last weights whose VAA had reached
    the target. With a target below 0.95, a wanted VAA, it gives the sequences few attractors, far from each other,
    until VAA is the target within ``tolerance``; if it never is, ``history.outcome`` is ``"missed"``
    (docs/reference/warmup.md). The paper's procedure, Algorithm 3, takes ``steps`` steps towards a VAA* of ``target``,
    and measures VAA at the end.

    If the network does not end multistable, a :class:`WarmupWarning` says so and ``history.outcome`` says why. The
    paper's procedure also warns if it left one of several layers behind (``history.behind``). If an exception stops the
    warmup, the parameters are as they were before.

    Args:
        rnn: the network, see :func:`measure`. All members of an ensemble are warmed up at once, each as if alone.
        sequences: the input sequences, see :func:`measure`.
        inputs: the constant inputs under which states stay apart, see :func:`measure`. Layers after the first have
            u ~ N(0, 1) in any case.
        algorithm: ``"reliable"``, or ``"paper"`` for Algorithm 3 to the letter.
        steps: for ``"paper"`` S, the number of gradient steps, 100 if not given. For the default algorithm the most
            gradient steps it takes: 500 if not given, or 2,000 short ones towards a wanted VAA.
        batch_size: n, the sequences of a step. If it is not given and there are fewer than 200, all are taken.
        lr: alpha, the learning rate.
        target: k. For ``"paper"`` the VAA* of each layer. For the default the VAA to reach if it is at least 0.95, and
            below that a wanted VAA, neither more nor less; 1/32, the VAA of a single attractor, is the least. An
            ensemble also takes a list with one target for each member.
        tolerance: how near the default has to come to a wanted VAA; without one it has no effect.
        max_stabilisation: M*, the longest stabilisation period.
        increment: c. For ``"paper"`` the period of step s is drawn from {1, ..., min(M*, 1 + c s)}; the default lets
            periods grow with success.
        eps: the tolerance of VAA* and VAA.
        generator: where batches, time steps, periods and inputs are drawn from; see :func:`measure`.
        optimiser: called as ``optimiser(parameters, lr=lr)``.
        on_step: called after each step.
        progress: show the progress of the warmup on the standard error: one line that is written over on a terminal, a
            new line every ten seconds elsewhere.
    """
    _check_choices(algorithm, optimiser, on_step)
    steps = None if steps is None else positive_integer("steps", steps)
    batch_size, max_stabilisation, increment = positive_integers(
        batch_size=batch_size, max_stabilisation=max_stabilisation, increment=increment
    )
    for name, value in (("eps", eps), ("lr", lr), ("tolerance", tolerance)):
        check_positive_number(name, value)
    goal = Goal.of(target, algorithm, tolerance=tolerance, members=members_of(rnn))
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        measured_float32(),
        studying(rnn, sequences, batch_size=batch_size, inputs=inputs) as (system, data),
    ):
        batch_size = min(batch_size, len(data))
        if batch_size < 2:
            raise ValueError(
                "sequences and batch_size must be at least two, since a warmup drives the states of sequences apart, "
                f"got {len(data)} sequences and batch_size = {batch_size}"
            )
        parameters = warmable_parameters(rnn, system)
        draws = Draws(generator, system.members)
        final = min(FINAL_BATCH_SIZE, len(data))
        goal.check(final)
        limit = torch.where(goal.wanted, WANTED_STEPS, DEFAULT_STEPS[algorithm])
        limit = limit if steps is None else torch.full_like(limit, steps)
        history = WarmupHistory(goal, batch_size, final)
        with restoring(parameters), showing(history, int(limit.max()), progress) as line:
            adjust = optimiser(parameters, lr=lr)
            warming = Warming(
                *(system, data, draws, parameters, adjust, history, on_step, line),
                *(limit, batch_size, lr, max_stabilisation, increment, eps),
            )
            history.vaa = _run(algorithm, warming, final)
    for message in history.failures():
        warnings.warn(message, WarmupWarning, stacklevel=2)
    return history


def _check_choices(algorithm: str, optimiser: Any, on_step: Any) -> None:
    if algorithm not in DEFAULT_STEPS:
        raise ValueError(f"algorithm must be one of {', '.join(map(repr, DEFAULT_STEPS))}, got {shown(algorithm)}")
    check_callable("optimiser", optimiser, "called as optimiser(parameters, lr=lr), such as torch.optim.Adam")
    if on_step is not None:
        check_callable("on_step", on_step, "a function of a WarmupStep, or None")


def _run(algorithm: str, warming: Warming, size: int) -> Any:
    """Warm up, and return the true VAA; it is measured at the end unless the verification found it on the way."""
    measured = (FINAL_BATCHES, size, FINAL_STABILISATION, warming.eps)
    if algorithm == "paper":
        paper_warmup(warming)
        warming.measuring(FINAL_BATCHES * size, FINAL_STABILISATION)
        return _true_vaa(warming.system, warming.data, warming.draws, *measured)
    seeds = warming.draws.integer(2**31)
    multistable = warming.goal.target.clamp(min=AS_MANY_AS_POSSIBLE)
    verification = Verification(warming.system, warming.data, seeds, multistable, *measured, warming.measuring)
    vaa = reliable_warmup(warming, verification, _corners(warming, seeds, size))
    if bool(vaa.isnan().any()):
        warming.measuring(FINAL_BATCHES * size, FINAL_STABILISATION)
        system, data, draws = verification.of(vaa.isnan(), step=0)
        failed = torch.as_tensor(_true_vaa(system, data, draws, *measured), dtype=vaa.dtype)
        vaa = vaa.masked_scatter(vaa.isnan(), failed)
    return vaa.tolist()


def _corners(warming: Warming, seeds: Tensor, states: int) -> Corners | None:
    """Where sequences should lead to in networks with a wanted VAA; ``None`` if there are none."""
    if not warming.goal.wanted.any():
        return None
    system = warming.system
    draws = Draws([torch.Generator().manual_seed(seed - 1) for seed in seeds.reshape(-1).tolist()], system.members)
    levels = levels_for(torch.where(warming.goal.wanted, warming.goal.target, 0), states)
    return Corners.of(system, warming.data, draws, levels)


def _true_vaa(system: System, data: SequenceSet, draws: Draws, *measured: Any) -> Any:
    try:
        with torch.no_grad():
            return estimate(system, data, draws, *measured).vaa
    except DivergedError as error:
        raise WarmupDivergedError(
            f"after the warmup {error}. The parameters are as they were before the call"
        ) from error
