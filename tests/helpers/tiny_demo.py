"""The demo in a few seconds: the same runs, but much smaller."""

from dataclasses import replace

from multistable.experiments.demo import configs
from multistable.tasks import CopyFirstInput
from multistable.training import RunConfig

SMALL = {"hidden_size": 12, "epochs": 2, "training_sequences": 80, "testing_sequences": 40, "batch_size": 16}
SMALL |= {"vaa_batches": 2, "vaa_batch_size": 8, "stabilisation": 100, "warmup_steps": 6, "warmup_batch_size": 16}


def tiny_configs() -> list[RunConfig]:
    return [replace(config, task=CopyFirstInput(T=6), **SMALL) for config in configs()]
