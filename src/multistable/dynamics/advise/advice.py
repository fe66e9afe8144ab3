"""The result of ``ms.advise``."""

import textwrap
from dataclasses import dataclass, field
from typing import Any

from multistable.dynamics.advise.rule import WORDS
from multistable.dynamics.advise.trial import Trial
from multistable.dynamics.advise.windows import Window


@dataclass(frozen=True)
class Advice:
    """The result of :func:`advise`. ``print(advice)`` says it in words.

    Attributes:
        warmup: ``"none"``, leave the network as it is; ``"whole"``, warm it up; ``"double"``, make its layers double
            (:func:`doubled`) and warm them up; None if the probes cannot tell.
        reasons: why, a list of sentences.
        vaa: the share of reachable attractors, of several parts a dict by name.
        lifetime: the steps after which a small difference between states has faded to 1/e, along the sequences; of
            several parts a dict by name.
        length: the steps of the longest sequence.
        window: how much a reader of the last w steps alone finds out: ``.lengths``, ``.scores`` and their standard
            ``.errors``; ``.nearest``, the shortest window that is better than guessing, and ``.needed``, the shortest
            that is as good as the whole sequence. None if it was not tried.
        trial: copies of the model that were trained for a short while: ``.steps``, and for each version its held-out
            ``.losses`` at these; ``.guessing``, the loss of guessing. None if it was not tried.
    """

    warmup: str | None
    reasons: list[str]
    vaa: Any
    lifetime: Any
    length: int
    window: Window | None = field(repr=False)
    trial: Trial | None = field(repr=False)

    def __str__(self) -> str:
        lines = (textwrap.fill(reason, 100, initial_indent="- ", subsequent_indent="  ") for reason in self.reasons)
        return "\n".join([f"Advice: {WORDS[self.warmup]}.", *lines])

    def plot(self) -> Any:
        """Draw how far back the targets reach, and how the copies learned; needs the extra ``report``.

        Returns:
            The figure.
        """
        from multistable.drawing import figure
        from multistable.dynamics.advise.pictures import draw_trial, draw_window

        drawn, (left, right) = figure(10, 4, 2)
        draw_window(left, self.window, self.lifetime)
        draw_trial(right, self.trial)
        return drawn
