"""Run folders: whole files, damaged ones, and claims of several processes."""

import errno
import json
import os
import stat
import subprocess
import sys
import threading

import pytest
import torch
from safetensors.torch import save

from multistable import files
from multistable.files import write_atomically
from multistable.training import BusyRunError, Callback, DamagedRunError, RunFolder, load, train
from multistable.training.store import Checkpoint
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


ROW = {"epoch": 0, "validation_loss": 1.0, "seconds": 0.5}


def test_a_line_of_metrics_that_was_cut_off_is_left_out(tmp_path):
    folder = RunFolder(tmp_path)
    folder.add_metrics(ROW)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 1, "vali')
    assert folder.metrics() == [ROW]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"epoch": 1, "vali', "Unterminated string"),
        ("[1]", r"it must be an object, got \[1\]"),
        ('{"epoch": 1}', "seconds must be a finite number, got nothing"),
        ('{"epoch": -1, "seconds": 1}', "epoch must be 0 or a positive integer, got -1"),
        ('{"epoch": 1, "seconds": 1, "vaa": NaN}', "vaa must be a finite number, true, false or null, got NaN"),
        ("[" * 100_000 + "]" * 100_000, "recursion"),
    ],
)
def test_a_damaged_line_of_metrics_before_the_last_is_named(tmp_path, line, what):
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(ROW)}\n{line}\n{json.dumps(ROW)}\n")
    with pytest.raises(DamagedRunError, match=rf"{tmp_path}/metrics.jsonl cannot be read: .*{what}.* line 2. Delete"):
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
    assert read.rows == []
    assert read.notes == {"epoch": 7, "best": {"epoch": 3, "loss": 0.1 + 0.2}}
    assert all(torch.equal(read.tensors[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{}"),
        ("config.json", b"\xff"),
        ("config.json", b"[" * 100_000),
        ("summary.json", b"{"),
        ("summary.json", b"[]"),
    ],
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


def test_the_configuration_of_a_newer_version_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(small().stored() | {"curriculum": 3}))
    told = f"{tmp_path}/config.json: RunConfig has no setting 'curriculum': another version of multistable may have"
    with pytest.raises(DamagedRunError, match=told):
        RunFolder(tmp_path).config()


@pytest.mark.parametrize("entry", ["warmup", "\x1b[2J"])
def test_control_characters_of_results_are_refused(tmp_path, entry):
    (tmp_path / "summary.json").write_text(json.dumps({"results": {entry: "\x1b[2J"}, "record": {}}))
    with pytest.raises(DamagedRunError, match="must be a printable text") as refused:
        RunFolder(tmp_path).summary()
    assert "\x1b" not in str(refused.value)


def test_a_number_beyond_all_others_is_refused(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps({"results": {"warmup": None, "loss": 10**400}, "record": {}}))
    with pytest.raises(DamagedRunError, match=r"results.loss must be a finite number or null, got 1000"):
        RunFolder(tmp_path).summary()


def test_a_line_of_metrics_of_another_kind_of_runs_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps(ROW))
    with pytest.raises(DamagedRunError, match="episode must be 0 or a positive integer, got nothing in its line 1"):
        RunFolder(tmp_path).metrics("episode")


@pytest.mark.parametrize(
    ("course", "told"),
    [
        ("[]", "must be an object, and is not"),
        (
            '{"outcome": "multistable", "vaa_star": [1], "vaa": 1}',
            ": vaa_star must be a list of lists of numbers",
        ),
        (
            '{"outcome": "multistable", "vaa_star": [[1], [1, 2]], "vaa": 1}',
            ": vaa_star must be a list of lists of numbers, as many in each",
        ),
        ('{"outcome": "diverged"}', ": reason must be a printable text, got nothing"),
    ],
)
def test_a_damaged_warmup_is_named(tmp_path, course, told):
    (tmp_path / "warmup.json").write_text(course)
    with pytest.raises(DamagedRunError, match=f"{tmp_path}/warmup.json ?{told}"):
        RunFolder(tmp_path).warmup()


def test_imports_that_are_not_as_they_are_written_are_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(small().stored() | {"imports": 5}))
    with pytest.raises(DamagedRunError, match=r"config.json: config.imports must be an object, got 5"):
        RunFolder(tmp_path).config()


def test_control_characters_of_a_warmup_are_refused(tmp_path):
    (tmp_path / "warmup.json").write_text(json.dumps({"outcome": "diverged", "reason": "\x1b[2J"}))
    with pytest.raises(DamagedRunError, match=r"warmup.json: reason must be a printable text"):
        RunFolder(tmp_path).warmup()


def test_a_changed_configuration_is_not_gone_on_with(tmp_path):
    config = small(epochs=2)
    with pytest.raises(StopError):
        train(config, tmp_path, callbacks=[StopAt("record", 1)])
    path = RunFolder.of(config, tmp_path).path / "config.json"
    kept = path.read_text()
    for change, told in [({"epochs": 9}, "epochs is 9 instead of 2"), ({"data_seed": 3}, "data_seed is 3 instead of")]:
        path.write_text(json.dumps(json.loads(kept) | change))
        with pytest.raises(DamagedRunError, match=f"{path} is of another run: {told}"):
            train(config, tmp_path)
    path.write_text(json.dumps(json.loads(kept) | {"warmup_vaa_every": 1, "imports": {}}))
    assert train(config, tmp_path)[0].finished


# Checkpoints


CHECKPOINT = Checkpoint(
    {"b": torch.randn(2, 3), "a": torch.tensor(1.5), "c": torch.tensor([True])}, {"epoch": 2}, [ROW, ROW]
)


def test_no_flipped_bit_of_a_checkpoint_is_accepted(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_checkpoint(2, CHECKPOINT)
    path = tmp_path / "checkpoint-2.safetensors"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(DamagedRunError, match=r"checkpoint-2.safetensors cannot be read"):
            folder.checkpoint(2)
    path.write_bytes(whole)
    assert folder.checkpoint(2).rows == [ROW, ROW]


@pytest.mark.parametrize(
    ("name", "number", "told"),
    [("run", 4, "it is checkpoint 2 of the run run"), ("other", 2, "it is checkpoint 2 of the run run")],
)
def test_a_checkpoint_of_another_run_or_epoch_is_refused(tmp_path, name, number, told):
    folder, other = RunFolder(tmp_path / "run"), RunFolder(tmp_path / name)
    for made in {folder.path, other.path}:
        made.mkdir()
    folder.write_checkpoint(2, CHECKPOINT)
    (folder.path / "checkpoint-2.safetensors").rename(other.path / f"checkpoint-{number}.safetensors")
    with pytest.raises(DamagedRunError, match=told):
        other.checkpoint(number)


def as_before(path, notes):
    """A checkpoint as versions without digests wrote it."""
    path.write_bytes(save(dict(CHECKPOINT.tensors), metadata={"notes": json.dumps(notes)}))


def test_a_checkpoint_of_before_is_read_if_its_notes_are_of_its_epoch(tmp_path):
    for number in (2, 4):
        as_before(tmp_path / f"checkpoint-{number}.safetensors", {"epoch": 2})
    read = RunFolder(tmp_path).checkpoint(2)
    assert (read.notes, read.rows, len(read.tensors)) == ({"epoch": 2}, None, 3)
    with pytest.raises(DamagedRunError, match="it is not of the epoch or episode that its name says"):
        RunFolder(tmp_path).checkpoint(4)


# Links and leftovers


def test_no_link_is_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"kept")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").symlink_to(outside)
    with pytest.raises(OSError, match=r"metrics.jsonl"):
        RunFolder(folder).add_metrics(ROW)
    with pytest.raises(FileExistsError):
        files.create(folder / "metrics.jsonl", b"")
    for name in ("summary.json", f".summary.json.{os.getpid()}.part"):
        (folder / name).symlink_to(outside)
    RunFolder(folder).write_json("summary.json", {})
    assert not (folder / "summary.json").is_symlink()
    (folder / ".lock").symlink_to(outside)
    with pytest.raises(OSError, match=r"\.lock"), RunFolder(folder).claimed():
        pass
    assert outside.read_bytes() == b"kept"


def test_names_of_unfinished_files_cannot_be_foreseen(tmp_path, monkeypatch):
    names = []
    monkeypatch.setattr(files, "create", lambda path, content: names.append(path.name) or path.write_bytes(content))
    for _ in range(2):
        write_atomically(tmp_path / "file", b"")
    assert len({*names, f".file.{os.getpid()}.part"}) == 3


def test_what_killed_processes_left_is_removed(tmp_path):
    (folder,) = train(small(epochs=1), tmp_path)
    (folder.path / "checkpoint-1.safetensors").touch()
    train(small(epochs=1), tmp_path)
    assert folder.checkpoints() == []
    (folder.path / "summary.json").unlink()
    for name in (".summary.json.123.part", ".checkpoint-1.safetensors.0123456789abcdef.part"):
        (folder.path / name).touch()
    train(small(epochs=1), tmp_path)
    assert not list(folder.path.glob(".*.part"))


def test_a_full_disk_is_told_with_the_path(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as refused:
        write_atomically(tmp_path / "file", b"")
    assert str(refused.value.filename).startswith(str(tmp_path / ".file."))
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_cannot_sync_folders_is_written_to(tmp_path, monkeypatch):
    sync = os.fsync

    def only_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    write_atomically(tmp_path / "file", b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"


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


def test_what_a_killed_process_left_of_any_file_goes_with_the_next_one(tmp_path):
    """Not what another process may be writing, and nothing of other files."""
    old, young, other = (tmp_path / f".{name}.part" for name in ("report.html.0a", "report.html.0b", "other.html.0c"))
    for part in (old, young, other):
        part.touch()
    for part in (old, other):
        os.utime(part, (1e9, 1e9))
    files.write_atomically(tmp_path / "report.html", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([young.name, other.name, "report.html"])
