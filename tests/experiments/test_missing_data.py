"""Experiments whose data is not to be had, beside others."""

import pytest
from typer.testing import CliRunner

from multistable.cli import app
from multistable.experiments.runners import Local
from multistable.experiments.runners.base import NoData
from multistable.tasks import CopyFirstInput, MNISTError, PermutedSequentialMNIST
from small_runs import small


@pytest.fixture
def downloads(monkeypatch, tmp_path):
    """The files that were asked for where there is no network."""
    asked = []

    def download(name):
        asked.append(name)
        raise MNISTError("MNIST could not be downloaded")

    monkeypatch.delenv("MULTISTABLE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("multistable.tasks.mnist._download", download)
    return asked


def test_data_that_is_missing_is_looked_for_once_and_its_experiments_are_named(downloads, tmp_path):
    """A network may take a minute to fail, and there are dozens of groups."""
    names = ["copy-curves", "warmup-sequential-mnist", "warmup-line-mnist"]
    scale = ["--scale", "smoke", "--where", "cell=gru", "--where", "seed=0"]
    done = CliRunner().invoke(app, ["reproduce", *names, *scale, "--device", "cpu", "--out", str(tmp_path / "runs")])
    assert done.exit_code == 1
    assert len(downloads) == 1
    assert done.stderr == (
        "Not run: MNIST could not be downloaded\nRuns are left of warmup-sequential-mnist (2), warmup-line-mnist (4)\n"
    )
    assert len(list((tmp_path / "runs").glob("copy-gru-*/summary.json"))) == 1


def test_only_groups_with_the_same_data_are_left_out(monkeypatch, tmp_path):
    """Another folder may have it, other tasks need none, and a run that is busy does not lack it."""
    tasks = [PermutedSequentialMNIST(data=folder) for folder in ("there", "there", "nowhere", "nowhere", "there")]
    configs = [small(task=task, seed=seed) for seed, task in enumerate([*tasks, CopyFirstInput(6)])]
    answers = {0: "another process is working on it", 2: NoData("nothing in nowhere")}
    begun = []

    def train_group(group, *_):
        begun.append(group[0].seed)
        return answers.get(group[0].seed)

    monkeypatch.setattr("multistable.experiments.runners.local.train_group", train_group)
    runner = Local("cpu")
    groups = [[config] for config in configs]
    assert runner.run(groups, tmp_path, []) == list(answers.values())
    assert begun == [0, 1, 2, 4, 5]
    assert runner.run(groups[3:4], tmp_path, []) == ["nothing in nowhere"]
    assert begun == [0, 1, 2, 4, 5]
