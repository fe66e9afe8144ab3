"""Training on a GPU: recorded steps, the fused time loop, and going on after an interruption with the same numbers."""

import pytest
import torch

import multistable as ms
from multistable.training import train
from small_runs import StopAt, StopError, small

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def longer(**changes):
    """Enough steps an epoch that most of them are replayed from a recording."""
    return small(training_sequences=200, hidden_size=16, **changes)


@pytest.mark.parametrize("cell", ms.CELLS)
def test_a_gpu_trains_what_the_cpu_trains(cell, tmp_path):
    configs = [longer(cell=cell, version=version, seed=seed) for version in ("classic", "warmup") for seed in (0, 1)]
    on_cpu, on_gpu = (train(configs, tmp_path / device, device=device) for device in ("cpu", "cuda"))
    for a, b in zip(on_cpu, on_gpu, strict=True):
        losses = [[row["validation_loss"] for row in folder.metrics()] for folder in (a, b)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-3)
        assert b.summary()["results"]["test_loss"] == pytest.approx(a.summary()["results"]["test_loss"], rel=1e-3)


def with_auxiliary_loss(**changes):
    return longer(version="auxiliary", pretraining_epochs=2, num_layers=2, anchors="random", stretches=2, **changes)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_gpu_trains_with_an_auxiliary_loss_as_the_cpu_does(cell, tmp_path):
    """The steps of both phases are recorded, each by itself."""
    configs = [with_auxiliary_loss(cell=cell, seed=seed) for seed in (0, 1)]
    on_cpu, on_gpu = (train(configs, tmp_path / device, device=device) for device in ("cpu", "cuda"))
    for a, b in zip(on_cpu, on_gpu, strict=True):
        for name in ("reconstruction_loss", "validation_loss"):
            losses = [[row[name] for row in folder.metrics() if name in row] for folder in (a, b)]
            assert losses[1] == pytest.approx(losses[0], rel=1e-3)


RUNS = [longer(version="warmup", seed=seed, num_layers=2) for seed in (0, 1, 2)]
DOUBLE = [longer(version="double", seed=seed, num_layers=2) for seed in (0, 1, 2)]
PRETRAINED = [with_auxiliary_loss(seed=seed) for seed in (0, 1)]


@pytest.mark.parametrize(
    ("configs", "epoch"),
    [(RUNS, 2), (DOUBLE, 2), (PRETRAINED, 2), (PRETRAINED, 4)],
    ids=["runs", "double layers", "in the pretraining", "after the pretraining"],
)
def test_an_interrupted_training_ends_with_the_same_numbers(configs, epoch, tmp_path):
    undisturbed = train(configs, tmp_path / "undisturbed", device="cuda")
    with pytest.raises(StopError):
        train(configs, tmp_path / "disturbed", device="cuda", callbacks=[StopAt("step", epoch, 6)])
    disturbed = train(configs, tmp_path / "disturbed", device="cuda")
    for a, b in zip(undisturbed, disturbed, strict=True):
        assert a.summary()["results"] == b.summary()["results"]
        assert all(torch.equal(weight, b.weights()[name]) for name, weight in a.weights().items())
