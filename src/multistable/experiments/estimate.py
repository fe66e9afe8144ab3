"""A rough forecast of how long runs take."""

from collections.abc import Sequence
from dataclasses import dataclass

from multistable.tasks.generated import SEQUENCES, GeneratedTask
from multistable.training import RunConfig

MNIST_SEQUENCES = 60_000


@dataclass(frozen=True)
class Rate:
    """Seconds of the parts of a training; a row is one state of one network at one time step.

    Attributes:
        step: of a gradient step, whatever its size.
        time_step: of a time step of a layer, forward and backward, whatever its size.
        row: of a row forward and backward, for each H x H of its weights.
        settling: of a row in a measure, for each H x H.
    """

    step: float
    time_step: float
    row: float
    settling: float


# Fitted to docs/results/engine.txt and docs/results/copy_50.json (one H200), and to cpu_scan.txt (two cores).
RATES = {
    "cuda": Rate(step=3e-4, time_step=4e-6, row=1.2e-12, settling=4e-13),
    "cpu": Rate(step=2e-3, time_step=1e-4, row=4e-10, settling=1e-10),
}


def seconds(configs: Sequence[RunConfig], device: str) -> float:
    """How long a group of runs may take on a ``"cuda"`` or ``"cpu"`` device, within a factor of two or so."""
    rate, config = RATES[device], configs[0]
    usual = SEQUENCES if isinstance(config.task, GeneratedTask) else MNIST_SEQUENCES
    learning = config.training_sequences or usual
    steps = learning * (1 - config.validation - config.selection) / config.batch_size
    squares = len(configs) * config.hidden_size**2 / (2 if config.kind.double else 1)
    length = config.task.length * config.num_layers
    epoch = steps * (rate.step + length * (rate.time_step + rate.row * config.batch_size * squares))
    measures = (config.epochs // config.vaa_every + 1) if config.vaa_every else 0
    states = config.vaa_batches * config.vaa_batch_size
    settling = config.stabilisation * config.num_layers * (rate.time_step / 2 + rate.settling * states * squares)
    warmed = sum(run.kind.warmed for run in configs) / len(configs)
    period = config.task.length + config.max_stabilisation / 2
    rows = rate.time_step + rate.row * config.warmup_batch_size * squares * warmed
    warmup = config.warmup_steps * config.num_layers * period * rows if warmed else 0.0
    return config.epochs * epoch + measures * settling + warmup
