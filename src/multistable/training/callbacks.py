"""What a training tells those who watch it."""

from collections.abc import Iterable, Sequence
from typing import Any

from multistable.dynamics.warmup import WarmupStep

Configs = Sequence[Any]
"""Configurations of one kind, for instance ``RunConfig``."""


class Callback:
    """Watches a training. Derive from it and define what is of interest; each method is called in its turn.

    Runs that are trained together are reported together: ``configs`` and the lists beside it have one entry for each.
    Raising an exception stops the training; what was recorded so far is kept, and the same call goes on from there.
    """

    def on_start(self, configs: Configs, epoch: int, steps: int) -> None:
        """Runs begin, or go on after ``epoch``; an epoch has ``steps`` gradient steps.

        Agents have episodes in place of epochs, each of one step.
        """

    def on_warmup_step(self, configs: Configs, step: WarmupStep) -> None:
        """A step of the warmup of those runs that have one."""

    def on_step(self, configs: Configs, epoch: int, step: int) -> None:
        """A gradient step has been asked of the device, the ``step``-th of ``epoch``."""

    def on_epoch(self, configs: Configs, metrics: Sequence[dict[str, Any]]) -> None:
        """An epoch, or the episodes up to an evaluation, have ended and their metrics are recorded; 0 is before."""

    def on_end(self, configs: Configs, summaries: Sequence[dict[str, Any]]) -> None:
        """Runs have finished."""


class Callbacks(Callback):
    """Several as one."""

    def __init__(self, callbacks: Iterable[Callback] | Callback) -> None:
        self._callbacks = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
        for callback in self._callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(f"callbacks must be objects of classes derived from Callback, got {callback!r}")

    def on_start(self, configs: Configs, epoch: int, steps: int) -> None:
        for callback in self._callbacks:
            callback.on_start(configs, epoch, steps)

    def on_warmup_step(self, configs: Configs, step: WarmupStep) -> None:
        for callback in self._callbacks:
            callback.on_warmup_step(configs, step)

    def on_step(self, configs: Configs, epoch: int, step: int) -> None:
        for callback in self._callbacks:
            callback.on_step(configs, epoch, step)

    def on_epoch(self, configs: Configs, metrics: Sequence[dict[str, Any]]) -> None:
        for callback in self._callbacks:
            callback.on_epoch(configs, metrics)

    def on_end(self, configs: Configs, summaries: Sequence[dict[str, Any]]) -> None:
        for callback in self._callbacks:
            callback.on_end(configs, summaries)
