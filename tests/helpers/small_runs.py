"""A run that takes a moment, callbacks that watch or interrupt it, and a made-up record."""

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
"""A made-up record of how the results of a run came about."""


def small(**changes):
    return RunConfig(**SMALL | changes)


class Watcher(Callback):
    """Keeps every call."""

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


class StopError(Exception):
    """Interrupts a training in a test."""


class StopAt(Callback):
    """Interrupts a training at a step of the warmup, at a gradient step, or when something is recorded.

    Args:
        event: ``"warmup"``, ``"step"`` or ``"record"``.
        number: the number of the warmup's step, or of the epoch or episode.
        step: the number of the gradient step in its epoch; by default any.
    """

    def __init__(self, event, number, step=None):
        self.event, self.number, self.step = event, number, step

    def at(self, event, number, step=None):
        if (event, number) == (self.event, self.number) and self.step in (None, step):
            raise StopError

    def on_warmup_step(self, configs, step):
        self.at("warmup", step.step)

    def on_step(self, configs, epoch, step):
        self.at("step", epoch, step)

    def on_epoch(self, configs, metrics):
        self.at("record", metrics[0][configs[0].unit])


def outcome(folder):
    """Everything that a run leaves behind, except seconds."""
    rows = [{name: value for name, value in row.items() if "seconds" not in name} for row in folder.metrics()]
    weights = {name: weight.tolist() for name, weight in folder.weights().items()}
    course = {name: value for name, value in (folder.warmup() or {}).items() if "seconds" not in name}
    return rows, folder.summary()["results"], weights, course, folder.attractors()
