"""The course of a warmup: how it went, how long it took, and VAA on the way."""

import time
from collections.abc import Callable
from typing import Any

from multistable.dynamics.warmup import WarmupHistory


class Course:
    """Accompanies the warmup of R networks.

    Args:
        vaa: measures the present VAA of each network; ``None`` for a network whose states do not stay finite.
        every: measure before the first step, after every so many, and at the end; 0 for never.
        most: the steps that the warmup may take.
    """

    def __init__(self, vaa: Callable[[], list[float | None]], every: int, most: int) -> None:
        self._vaa = vaa
        # Not after the last step: some warmups choose among their weights after it, and all are measured at their end.
        self._due = range(0, most, every) if every else range(0)
        self._measured: dict[int, list[float | None]] = {}
        self._began = self._stepped = time.perf_counter()
        self.after(0)

    def after(self, step: int) -> None:
        """Measure VAA if it is due after ``step`` steps."""
        if step in self._due:
            since = time.perf_counter()
            self._measured[step] = self._vaa()
            # A measure that is made only for a figure is not a cost of the warmup.
            self._began += time.perf_counter() - since
        self._stepped = time.perf_counter()

    def ended(self, history: WarmupHistory) -> list[dict[str, Any]]:
        """The :func:`courses` of the networks, with their cost and VAA on the way as pairs ``[steps taken, VAA]``."""
        taken = {"seconds": time.perf_counter() - self._began, "step_seconds": self._stepped - self._began}
        cost = {name: round(value, 3) for name, value in taken.items()} | {"together": len(history.vaa)}
        told = [course | cost for course in courses(history)]
        for member, last in enumerate(self._vaa() if self._due else ()):
            steps = int(history.gradient_steps[member])
            before = [[step, values[member]] for step, values in self._measured.items() if step < steps]
            told[member]["vaa_course"] = [*before, [steps, last]]
        return told


def courses(history: WarmupHistory) -> list[dict[str, Any]]:
    """The warmup of each network as JSON has it: the steps that it took itself, however many the others took."""
    single = history.target.dim() == 0
    outcomes, vaa = ([history.outcome], [history.vaa]) if single else (history.outcome, history.vaa)
    told = []
    for member, steps in enumerate(history.gradient_steps.reshape(-1).tolist()):
        own = (slice(steps),) if single else (slice(steps), ..., member)
        values = {name: getattr(history, name)[own].tolist() for name in ("vaa_star", "loss", "stabilisation")}
        told.append({"outcome": outcomes[member], "vaa": vaa[member]} | values)
    return told
