"""A rough forecast of how long runs take, and how much memory."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import Any

import torch

from multistable.cells import CELLS, Cell
from multistable.dynamics.warmup.run_warmup import FINAL_BATCH_SIZE, FINAL_BATCHES, FINAL_STABILISATION
from multistable.networks.cell_specs import halves
from multistable.rl import AgentConfig
from multistable.rl.drqn import EPISODES_AT_ONCE
from multistable.tasks.generated import SEQUENCES, GeneratedTask
from multistable.training import Config, RunConfig
from multistable.training.settings import by_warmup
from multistable.training.supervised import EVALUATED_AT_ONCE

MNIST_SEQUENCES = 60_000

LEAST_SHARE = 0.25
"""The least share of a GPU for a group: with more groups at once, each only takes longer."""

GPU_MEMORY = 40 * 2**30
"""Bytes of memory assumed for a GPU of another machine."""

CONTEXT = 2**30
"""Bytes that a process needs on a GPU before it does anything."""

KEPT = 8
"""How many numbers a gradient step keeps for each unit and time step: an LSTM keeps 6, and their gradients."""

USUAL_MATRICES = 3
"""The number of H x H matrices assumed for a cell that cannot be asked."""


@dataclass(frozen=True)
class Row:
    """Seconds that one state of one network takes for one time step of a layer.

    Attributes:
        unit: for each of its H units.
        weight: for each number in the recurrent matrices, of which a cell has up to four of H x H, or none.
    """

    unit: float
    weight: float

    def seconds(self, configs: Sequence[Config]) -> float:
        """Seconds for one state of each of some runs of one architecture."""
        return self.unit * len(configs) * configs[0].hidden_size + self.weight * _weights(configs)


@dataclass(frozen=True)
class Rate:
    """Seconds that the parts of a training take.

    Attributes:
        group: of a group of runs, whatever its size: its data, its files, and what is compiled for it.
        step: of a gradient step, or of an agent's step in its environment, whatever its size.
        warming: of a gradient step of the warmup, for each layer, whatever its size.
        time_step: of a time step of a layer, forward and backward, whatever its size.
        training: of a row forward and backward.
        settling: of a row in a measure.
    """

    group: float
    step: float
    warming: float
    time_step: float
    training: Row
    settling: Row


# Of a GPU, fitted to what one process took alone on an H200: epoch.txt, measure.txt, dynamics.txt, copy_50.json and, of
# float32, training_step.txt and engine.txt, all in docs/results. Of a CPU, fitted to cpu_scan.txt (one thread), warming
# to attractors_small.json. What agents take is in docs/guide/agents.md. A group takes the processor time of all
# experiments at the scale smoke, divided by the number of their groups.
RATES = {
    "cuda": Rate(
        group=1.0,
        step=1.5e-4,
        warming=1e-2,
        time_step=2.1e-6,
        training=Row(unit=1.8e-11, weight=4.8e-13),
        settling=Row(unit=3e-11, weight=2e-14),
    ),
    "cpu": Rate(
        group=1.0,
        step=2e-3,
        warming=1e-2,
        time_step=1e-5,
        training=Row(unit=6.4e-9, weight=1e-10),
        settling=Row(unit=3e-9, weight=4e-11),
    ),
}

TF32_WEIGHT = 0.3
"""The time of a weight in training in TF32 on a GPU, as a share of its time in float32.

Fitted to docs/results/epoch.txt, where a gradient step of ten networks 2 x 256 on denoising, batch 32, takes 5.1 ms
with LSTM, 4.5 with GRU, 1.2 with BRC. The forecasts are 0.7 (MGU) to 1.3 (BRC) times the measured times.
"""

TF32_FROM = 2e7
"""Where TF32 is allowed, products are in TF32 if the rows of a gradient step times the weights exceed this number.

With few rows float32 is faster (docs/results/engine_records.md): ten GRUs of 128 units, batch 32, stay in float32, ten
of 256 units do not.
"""


def seconds(configs: Sequence[Config], device: str, done: int = 0) -> float:
    """How long a group of runs may take on a ``"cuda"`` or ``"cpu"`` device, within a factor of two or so.

    Args:
        configs: of the runs.
        device: where.
        done: how many epochs or episodes are finished.
    """
    rate, config = RATES[device], configs[0]
    training = rate
    if (device, config.precision) == ("cuda", "tf32") and config.batch_size * _weights(configs) > TF32_FROM:
        training = replace(rate, training=replace(rate.training, weight=TF32_WEIGHT * rate.training.weight))
    unit = _unit(config)(configs, training)
    before = 0.0 if done else _warmup(configs, rate)
    return rate.group + before + (config.duration - done) * unit + _measures(configs, rate, done)


def _unit(config: Config) -> Callable[[Sequence[Any], Rate], float]:
    """What foretells the seconds of an epoch or episode of such runs."""
    if isinstance(config, AgentConfig):
        return {"drqn": _episode, "ppo": _episode_of_ppo}[config.algorithm]
    return _epoch


def _epoch(configs: Sequence[Any], rate: Rate) -> float:
    """The gradient steps of an epoch of supervised runs."""
    config, row = configs[0], rate.training.seconds(configs)
    usual = SEQUENCES if isinstance(config.task, GeneratedTask) else MNIST_SEQUENCES
    learning = config.training_sequences or usual
    steps = learning * (1 - config.validation - config.selection) / config.batch_size
    length = config.task.length * config.num_layers
    step = rate.step + length * (rate.time_step + config.batch_size * row)
    if config.kind.auxiliary:
        decoded = config.stretch * config.num_layers
        step += decoded * (rate.time_step + config.stretches * config.batch_size * row)
    return steps * step


def _episode(configs: Sequence[Any], rate: Rate) -> float:
    """An episode, played to the horizon, and the gradient steps after it."""
    config, row = configs[0], rate.training.seconds(configs)
    length = config.task.horizon * config.num_layers
    step = rate.step + length * (rate.time_step + config.batch_size * row)
    return config.task.horizon * rate.step + config.gradient_steps * step


def _episode_of_ppo(configs: Sequence[Any], rate: Rate) -> float:
    """An episode's share of an update: all are played in lockstep, to the horizon, and read in parts in each pass."""
    config, row = configs[0], rate.training.seconds(configs)
    length, steps = config.task.horizon * config.num_layers, config.passes * config.minibatches
    reading = steps * (rate.step + length * rate.time_step) + config.passes * length * config.copies * row
    return (config.task.horizon * rate.step + reading) / config.copies


def _measures(configs: Sequence[Config], rate: Rate, done: int) -> float:
    config = configs[0]
    if not config.vaa_every:
        return 0.0
    # Supervised runs follow states to their attractors before training and after it, which is as long as a measure.
    ends = 1 if done or isinstance(config, AgentConfig) else 3
    measures = (config.duration - done) // config.vaa_every + ends
    return measures * _measure(configs, rate, config.vaa_batches * config.vaa_batch_size, config.stabilisation)


def _measure(configs: Sequence[Config], rate: Rate, states: int, stabilisation: int) -> float:
    steps = stabilisation * configs[0].num_layers
    return steps * (rate.time_step / 2 + states * rate.settling.seconds(configs))


def _warmup(configs: Sequence[Config], rate: Rate) -> float:
    """The gradient steps of Algorithm 3, always in float32, and the measures during the warmup and after it."""
    warmed = [run for run in configs if by_warmup(run)]
    if not warmed:
        return 0.0
    config = warmed[0]
    period = _length(config) + config.max_stabilisation / 2
    step = rate.warming + period * (rate.time_step + config.warmup_batch_size * rate.training.seconds(warmed))
    last = _measure(warmed, rate, FINAL_BATCHES * FINAL_BATCH_SIZE, FINAL_STABILISATION)
    course = 0.0
    if isinstance(config, RunConfig) and config.warmup_vaa_every:
        measures = -(-config.warmup_steps // config.warmup_vaa_every) + 1
        course = measures * _measure(warmed, rate, config.vaa_batches * config.vaa_batch_size, config.stabilisation)
    return config.warmup_steps * config.num_layers * step + course + last


def _weights(configs: Sequence[Config]) -> float:
    """How many numbers the recurrent matrices of a layer have in all runs; no matrix joins halves of a double layer."""
    config = configs[0]
    return len(configs) * _matrices(config) * config.hidden_size**2 / (2 if config.kind.double else 1)


def _matrices(config: Config) -> float:
    """How many H x H matrices the cell has; of a pair the mean."""
    return fmean(_matrices_of(CELLS.find(str(half)), json.dumps(config.cell_options)) for half in halves(config.cell))


@lru_cache
def _matrices_of(make: Callable[..., Cell], options: str) -> int:
    """How many H x H matrices a cell has, by how the number of its parameters grows with H."""
    try:
        with torch.device("meta"):
            cells = [make(1, units, **json.loads(options)) for units in (4, 8, 12)]
    except (ValueError, TypeError, RuntimeError):  # The user's own cell may refuse these sizes.
        return USUAL_MATRICES
    few, some, more = (sum(weight.numel() for weight in cell.parameters()) for cell in cells)
    return (more - 2 * some + few) // 32


def _length(config: Config) -> int:
    """The length of the longest sequence."""
    return config.task.horizon if isinstance(config, AgentConfig) else config.task.length


def memory(configs: Sequence[Config]) -> float:
    """Bytes that a group of runs needs on a GPU at once, within a factor of two or so."""
    config = configs[0]
    length, layers, units = _length(config), config.num_layers, config.hidden_size
    sequences, data = _stored(configs)
    weights = 6 * len(configs) * layers * 4 * units * 2 * units  # with gradients, Adam's and the best
    training = KEPT * length * layers * units * _rows(config) * len(configs)
    warmed = sum(map(by_warmup, configs))
    period = length + config.max_stabilisation
    warmup = KEPT * period * layers * units * config.warmup_batch_size * warmed
    evaluation = KEPT * min(EVALUATED_AT_ONCE, sequences * length * units * len(configs))
    return CONTEXT + 4 * (data + weights + max(training, warmup, evaluation))


def _rows(config: Any) -> int:
    """The sequences of a gradient step of one run."""
    by_ppo = isinstance(config, AgentConfig) and config.algorithm == "ppo"
    return config.copies // config.minibatches if by_ppo else config.batch_size


def _stored(configs: Sequence[Any]) -> tuple[int, int]:
    """How many sequences are evaluated in a pass at most, and how many numbers all of them have."""
    config = configs[0]
    if isinstance(config, AgentConfig):
        if config.algorithm == "ppo":
            numbers = config.copies * config.task.horizon * config.input_size
            return config.copies, 2 * numbers * len(configs)
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
