"""The default warmup: it looks beyond its stabilisation periods, verifies itself, and stops once it has succeeded.

Algorithm 3 asks that states be apart after at most 200 steps. They may still be moving towards one attractor, too
slowly to be seen. Here the loss compares how far states move in the second half of the period with how far apart they
are: states that move little for their distance stay apart for long.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from multistable.dynamics.measure.vaa_and_vaa_star import distances, proxy
from multistable.dynamics.system.system import System
from multistable.dynamics.system.whole_states import States, at_time, flat, map_states
from multistable.dynamics.warmup.gradient_steps import (
    Warming,
    check_finite,
    copies,
    descend,
    gradients_of,
    interpolate,
    normalised,
)
from multistable.dynamics.warmup.history import WarmupCheck, WarmupStep
from multistable.dynamics.warmup.verification import WIDER, Verdict, Verification
from multistable.dynamics.warmup.wanted_vaa import Corners, Outcome, units_of

# Periods are drawn up to a bound: its first value, the VAA* above which it grows, and by which factor it grows.
FIRST_PERIOD, APART, GROWTH = 4.0, 0.5, 1.25
# The learning rate is as given for the first steps, fewer after a new start. Then it doubles every few, up to a largest
# multiple.
CALM_STEPS, CALM_AGAIN, DOUBLING_STEPS, LARGEST_RATE = 50, 20, 25, 20.0
# The largest multiple is for units that read at most so many numbers, of inputs and units together. It is smaller where
# they read more, since all their weights move at once.
READ = 33
# A network is firm once the median loss of so many steps is below a limit: its states then move so little for their
# distance that they stay apart. A network that is multistable but not firm easily loses its attractors in training.
FIRM_STEPS, FIRM_LOSS = 10, 1.0
# A network starts again from its first weights after so many steps in a row with bounds below a quarter of the longest.
PATIENCE = 50
# The steps between two looks at the true VAA. Steps towards a wanted VAA are short: there are more between two looks.
CHECK_EVERY, CHECK_WANTED = 10, 20


@dataclass(frozen=True)
class Manner:
    """How a warmup that verifies itself goes about it.

    Attributes:
        bias_rate: how many times further than matrices biases go in a step, and all other vectors. States come to rest
            where gates close, which a bias does in a few such steps whatever the number of inputs.
        loose_steps: a network that is not firm goes on for so many steps. Then being multistable is enough.
        early_looks: whether a network is measured as soon as its periods are long, firm or not. A network that is not
            firm has states that still move, which takes the most time to measure.
        careful_again: whether a network that starts again has biases that go no further, and rates that grow sooner:
            units without gates may saturate by their biases.
        scaled: whether the largest learning rate depends on how many numbers a unit reads.
    """

    bias_rate: float
    loose_steps: int
    early_looks: bool
    careful_again: bool
    scaled: bool


MANNERS = {"fast": Manner(30.0, 200, False, True, True), "reliable": Manner(1.0, 100, True, False, False)}
"""The warmups that verify themselves, by their names."""


class Layer(NamedTuple):
    """The states of a layer in the middle and at the end of a stabilisation period, ``(..., n, d)``."""

    middle: Tensor
    end: Tensor


@dataclass
class _Progress:
    """How far each network is; every tensor is ``(...)``, on the CPU."""

    wanted: Tensor
    """Which networks have a wanted VAA; the others should have as many attractors as possible."""
    limit: Tensor
    """The most steps each network takes."""
    most: int
    """The longest period that can be drawn."""
    manner: Manner
    read: int
    """How many numbers a unit reads, inputs and units together."""
    longest: Tensor = field(init=False)
    """Periods are drawn from {1, ..., longest}."""
    age: Tensor = field(init=False)
    """Steps since the first weights."""
    stuck: Tensor = field(init=False)
    """Steps in a row with short periods only."""
    restarts: Tensor = field(init=False)
    """How often each network has started again."""
    apart: Tensor = field(init=False)
    """Whether the states of all layers ended apart in the last step."""
    verified: Tensor = field(init=False)
    """Whether the network ever passed the verification."""
    finished: Tensor = field(init=False)
    """Whether the network takes no more steps."""
    losses: list[Tensor] = field(init=False, default_factory=list)
    """The losses of the last steps."""

    def __post_init__(self) -> None:
        leading = self.wanted.shape
        self.longest = torch.full(leading, FIRST_PERIOD, device="cpu")
        self.age, self.stuck, self.restarts = (torch.zeros(leading, device="cpu") for _ in range(3))
        self.apart, self.verified, self.finished = (
            torch.zeros(leading, dtype=torch.bool, device="cpu") for _ in range(3)
        )

    def rate(self, dim: int) -> Tensor:
        """The factor of the learning rate of weights with ``dim`` dimensions, ``(...)``; 0 for a finished network."""
        first = (self.restarts == 0) | (not self.manner.careful_again)
        calm = torch.where(first, CALM_STEPS, CALM_AGAIN)
        largest = LARGEST_RATE * min(1.0, READ / self.read) if self.manner.scaled else LARGEST_RATE
        growing = (2 ** ((self.age - calm) / DOUBLING_STEPS)).clamp(1, max(1.0, largest))
        if dim < 2:
            growing = torch.where(first, growing.clamp(min=self.manner.bias_rate), growing)
        return torch.where(self.finished, 0.0, torch.where(self.wanted, 1.0, growing))

    def may_end(self, step: int) -> Tensor:
        """Which networks finish once they pass the verification."""
        firm = torch.stack(self.losses).median(dim=0).values < FIRM_LOSS
        return self.wanted | firm | (step >= self.manner.loose_steps)

    def ready(self, step: int) -> Tensor:
        """Which networks to verify; after ``limit`` steps all that may have succeeded."""
        early = ~self.verified & self.manner.early_looks
        grown = (self.longest >= self.most) & (early | self.may_end(step))
        due = torch.where(self.wanted, step % CHECK_WANTED == 0, grown)
        return (due | (self.limit == step) & (self.wanted | self.apart)) & ~self.finished

    def after_step(self, period: Tensor, vaa_star: Tensor, loss: Tensor) -> None:
        """Let periods grow if the states ended apart, as ``vaa_star (...)`` says, and shrink if they did not."""
        self.losses = [*self.losses, loss][-FIRM_STEPS:]
        self.apart = vaa_star > APART
        grown = torch.maximum(self.longest, torch.minimum(GROWTH * self.longest + 1, 2.0 * period + 2))
        shrunk = torch.minimum(self.longest, period).div(2).clamp(min=2)
        self.longest = torch.where(self.apart, grown, shrunk).clamp(max=self.most)
        self.age = self.age + 1
        going_on = self.finished | self.wanted | (self.longest > self.most / 4)
        self.stuck = torch.where(going_on, 0, self.stuck + 1)

    def start_again(self) -> Tensor:
        """Which networks start again: those that were stuck for too long and never were verified."""
        again = (self.stuck >= PATIENCE) & ~self.verified
        self.restarts = self.restarts + again
        self.losses = [torch.where(again, torch.inf, loss) for loss in self.losses]
        self.longest = torch.where(again, FIRST_PERIOD, self.longest)
        self.age, self.stuck = (torch.where(again, 0, count) for count in (self.age, self.stuck))
        return again

    def end(self, step: int) -> None:
        """Finish networks that have taken all their steps; a verified network takes at most ``loose_steps``."""
        self.finished = self.finished | (step >= self.limit) | self.verified & (step >= self.manner.loose_steps)


@dataclass
class _Weights:
    """The first weights of each network, and its best: the last that passed the verification, or came nearest to it."""

    present: Sequence[Tensor]
    system: System
    first: list[Tensor] = field(init=False)
    best: list[Tensor] = field(init=False)
    score: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.first, self.best = (copies(self.present) for _ in range(2))
        self.score = torch.full(self.system.leading, -torch.inf, dtype=torch.float64, device="cpu")

    def start_again(self, again: Tensor) -> None:
        """Give the networks ``again (...)`` their first weights."""
        interpolate(self.present, self.first, (~again).float(), self.system)

    def consider(self, verdict: Verdict) -> None:
        """Remember the present weights of networks that passed, or came nearer to it than before."""
        worse = (verdict.score <= self.score) & ~verdict.passed
        interpolate(self.best, copies(self.present), worse.float(), self.system)
        self.score = torch.maximum(self.score, verdict.score)

    def restore_best(self) -> None:
        """Give every network its best weights; those that were never judged stay as they are."""
        interpolate(self.present, self.best, (self.score == -torch.inf).float(), self.system)


def verified_warmup(warming: Warming, manner: Manner, verification: Verification, corners: Corners | None) -> Tensor:
    """Warm up, in place, until every network is verified and firm, or has taken all its steps.

    What happens to a network does not depend on the others. It ends with the last weights that passed the verification,
    or with those that came nearest to it.

    Args:
        warming: the networks.
        manner: how.
        verification: what they should become.
        corners: where sequences should lead to in networks with a wanted VAA; ``None`` if there are none.

    Returns:
        The true VAA of each network, ``(...)``, NaN for those that never passed the verification.
    """
    weights = _Weights(warming.parameters, warming.system)
    system = warming.system
    read = max(layer.input_size + units_of(layer, system) for layer in system.layers)
    progress = _Progress(warming.goal.wanted, warming.limit, warming.max_stabilisation, manner, read)
    vaa = torch.full(warming.system.leading, torch.nan, dtype=torch.float64, device="cpu")
    warming.history.verifies = True
    for step in range(1, int(warming.limit.max()) + 1):
        _descend(warming, progress, step, verification, corners)
        if warming.time_is_up():
            progress.limit = progress.limit.clamp(max=step)
        if step % CHECK_EVERY == 0 or bool((progress.limit == step).any()):
            passed, found = _verify(warming, progress, weights, verification, step)
            vaa = torch.where(passed, found, vaa)
            progress.verified = progress.verified | passed
            progress.finished = progress.finished | passed & progress.may_end(step)
        progress.end(step)
        if progress.finished.all():
            break
        again = progress.start_again()
        if again.any():
            warming.history.restarts += again
            weights.start_again(again)
    warming.history.verified = progress.verified
    weights.restore_best()
    return vaa


def _verify(
    warming: Warming, progress: _Progress, weights: _Weights, verification: Verification, step: int
) -> tuple[Tensor, Tensor]:
    """Verify the networks that are ready: which of them pass, and their true VAA, both ``(...)``."""
    goal, ready = warming.goal, progress.ready(step)
    verdict = verification.judge(ready & ~goal.wanted, step)
    weights.consider(verdict)
    passed, vaa = verdict.passed, verdict.vaa
    if bool((ready & goal.wanted).any()):
        near = verification.judge_wanted(ready & goal.wanted, step, goal)
        weights.consider(near)
        passed, vaa = passed | near.passed, torch.where(ready & goal.wanted, near.vaa, vaa)
    warming.history.checks.append(WarmupCheck(step, ready, vaa, passed))
    return passed, vaa


def _descend(
    warming: Warming, progress: _Progress, step: int, verification: Verification, corners: Corners | None
) -> None:
    """One gradient step of the networks that have not finished."""
    system, weights = warming.system, warming.parameters
    before, took = copies(weights), ~progress.finished
    losses, values, period = _outcome(warming, progress, verification, corners)
    loss = losses.mean(dim=0)
    check_finite(loss, [], warming, step)
    gradients, finite = normalised(gradients_of(loss, warming), system)
    descend(gradients, warming)
    # The optimiser has one learning rate for all weights of all networks: each then goes its own multiple of the way.
    for weight, first in zip(weights, before, strict=True):
        interpolate([weight], [first], progress.rate(weight.dim() - len(system.leading)), system)
    now = WarmupStep(step, values.cpu(), loss.detach().cpu(), period)
    # A period over which the gradient overflows is too long, however far apart its states are.
    least = torch.where(finite, now.vaa_star.min(dim=0).values, 0)
    progress.after_step(period, least, now.loss)
    warming.record(now, took)


def _outcome(warming: Warming, progress: _Progress, verification: Verification, corners: Corners | None) -> Outcome:
    """The loss of each network: with a wanted VAA, how far states are from their corners; else from staying apart."""
    system = warming.system.with_present_weights()
    if corners is None:
        return _staying_apart(warming, system, progress, verification)
    cornered = corners.step(system, warming.batch_size, warming.max_stabilisation, warming.eps)
    wanted = progress.wanted
    if wanted.all():
        return cornered
    apart = _staying_apart(warming, system, progress, verification)
    there = wanted.to(apart.losses.device)
    return Outcome(
        torch.where(there, cornered.losses, apart.losses),
        torch.where(there, cornered.vaa_star, apart.vaa_star),
        torch.where(wanted, cornered.period, apart.period),
    )


def _staying_apart(warming: Warming, system: System, progress: _Progress, verification: Verification) -> Outcome:
    """The states of a batch of sequences after a period, and how far they are from staying apart."""
    states = warming.states(system)
    period = warming.draws.times(progress.longest.long().unsqueeze(-1)).squeeze(-1)
    layers = _stabilised_layers(warming, system, states, period)
    repeats = 2 * verification.horizon / warming.max_stabilisation
    values = torch.stack([proxy(layer.end.detach(), warming.eps) for layer in layers])
    losses = torch.stack([persistence_loss(*layer, warming.eps, repeats) for layer in layers])
    return Outcome(losses, values, period)


def _stabilised_layers(warming: Warming, system: System, states: States, period: Tensor) -> list[Layer]:
    """The states of each layer by itself in the middle and at the end of the period, with a new u for each layer."""
    layers = []
    for index, (layer, state) in enumerate(zip(system.layers, states, strict=True)):
        u = system.constant_input(index, warming.draws, scale=WIDER)
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
    """How far states are from staying apart, ``(...)``; near 0 if they will.

    It is the mean over the states of -log VAA*_i, with two changes. A distance d is replaced by d (1 + m/d)^-repeats:
    what remains of it if the states, which moved by m between ``middle`` and ``end``, go on like that. And the ratio
    eps / d is not cut at 1, so that the gradient does not vanish where states coincide.

    As in VAA*, distances are those of saturated states, so that extreme states gain nothing. The motion is that of the
    states themselves, so that an extreme state that goes on growing does not count as one at rest.

    Args:
        middle: states in the middle of the stabilisation period, ``(..., n, d)``.
        end: the same states at its end.
        eps: the tolerance of VAA*.
        repeats: how many times the motion of the second half of the period is assumed to be repeated.
    """
    smallest = torch.finfo(end.dtype).eps
    itself = torch.eye(end.shape[-2], dtype=torch.bool, device=end.device)
    apart = distances(end.tanh()).masked_fill(itself, 1).clamp(min=smallest)
    # The summand gives states at rest a gradient of zero, not one of 0/0.
    moved = ((end - middle).square().sum(dim=-1) + smallest**2).sqrt()
    relative = (moved.unsqueeze(-1) + moved.unsqueeze(-2)) / (2 * apart)
    log_ratio = math.log(eps) - apart.log() + repeats * relative.log1p()
    return torch.logsumexp(log_ratio.masked_fill(itself, 0), dim=-1).mean(dim=-1)
