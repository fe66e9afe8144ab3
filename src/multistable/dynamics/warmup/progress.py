"""The line that shows where a warmup is."""

from typing import TextIO

from multistable.dynamics.system import progress
from multistable.dynamics.warmup.history import WarmupHistory, WarmupStep

INTERRUPTED = "warmup was interrupted: the weights are as they were before the call"


class Line(progress.Line):
    """The line of a warmup of at most ``most`` steps, and of at most ``budget`` seconds."""

    most: int = 1
    budget: float | None = None

    def __init__(self, name: str, out: TextIO | None, patience: float = 0.0) -> None:
        super().__init__(name, out, patience)
        self._at = ""
        self._left: float | None = None

    def step(self, step: WarmupStep) -> None:
        """Show a step that was taken and its VAA*, of several layers or members the lowest and the highest."""
        low, high = (f"{value:.2f}" for value in step.vaa_star.aminmax())
        self._at = f"step {step.step} of at most {self.most}"
        self._left = self.seconds / step.step * (self.most - step.step)
        self.tell(f"{self._at}, VAA* {low if low == high else f'{low} to {high}'}", left=self._bound())

    def measuring(self, states: int, done: int, steps: int) -> None:
        """Show that the VAA of ``states`` states is measured: so many of so many steps."""
        self.tell(f"{self._at}, measuring VAA of {states:,} states, step {done:,} of {steps:,}", left=self._bound())

    def ended(self, history: WarmupHistory) -> None:
        """Show how the warmup ended."""
        self.tell(repr(history), always=True, whole=True)

    def interrupted(self, interrupt: KeyboardInterrupt) -> None:
        """Say what became of the weights."""
        interrupt.add_note(INTERRUPTED)
        self.tell(INTERRUPTED, always=True, whole=True)

    def _bound(self) -> float | None:
        """The seconds left at most."""
        if self.budget is None:
            return self._left
        return max(0.0, min(self.budget - self.seconds, float("inf") if self._left is None else self._left))
