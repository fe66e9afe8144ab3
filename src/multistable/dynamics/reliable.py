"""A warmup that looks beyond its stabilisation periods, verifies itself, and goes on until the network is multistable.

Algorithm 3 asks that states be apart after at most 200 steps. They may then still be on their way to one attractor,
too slowly to be seen. Here the loss compares how far states move in the second half of the period with how far they
are apart: states that move little for their distance stay apart for long.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from multistable.dynamics.history import WarmupCheck, WarmupStep
from multistable.dynamics.merging import Layer, excess_of, steered
from multistable.dynamics.system import States, System, at_time, flat, map_states
from multistable.dynamics.vaa import distances, proxy
from multistable.dynamics.verification import WIDER, Verification
from multistable.dynamics.warming import Warming, check_finite, descend, gradients_of, interpolate, normalised

# The longest period to draw from: at first, the share of different states beyond which it grows, and the rates.
FIRST_PERIOD, APART, GROWTH = 4.0, 0.5, 1.25
# The learning rate is as given for the first steps, then doubles every few, up to a largest multiple.
CALM_STEPS, DOUBLING_STEPS, LARGEST_RATE = 50, 25, 10.0
# Steps with periods below a quarter of the longest after which a network starts again from its first weights.
PATIENCE = 50
CHECK_EVERY = 10
# Targets below this are a VAA that is wanted and not to be exceeded.
AS_MANY_AS_POSSIBLE = 0.95
# The multiple of the learning rate far from a wanted VAA; in proportion where it is nearer, down to a share.
MERGING_RATE, FAR, LEAST = 5.0, 0.5, 0.1
# By how much the rate grows from one look to the next while nothing goes wrong.
BOLDER = 1.2


@dataclass
class _Progress:
    """How far each network is; every tensor is ``(...)``, on the CPU."""

    leading: tuple[int, ...]
    longest: Tensor = field(init=False)
    """Periods are drawn from {1, ..., longest}."""
    age: Tensor = field(init=False)
    """Steps since the first weights."""
    stuck: Tensor = field(init=False)
    """Steps in a row with short periods only."""
    finished: Tensor = field(init=False)
    merging: Tensor = field(init=False)
    """Multistable, and on the way to fewer attractors."""
    caution: Tensor = field(init=False)
    """What the rate of merging is divided by: it doubles when a network has gone too far."""

    def __post_init__(self) -> None:
        self.longest = torch.full(self.leading, FIRST_PERIOD)
        self.age, self.stuck = (torch.zeros(self.leading) for _ in range(2))
        self.finished, self.merging = (torch.zeros(self.leading, dtype=torch.bool) for _ in range(2))
        self.caution = torch.ones(self.leading)

    @property
    def rate(self) -> Tensor:
        """What the learning rate is multiplied with; 0 for a network that has finished."""
        growing = 2 ** ((self.age - CALM_STEPS) / DOUBLING_STEPS)
        return torch.where(self.finished, 0.0, growing.clamp(1, LARGEST_RATE))

    def after_step(self, period: Tensor, apart: Tensor, most: int) -> None:
        """Let periods grow after one whose states ended ``apart``, and shrink after one whose states did not."""
        grown = torch.maximum(self.longest, torch.minimum(GROWTH * self.longest + 1, 2.0 * period + 2))
        shrunk = torch.minimum(self.longest, period).div(2).clamp(min=2)
        self.longest = torch.where(apart > APART, grown, shrunk).clamp(max=most)
        self.age = self.age + 1
        self.longest = torch.where(self.merging, most, self.longest)
        self.stuck = torch.where(self.finished | (self.longest > most / 4), 0, self.stuck + 1)

    def start_again(self) -> Tensor:
        """Which networks have been stuck for too long; they are at their beginning then."""
        again = self.stuck >= PATIENCE
        self.longest = torch.where(again, FIRST_PERIOD, self.longest)
        self.age, self.stuck = (torch.where(again, 0, count) for count in (self.age, self.stuck))
        return again


@dataclass
class _Weights:
    """The weights of each network.

    Those it began with, those that came nearest to passing the verification, and while it is merging the latest with
    more attractors than are wanted.
    """

    present: Sequence[Tensor]
    system: System
    first: list[Tensor] = field(init=False)
    best: list[Tensor] = field(init=False)
    above: list[Tensor] = field(init=False)
    score: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.first, self.best, self.above = (_copies(self.present) for _ in range(3))
        self.score = torch.full(self.system.leading, -torch.inf, dtype=torch.float64)

    def start_again(self, again: Tensor) -> None:
        """Put the networks ``again (...)`` back to their first weights."""
        interpolate(self.present, self.first, (~again).float(), self.system)

    def consider(self, score: Tensor) -> None:
        """Keep the present weights of networks whose ``score (...)`` is their best."""
        interpolate(self.best, _copies(self.present), (score <= self.score).float(), self.system)
        self.score = torch.maximum(self.score, score)

    def keep_above(self, which: Tensor) -> None:
        """Keep the present weights of the networks ``which (...)``."""
        interpolate(self.above, _copies(self.present), (~which).float(), self.system)

    def go_back(self, which: Tensor) -> None:
        """Put the networks ``which (...)`` back to the weights that were kept."""
        interpolate(self.present, self.above, (~which).float(), self.system)

    def settle(self, unfinished: Tensor) -> None:
        """Give the networks ``unfinished (...)`` their best weights; those that were never judged stay."""
        interpolate(self.present, self.best, (~unfinished | (self.score == -torch.inf)).float(), self.system)


def reliable_warmup(warming: Warming, verification: Verification) -> Tensor:
    """Warm up until the verification is content with every network, or for ``warming.steps`` steps, in place.

    A network with a wanted VAA becomes multistable first; then its states are drawn together. One that has finished
    stays as it is; what a network goes through does not depend on the others. One that is not as it should be in the
    end has the weights that came nearest.

    Returns:
        The true VAA of each network, ``(...)``, NaN for those that did not finish.
    """
    weights, progress = _Weights(warming.parameters, warming.system), _Progress(warming.system.leading)
    vaa = torch.full(warming.system.leading, torch.nan, dtype=torch.float64)
    warming.history.verifies = True
    for step in range(1, warming.steps + 1):
        _descend(warming, progress, step, verification)
        if step % CHECK_EVERY == 0 or step == warming.steps:
            ready = (progress.longest >= warming.max_stabilisation) & ~progress.finished
            passed, found = _look(warming, progress, weights, verification, ready, step)
            vaa = torch.where(passed, found, vaa)
            progress.finished = progress.finished | passed
            if progress.finished.all():
                break
        again = progress.start_again()
        if again.any():
            warming.history.restarts += again
            weights.start_again(again)
    weights.settle(~progress.finished)
    warming.history.verified = progress.finished
    return vaa


def _look(
    warming: Warming, progress: _Progress, weights: _Weights, verification: Verification, ready: Tensor, step: int
) -> tuple[Tensor, Tensor]:
    """Look at the true VAA of the networks that are ``ready (...)``: which are as they should be, and their VAA."""
    verdict = verification.judge(ready & ~progress.merging, step)
    weights.consider(verdict.score)
    wants = warming.target < AS_MANY_AS_POSSIBLE
    passed, found, merging = verdict.passed & ~wants, verdict.vaa, ready & progress.merging
    if merging.any():
        near = verification.near(merging, step, warming.target, warming.tolerance)
        weights.consider(near.score)
        passed, found = passed | near.passed, torch.where(merging, near.vaa, found)
        too_far = merging & (found < warming.target - warming.tolerance)
        weights.keep_above(merging & (found > warming.target))
        weights.go_back(too_far)
        bolder = (progress.caution / BOLDER).clamp(min=1)
        progress.caution = torch.where(too_far, 2 * progress.caution, torch.where(merging, bolder, progress.caution))
    beginning = verdict.passed & wants
    progress.merging = progress.merging | beginning
    weights.keep_above(beginning)
    # What was nearest to being multistable is not nearest to the VAA that is wanted.
    weights.score = torch.where(beginning, -torch.inf, weights.score)
    warming.history.checks.append(WarmupCheck(step, ready, found))
    return passed, found


def _descend(warming: Warming, progress: _Progress, step: int, verification: Verification) -> None:
    """One gradient step of the networks that have not finished."""
    system, weights = warming.system, warming.parameters
    before, took = _copies(weights), ~progress.finished
    states = warming.states()
    period = warming.draws.times(progress.longest.long().unsqueeze(-1)).squeeze(-1)
    period = torch.where(progress.merging, (warming.max_stabilisation + period) // 2, period)
    layers = _stabilised_layers(warming, states, period)
    repeats = 2 * verification.horizon / warming.max_stabilisation
    values = torch.stack([proxy(layer.end.detach(), warming.eps) for layer in layers])
    losses = torch.stack([persistence_loss(*layer, warming.eps, repeats) for layer in layers])
    rate = progress.rate
    if progress.merging.any():
        excess = excess_of(layers, warming.target, verification.states, warming.eps)
        losses = steered(layers, losses, excess, progress.merging, warming.eps)
        slower = MERGING_RATE * (excess.abs().mean(dim=0) / FAR).clamp(LEAST, 1) / progress.caution
        rate = torch.where(progress.merging & took, slower.to(rate), rate)
    loss = losses.mean(dim=0)
    check_finite(loss, [], warming, step)
    gradients, finite = normalised(gradients_of(loss, warming), system)
    descend(gradients, warming)
    # The optimiser has one learning rate for all networks: each goes its own multiple of the way.
    interpolate(weights, before, rate, system)
    now = WarmupStep(step, values.cpu(), loss.detach().cpu(), period)
    # A period over which the gradient overflows is too long, however far apart its states are.
    apart = torch.where(finite, now.vaa_star.min(dim=0).values, 0)
    progress.after_step(period, apart, warming.max_stabilisation)
    warming.record(now, took)


def _copies(weights: Sequence[Tensor]) -> list[Tensor]:
    return [weight.detach().clone() for weight in weights]


def _stabilised_layers(warming: Warming, states: States, period: Tensor) -> list[Layer]:
    """The states of each layer by itself in the middle and at the end of the period, with a new u for each."""
    system, layers = warming.system, []
    for index, (layer, state) in enumerate(zip(system.layers, states, strict=True)):
        u = WIDER * system.constant_input(index, warming.draws)
        start = layer.warmable_state(state)
        n = start[0][0].shape[-2]
        _, later = layer.warmable(u.expand(int(period.max()), *system.leading, n, u.shape[-1]), start)
        over_time = map_states(lambda x, y: torch.cat([x.unsqueeze(0), y]), [start], [later])
        middle, end = (
            flat(at_time(over_time, time.to(system.device).unsqueeze(-1).expand(*system.leading, n)))
            for time in (period // 2, period)
        )
        layers.append(Layer(middle, end))
    return layers


def persistence_loss(middle: Tensor, end: Tensor, eps: float, repeats: float) -> Tensor:
    """How far states are from staying apart, ``(...)``: near 0 if they will.

    The mean over the states of -log VAA*_i, with two changes. In place of a distance d stands d (1 + m/d)^-repeats:
    what remains of it if the states, which moved by m between ``middle`` and ``end``, go on like that. And the ratio
    eps / d is not cut at 1, so that the gradient does not vanish where states coincide.

    As in VAA*, distances are those of saturated states, so that nothing is gained by extreme ones; the motion is that
    of the states themselves, so that an extreme state that goes on growing is not taken for one at rest.

    Args:
        middle: states in the middle of the stabilisation period, ``(..., n, d)``.
        end: the same states at its end.
        eps: the tolerance of VAA*.
        repeats: how many times more the second half of the period is thought to happen.
    """
    smallest = torch.finfo(end.dtype).eps
    itself = torch.eye(end.shape[-2], dtype=torch.bool, device=end.device)
    apart = distances(end.tanh()).masked_fill(itself, 1).clamp(min=smallest)
    # The summand gives states at rest a gradient of zero, not one of 0/0.
    moved = ((end - middle).square().sum(dim=-1) + smallest**2).sqrt()
    relative = (moved.unsqueeze(-1) + moved.unsqueeze(-2)) / (2 * apart)
    log_ratio = math.log(eps) - apart.log() + repeats * relative.log1p()
    return torch.logsumexp(log_ratio.masked_fill(itself, 0), dim=-1).mean(dim=-1)
