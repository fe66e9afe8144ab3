"""A callback for the Trainer of Hugging Face."""

from collections.abc import Mapping
from typing import Any

from multistable.arguments import positive_integer
from multistable.dynamics.measure import measure
from multistable.dynamics.system.batches import Forward
from multistable.dynamics.warmup import Keep, warmup
from multistable.extras import missing
from multistable.integrations.watch import MEASURED, add_gradient, vaa_of

try:
    import transformers
except ImportError as error:
    raise missing("the callback for the Trainer of Hugging Face", "transformers") from error


class Multistability(transformers.TrainerCallback):
    """Warms up the model when its training starts, and logs its VAA every few epochs.

    ``trainer.add_callback(Multistability(trainer))``. The batches are those of the training, and the values go where
    the trainer reports to. A training that goes on from a checkpoint is not warmed up again.

    Args:
        trainer: the trainer that the callback is added to.
        every: the epochs between two measures.
        warmup: options of the warmup; ``True`` for its defaults, ``False`` for none.
        measure: options of the measures.
        keep: keep the attractors while training, by the gradient of :class:`multistable.Keep` in each step of the
            optimiser: ``True``, or its options.
        part: see :func:`multistable.measure`.
        forward: see :func:`multistable.measure`.
    """

    def __init__(
        self,
        trainer: Any,
        *,
        every: int = 1,
        warmup: bool | Mapping[str, Any] = True,
        measure: Mapping[str, Any] = MEASURED,
        keep: bool | Mapping[str, Any] = False,
        part: str | None = None,
        forward: Forward | None = None,
    ) -> None:
        if not isinstance(trainer, transformers.Trainer):
            raise TypeError(f"trainer must be a transformers.Trainer, got {type(trainer).__name__}")
        self._trainer, self._every = trainer, positive_integer("every", every)
        self._warmup, self._measure = warmup, measure
        self._how: dict[str, Any] = {"part": part, "forward": forward}
        self._keep_options = keep
        self.history: Any = None
        self.keep: Keep | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Warm up, unless the training goes on from a checkpoint."""
        if args.world_size > 1:
            raise RuntimeError("the callback trains in one process: call ms.warmup before the training, in all of them")
        if self._warmup is not False and state.global_step == 0:
            options = {} if isinstance(self._warmup, bool) else self._warmup
            self.history = warmup(kwargs["model"], kwargs["train_dataloader"], **self._how, **options)
            self._trainer.log(vaa_of(self.history))
        if self._keep_options is not False:
            options = {} if isinstance(self._keep_options, bool) else self._keep_options
            self.keep = Keep(kwargs["model"], kwargs["train_dataloader"], **self._how, **options)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the gradient of what keeps attractors."""
        add_gradient(self.keep)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log the VAA, if this epoch is one of every few."""
        if round(state.epoch) % self._every == 0:
            results = measure(kwargs["model"], kwargs["train_dataloader"], **self._how, **self._measure)
            self._trainer.log(vaa_of(results))
