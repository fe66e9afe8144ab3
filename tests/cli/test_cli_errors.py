"""What goes wrong on the command line is said in a line."""

import re

import pytest
import torch

import multistable as ms
from commands import SMALL, call
from multistable.cli.bodies import train
from multistable.cli.errors import shown
from multistable.rl.agent_tasks import PROCESSES
from multistable.tasks import TASKS
from multistable.training import RunFolder


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("copi --T 5", f"task must be one of {', '.join(TASKS | PROCESSES)} or module:Class, got 'copi'"),
        ("tmaze --L 3 --T 5", "the task 'tmaze' has no setting 'T'; its settings are: L"),
        ("tmaze --L 3 --epochs 2", "runs on tmaze have no setting 'epochs'"),
        ("tmaze --L 3 --dry-run --max-norm nan", "max_norm must be a positive number, got nan"),
        ("tmaze --L 3 --version auxiliary", "version must be one of classic, warmup, double, double-classic"),
        ("copy", "'copy' needs T"),
        ("copy --T 5 --N 5", "the task 'copy' has no setting 'N'; its settings are: T"),
        ("copy --T 5 --cell rnn", f"cell must be one of {', '.join(ms.CELLS)} or module:Class, got 'rnn'"),
        ("copy --T 5 --seeds 2 --seed 3", "only one of them"),
        ("copy --T 5 --device gpu", "device must be cpu, cuda or cuda:INDEX, got 'gpu'"),
        ("copy --T 5 --set nothing=3", "got 'nothing'"),
        ("copy --T 5 --set epochs", "--set must be NAME=VALUE, got 'epochs'"),
        ("copy --T 5 --set seed=3", "--seed sets it"),
        ("copy --T 5 --epochs 1 --set epochs=3 --dry-run", "epochs must be given once, got 1 and, by --set, 3"),
        (
            "copy --T 5 --vaa-every 0 --set vaa_every=1 --dry-run",
            "vaa_every must be given once, got 0 and, by --set, 1",
        ),
        ("copy --set T=5 --set T=9 --dry-run", "T must be given once, got 5 and, by --set, 9"),
        ("psmnist --data a --set data=b --dry-run", "data must be given once, got a and, by --set, b"),
        ("copy --T 5 --epochs many", "--epochs"),
        ("copy --T 5 --together 0", "--together"),
    ],
)
def test_a_wrong_argument_is_said_in_a_line(tmp_path, arguments, told):
    result = call(f"train {arguments}", "--out", tmp_path, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.output
    assert not list(tmp_path.rglob("metrics.jsonl"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_gpu_that_is_not_there():
    result = call("train copy --T 5 --device cuda:0")
    assert result.exit_code == 2
    assert "PyTorch finds no GPU here" in result.stderr


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    result = call(f"{SMALL} --epochs 1", "--out", tmp_path / "file")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert str(tmp_path / "file") in result.stderr


def test_missing_images(tmp_path):
    result = call("train psmnist", "--data", tmp_path / "nowhere", "--out", tmp_path)
    assert result.exit_code == 1
    assert "nowhere, named by data, does not exist" in result.stderr


def test_a_run_that_another_process_works_on(tmp_path):
    listed = call(f"{SMALL} --epochs 1 --version warmup --dry-run", "--out", tmp_path).stdout
    (name,) = re.findall(r"copy-gru-warmup-[\w-]+", listed)
    with RunFolder(tmp_path / name).claimed():
        result = call(f"{SMALL} --epochs 1", "--out", tmp_path)
    assert result.exit_code == 1
    assert f"another process is working on 1 of the runs: {name}" in result.stderr
    assert re.search(r"^ copy-gru-classic-0-\w+ +[01] ", result.stdout, re.MULTILINE)  # the other one is finished


def test_a_damaged_run(tmp_path):
    (tmp_path / "config.json").write_text("{")
    result = call("show", tmp_path)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "config.json cannot be read" in result.stderr


def test_a_folder_that_is_no_run(tmp_path):
    result = call("show", tmp_path)
    assert result.exit_code == 2
    assert "is not the folder of a run" in result.stderr


def test_debug_shows_the_traceback():
    result = call("train copy --T 0 --debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr


def test_a_fault_of_the_program_is_not_hidden(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("a fault")

    monkeypatch.setattr(train, "train_runs", broken)
    assert isinstance(call("train copy --T 5").exception, RuntimeError)


def test_a_message_shows_control_characters_and_does_not_send_them():
    assert shown("a\nb \x1b[2J\x07 ü") == "a\nb \\x1b[2J\\x07 ü"
