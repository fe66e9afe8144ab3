"""What is said beforehand of the time and memory that runs take."""

import pytest

from multistable.experiments.estimate import LEAST_SHARE, gpu_share, memory, seconds
from multistable.tasks import CopyFirstInput, Denoising
from multistable.training import RunConfig

MEASURED = {("gru", "ieee"): 16.7, ("gru", "tf32"): 5.9, ("lstm", "ieee"): 23.4, ("lstm", "tf32"): 11.6}
"""Milliseconds of a gradient step of ten networks on an H200."""


def ten(**settings):
    return [RunConfig(Denoising(200, 5), hidden_size=256, num_layers=2, seed=seed, **settings) for seed in range(10)]


@pytest.mark.parametrize(("cell", "precision"), MEASURED)
def test_a_gradient_step_on_a_gpu_takes_what_was_measured_within_a_factor_of_two(cell, precision):
    short, long = (ten(cell=cell, precision=precision, epochs=epochs, vaa_every=0) for epochs in (1, 2))
    steps = 40_000 * (1 - short[0].validation) / short[0].batch_size
    step = 1000 * (seconds(long, "cuda") - seconds(short, "cuda")) / steps
    assert 0.5 < step / MEASURED[cell, precision] < 2


@pytest.mark.parametrize("version", ["classic", "warmup"])
def test_tf32_changes_the_time_of_training_on_a_gpu_alone(version):
    ieee, tf32, thrice = (ten(version=version, cell="gru", precision=name) for name in ("ieee", "tf32", "tf32x3"))
    assert seconds(tf32, "cuda") < seconds(ieee, "cuda") == seconds(thrice, "cuda")
    assert seconds(tf32, "cpu") == seconds(ieee, "cpu")


def test_what_is_done_takes_no_time_again():
    runs = ten(version="warmup", cell="gru")
    half = runs[0].duration // 2
    epochs = seconds(runs, "cuda", half) - seconds(runs, "cuda", runs[0].duration)
    assert seconds(runs, "cuda") > 2 * epochs > seconds(ten(version="classic", cell="gru"), "cuda") * 0.9


def test_the_warmup_takes_the_same_in_tf32():
    def warming(precision):
        warmed, classic = (ten(version=name, cell="gru", precision=precision) for name in ("warmup", "classic"))
        return seconds(warmed, "cuda") - seconds(classic, "cuda")

    assert warming("tf32") == pytest.approx(warming("ieee"))


def test_a_group_has_the_share_of_a_gpu_that_its_memory_asks_for(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    copy = [RunConfig(CopyFirstInput(50), "gru", seed=seed) for seed in range(5)]
    long = [RunConfig(CopyFirstInput(600), "lstm", "warmup", hidden_size=512, seed=seed) for seed in range(32)]
    assert gpu_share(copy[:1]) == LEAST_SHARE
    assert memory(copy[:1]) < memory(copy) < memory(long)
    assert gpu_share(long) == 1.0
