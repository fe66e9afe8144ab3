"""Killed processes, power cuts and full disks at each operation: every run goes on and ends with the same digits."""

import ast
import os
from itertools import count, pairwise
from pathlib import Path

import pytest

import multistable
from faulty_disk import FaultyDisk, alike, hold_still, restore, state_of
from multistable import files
from multistable.tasks import CopyFirstInput
from multistable.training import Callback, train
from small_agents import small_agent
from small_runs import outcome, small

MEASURED = {"vaa_batches": 1, "vaa_batch_size": 2, "stabilisation": 5}
WARMED = {"warmup_steps": 1, "warmup_batch_size": 4, "max_stabilisation": 2}
TINY = {
    "task": CopyFirstInput(3),
    "hidden_size": 2,
    "num_layers": 1,
    "training_sequences": 10,
    "testing_sequences": 4,
    "epochs": 1,
    "batch_size": 4,
    "dtype": "float64",
    **MEASURED,
    **WARMED,
}
AGENT = {"hidden_size": 2, "episodes": 2, "evaluate_every": 1, "vaa_every": 2, "capacity": 8, "gradient_steps": 1}

KINDS = {
    "supervised": [small(**TINY | {"version": version}) for version in ("classic", "warmup")],
    "auxiliary": [
        small(**TINY | {"version": "auxiliary", "pretraining_epochs": 1, "stretch_length": 1, "attractors_every": 1})
    ],
    "agent": [small_agent(version="warmup", **AGENT, batch_size=2, **MEASURED, **WARMED)],
}


class Start(Callback):
    """The epoch or episode that a training goes on from."""

    number = None

    def on_start(self, configs, epoch, steps):
        self.number = epoch


def trained(configs, root, begin, monkeypatch, full_at=None):
    """Train runs on a disk that has the files of the state ``begin``. Returns the disk, and the folders if it ended."""
    restore(begin, root)
    with monkeypatch.context() as patch:
        disk, folders = FaultyDisk(root, full_at).install(patch), None
        if full_at is None:
            folders = train(configs, root / "runs", callbacks=[disk])
        else:
            with pytest.raises(OSError, match=f"No space left on device: '{root}"):
                train(configs, root / "runs", callbacks=[disk])
        disk.remember()
    return disk, folders


def try_every_fault(configs, begin, tmp_path, monkeypatch):
    """Go on from what each fault leaves of a training that begins with a state. Returns all that they leave."""
    roots = (tmp_path / str(number) for number in count())
    disk, folders = trained(configs, next(roots), begin, monkeypatch)
    undisturbed = [outcome(folder) for folder in folders]
    names = {path for path, _ in state_of(disk.root)}
    left, known = dict(disk.left), set(map(alike, disk.left))
    for operation in range(disk.operations):
        full, _ = trained(configs, next(roots), begin, monkeypatch, full_at=operation)
        if alike(state_of(full.root)) not in known:
            left[state_of(full.root)] = full.reached
    with monkeypatch.context() as patch:
        hold_still(patch)
        for state, reached in left.items():
            root, start = next(roots), Start()
            restore(state, root)
            assert [outcome(folder) for folder in train(configs, root / "runs", callbacks=[start])] == undisturbed
            assert {path for path, _ in state_of(root)} == names
            assert start.number is None or start.number >= reached
    return undisturbed


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_operation_on_the_disk_changes_no_digit(kind, tmp_path, monkeypatch):
    try_every_fault(KINDS[kind], frozenset(), tmp_path, monkeypatch)


def test_a_second_fault_while_a_run_goes_on_changes_no_digit(tmp_path, monkeypatch):
    configs = KINDS["auxiliary"]
    disk, folders = trained(configs, tmp_path / "once", frozenset(), monkeypatch)
    cut = [state for state, reached in disk.left.items() if reached == 0 and any(p.suffix == ".part" for p, _ in state)]
    (tmp_path / "twice").mkdir()
    assert try_every_fault(configs, cut[0], tmp_path / "twice", monkeypatch) == [outcome(made) for made in folders]


def test_an_epoch_waits_for_the_disk_twice(tmp_path, monkeypatch):
    """For the checkpoint, and for its name: more would slow short epochs."""
    synced, counts = [], []

    class Count(Callback):
        def on_epoch(self, configs, metrics):
            counts.append(len(synced))

    monkeypatch.setattr(os, "fsync", synced.append)
    train(small(**TINY | {"epochs": 4}), tmp_path, callbacks=[Count()])
    assert [after - before for before, after in pairwise(counts)] == [2] * 4


def test_errors_of_the_disk_have_the_path(tmp_path):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no device that is full")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        files.append(full, b"row")


WRITES = {
    "write_text",
    "write_bytes",
    "save_file",
    "fsync",
    "rename",
    "replace",
    "unlink",
    "mkdir",
    "makedirs",
    "touch",
}
"""Functions and methods that change the disk, whatever has them."""


def changes_the_disk(call):
    """Whether a call may change files: one of WRITES on a path or a module, or opening for anything but reading."""
    named = ast.unparse(call.func)
    owner, _, method = named.rpartition(".")
    if method == "open":
        mode = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        return any(set(str(value)) & set("wax+") for value in mode) or any(
            keyword.arg in ("mode", "opener") for keyword in call.keywords
        )
    if method == "replace":  # also of texts and of dataclasses
        return owner == "os" or (bool(owner) and len(call.args) == 1)
    return method in WRITES or named.startswith(("shutil.copy", "shutil.move", "shutil.rmtree", "tempfile."))


def test_nothing_else_in_the_path_of_a_run_changes_files():
    source = Path(multistable.__file__).parent
    found = [
        f"{path.relative_to(source)}:{node.lineno} {ast.unparse(node.func)}"
        for part in ("training", "rl", "tasks", "dynamics", "networks", "cells")
        for path in sorted((source / part).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and changes_the_disk(node)
    ]
    assert found == []
    own = ast.walk(ast.parse((source / "files.py").read_text()))
    assert sum(isinstance(node, ast.Call) and changes_the_disk(node) for node in own) > 5
