"""``ms.warmup``: its arguments, the algorithm they choose, and the true VAA at the end."""

import inspect
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from multistable.arguments import (
    check_callable,
    positive_integer,
    positive_integers,
    positive_number,
    shown,
    truth_value,
)
from multistable.dynamics.measure.algorithm_1_measure import DivergedError, estimate
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.system.contexts import measured_float32, on_the_cpu
from multistable.dynamics.system.draws import Draws, Generators
from multistable.dynamics.system.inputs import check_inputs
from multistable.dynamics.system.interrupts import hold_back, interrupted_once
from multistable.dynamics.system.models import Turn, at_least, each_part
from multistable.dynamics.system.sequences import AtMost, SequenceSet
from multistable.dynamics.system.system import System, members_of, studying
from multistable.dynamics.warmup.algorithm_3_paper import paper_warmup
from multistable.dynamics.warmup.default import MANNERS, verified_warmup
from multistable.dynamics.warmup.goal import AS_MANY_AS_POSSIBLE, Goal
from multistable.dynamics.warmup.gradient_steps import Kept, Warming, WarmupDivergedError, warmable_parameters
from multistable.dynamics.warmup.history import WarmupHistory, WarmupStep
from multistable.dynamics.warmup.progress import Line
from multistable.dynamics.warmup.robust import robust_warmup, withstands
from multistable.dynamics.warmup.verification import Verification
from multistable.dynamics.warmup.wanted_vaa import Corners, levels_for

# The true measure after warmup. A network may be multistable under one constant input and not under another: it has as
# many inputs as the paper's measure, and enough states under each to tell few attractors from many.
FINAL_BATCHES, FINAL_BATCH_SIZE, FINAL_STABILISATION = 10, 32, 10_000

# The default of ``steps``: the paper's S, and bounds that few networks come near. Steps towards a wanted VAA are many
# and short. And the default of n: with fewer states a step is cheaper, and more steps are needed only for a wanted VAA.
DEFAULT_STEPS, WANTED_STEPS = {"fast": 1000, "reliable": 500, "paper": 100}, 2000
DEFAULT_BATCH_SIZE, WANTED_BATCH_SIZE = {"fast": 32, "reliable": 200, "paper": 200}, 200
ROBUST_BATCH_SIZE = 64


# The shares of a time budget after which there are no more steps, and no more looks of the verification. The rest is
# for a measure of networks that were not verified.
STEPS_SHARE, LOOKS_SHARE = 0.7, 0.9

OPTIMISER = "called as optimiser(parameters, lr=lr), such as torch.optim.Adam"


class WarmupWarning(UserWarning):
    """A warmup ended without making the network multistable, or without verifying its wanted VAA."""


@interrupted_once
def warmup(
    rnn: nn.Module,
    sequences: Any,
    *,
    inputs: Any = "normal",
    algorithm: str = "fast",
    robust: bool | float = False,
    steps: int | None = None,
    batch_size: int | None = None,
    lr: float = 1e-2,
    target: float | Sequence[float] = 0.95,
    tolerance: float = 0.1,
    max_stabilisation: int = 200,
    increment: int = 10,
    eps: float = 1e-4,
    generator: Generators = None,
    optimiser: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    on_step: Callable[[WarmupStep], None] | None = None,
    minutes: float | None = None,
    progress: bool | None = None,
    part: str | None = None,
    forward: Forward | None = None,
) -> Any:
    """Make a network multistable, in place.

    Each gradient step takes the states that a batch of sequences leads to, lets every layer stabilise by itself under a
    constant input, and moves the parameters so that the states stay apart. Only the parameters of recurrent layers
    change, and of double layers only those of the half to warm up. Parameters that do not require gradients stay.

    The default algorithm goes on until the states have come to rest and VAA has reached ``target``, by a verification
    with more inputs than the measure, or for at most 1,000 steps. With a target below 0.95, a wanted VAA, it gives the
    sequences few attractors, far from each other, until VAA is the target within ``tolerance``; if it never is,
    ``history.outcome`` is ``"missed"`` (docs/reference/warmup.md). The paper's procedure, Algorithm 3, takes ``steps``
    steps towards a VAA* of ``target``, and measures VAA at the end.

    If the network does not end multistable, a :class:`WarmupWarning` says so and ``history.outcome`` says why. The
    paper's procedure also warns if it left one of several layers behind (``history.behind``). If an exception stops the
    warmup, the parameters are as they were before.

    Args:
        rnn: the network, or a model with recurrent parts inside, see :func:`measure`. All members of an ensemble are
            warmed up at once, each as if alone. Of several parts each is warmed up after those that the model calls
            before it; parts of which no parameter requires gradients are left as they are.
        sequences: the input sequences, or the batches that the model is run on, see :func:`measure`.
        inputs: the constant inputs under which states stay apart, see :func:`measure`. Layers after the first have
            u ~ N(0, 1) in any case.
        algorithm: ``"fast"``; ``"reliable"``, the slower default of before; or ``"paper"``, Algorithm 3 to the letter.
        robust: the standard deviation of noise from which states should come back to their attractors, or ``True`` for
            0.2; ``ms.robustness`` measures it. Without it most attractors are places on a continuum, where states stay
            as noise leaves them. All ``steps`` are taken, n is 64 unless given, and ``target`` has no effect: there are
            fewer attractors, and networks learn more slowly (docs/results/robust_warmup.md).
        steps: for ``"paper"`` S, the number of gradient steps, 100 if not given. For the others the most gradient steps
            they take: if not given 1,000 for ``"fast"`` and 500 for ``"reliable"``, or towards a wanted VAA 2,000.
        batch_size: n, the sequences of a step. If it is not given 32 for ``"fast"``, and 200 for the others and where a
            VAA is wanted (of any member of an ensemble), or all sequences if there are fewer.
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
        minutes: the time that the warmup may take. When most of it is over no more steps are taken, and the network
            ends with the best weights found; the rest goes to finding out how good they are (``history.vaa``).
        progress: whether to show on the standard error where the warmup is and how long it may still take: one line
            that is written over on a terminal, a new line every ten seconds elsewhere. If it is not given, only on a
            terminal, and only if the call takes more than a few seconds.
        part: see :func:`measure`.
        forward: see :func:`measure`.

    Returns:
        The history, for several parts a dict with the history of each by name.
    """
    _check_choices(algorithm, optimiser, on_step)
    check_inputs(inputs)
    steps = None if steps is None else positive_integer("steps", steps)
    goal = Goal.of(target, algorithm, tolerance=tolerance, members=members_of(rnn), robust=robust)
    batch_size, max_stabilisation, increment = positive_integers(
        batch_size=_usual_batch_size(goal, algorithm) if batch_size is None else batch_size,
        max_stabilisation=max_stabilisation,
        increment=increment,
    )
    given = {"eps": eps, "lr": lr, "tolerance": tolerance}
    eps, lr, tolerance = (positive_number(name, value) for name, value in given.items())
    progress = progress if progress is None else truth_value("progress", progress)
    whole_budget = math.inf if minutes is None else 60 * positive_number("minutes", minutes)
    call_began = time.monotonic()

    @interrupted_once  # of several parts each by itself
    def one(network: nn.Module, sequences: Any, turn: Turn) -> WarmupHistory:
        began = time.monotonic()
        budget = turn.share * (whole_budget - (began - call_began))
        goal = Goal.of(target, algorithm, tolerance=tolerance, members=members_of(network), robust=robust)
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            measured_float32(),
            studying(network, sequences, batch_size=batch_size, inputs=inputs) as (system, data),
        ):
            n, final = (_states_of(data, most) for most in (batch_size, FINAL_BATCH_SIZE))
            parameters = warmable_parameters(network, system)
            draws = Draws(generator, system.members)
            goal.check(final)
            limit = _most_steps(goal, algorithm, steps)
            history, kept = WarmupHistory(goal, n, final), Kept()
            try:
                with Line.showing(turn.of_call("warmup"), progress) as line:
                    kept.keep(parameters)
                    line.most, line.budget = int(limit.max()), None if minutes is None else budget
                    with on_the_cpu():
                        adjust = _made(optimiser, parameters, lr)
                    warming = Warming(
                        *(system, data, draws, parameters, adjust, history, on_step, line),
                        *(limit, n, lr, max_stabilisation, increment, eps),
                        deadline=began + STEPS_SHARE * budget,
                    )
                    history.vaa = _run(algorithm, warming, final, began, budget)
                    line.ended(history)
                hold_back()
            except BaseException:
                try:
                    hold_back()
                finally:  # also if the first interrupt comes just now
                    kept.put_back()
                raise
            kept.put_back_gradients()
        return history

    least = at_least(batch_size)
    found = each_part(one, rnn, sequences, part=part, forward=forward, least=least, changes=True)
    for name, history in found.items() if isinstance(found, dict) else [("", found)]:
        for message in history.failures():
            warnings.warn(f"{name}: {message}" if name else message, WarmupWarning, stacklevel=3)
    return found


def _usual_batch_size(goal: Goal, algorithm: str) -> int:
    """The default of n, which fewer sequences lower."""
    usual = DEFAULT_BATCH_SIZE[algorithm] if goal.noise is None else ROBUST_BATCH_SIZE
    return AtMost(WANTED_BATCH_SIZE if goal.wanted.any() else usual)


def _states_of(data: SequenceSet, most: int) -> int:
    """How many states a batch has, or an error if there are none to drive apart."""
    n = min(most, len(data))
    if n < 2:
        raise ValueError(
            "sequences and batch_size must be at least two, since a warmup drives the states of sequences "
            f"apart, got {len(data)} sequences and batch_size = {n}"
        )
    return n


def _most_steps(goal: Goal, algorithm: str, steps: int | None) -> Tensor:
    """The most gradient steps of each network, ``(...)``."""
    usual = torch.where(goal.wanted, WANTED_STEPS, DEFAULT_STEPS[algorithm])
    return usual if steps is None else torch.full_like(usual, steps)


def _made(optimiser: Callable[..., Any], parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """The optimiser of the parameters, or an error if it cannot be called so, or cannot take a step by itself."""
    try:
        adjust = optimiser(parameters, lr=lr)
        inspect.signature(adjust.step).bind()  # not of LBFGS, whose step computes the loss
    except (TypeError, ValueError, AttributeError) as error:
        raise TypeError(f"optimiser must be {OPTIMISER}, got {shown(optimiser)}: {error}") from error
    return cast(torch.optim.Optimizer, adjust)


def _check_choices(algorithm: str, optimiser: Any, on_step: Any) -> None:
    if algorithm not in list(DEFAULT_STEPS):
        raise ValueError(f"algorithm must be one of {', '.join(map(repr, DEFAULT_STEPS))}, got {shown(algorithm)}")
    check_callable("optimiser", optimiser, OPTIMISER)
    if on_step is not None:
        check_callable("on_step", on_step, "a function of a WarmupStep, or None")


def _run(algorithm: str, warming: Warming, size: int, began: float, budget: float) -> Any:
    """Warm up, and return the true VAA; it is measured at the end unless the verification found it on the way."""
    multistable = warming.goal.target.clamp(min=AS_MANY_AS_POSSIBLE)

    def verification(share: float) -> Verification:
        line, deadline = warming.line, began + share * budget
        measured = (FINAL_BATCHES, size, FINAL_STABILISATION, warming.eps, line.measuring, deadline)
        return Verification(warming.system, warming.data, seeds, multistable, *measured)

    noise = warming.goal.noise
    if algorithm == "paper" or noise is not None:
        if noise is None:
            paper_warmup(warming)
        else:
            robust_warmup(warming, noise)
            with _measuring():
                withstands(warming, noise)
        vaa = torch.full_like(multistable, torch.nan)
        if budget == math.inf:
            return _true_vaa(warming, warming.system, warming.data, warming.draws, size)
        seeds = warming.draws.integer(2**31)
    else:
        seeds = warming.draws.integer(2**31)
        corners = _corners(warming, seeds, size)
        vaa = verified_warmup(warming, MANNERS[algorithm], verification(LOOKS_SHARE), corners)
    unknown = vaa.isnan()
    if bool(unknown.any()):
        if budget == math.inf:
            system, data, draws = verification(1.0).of(unknown, step=0)
            failed = torch.as_tensor(_true_vaa(warming, system, data, draws, size), dtype=vaa.dtype, device="cpu")
            return vaa.masked_scatter(unknown, failed).tolist()
        found, warming.history.vaa_after = verification(1.0).vaa_in_time(unknown)
        vaa = torch.where(unknown, found, vaa)
    return vaa.tolist()


def _corners(warming: Warming, seeds: Tensor, states: int) -> Corners | None:
    """Where sequences should lead to in networks with a wanted VAA; ``None`` if there are none."""
    if not warming.goal.wanted.any():
        return None
    system = warming.system
    draws = Draws([torch.Generator().manual_seed(seed - 1) for seed in seeds.reshape(-1).tolist()], system.members)
    levels = levels_for(torch.where(warming.goal.wanted, warming.goal.target, 0), states)
    return Corners.of(system, warming.data, draws, levels)


def _true_vaa(warming: Warming, system: System, data: SequenceSet, draws: Draws, size: int) -> Any:
    with _measuring():
        return estimate(
            system, data, draws, (FINAL_BATCHES, size), FINAL_STABILISATION, warming.eps, warming.line.measuring
        ).vaa


@contextmanager
def _measuring() -> Iterator[None]:
    """Without gradients; states that diverge in a measure are those of a warmup that has diverged."""
    try:
        with torch.no_grad():
            yield
    except DivergedError as error:
        raise WarmupDivergedError(
            f"after the warmup {error}. The parameters are as they were before the call"
        ) from error
