"""Experiments whose data is not to be had, beside others."""

import pytest
from typer.testing import CliRunner

from multistable.cli import app
from multistable.tasks import MNISTError


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
