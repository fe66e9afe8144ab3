"""Run folders: whole files, damaged ones, and claims of several processes."""

import json
import os
import subprocess
import sys
import threading

import pytest
import torch

from multistable.training import BusyRunError, Callback, DamagedRunError, RunFolder, load, train
from multistable.training.store import Checkpoint, write_atomically
from small_agents import small_agent
from small_runs import StopAt, StopError, small

# Files


def test_a_finished_folder_has_what_it_says(tmp_path):
    (folder,) = train(small(version="warmup"), tmp_path)
    names = {path.name for path in folder.path.iterdir()}
    assert names == {"config.json", "metrics.jsonl", "warmup.json", "weights.safetensors", "summary.json", ".lock"}
    for name in ("config.json", "warmup.json", "summary.json"):
        json.loads((folder.path / name).read_text())


def test_only_the_latest_two_checkpoints_are_kept(tmp_path):
    config = small_agent(episodes=9)
    with pytest.raises(StopError):
        train(config, tmp_path, callbacks=[StopAt("step", 7)])
    assert RunFolder.of(config, tmp_path).checkpoints() == [4, 6]


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


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", b"{}"), ("config.json", b"\xff"), ("summary.json", b"{"), ("summary.json", b"[]")],
)
def test_a_damaged_file_of_a_finished_run_is_named_with_what_to_delete(tmp_path, name, content):
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.write_config(small())
    folder.finish({"results": {}, "record": {}})
    (folder.path / name).write_bytes(content)
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
