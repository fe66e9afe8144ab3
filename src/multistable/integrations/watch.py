"""A warmup at the start of a training, and the VAA on the way, in a loop of one's own."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from multistable.arguments import positive_integer
from multistable.dynamics.measure import measure
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.warmup import Keep, warmup

Log = Callable[[dict[str, float], int], Any]
MEASURED = {"batches": 3}
"""The options of the measures on the way, if none are given: fewer batches than the default has."""


class Watch:
    """Warms up a model, at once, and measures its VAA every few epochs of a training.

    ``watch = Watch(model, loader, log=writer)`` before the optimiser is made, and ``watch(epoch)`` at the end of each
    epoch.

    Args:
        model: the model, or a network.
        batches: what :func:`warmup` and :func:`measure` take; it is read at each measure.
        every: the epochs between two measures; epochs are counted from 1.
        log: where values go: a ``SummaryWriter`` of TensorBoard, a run of W&B, or a function of a dict and the epoch.
        warmup: options of the warmup; ``True`` for its defaults, ``False`` for none.
        measure: options of the measures.
        part: see :func:`measure`.
        forward: see :func:`measure`.

    Attributes:
        history: what the warmup returned; ``None`` without one.
        values: the last values, by name: ``"vaa"``, or of several parts ``"vaa/encoder"`` and so on.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Any,
        *,
        every: int = 5,
        log: Any = None,
        warmup: bool | Mapping[str, Any] = True,
        measure: Mapping[str, Any] = MEASURED,
        part: str | None = None,
        forward: Forward | None = None,
    ) -> None:
        self._model, self._batches = model, batches
        self._every, self._log = positive_integer("every", every), log_to(log)
        self._measure = measure
        self._how: dict[str, Any] = {"part": part, "forward": forward}
        self.history: Any = None
        self.values: dict[str, float] = {}
        if warmup is not False:
            self.warm_up({} if isinstance(warmup, bool) else warmup)

    def warm_up(self, options: Mapping[str, Any]) -> None:
        """Warm up, and log the VAA at the end as that of epoch 0."""
        self.history = warmup(self._model, self._batches, **self._how, **options)
        self._found(self.history, 0)

    def __call__(self, epoch: int) -> dict[str, float]:
        """Measure at the end of an epoch, if it is one of every few; the last values."""
        if epoch % self._every == 0:
            self._found(measure(self._model, self._batches, **self._how, **self._measure), epoch)
        return self.values

    def _found(self, results: Any, epoch: int) -> None:
        self.values = vaa_of(results)
        self._log(self.values, epoch)


def vaa_of(results: Any) -> dict[str, float]:
    """The VAA of what a measure or a warmup returned, by name."""
    if isinstance(results, dict):
        return {f"vaa/{name}": result.vaa for name, result in results.items()}
    return {"vaa": results.vaa}


def add_gradient(keep: Keep | None) -> None:
    """Add the gradient of a term to those that a backward pass has left."""
    if keep is not None:
        with torch.enable_grad():
            term = keep()
            if term.requires_grad:
                term.backward()


def log_to(target: Any) -> Log:
    """A function that logs values of an epoch where the user wants them.

    Args:
        target: what has ``add_scalar(name, value, step)``, what has ``log(values)``, a function, or ``None``.
    """
    if target is None:
        return lambda values, epoch: None
    if hasattr(target, "add_scalar"):

        def scalars(values: dict[str, float], epoch: int) -> None:
            for name, value in values.items():
                target.add_scalar(name, value, epoch)

        return scalars
    if hasattr(target, "log"):
        return lambda values, epoch: target.log({**values, "epoch": epoch})
    if callable(target):
        return target
    accepted = "a SummaryWriter, a run of W&B, a function of a dict and the epoch, or None"
    raise TypeError(f"log must be {accepted}, got {type(target).__name__}")
