"""What happened during a warmup."""

import reprlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from multistable.arguments import counted
from multistable.dynamics.measure.noise import Robustness
from multistable.dynamics.warmup.goal import Goal

RECENT_STEPS = 10
"""The VAA* at the end of a warmup is a mean over so many steps, since that of a single step depends on chance."""
NEAR = 0.9
"""The share of its target that a network, or a layer, must reach."""
REASONS = {
    "collapsed": "all states of a batch coincide in a layer, or almost, and VAA* has no gradient there",
    "drifting": "VAA* is near its target within the stabilisation period, but in the long run the states end at few "
    "attractors",
    "short": "VAA* did not come near its target",
    "frail": "too few states come back to their attractors after noise, or they come back to too few attractors",
    "unverified": "the last measure finds it multistable, but the verification, which has more inputs, never did",
}
"""Why a network is not multistable, by its outcome."""


class WarmupStep(NamedTuple):
    """One gradient step of a warmup; ``...`` is empty for a single network and R for an ensemble."""

    step: int
    vaa_star: Tensor
    """VAA* of each layer, ``(layers, ...)``."""
    loss: Tensor
    """``(...)``"""
    stabilisation: Tensor
    """The stabilisation period M, ``(...)``."""


class WarmupCheck(NamedTuple):
    """A look at the true measure during a warmup."""

    step: int
    asked: Tensor
    """Which networks were looked at, ``(...)``."""
    vaa: Tensor
    """The true VAA, ``(...)``. Where it was not measured: NaN, or if a VAA is wanted, what a quicker test found."""
    passed: Tensor
    """Which networks passed the verification, ``(...)``. Each ends with the last weights that passed."""


class WarmupHistory:
    """The steps of a warmup, and whether it succeeded.

    Attributes:
        goal: the target of each network, and which of them are a wanted VAA.
        vaa: the true VAA after the warmup, a number, or a list with one for each member of an ensemble.
        gradient_steps: how many steps each network took, ``(...)``. Members of an ensemble that had finished before the
            others took fewer than there are entries in the history.
        verified: which networks passed the verification of the default warmup, ``(...)``. A verified network may have a
            VAA below ``target``: where histories coincide, as in a T-Maze, so do states, and VAA cannot be higher.
        verifies: whether the warmup verified itself. If so, only a verified network is multistable, whatever ``vaa``
            is. If not, a network is multistable with nine tenths of its target.
        restarts: how often each network began again with its first weights, ``(...)``.
        checks: the looks at the true measure on the way, a list of :class:`WarmupCheck`.
        time_was_up: whether the time that the warmup was given ended it.
        robustness: with ``robust``, the share of states that come back after noise and to how many attractors, as
            :func:`robustness` finds them after 1,000 steps of stabilisation; else ``None``.
        vaa_after: the steps of stabilisation after which ``vaa`` is known, where the time was up before the measure
            was over; else ``None``. VAA seldom rises later, and may fall.
    """

    def __init__(self, goal: Goal, batch_size: int, final_batch_size: int) -> None:
        self.goal = goal
        self.vaa: Any = None
        self._batch_size = batch_size
        self._final_batch_size = final_batch_size
        self._steps: list[WarmupStep] = []
        self.gradient_steps = torch.zeros_like(goal.target, dtype=torch.long)
        self.verified = torch.zeros_like(goal.target, dtype=torch.bool)
        self.verifies = False
        self.restarts = torch.zeros_like(goal.target, dtype=torch.long)
        self.checks: list[WarmupCheck] = []
        self.time_was_up = False
        self.vaa_after: int | None = None
        self.robustness: Robustness | None = None

    @property
    def target(self) -> Tensor:
        """k, ``(...)``."""
        return self.goal.target

    def record(self, step: WarmupStep, took: Tensor | bool = True) -> None:
        """Add a step that the networks ``took (...)``."""
        self._steps.append(step)
        self.gradient_steps += took

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[WarmupStep]:
        return iter(self._steps)

    def __repr__(self) -> str:
        told: dict[str, Any] = {"steps": self.gradient_steps.tolist()}
        if self._steps:
            told["final_vaa_star"] = _rounded(self.final_vaa_star)
        if self._steps and self.vaa is not None:
            told = {"outcome": self.outcome, "vaa": _rounded(self.vaa)} | told
        # reprlib shows only a few members of a large ensemble.
        values = (f"{name}={reprlib.repr(value)}" for name, value in told.items())
        return f"{type(self).__name__}({', '.join(values)})"

    def __str__(self) -> str:
        """What happened, in words: a line for each network."""
        if not self._steps or self.vaa is None:
            return f"warmup of {counted(len(self), 'step')}, not over yet"
        single = self.target.dim() == 0
        outcomes, values = ([self.outcome], [self.vaa]) if single else (self.outcome, self.vaa)
        steps, restarts = self.gradient_steps.reshape(-1).tolist(), self.restarts.reshape(-1).tolist()
        lines = []
        for index, (outcome, value, took, again) in enumerate(zip(outcomes, values, steps, restarts, strict=True)):
            name = "" if single else f"network {index}: "
            after = f", {counted(again, 'new start')}" if again else ""
            kept = "" if self.robustness is None else f"; {self._withstood(index)}"
            lines.append(f"{name}{self._said(outcome, value)}{kept} ({counted(took, 'gradient step')}{after})")
        return "\n".join(lines)

    def _said(self, outcome: str, value: float) -> str:
        """How a network ended, and what that means for its VAA."""
        known = f"VAA {value:.3f}"
        if self.vaa_after is not None and outcome != "multistable":
            known += f" after {self.vaa_after:,} steps, all that the time allowed"
        one = f"one attractor gives {1 / self._final_batch_size:.3g}"
        if outcome == "multistable":
            verified = ", verified" if self.verifies else ""
            return f"multistable: {known}{verified} ({one})"
        why = "the time was up" if self.time_was_up else REASONS.get(outcome, "VAA is not verified to be as wanted")
        return f"not multistable, {outcome}: {known} ({one}); {why}"

    def plot(self) -> Any:
        """Draw VAA* over the steps, and the looks at the true VAA; needs the extra ``report``.

        Returns:
            The figure.
        """
        from multistable.drawing import figure

        drawn, axes = figure(6.4, 4.8)
        steps = [step.step for step in self._steps]
        values = self.vaa_star.flatten(2).mean(dim=-1) if self.target.dim() else self.vaa_star
        for layer, course in enumerate(values.unbind(-1)):
            axes.plot(steps, course.tolist(), linewidth=1, label=f"VAA* of layer {layer + 1}")
        looks = [(check.step, check.vaa.nanmean().item()) for check in self.checks if not check.vaa.isnan().all()]
        if looks:
            axes.plot(*zip(*looks, strict=True), "o", label="VAA, measured on the way")
        if self.vaa is not None:
            mean = torch.as_tensor(self.vaa, dtype=torch.float64).mean().item()
            axes.axhline(mean, linestyle="--", color="black", label=f"VAA at the end, {mean:.2f}")
        axes.set(xlabel="gradient step", ylabel="VAA* and VAA", ylim=(0, 1.05))
        axes.legend()
        return drawn

    @property
    def last(self) -> WarmupStep:
        """The latest step."""
        return self._steps[-1]

    @property
    def vaa_star(self) -> Tensor:
        """VAA* of each layer at each step, ``(steps, layers, ...)``."""
        return torch.stack([step.vaa_star for step in self._steps])

    @property
    def final_vaa_star(self) -> Tensor:
        """VAA* of each layer at the end, ``(layers, ...)``: the mean over the last ten steps that each network took.

        A network is multistable if its states differ in any layer; this tells in which. Of a double layer it is the
        VAA* of the half that was warmed up.
        """
        if self.target.dim() == 0:
            return self.vaa_star[-RECENT_STEPS:].mean(dim=0)
        own = zip(self.vaa_star.unbind(-1), self.gradient_steps, strict=True)
        return torch.stack([values[:steps][-RECENT_STEPS:].mean(dim=0) for values, steps in own], dim=-1)

    @property
    def loss(self) -> Tensor:
        """The loss of each step, ``(steps, ...)``."""
        return torch.stack([step.loss for step in self._steps])

    @property
    def stabilisation(self) -> Tensor:
        """The stabilisation period of each step, ``(steps, ...)``."""
        return torch.stack([step.stabilisation for step in self._steps])

    @property
    def outcome(self) -> Any:
        """How the warmup ended, for an ensemble a list with one outcome for each member.

        With a wanted VAA: ``"multistable"`` if it was verified, ``"missed"`` if it was not. With ``robust``:
        ``"multistable"`` if states come back after noise, ``"frail"`` if they do not, or to few attractors. Otherwise:

        - ``"multistable"``;
        - ``"collapsed"``: in some layer all states of a batch coincide, or almost. VAA* is 1/n and has no gradient;
        - ``"drifting"``: VAA* is near its target within the stabilisation period, but in the long run the states end at
          few attractors;
        - ``"short"``: VAA* did not come near its target;
        - ``"unverified"``: VAA reaches its target in the last measure, but the network never passed the verification,
          which has more inputs.
        """
        if self.target.dim() == 0:
            return self._outcome(self.vaa, self.target, self.goal.wanted, self.verified, self.final_vaa_star)
        ends = self._each(self.final_vaa_star)
        members = zip(self.vaa, self.target, self.goal.wanted, self.verified, ends, strict=True)
        return [self._outcome(*member) for member in members]

    @property
    def multistable(self) -> bool:
        """Whether the network, or every member of an ensemble, ended multistable."""
        outcomes = self.outcome if isinstance(self.outcome, list) else [self.outcome]
        return all(outcome == "multistable" for outcome in outcomes)

    def _outcome(self, vaa: float, target: Tensor, wanted: Tensor, verified: Tensor, ends: Tensor) -> str:
        if verified:
            return "multistable"
        if wanted:
            return "missed"
        if self.robustness is not None:
            return "frail"
        if float(ends.min()) < 1.5 / self._batch_size:
            return "collapsed"
        if vaa >= max(float(target) * (1.0 if self.verifies else NEAR), 1.5 / self._final_batch_size):
            return "unverified" if self.verifies else "multistable"
        return "drifting" if float((ends - target).abs().max()) < 0.1 else "short"

    @property
    def behind(self) -> Tensor:
        """Which layers ended with a VAA* below nine tenths of their target, ``(layers, ...)``.

        VAA does not show this, since it compares the states of all layers together. No layer is behind after the
        default warmup, in which layers have no target of their own, or in a network of one layer.
        """
        ends = self.final_vaa_star
        return ends.lt(NEAR * self.target) & (not self.verifies) & (len(ends) > 1)

    def failures(self) -> list[str]:
        """A sentence for each network that did not reach its goal, or that has a layer which is behind."""
        single = self.target.dim() == 0
        outcomes, values = ([self.outcome], [self.vaa]) if single else (self.outcome, self.vaa)
        targets = self.target.reshape(-1).tolist()
        networks = zip(outcomes, values, targets, self._each(self.behind), self._each(self.final_vaa_star), strict=True)
        messages = []
        for index, (outcome, value, target, behind, ends) in enumerate(networks):
            name = "the network" if single else f"member {index}"
            if outcome == "frail":
                messages.append(self._frail(name, index))
            elif outcome != "multistable":
                message = _failure(name, outcome, value, target, self.goal.tolerance)
                short = "" if self.vaa_after is None else f", and VAA was measured after {self.vaa_after:,} steps only"
                messages.append(f"{message}; the time was up{short}" if self.time_was_up else message)
            elif behind.any():
                messages.append(_left_behind(name, behind, ends, target))
        return messages

    def _withstood(self, index: int) -> str:
        """What noise left of the states of a network."""
        found = self.robustness
        assert found is not None
        values = (found.returned, found.vaa, found.returned_changing, found.vaa_changing)
        back, places, back_changing, places_changing = (v[index] if isinstance(v, list) else v for v in values)
        return (
            f"after noise of {found.noise:g}, {back:.0%} of the states come back under constant input and "
            f"{back_changing:.0%} under changing input, {found.n} states to {places * found.n:.3g} and "
            f"{places_changing * found.n:.3g} attractors"
        )

    def _frail(self, name: str, index: int) -> str:
        short = "; the time was up" if self.time_was_up else ""
        return (
            f"warmup did not make the attractors of {name} robust (frail): {self._withstood(index)}. A smaller noise, "
            f"more steps or more units may help{short}"
        )

    def _each(self, layers: Tensor) -> list[Tensor]:
        """``(layers, ...)`` of the single network, or of each member."""
        return [layers] if self.target.dim() == 0 else list(layers.unbind(-1))


def _failure(name: str, outcome: str, vaa: float, target: float, tolerance: float) -> str:
    if outcome == "missed":
        verdict = f"VAA {vaa:.3f} is not verified to be within {tolerance:g} of the wanted {target:g}"
        what = f"bring {name} to its wanted VAA ({outcome}): {verdict}"
    else:
        what = f"make {name} multistable: VAA = {vaa:.3f} afterwards ({outcome}: {REASONS[outcome]})"
    return f"warmup did not {what}. Another generator or more steps may help"


def _left_behind(name: str, behind: Tensor, ends: Tensor, target: float) -> str:
    layers = " and ".join(f"layer {layer + 1} (VAA* {ends[layer]:.2f})" for layer in behind.nonzero().flatten())
    return f"warmup left {layers} of {name} behind its target of {target:g}, though VAA is high. More steps may help"


def _rounded(values: Any) -> Any:
    return torch.as_tensor(values, dtype=torch.float64, device="cpu").round(decimals=3).tolist()
