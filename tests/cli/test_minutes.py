"""Commands that are given some minutes stop at the end of an epoch, and end as they would have when given again."""

import re
from functools import partialmethod

import pytest
import torch

from commands import SMALL, call
from multistable.experiments.reproduce import Deadline
from multistable.training import RunFolder

RUNS = f"{SMALL} --epochs 2 --device cpu"
AGENTS = (
    "train tmaze --L 2 --hidden 6 --layers 1 --episodes 5 --evaluate-every 2 --vaa-every 4 --batch-size 5 --version "
    "classic --set capacity=40 --set target_period=3 --set gradient_steps=2 --set vaa_batches=2 "
    "--set vaa_batch_size=4 --set stabilisation=50 --set dtype=float64 --device cpu"
)
SELECTION = (
    "select copy --T 5 --version classic --hidden 4 --layers 1 --rate 0.001 --rate 0.01 --batch-size 8 --splits 2 "
    "--epochs 1 --set training_sequences=40 --set testing_sequences=10 --set dtype=float64 --set vaa_batch_size=4 "
    "--set vaa_batches=2 --set stabilisation=20 --device cpu"
)


def numbers_in(out):
    """All that each run under a folder has recorded and learned, without how long it took."""
    found = {}
    for path in sorted(out.iterdir()):
        folder = RunFolder(path)
        metrics = [{name: value for name, value in row.items() if "seconds" not in name} for row in folder.metrics()]
        found[path.name] = (metrics, folder.summary()["results"], folder.weights())
    return found


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, (metrics, results, weights) in found.items():
        assert (metrics, results) == expected[name][:2]
        assert weights.keys() == expected[name][2].keys()
        assert all(torch.equal(weight, expected[name][2][key]) for key, weight in weights.items())


def given_again(line, out, most=10):
    """What a command says each time it is given, with no more than the time of an epoch, until it ends by itself."""
    said = []
    for _ in range(most):
        result = call(f"{line} --minutes 0", "--out", out)
        assert result.exit_code == 0, result.output
        said.append(result.stdout)
        if "minutes are over" not in result.stdout:
            return said
    raise AssertionError(f"it has not ended after {most} times: {said[-1]}")


@pytest.mark.parametrize(
    ("line", "times", "left"), [(RUNS, 4, "2 runs are"), (AGENTS, 5, "1 run is")], ids=["runs", "agents"]
)
def test_a_training_that_was_stopped_ends_with_the_same_numbers(tmp_path, line, times, left):
    assert call(line, "--out", tmp_path / "at once").exit_code == 0
    said = given_again(line, tmp_path / "stopped")
    # Before training, then after each epoch or evaluation, and once more for what comes at the end.
    assert len(said) == times
    for told in said[:-1]:
        assert f"The 0 minutes are over, {left} left: the same command goes on from there." in told
    assert_same(numbers_in(tmp_path / "stopped"), numbers_in(tmp_path / "at once"))


def test_what_is_finished_when_the_minutes_are_over_is_shown(tmp_path):
    assert call(f"{RUNS} --version classic", "--out", tmp_path).exit_code == 0
    result = call(f"{RUNS} --minutes 0", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "1 run is left" in result.stdout
    assert re.search(r"^ copy-gru-classic-0-\w+ +[012] ", result.stdout, re.MULTILINE)


def test_minutes_that_are_enough_change_nothing(tmp_path):
    result = call(f"{SELECTION} --minutes 60", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "minutes are over" not in result.stdout
    assert all(RunFolder(path).finished for path in tmp_path.iterdir())


def test_a_selection_that_was_stopped_ends_with_the_same_numbers(tmp_path):
    at_once = call(SELECTION, "--out", tmp_path / "at once")
    assert at_once.exit_code == 0, at_once.output
    said = given_again(SELECTION, tmp_path / "stopped")
    assert all("The 0 minutes are over: the same command goes on from there." in told for told in said[:-1])
    assert len(said) > 2
    listed = [re.findall(r"^ 1 +4 +([\d.]+) +8 +([\d.]+)", told, re.MULTILINE) for told in (said[-1], at_once.stdout)]
    assert len(listed[0]) == 2
    assert listed[0] == listed[1]
    assert_same(numbers_in(tmp_path / "stopped"), numbers_in(tmp_path / "at once"))


def test_one_minute_is_over(tmp_path, monkeypatch):
    times = iter([0.0, 60.0])
    monkeypatch.setattr(Deadline, "__init__", partialmethod(Deadline.__init__, clock=lambda: next(times)))
    result = call(f"{RUNS} --version classic --minutes 1", "--out", tmp_path)
    assert "The 1 minute is over, 1 run is left: " in result.stdout


@pytest.mark.parametrize("minutes", ["-1", "nan"])
def test_minutes_that_are_no_time_are_refused(tmp_path, minutes):
    result = call(f"{RUNS} --minutes {minutes}", "--out", tmp_path)
    assert result.exit_code == 2
    assert "--minutes" in result.stderr
    assert not any(tmp_path.iterdir())
