"""Callbacks: objects that are told what happens in a training."""

from collections.abc import Iterable, Sequence
from typing import Any

from multistable.dynamics.warmup import WarmupStep

Configs = Sequence[Any]
"""Configurations of one kind, for instance ``RunConfig``."""


class Callback:
    """Watches a training. Derive from this class and define the methods that you need.

    Runs that are trained together are reported together: ``configs`` and the lists beside it have an entry for each
    run. An exception stops the training. What was recorded is kept, and the same call of ``train`` goes on from there.
    """

    def on_start(self, configs: Configs, epoch: int, steps: int) -> None:
        """Runs begin, or go on after ``epoch``. An epoch has ``steps`` gradient steps.

        Agents have episodes in place of epochs, and each episode counts as one step.
        """

    def on_warmup_step(self, configs: Configs, step: WarmupStep) -> None:
        """A step of the warmup; ``configs`` are those of the runs that are warmed up."""

    def on_step(self, configs: Configs, epoch: int, step: int) -> None:
        """The ``step``-th gradient step of ``epoch`` has been launched."""

    def on_epoch(self, configs: Configs, metrics: Sequence[dict[str, Any]]) -> None:
        """The metrics of an epoch, or of an evaluation, are recorded; epoch 0 is before training."""

    def on_end(self, configs: Configs, summaries: Sequence[dict[str, Any]]) -> None:
        """Runs have finished."""


class Callbacks(Callback):
    """Several callbacks as one."""

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
