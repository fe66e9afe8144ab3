"""A rough forecast of how long runs take, and how much memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from multistable.tasks.generated import SEQUENCES, GeneratedTask
from multistable.training import RunConfig
from multistable.training.group import EVALUATED_AT_ONCE

MNIST_SEQUENCES = 60_000

LEAST_SHARE = 0.25
"""Of a GPU: with more groups at once each only takes longer."""

GPU_MEMORY = 40 * 2**30
"""Bytes of a GPU that cannot be asked."""

CONTEXT = 2**30
"""Bytes that a process needs on a GPU before it does anything."""

KEPT = 8
"""Numbers for each unit and time step of a gradient step: docs/engine.md counts 6 for an LSTM, and their gradients."""


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
    if config.kind.auxiliary:
        decoded = config.stretch * config.num_layers
        epoch += steps * decoded * (rate.time_step + rate.row * config.stretches * config.batch_size * squares)
    measures = (config.duration // config.vaa_every + 1) if config.vaa_every else 0
    states = config.vaa_batches * config.vaa_batch_size
    settling = config.stabilisation * config.num_layers * (rate.time_step / 2 + rate.settling * states * squares)
    warmed = sum(run.kind.warmed for run in configs) / len(configs)
    period = config.task.length + config.max_stabilisation / 2
    rows = rate.time_step + rate.row * config.warmup_batch_size * squares * warmed
    warmup = config.warmup_steps * config.num_layers * period * rows if warmed else 0.0
    return config.duration * epoch + measures * settling + warmup


def memory(configs: Sequence[RunConfig]) -> float:
    """Bytes that a group of runs needs on a GPU at once, within a factor of two or so."""
    config = configs[0]
    length, layers, units = config.task.length, config.num_layers, config.hidden_size
    usual = SEQUENCES if isinstance(config.task, GeneratedTask) else MNIST_SEQUENCES
    sequences = (config.training_sequences or usual) + (config.testing_sequences or usual)
    sets = len({run.seed if run.data_seed is None else run.data_seed for run in configs})
    data = sequences * length * config.task.input_size * sets
    weights = 6 * len(configs) * layers * 4 * units * 2 * units  # with gradients, Adam's and the best
    training = KEPT * length * layers * units * config.batch_size * len(configs)
    warmed = sum(run.kind.warmed for run in configs)
    period = length + config.max_stabilisation
    warmup = KEPT * period * layers * units * config.warmup_batch_size * warmed
    evaluation = KEPT * min(EVALUATED_AT_ONCE, sequences * length * units * len(configs))
    return CONTEXT + 4 * (data + weights + max(training, warmup, evaluation))


def gpu_share(configs: Sequence[RunConfig]) -> float:
    """The share of a GPU that a group of runs needs; of this machine's GPU, if it has one."""
    total = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else GPU_MEMORY
    return round(min(1.0, max(LEAST_SHARE, memory(configs) / total)), 2)
