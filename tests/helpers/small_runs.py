"""A run that takes a moment, and what is recorded of one that never was."""

from multistable.tasks import CopyFirstInput
from multistable.training import Callback, RunConfig

SMALL = {
    "task": CopyFirstInput(6),
    "cell": "gru",
    "hidden_size": 8,
    "epochs": 2,
    "training_sequences": 50,
    "testing_sequences": 20,
    "batch_size": 16,
    "vaa_batches": 2,
    "vaa_batch_size": 4,
    "stabilisation": 50,
    "warmup_steps": 3,
    "warmup_batch_size": 8,
    "max_stabilisation": 10,
}

RECORD = {"seconds": 60.0, "together": 5, "device": "a GPU", "torch": "2.0", "multistable": "0.1.0"}
"""How results came about, as a run records it."""


def small(**changes):
    return RunConfig(**SMALL | changes)


class Watcher(Callback):
    """Keeps what it is told."""

    def __init__(self):
        self.calls = []

    def on_start(self, configs, epoch, steps):
        self.calls.append(("start", len(configs), epoch, steps))

    def on_warmup_step(self, configs, step):
        self.calls.append(("warmup", [config.version for config in configs], step.step))

    def on_step(self, configs, epoch, step):
        self.calls.append(("step", epoch, step))

    def on_epoch(self, configs, metrics):
        self.calls.append(("epoch", [row["epoch"] for row in metrics]))

    def on_end(self, configs, summaries):
        self.calls.append(("end", len(summaries)))
