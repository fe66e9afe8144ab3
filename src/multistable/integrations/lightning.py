"""A callback for the Trainer of Lightning."""

from collections.abc import Mapping
from typing import Any

from multistable.arguments import positive_integer
from multistable.dynamics.measure import measure
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.warmup import Keep, warmup
from multistable.extras import missing
from multistable.integrations.watch import MEASURED, add_gradient, vaa_of

try:
    import lightning
except ImportError as error:
    raise missing("the callback for Lightning", "lightning") from error


class Multistability(lightning.Callback):
    """Warms up the module when its training starts, and logs its VAA every few epochs.

    ``Trainer(callbacks=[Multistability()])``. The batches are those of the training. With several processes, the first
    one warms up and the others get its weights. A training that goes on from a checkpoint is not warmed up again.

    Args:
        every: the epochs between two measures; ``vaa`` is logged by the module, so other callbacks can monitor it.
        batches: other batches than those of the training.
        warmup: options of the warmup; ``True`` for its defaults, ``False`` for none.
        measure: options of the measures.
        part: see :func:`multistable.measure`.
        keep: keep the attractors while training, by the gradient of :class:`multistable.Keep` in each step of an
            optimiser: ``True``, or its options.
        forward: see :func:`multistable.measure`; ``lambda module, batch: module.training_step(batch, 0)`` for a module
            that has no ``forward``.
    """

    def __init__(
        self,
        *,
        every: int = 5,
        batches: Any = None,
        warmup: bool | Mapping[str, Any] = True,
        measure: Mapping[str, Any] = MEASURED,
        keep: bool | Mapping[str, Any] = False,
        part: str | None = None,
        forward: Forward | None = None,
    ) -> None:
        self._every, self._batches = positive_integer("every", every), batches
        self._keep_options = keep
        self._kept: Any = None
        self._warmup, self._measure = warmup, measure
        self._how: dict[str, Any] = {"part": part, "forward": forward}
        self._warmed_up = False
        self.history: Any = None
        self.keep: Keep | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Warm up, unless that was done before the checkpoint from which the training goes on."""
        if self._keep_options is not False and trainer.world_size > 1:
            raise RuntimeError("keep works in one process: each would push its own copy of the weights its own way")
        if self._warmup is not False and not self._warmed_up:
            self._warm_up(trainer, pl_module)
        if self._keep_options is not False:
            options = {} if isinstance(self._keep_options, bool) else self._keep_options
            self.keep = Keep(pl_module, self._read(trainer), **self._how, **options)
            if self._kept is not None:
                self.keep.load_state_dict(self._kept)

    def _warm_up(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            options = {} if isinstance(self._warmup, bool) else self._warmup
            self.history = warmup(pl_module, self._read(trainer), **self._how, **options)
            for logger in trainer.loggers:
                logger.log_metrics(vaa_of(self.history), step=trainer.global_step)
        if trainer.world_size > 1:
            pl_module.load_state_dict(trainer.strategy.broadcast(pl_module.state_dict()))
        self._warmed_up = True

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Add the gradient of what keeps attractors."""
        add_gradient(self.keep)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the VAA, if this epoch is one of every few."""
        if (trainer.current_epoch + 1) % self._every == 0 and trainer.is_global_zero:
            results = measure(pl_module, self._read(trainer), **self._how, **self._measure)
            pl_module.log_dict(vaa_of(results), rank_zero_only=True)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"warmed_up": self._warmed_up, "keep": None if self.keep is None else self.keep.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what a checkpoint kept."""
        self._warmed_up, self._kept = state_dict["warmed_up"], state_dict.get("keep")

    def _read(self, trainer: Any) -> Any:
        return trainer.train_dataloader if self._batches is None else self._batches
