"""Runs of every kind go on after any interruption, and end with the numbers of runs that nothing interrupted."""

import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save

from multistable.training import Callback, RunFolder, train
from paths import HELPERS
from small_agents import small_agent, small_ppo
from small_runs import StopAt, StopError, outcome, small

RUNS = [small(version=version, seed=seed, warmup_vaa_every=1) for version in ("classic", "warmup") for seed in (0, 1)]
PRETRAINED = [small(version="auxiliary", pretraining_epochs=2, seed=seed, anchors="random") for seed in (0, 1)]
AGENTS = [small_agent(version=version, seed=seed) for version in ("classic", "warmup") for seed in (0, 1)]
LIMITED = [small_agent(seed=seed, max_norm=0.01, averaged_episodes=2, advantage_learning=0.5) for seed in (0, 1)]
KEPT = [small(version="warmup", seed=seed, keep=True, training_sequences=200) for seed in (0, 1)]
KEPT_AGENTS = [small_agent(seed=seed, keep=True) for seed in (0, 1)]
BY_PPO = [small_ppo(version=version, seed=seed) for version in ("classic", "warmup") for seed in (0, 1)]
FOLLOWED = [
    small(cell="brc", hidden_size=3, seed=seed, epochs=3, attractors_every=every, attractors_saddles=True)
    for seed, every in ((0, 2), (1, 2), (0, 1))
]

KINDS = {
    **{"runs": RUNS, "pretrained": PRETRAINED, "agents": AGENTS, "limited": LIMITED, "followed": FOLLOWED[:2]},
    **{"kept": KEPT, "kept agents": KEPT_AGENTS, "agents by PPO": BY_PPO},
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The outcome of each run of a kind that nothing interrupted."""
    known = {}

    def outcomes(kind):
        if kind not in known:
            known[kind] = [outcome(folder) for folder in train(KINDS[kind], tmp_path_factory.mktemp(kind))]
        return known[kind]

    return outcomes


@pytest.mark.parametrize(
    ("kind", "interruption"),
    [
        pytest.param("runs", StopAt("warmup", 2), id="runs in the warmup"),
        pytest.param("runs", StopAt("step", 1, 2), id="runs in the first epoch"),
        pytest.param("runs", StopAt("record", 1), id="runs after the first epoch"),
        pytest.param("pretrained", StopAt("record", 1), id="pretrained in the pretraining"),
        pytest.param("pretrained", StopAt("record", 2), id="pretrained between the phases"),
        pytest.param("pretrained", StopAt("step", 4, 1), id="pretrained in the training"),
        pytest.param("agents", StopAt("warmup", 2), id="agents in the warmup"),
        pytest.param("agents", StopAt("record", 0), id="agents before training"),
        pytest.param("agents", StopAt("step", 5), id="agents in the last stretch"),
        pytest.param("limited", StopAt("step", 3), id="agents with all their options"),
        pytest.param("followed", StopAt("record", 0), id="followed from the beginning"),
        pytest.param("followed", StopAt("record", 1), id="followed between two records"),
        pytest.param("followed", StopAt("record", 2), id="followed after a change"),
        pytest.param("kept", StopAt("step", 2, 3), id="runs whose attractors are kept"),
        pytest.param("kept agents", StopAt("step", 3), id="agents whose attractors are kept"),
        pytest.param("agents by PPO", StopAt("warmup", 2), id="agents by PPO in the warmup"),
        pytest.param("agents by PPO", StopAt("record", 2), id="agents by PPO after the first update"),
        pytest.param("agents by PPO", StopAt("step", 6), id="agents by PPO in the last update"),
    ],
)
def test_an_interrupted_training_ends_with_the_same_numbers(kind, interruption, undisturbed, tmp_path):
    with pytest.raises(StopError):
        train(KINDS[kind], tmp_path, callbacks=[interruption])
    assert [outcome(folder) for folder in train(KINDS[kind], tmp_path)] == undisturbed(kind)


@pytest.mark.parametrize(
    ("kind", "last", "kept"), [("runs", 2, [[1, 2], [0, 1], [0, 1], [0, 1]]), ("limited", 4, [[2, 4], [0, 2]])]
)
def test_a_training_killed_between_the_folders_goes_on_from_where_all_have_been(
    kind, last, kept, undisturbed, tmp_path, monkeypatch
):
    configs, write = KINDS[kind], RunFolder.write_checkpoint

    def killed_at_the_second(self, number, checkpoint):
        if number == last and self.path.name == configs[1].name:
            raise StopError
        write(self, number, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_checkpoint", killed_at_the_second)
        with pytest.raises(StopError):
            train(configs, tmp_path)
    assert [RunFolder.of(config, tmp_path).checkpoints() for config in configs] == kept
    assert [outcome(folder) for folder in train(configs, tmp_path)] == undisturbed(kind)


KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[1:3]
from test_interruptions import KINDS
from multistable.training import Callback, train

class Kill(Callback):
    def on_step(self, configs, number, step):
        if number == int(sys.argv[5]):
            os.kill(os.getpid(), signal.SIGKILL)

train(KINDS[sys.argv[3]], sys.argv[4], callbacks=[Kill()])
"""


@pytest.mark.parametrize(
    ("kind", "at", "kept"), [("runs", 2, [0, 1]), ("agents", 3, [0, 2]), ("agents by PPO", 4, [0, 2])]
)
def test_a_killed_process_is_continued_with_the_same_numbers(kind, at, kept, undisturbed, tmp_path):
    command = [sys.executable, "-c", KILLED, HELPERS, Path(__file__).parent, kind, tmp_path, at]
    killed = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folders = [RunFolder.of(config, tmp_path) for config in KINDS[kind]]
    assert [(folder.finished, folder.checkpoints()) for folder in folders] == [(False, kept)] * 4
    assert [outcome(folder) for folder in train(KINDS[kind], tmp_path)] == undisturbed(kind)


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


STOPPED = small(epochs=4)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that was stopped after epoch 2, and the outcome of one that was not."""
    there, elsewhere = tmp_path_factory.mktemp("stopped"), tmp_path_factory.mktemp("undisturbed")
    with pytest.raises(StopError):
        train(STOPPED, there, callbacks=[StopAt("record", 2)])
    (whole,) = train(STOPPED, elsewhere)
    return RunFolder.of(STOPPED, there).path, outcome(whole)


def again(stopped, tmp_path, damage, told=None):
    """Damage a copy of a stopped run, and go on with it; ``told`` is what the library must warn of."""
    folder, undisturbed = stopped
    copy = shutil.copytree(folder, tmp_path / folder.name)
    damage(copy)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert [outcome(made) for made in train(STOPPED, tmp_path)] == [undisturbed]
    assert bool(warned) == bool(told)
    assert all(str(warning.message).startswith(f"{copy}/{told}") for warning in warned)


def lines(change):
    """Change the lines of metrics."""

    def damage(folder):
        path = folder / "metrics.jsonl"
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return damage


METRICS = {
    "emptied": lines(lambda rows: []),
    "deleted": lambda folder: (folder / "metrics.jsonl").unlink(),
    "zeroes": lines(lambda rows: [bytes(sum(map(len, rows)))]),
    "a lost row": lines(lambda rows: [rows[0], rows[2]]),
    "a row twice": lines(lambda rows: [*rows, rows[2]]),
    "not a row": lines(lambda rows: [b"[1]\n", *rows]),
}


@pytest.mark.parametrize("damage", METRICS.values(), ids=METRICS)
def test_metrics_that_were_damaged_do_not_matter(damage, stopped, tmp_path):
    again(stopped, tmp_path, damage)


@pytest.mark.parametrize("damage", [*METRICS.values(), lambda folder: None], ids=[*METRICS, "nothing"])
def test_a_run_of_before_goes_on_from_the_last_epoch_that_has_all_its_metrics(damage, stopped, tmp_path):
    def of_before(folder):
        for path in folder.glob("checkpoint-*"):
            with safe_open(path, framework="pt") as file:
                notes = {"notes": file.metadata()["notes"]}
            path.write_bytes(save(load_file(path), metadata=notes))
        damage(folder)

    again(stopped, tmp_path, of_before, None if damage not in METRICS.values() else "metrics.jsonl has not exactly")


def flipped(folder):
    path = folder / "checkpoint-2.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 64
    path.write_bytes(content)


CHECKPOINTS = {
    "a flipped bit": ("checkpoint-2", flipped),
    "nonsense": ("checkpoint-2", lambda folder: (folder / "checkpoint-2.safetensors").write_bytes(b"nonsense")),
    "emptied": ("checkpoint-2", lambda folder: (folder / "checkpoint-2.safetensors").write_bytes(b"")),
    "of an earlier epoch": (
        "checkpoint-3",
        lambda folder: shutil.copy(folder / "checkpoint-2.safetensors", folder / "checkpoint-3.safetensors"),
    ),
}


@pytest.mark.parametrize(("told", "damage"), CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_damaged_checkpoint_is_told_and_not_used(told, damage, stopped, tmp_path):
    again(stopped, tmp_path, damage, told)


def test_without_any_checkpoint_that_is_whole_a_run_begins_anew(stopped, tmp_path):
    def both(folder):
        flipped(folder)
        (folder / "checkpoint-1.safetensors").unlink()

    again(stopped, tmp_path, both, "checkpoint-2")


@pytest.mark.parametrize("damage", [METRICS["a lost row"], lines(lambda rows: [*rows, b'{"epoch": 3, "va'])])
def test_metrics_are_whole_again_while_a_run_goes_on(damage, stopped, tmp_path):
    copy = shutil.copytree(stopped[0], tmp_path / stopped[0].name)
    damage(copy)
    with pytest.raises(StopError):
        train(STOPPED, tmp_path, callbacks=[StopAt("record", 3)])
    assert [row["epoch"] for row in RunFolder(copy).metrics()] == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"{}")])
def test_a_run_whose_warmup_is_not_recorded_any_more_begins_anew(damage, tmp_path):
    config = small(version="warmup")
    (whole,) = train(config, tmp_path / "undisturbed")
    with pytest.raises(StopError):
        train(config, tmp_path, callbacks=[StopAt("record", 1)])
    path = RunFolder.of(config, tmp_path).path / "warmup.json"
    damage(path)
    with pytest.warns(RuntimeWarning, match=str(path)):
        (folder,) = train(config, tmp_path)
    assert outcome(folder) == outcome(whole)
