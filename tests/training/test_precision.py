"""In which precision a run is computed: training as it asks for, warmup in float32, measures in almost float32."""

import re
import runpy
import sys
from dataclasses import replace

import pytest
import torch

import multistable as ms
from multistable.dynamics.system.contexts import ieee_float32, tf32
from multistable.dynamics.system.system import System
from multistable.rl import AgentConfig, Maze
from multistable.tasks import CopyFirstInput
from multistable.training import Callback, RunConfig, train
from paths import ROOT


class Watching(Callback):
    """Notes PyTorch's own setting at each step of the warmup and of training."""

    def __init__(self):
        self.warmup, self.training = set(), set()

    def on_warmup_step(self, configs, step):
        self.warmup.add(torch.backends.cuda.matmul.fp32_precision)

    def on_step(self, configs, epoch, step):
        self.training.add(torch.backends.cuda.matmul.fp32_precision)


@pytest.fixture(params=[("ieee", "tf32"), ("tf32", "ieee")], ids=["ieee", "tf32"])
def precision(request):
    """What a run asks for, where PyTorch's own setting is the other."""
    backend, (asked, outside) = torch.backends.cuda.matmul, request.param
    before, backend.fp32_precision = backend.fp32_precision, outside
    yield asked
    backend.fp32_precision = before


SMALL = {
    "hidden_size": 4,
    "vaa_every": 0,
    "batch_size": 8,
    "warmup_steps": 2,
    "warmup_batch_size": 8,
    "max_stabilisation": 3,
    "version": "warmup",
}
RUN = RunConfig(CopyFirstInput(3), "gru", epochs=1, training_sequences=20, testing_sequences=5, **SMALL)
AGENT = AgentConfig(Maze(1), "gru", num_layers=1, episodes=2, evaluate_every=1, capacity=40, **SMALL)


@pytest.mark.parametrize("config", [RUN, AGENT], ids=["run", "agent"])
def test_training_is_in_the_precision_asked_for_and_warmup_in_float32(config, precision, tmp_path):
    before, watching = torch.backends.cuda.matmul.fp32_precision, Watching()
    train(replace(config, precision=precision), tmp_path, device="cpu", callbacks=[watching])
    assert watching.warmup <= {"ieee", "none"}
    assert watching.training <= ({"tf32"} if precision == "tf32" else {"ieee", "none"})
    assert watching.warmup
    assert watching.training
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_tf32_ends_with_its_context():
    before = torch.backends.cuda.matmul.fp32_precision
    with tf32():
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cuda.matmul.fp32_precision == before


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
@pytest.mark.parametrize("outer", [ieee_float32, tf32])
def test_measures_are_in_almost_float32(outer, monkeypatch):
    """Those of a warmup, too, whatever is set outside; PyTorch's own products are in float32."""
    seen = []

    def noting(*arguments, only_last=System.only_last):
        with ms.engine() as settings:
            seen.append((settings.precision, torch.backends.cuda.matmul.fp32_precision in ("ieee", "none")))
        return only_last(*arguments)

    monkeypatch.setattr(System, "only_last", noting)
    sequences, rnn = torch.randn(5, 8, 1), torch.nn.GRU(1, 4)
    with outer():
        ms.measure(rnn, sequences, batches=1, batch_size=4)
        measured = len(seen)
        ms.warmup(rnn, sequences, steps=2, batch_size=4, max_stabilisation=2)
    assert len(seen) > measured > 0
    assert set(seen) == {("tf32x3", True)}


def test_the_benchmark_of_measures_runs_on_a_cpu(monkeypatch, tmp_path):
    """There, precisions make no difference."""
    file = ROOT / "benchmarks" / "measure.py"
    monkeypatch.setattr(sys, "argv", [str(file), "--device", "cpu", "--output", str(tmp_path / "measure")])
    runpy.run_path(str(file), run_name="__main__")
    text = (tmp_path / "measure.txt").read_text()
    steps = re.findall(r"^(\w+) +[\d.]+ +[\d.]+ +[\d.]+ +(\S+) +(\S+)$", text, re.MULTILINE)
    assert [cell for cell, *_ in steps] == ["gru", "lstm", "mgu", "nbrc"]
    assert all(ieee == tf32x3 and float(ieee) < 1e-5 for _, ieee, tf32x3 in steps)
    assert re.findall(r" to [\d.]+ +(\S+)$", text, re.MULTILINE) == ["0", "0"]
    assert re.findall(r"^largest difference: (.*)$", text, re.MULTILINE) == ["0", "0"]


def test_the_benchmark_of_an_epoch_runs_on_a_cpu(monkeypatch, tmp_path):
    file = ROOT / "benchmarks" / "epoch.py"
    sizes = ["--hidden", "4", "--T", "12", "--networks", "2", "--training-sequences", "40", "--cells", "gru", "brc"]
    monkeypatch.setattr(sys, "argv", [str(file), "--device", "cpu", *sizes, "--output", str(tmp_path / "epoch")])
    runpy.run_path(str(file), run_name="__main__")
    rows = [line.split() for line in (tmp_path / "epoch.txt").read_text().splitlines()[-2:]]
    assert [row[0] for row in rows] == ["gru", "brc"]
    assert all(float(value) >= 0 for row in rows for value in row[1:])
