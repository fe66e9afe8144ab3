"""What training refuses, before any work: wrong tasks of one's own, and what is no run, callback or device."""

import re
from dataclasses import dataclass

import pytest
import torch

from multistable.tasks import CopyFirstInput, Data, MNISTError, PermutedSequentialMNIST, Task
from multistable.training import Callback, train
from multistable.training.seeds import generator
from small_runs import Watcher, small

# A user's own task


class Sum(Task):
    """The sum of two inputs, as a user would write it without a dataclass decorator's help."""

    input_size = 1
    output_size = 1
    length = 2

    def data_of(self, split, n, generator, device, dtype):
        inputs = torch.randn(2, n or 30, 1, generator=generator).to(device, dtype)
        return Data(inputs, inputs.sum(0))

    def loss(self, outputs, targets):
        return (outputs[-1] - targets).square().mean((-2, -1))

    def accuracy(self, outputs, targets):
        return None


def test_a_task_that_is_not_registered_is_refused():
    @dataclass(frozen=True)
    class Local(Sum):
        pass

    with pytest.raises(ValueError, match=r'LineSequentialMNIST, .*, got .*Local.*; TASKS\["a name"\] = Local'):
        small(task=Local())
    with pytest.raises(ValueError, match=r"task must be of a class that is registered, CopyFirstInput, .*, got 5$"):
        small(task=5)


def changed(change):
    """Data with something done to it."""
    return lambda data: Data(*change(*data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(lambda u, y: (u[:, :30], y[:30])), r"here \(2, 50, 1\), got shape \(2, 30, 1\)"),
        (changed(lambda u, y: (u, y.sum())), r"targets .*for each of 50 sequences, got shape \(\)"),
        (changed(lambda u, y: (u.double(), y)), "the dtype that it is asked for, torch.float32, got torch.float64"),
        (changed(lambda u, y: (u, y.to("meta"))), "targets on the device that it is asked for, cpu, got meta"),
        (changed(lambda u, y: (u.index_fill(1, torch.tensor(7), torch.nan), y)), "finite inputs, got NaN or infinity"),
        (changed(lambda u, y: (u.numpy(), y)), r"Data\(inputs, targets\), two tensors, got Data of ndarray, Tensor"),
        (tuple, r"Data\(inputs, targets\), two tensors, got tuple of Tensor, Tensor"),
    ],
)
def test_data_that_a_task_must_not_give_is_told(monkeypatch, change, message):
    right = CopyFirstInput.data_of
    monkeypatch.setattr(CopyFirstInput, "data_of", lambda *given: change(right(*given)))
    with pytest.raises((TypeError, ValueError), match=f"data_of of CopyFirstInput must give .*{message}"):
        CopyFirstInput(2).training(50, generator=generator(0))


@pytest.mark.parametrize(
    ("score", "value", "shape"),
    [
        ("loss", lambda outputs: outputs[-1, ..., 0], (2, 3)),
        ("loss", lambda outputs: outputs[-1, ..., 0].mean(dim=0), (3,)),
        ("accuracy", lambda outputs: outputs.mean(), ()),
        ("accuracy", lambda outputs: 0.5, "float"),
    ],
)
def test_a_score_that_is_no_mean_over_sequences_is_told_before_any_work(monkeypatch, tmp_path, score, value, shape):
    monkeypatch.setattr(CopyFirstInput, score, lambda task, outputs, targets: value(outputs))
    watcher = Watcher()
    told = rf"{score} of CopyFirstInput must be a mean over n, .*of shape \(2,\), got {re.escape(str(shape))}"
    with pytest.raises(ValueError, match=told):
        train([small(version="warmup", seed=seed) for seed in (0, 1)], tmp_path, callbacks=watcher)
    assert watcher.calls == []


def test_the_name_of_a_task_is_no_task():
    with pytest.raises(ValueError, match="got 'copy', which is the name of CopyFirstInput"):
        small(task="copy")


# What is refused


@pytest.mark.parametrize("configs", ["x", [small(), {"task": "copy"}]])
def test_what_is_no_run_is_refused(tmp_path, configs):
    with pytest.raises(TypeError, match="configs must be a RunConfig or an AgentConfig, or a list of them, got"):
        train(configs, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("callbacks", [[Callback], print])
def test_what_is_no_callback_is_refused(tmp_path, callbacks):
    with pytest.raises(TypeError, match="callbacks must be objects of classes derived from Callback, got <"):
        train(small(), tmp_path, callbacks=callbacks)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("device", ["cuda:99", torch.device("meta")])
def test_a_device_that_is_not_here_is_refused(tmp_path, device):
    with pytest.raises(ValueError, match=f"device must be cpu, cuda or cuda:INDEX, got '{device}'"):
        train(small(), tmp_path, device=device)
    assert not any(tmp_path.iterdir())


def test_files_that_are_missing_are_told_before_any_work(tmp_path):
    with pytest.raises(MNISTError, match="does not exist"):
        train([small(), small(task=PermutedSequentialMNIST(data=tmp_path / "none"))], tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
