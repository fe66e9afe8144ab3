"""Run folders: whole files, claims, and going on after any interruption with the same numbers."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
import torch

from multistable.training import BusyRunError, Callback, DamagedRunError, RunFolder, load, train
from multistable.training.store import Checkpoint, write_atomically
from paths import HELPERS
from small_runs import small


class StopError(Exception):
    """What interrupts a training in a test."""


class StopAt(Callback):
    """Interrupts a training at one of its events."""

    def __init__(self, event, epoch, step=None):
        self.event, self.epoch, self.step = event, epoch, step

    def on_step(self, configs, epoch, step):
        if self.event == "step" and (epoch, step) == (self.epoch, self.step):
            raise StopError

    def on_epoch(self, configs, metrics):
        if self.event == "epoch" and metrics[0]["epoch"] == self.epoch:
            raise StopError

    def on_warmup_step(self, configs, step):
        if self.event == "warmup" and step.step == self.step:
            raise StopError


def outcome(folder):
    """All that must not depend on interruptions."""
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in folder.metrics()]
    weights = {name: weight.tolist() for name, weight in folder.weights().items()}
    course = {name: value for name, value in (folder.warmup() or {}).items() if "seconds" not in name}
    return rows, folder.summary()["results"], weights, course


# Interruptions


@pytest.mark.parametrize(
    "interruption",
    [StopAt("warmup", 0, 2), StopAt("epoch", 0), StopAt("step", 1, 2), StopAt("epoch", 1), StopAt("step", 2, 1)],
    ids=["in the warmup", "before training", "in the first epoch", "after the first epoch", "in the second epoch"],
)
def test_an_interrupted_training_ends_with_the_same_numbers(interruption, tmp_path):
    recorded = {"warmup_vaa_every": 1}
    configs = [small(version=version, seed=seed, **recorded) for version in ("classic", "warmup") for seed in (0, 1)]
    undisturbed = train(configs, tmp_path / "undisturbed")
    with pytest.raises(StopError):
        train(configs, tmp_path / "disturbed", callbacks=[interruption])
    disturbed = train(configs, tmp_path / "disturbed")
    assert [outcome(folder) for folder in disturbed] == [outcome(folder) for folder in undisturbed]


def test_a_training_killed_between_the_folders_goes_on_from_an_epoch_that_all_have(tmp_path, monkeypatch):
    configs = [small(seed=seed) for seed in (0, 1, 2)]
    undisturbed = train(configs, tmp_path / "undisturbed")
    write = RunFolder.write_checkpoint

    def killed_at_the_second(self, epoch, checkpoint):
        if epoch == 2 and self.path.name == configs[1].name:
            raise StopError
        write(self, epoch, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_checkpoint", killed_at_the_second)
        with pytest.raises(StopError):
            train(configs, tmp_path / "disturbed")
    latest = [RunFolder.of(config, tmp_path / "disturbed").checkpoints() for config in configs]
    assert latest == [[1, 2], [0, 1], [0, 1]]
    disturbed = train(configs, tmp_path / "disturbed")
    assert [outcome(folder) for folder in disturbed] == [outcome(folder) for folder in undisturbed]


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from small_runs import small
from multistable.training import Callback, train

class Kill(Callback):
    def on_step(self, configs, epoch, step):
        if (epoch, step) == (2, 2):
            os.kill(os.getpid(), signal.SIGKILL)

train([small(version=version) for version in ("classic", "warmup")], {out!r}, callbacks=[Kill()])
"""


def test_a_killed_process_is_continued_with_the_same_numbers(tmp_path):
    script = KILLED.format(tests=str(HELPERS), out=str(tmp_path / "killed"))
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    configs = [small(version=version) for version in ("classic", "warmup")]
    assert not any(RunFolder.of(config, tmp_path / "killed").finished for config in configs)
    assert [RunFolder.of(config, tmp_path / "killed").checkpoints()[-1] for config in configs] == [1, 1]
    continued = train(configs, tmp_path / "killed")
    undisturbed = train(configs, tmp_path / "undisturbed")
    assert [outcome(folder) for folder in continued] == [outcome(folder) for folder in undisturbed]


def test_a_finished_run_is_never_run_again(tmp_path):
    (folder,) = train(small(), tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in folder.path.iterdir()}

    class Never(Callback):
        def on_start(self, configs, epoch, steps):
            raise AssertionError("it was started")

    train(small(), tmp_path, callbacks=[Never()])
    assert {path.name: path.stat().st_mtime_ns for path in folder.path.iterdir()} == before


def test_further_seeds_join_runs_that_are_done(tmp_path):
    (first,) = train(small(), tmp_path)
    summary = first.summary()
    folders = train([small(), small(seed=1)], tmp_path)
    assert first.summary() == summary
    assert folders[1].finished


# Files


def test_a_finished_folder_has_what_it_says(tmp_path):
    (folder,) = train(small(version="warmup"), tmp_path)
    names = {path.name for path in folder.path.iterdir()}
    assert names == {"config.json", "metrics.jsonl", "warmup.json", "weights.safetensors", "summary.json", ".lock"}
    for name in ("config.json", "warmup.json", "summary.json"):
        json.loads((folder.path / name).read_text())


def test_only_the_latest_two_checkpoints_are_kept(tmp_path):
    with pytest.raises(StopError):
        train(small(epochs=5), tmp_path, callbacks=[StopAt("epoch", 4)])
    assert RunFolder.of(small(epochs=5), tmp_path).checkpoints() == [3, 4]


def test_a_file_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"first")

    def broken(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"second")
    assert path.read_bytes() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_line_of_metrics_that_was_cut_off_is_left_out(tmp_path):
    folder = RunFolder(tmp_path)
    folder.add_metrics({"epoch": 0, "validation_loss": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 1, "vali')
    assert folder.metrics() == [{"epoch": 0, "validation_loss": 1.0}]
    folder.keep_metrics(0)
    folder.add_metrics({"epoch": 1})
    assert [row["epoch"] for row in folder.metrics()] == [0, 1]


def test_what_follows_a_first_line_that_was_cut_off_can_be_read(tmp_path):
    folder = RunFolder(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 0, "vali')
    folder.keep_metrics(-1)
    folder.add_metrics({"epoch": 0})
    folder.add_metrics({"epoch": 1})
    assert folder.metrics() == [{"epoch": 0}, {"epoch": 1}]


def test_a_broken_line_of_metrics_before_the_last_is_damage(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 0}\n{"epoch": 1, "vali\n{"epoch": 2}\n')
    with pytest.raises(DamagedRunError, match=rf"{tmp_path}/metrics.jsonl cannot be read: .* in its line 2. Delete"):
        RunFolder(tmp_path).metrics()


def test_the_network_of_the_folder_that_train_returns(tmp_path):
    (folder,) = train(small(epochs=1), tmp_path)
    inputs = torch.randn(6, 3, 1)
    assert torch.equal(load(folder)(inputs), load(str(folder.path))(inputs))


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    folder = RunFolder(tmp_path)
    tensors = {"weights.a": torch.randn(2, 3, dtype=torch.float64), "best.a": torch.randn(3).t()}
    folder.write_checkpoint(7, Checkpoint(tensors, {"epoch": 7, "best": {"epoch": 3, "loss": 0.1 + 0.2}}))
    read = folder.checkpoint(7)
    assert read.notes == {"epoch": 7, "best": {"epoch": 3, "loss": 0.1 + 0.2}}
    assert all(torch.equal(read.tensors[name], tensor) for name, tensor in tensors.items())


def test_a_damaged_checkpoint_is_named(tmp_path):
    with pytest.raises(StopError):
        train(small(), tmp_path, callbacks=[StopAt("step", 2, 1)])
    folder = RunFolder.of(small(), tmp_path)
    (folder.path / "checkpoint-1.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DamagedRunError, match=r"checkpoint-1.safetensors cannot be read"):
        train(small(), tmp_path)


@pytest.mark.parametrize("content", ["{}", "{", "[]", "", b"\xff"])
@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_a_damaged_file_of_a_finished_run_is_named_with_what_to_delete(tmp_path, name, content):
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.write_config(small())
    folder.finish({"results": {}, "record": {}})
    (folder.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(
        DamagedRunError, match=rf"{name} (cannot be read|must have).*Delete {folder.path} to run it again"
    ):
        folder.config() if name == "config.json" else folder.summary()


def test_a_folder_that_counts_as_unfinished_is_not_to_be_deleted(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DamagedRunError, match=r"config.json must have the entries task, cell, and has not$"):
        RunFolder(tmp_path).config()


def test_a_run_that_is_not_finished_cannot_be_loaded(tmp_path):
    with pytest.raises(ValueError, match="is not the folder of a finished run"):
        load(tmp_path)


# Two processes


HOLDING = """
import sys
from multistable.training import RunFolder
with RunFolder(sys.argv[1]).claimed():
    print("claimed", flush=True)
    sys.stdin.read()
"""


def test_a_run_of_another_process_is_left_alone_and_the_others_are_done(tmp_path):
    mine, other = small(), small(seed=1)
    taken = RunFolder.of(other, tmp_path)
    command = [sys.executable, "-c", HOLDING, str(taken.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "claimed\n"
        with pytest.raises(BusyRunError, match=f"working on 1 of the runs: {other.name}"):
            train([mine, other], tmp_path)
        assert RunFolder.of(mine, tmp_path).finished
        assert {path.name for path in taken.path.iterdir()} == {".lock"}
        process.kill()
    train([mine, other], tmp_path)
    assert taken.finished


class Starts(Callback):
    """How many runs each training began with."""

    def __init__(self):
        self.sizes = []

    def on_start(self, configs, epoch, steps):
        self.sizes.append(len(configs))


def test_who_comes_first_claims_a_group_as_a_whole(tmp_path, monkeypatch):
    configs, starts = [small(seed=seed) for seed in range(4)], Starts()
    claimed, second_is_there = RunFolder.claimed, threading.Event()
    refusals = []

    def second():
        with pytest.raises(BusyRunError, match="working on 4 of the runs") as refused:
            train(configs, tmp_path, callbacks=[starts])
        refusals.append(refused)

    def slowly(folder, *arguments):
        """The second comes when the first has claimed one run, and has time to claim others."""
        if threading.current_thread() is not other:
            if folder.path.name == configs[1].name and not other.is_alive():
                other.start()
                second_is_there.wait(1.0)
        elif folder.path.name == configs[3].name:
            second_is_there.set()
        return claimed(folder, *arguments)

    other = threading.Thread(target=second)
    monkeypatch.setattr(RunFolder, "claimed", slowly)
    train(configs, tmp_path, callbacks=[starts])
    other.join()
    assert starts.sizes == [4]
    assert len(refusals) == 1


def test_a_folder_is_shown_by_its_path(tmp_path):
    assert repr(RunFolder(tmp_path)) == f"RunFolder('{tmp_path}')"
