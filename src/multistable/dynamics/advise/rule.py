"""What the probes say together: the rule of the advice, and its reasons in words."""

import math
from dataclasses import dataclass

from multistable.dynamics.advise.trial import WARMED, Trial
from multistable.dynamics.advise.windows import Window

MULTISTABLE = 0.5
"""From this VAA on a network has attractors enough by itself."""
SHORT = 20
"""Networks learn by themselves what lies no more than so many steps back (docs/results/small.md)."""
LIFETIMES = 2
"""What lies within so many lifetimes of a difference is still seen by a network that is not warmed up."""

WORDS = {
    "none": "leave it as it is",
    "whole": "warm up",
    "double": "warm up double layers (ms.doubled, then ms.warmup)",
    None: "cannot tell",
}


CALLED = {"none": "as it is", "whole": "warmed up", "double": "double and warmed up"}


@dataclass(frozen=True)
class Found:
    """What the probes found.

    Attributes:
        vaa: the least VAA of the parts.
        one: the VAA of a single attractor.
        lifetime: the longest lifetime of small differences, of the parts.
        length: the longest sequence.
        window: what was found out about windows, or None.
        trial: the copies that were trained, or None.
        missing: for each probe that is missing, why.
    """

    vaa: float
    one: float
    lifetime: float
    length: int
    window: Window | None
    trial: Trial | None
    missing: dict[str, str]

    @property
    def reach(self) -> float:
        """How many steps back a network reads without help."""
        return max(SHORT, LIFETIMES * self.lifetime)


def decided(found: Found) -> tuple[str | None, list[str]]:
    """The advice, and the reasons for it."""
    reasons = [*_of_dynamics(found), *_of_window(found), *_of_trial(found)]
    if found.trial is not None and found.trial.best is not None:
        return found.trial.best, [*reasons, "The copies that were trained decide."]
    window = found.window
    if found.vaa >= MULTISTABLE:
        return "none", [*reasons, "A network that has attractors already needs no warmup."]
    if found.length <= SHORT:
        return "none", [*reasons, f"Sequences of {found.length} steps need no attractors."]
    if window is None or window.needed is None or window.nearest is None:
        return None, [*reasons, "Nothing tells whether the targets need what happened long ago."]
    if window.needed <= found.reach:
        return "none", [*reasons, "What the targets need is near enough for a network without a warmup."]
    if window.nearest <= found.reach:
        return None, [*reasons, "The targets need what is near and what is far: only training tells more."]
    if found.trial is not None and any(name in found.trial.losses for name in WARMED):
        return None, [*reasons, "The targets need what is far alone, but no copy that was warmed up has learned it."]
    return "whole", [*reasons, "Nothing nearer leads a network to it: a warmup is made for this."]


def _of_dynamics(found: Found) -> list[str]:
    many = (
        "all states end at one attractor"
        if found.vaa < 1.5 * found.one
        else "states end at several attractors"
        if found.vaa < MULTISTABLE
        else "most states end apart"
    )
    lasts = (
        "Small differences do not fade"
        if math.isinf(found.lifetime)
        else f"A small difference fades to 1/e within {_steps(found.lifetime)}"
    )
    return [
        f"The network has a VAA of {found.vaa:.2f}: {many}.",
        f"{lasts}; the sequences have up to {found.length} steps.",
    ]


def _of_window(found: Found) -> list[str]:
    window = found.window
    if window is None:
        return [f"How far back the targets reach is not known: {found.missing['window']}."]
    whole = window.lengths[-1]
    if window.needed is None or window.nearest is None:
        return [
            f"A reader of all {whole} steps, no recurrent network, does not answer better than by guessing: "
            "either the targets do not depend on the sequences, or in a way that it does not find."
        ]
    scores = dict(zip(window.lengths, window.scores, strict=True))
    said = f"A reader of all {whole} steps, no recurrent network, saves {scores[whole]:.0%} of the loss of guessing"
    if window.needed == window.lengths[0]:
        return [f"{said}, and one of the last {window.needed} as much."]
    below = window.lengths[window.lengths.index(window.needed) - 1]
    near = (
        f"the last {below} steps alone are worth nothing"
        if window.nearest == window.needed
        else f"the last {below} steps alone save {scores[below]:.0%}, and it takes {window.nearest} to save any"
    )
    return [f"{said}; {near}."]


def _of_trial(found: Found) -> list[str]:
    trial = found.trial
    if trial is None:
        return [f"No copies were trained: {found.missing['trial']}."]
    ends = ", ".join(f"{CALLED[name]} {course[-1]:.3g}" for name, course in trial.losses.items())
    guess = "" if trial.guessing is None else f" (guessing: {trial.guessing:.3g})"
    reasons = [f"Held-out loss of copies after {trial.steps[-1]} training steps, one run each: {ends}{guess}."]
    if trial.best is None:
        reasons.append("None of the copies has learned anything yet.")
    return reasons + [f"No copy was {CALLED[name]}: {why}." for name, why in trial.missing.items()]


def _steps(number: float) -> str:
    return "1 step" if number <= 1 else f"{number:,.0f} steps"
