"""A rough forecast of how long runs take, and how much memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from multistable.rl import AgentConfig
from multistable.rl.drqn import EPISODES_AT_ONCE
from multistable.tasks.generated import SEQUENCES, GeneratedTask
from multistable.training import Config
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
        group: of a group of runs, whatever its size: its data, its files, and what is compiled for it.
        step: of a gradient step, whatever its size.
        time_step: of a time step of a layer, forward and backward, whatever its size.
        row: of a row forward and backward, for each H x H of its weights.
        settling: of a row in a measure, for each H x H.
    """

    group: float
    step: float
    time_step: float
    row: float
    settling: float


# Fitted to docs/results/engine.txt and docs/results/copy_50.json (one H200), and to cpu_scan.txt (two cores).
# What a group takes is the processor time of all experiments at the scale smoke, over the number of their groups.
RATES = {
    "cuda": Rate(group=1.0, step=3e-4, time_step=4e-6, row=1.2e-12, settling=4e-13),
    "cpu": Rate(group=1.0, step=2e-3, time_step=1e-4, row=4e-10, settling=1e-10),
}

TF32_ROW = 0.5
"""What a row of training takes in TF32 on a GPU, as a share of what it takes in float32.

A gradient step of ten networks 2 x 256 on denoising, batch 32, takes 5.9 ms in place of 16.7 with GRU, 11.6 in place of
23.4 with LSTM.
"""


def seconds(configs: Sequence[Config], device: str, done: int = 0) -> float:
    """How long a group of runs may take on a ``"cuda"`` or ``"cpu"`` device, within a factor of two or so.

    Args:
        configs: of the runs.
        device: where.
        done: the epochs, or episodes, that they go on from.
    """
    rate, config = RATES[device], configs[0]
    training = replace(rate, row=TF32_ROW * rate.row) if (device, config.precision) == ("cuda", "tf32") else rate
    if isinstance(config, AgentConfig):
        unit = _episode(config, _squares(configs), training)
    else:
        unit = _epoch(configs, training)
    before = 0.0 if done else _warmup(configs, rate)
    return rate.group + before + (config.duration - done) * unit + _measures(configs, rate, done)


def _epoch(configs: Sequence[Any], rate: Rate) -> float:
    """The gradient steps of an epoch of supervised runs."""
    config = configs[0]
    usual = SEQUENCES if isinstance(config.task, GeneratedTask) else MNIST_SEQUENCES
    learning = config.training_sequences or usual
    steps = learning * (1 - config.validation - config.selection) / config.batch_size
    squares = _squares(configs)
    length = config.task.length * config.num_layers
    epoch = steps * (rate.step + length * (rate.time_step + rate.row * config.batch_size * squares))
    if config.kind.auxiliary:
        decoded = config.stretch * config.num_layers
        epoch += steps * decoded * (rate.time_step + rate.row * config.stretches * config.batch_size * squares)
    return epoch


def _episode(config: AgentConfig, squares: float, rate: Rate) -> float:
    """An episode, played to the horizon, and the gradient steps after it."""
    length = config.task.horizon * config.num_layers
    step = rate.step + length * (rate.time_step + rate.row * config.batch_size * squares)
    return config.task.horizon * rate.step / 2 + config.gradient_steps * step


def _measures(configs: Sequence[Config], rate: Rate, done: int) -> float:
    config = configs[0]
    measures = ((config.duration - done) // config.vaa_every + 1) if config.vaa_every else 0
    states = config.vaa_batches * config.vaa_batch_size
    rows = rate.time_step / 2 + rate.settling * states * _squares(configs)
    return measures * config.stabilisation * config.num_layers * rows


def _warmup(configs: Sequence[Config], rate: Rate) -> float:
    config, warmed = configs[0], sum(run.kind.warmed for run in configs) / len(configs)
    period = _length(config) + config.max_stabilisation / 2
    rows = rate.time_step + rate.row * config.warmup_batch_size * _squares(configs) * warmed
    return config.warmup_steps * config.num_layers * period * rows if warmed else 0.0


def _squares(configs: Sequence[Config]) -> float:
    """H x H of all runs."""
    return len(configs) * configs[0].hidden_size ** 2 / (2 if configs[0].kind.double else 1)


def _length(config: Config) -> int:
    """The longest sequence."""
    return config.task.horizon if isinstance(config, AgentConfig) else config.task.length


def memory(configs: Sequence[Config]) -> float:
    """Bytes that a group of runs needs on a GPU at once, within a factor of two or so."""
    config = configs[0]
    length, layers, units = _length(config), config.num_layers, config.hidden_size
    sequences, data = _stored(configs)
    weights = 6 * len(configs) * layers * 4 * units * 2 * units  # with gradients, Adam's and the best
    training = KEPT * length * layers * units * config.batch_size * len(configs)
    warmed = sum(run.kind.warmed for run in configs)
    period = length + config.max_stabilisation
    warmup = KEPT * period * layers * units * config.warmup_batch_size * warmed
    evaluation = KEPT * min(EVALUATED_AT_ONCE, sequences * length * units * len(configs))
    return CONTEXT + 4 * (data + weights + max(training, warmup, evaluation))


def _stored(configs: Sequence[Any]) -> tuple[int, int]:
    """How many sequences are evaluated in a pass at most, and how many numbers all of them have."""
    config = configs[0]
    if isinstance(config, AgentConfig):
        transitions = config.capacity + 2 * config.task.horizon
        return EPISODES_AT_ONCE, 2 * transitions * config.input_size * len(configs)
    usual = SEQUENCES if isinstance(config.task, GeneratedTask) else MNIST_SEQUENCES
    sequences = (config.training_sequences or usual) + (config.testing_sequences or usual)
    sets = len({run.seed if run.data_seed is None else run.data_seed for run in configs})
    return sequences, sequences * config.task.length * config.input_size * sets


def gpu_share(configs: Sequence[Config]) -> float:
    """The share of a GPU that a group of runs needs; of this machine's GPU, if it has one."""
    total = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else GPU_MEMORY
    return round(min(1.0, max(LEAST_SHARE, memory(configs) / total)), 2)
