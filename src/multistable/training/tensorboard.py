"""Metrics for TensorBoard."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multistable.dynamics.warmup import WarmupStep
from multistable.extras import missing
from multistable.training.callbacks import Callback
from multistable.training.settings import Config
from multistable.training.store import RunFolder


class TensorBoard(Callback):
    """Writes every run's metrics into its own folder, for ``tensorboard --logdir OUT``.

    The metrics of an epoch or episode have its number as their step, VAA* and the loss of the warmup have the step of
    the warmup, and the test scores have the best epoch. A run that goes on writes some values a second time; they are
    the same.

    Args:
        out: the folder that :func:`train` is given.
    """

    def __init__(self, out: Path | str) -> None:
        try:
            # Imported here because it is an extra, and slow to import.
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise missing("TensorBoard output", "tensorboard") from error
        self._out = Path(out)
        self._make = SummaryWriter
        self._writers: dict[str, Any] = {}

    def on_start(self, configs: Sequence[Config], epoch: int, steps: int) -> None:
        for config in configs:
            self._writers[config.name] = self._make(str(RunFolder.of(config, self._out).path))

    def on_warmup_step(self, configs: Sequence[Config], step: WarmupStep) -> None:
        for run, config in enumerate(configs):
            layers = {f"vaa_star_{layer}": value[run] for layer, value in enumerate(step.vaa_star, start=1)}
            self._write(config, step.step, {"loss": step.loss[run]} | layers, under="warmup/")

    def on_epoch(self, configs: Sequence[Config], metrics: Sequence[dict[str, Any]]) -> None:
        for config, row in zip(configs, metrics, strict=True):
            values = {name: value for name, value in row.items() if name not in (config.unit, "phase")}
            self._write(config, row[config.unit], values)
            self._writers[config.name].flush()

    def on_end(self, configs: Sequence[Config], summaries: Sequence[dict[str, Any]]) -> None:
        for config, summary in zip(configs, summaries, strict=True):
            results = summary["results"]
            scores = {name: results[name] for name in ("test_loss", "test_accuracy") if name in results}
            if scores:
                self._write(config, results["best_epoch"], scores)
            self._writers.pop(config.name).close()

    def _write(self, config: Config, step: int, values: dict[str, Any], under: str = "") -> None:
        for name, value in values.items():
            if value is not None:
                self._writers[config.name].add_scalar(f"{under}{name}", value, step)
