"""Pictures of an advice: the windows, and the copies that were trained."""

from typing import Any

from multistable.drawing import Axes, name_axes
from multistable.dynamics.advise.rule import CALLED
from multistable.dynamics.advise.trial import Trial
from multistable.dynamics.advise.windows import Window
from multistable.palette import COLOURS, GREY, INK, MARKERS


def draw_window(axes: Axes, window: Window | None, lifetime: Any) -> None:
    """What a reader of the last w steps finds out, and how long small differences last."""
    name_axes(
        axes,
        "steps before the answer that are read",
        "share of the loss of guessing saved",
        "how far back the targets reach",
    )
    if window is None:
        axes.text(0.5, 0.5, "not tried", transform=axes.transAxes, ha="center")
        return
    axes.errorbar(window.lengths, window.scores, window.errors, color=COLOURS[0], marker="o", capsize=3)
    lifetimes = lifetime.values() if isinstance(lifetime, dict) else [lifetime]
    for value in lifetimes:
        if 0 < value <= window.lengths[-1]:
            axes.axvline(value, color=GREY, linestyle="--")
            axes.annotate(
                "lifetime of\na difference",
                (value, 1.0),
                xytext=(4, 0),
                textcoords="offset points",
                va="top",
                color=INK,
            )
    axes.set_xscale("log", base=2)
    axes.set_xticks(window.lengths, [str(length) for length in window.lengths])
    axes.set_ylim(-0.05, 1.05)


def draw_trial(axes: Axes, trial: Trial | None) -> None:
    """The held-out losses of the copies."""
    name_axes(axes, "training step", "held-out loss", "copies trained for a short while")
    if trial is None:
        axes.text(0.5, 0.5, "not tried", transform=axes.transAxes, ha="center")
        return
    for (name, losses), colour, marker in zip(trial.losses.items(), COLOURS, MARKERS, strict=False):
        axes.plot(trial.steps, losses, color=colour, marker=marker, label=CALLED[name])
    if trial.guessing is not None:
        axes.axhline(trial.guessing, color=GREY, linestyle="--", label="guessing")
    axes.legend()
