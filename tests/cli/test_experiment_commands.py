"""The commands that run experiments of the paper, report on them and judge claims by them."""

import re
from dataclasses import replace
from itertools import product

import pytest
import torch

from multistable.cli import runs as cli
from multistable.experiments.archive import write_results
from multistable.experiments.experiment import Result
from multistable.experiments.report import write_report
from multistable.experiments.reproduce import reproduce
from multistable.experiments.scales import SCALES
from multistable.tasks import CopyFirstInput, PermutedSequentialMNIST
from multistable.training import RunConfig, RunFolder
from multistable.training.store import Checkpoint
from small_runs import RECORD, small


def test_reproduce_runs_draws_and_reports(tiny, command, tmp_path):
    result = command("reproduce", "tiny", "--scale", "smoke", "--out", tmp_path, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "2 of 2 runs to train" in result.output
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "Two networks" in page
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {
        f"tiny-{name}.{kind}" for name in ("test-loss", "each") for kind in ("png", "svg")
    }


def test_a_dry_run_does_nothing(tiny, command, tmp_path):
    result = command("reproduce", "all", "--scale", "smoke", "--out", tmp_path / "new", "--dry-run")
    assert result.exit_code == 0, result.output
    assert re.search(r"Roughly \d+:\d\d:\d\d on", result.output)
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("tiny")
def test_a_dry_run_needs_no_gpu(command, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    given = ["reproduce", "tiny", "--scale", "smoke", "--out", tmp_path]
    for device in ("cuda", "cuda:1"):
        assert " on cuda." in command(*given, "--device", device, "--dry-run").stdout
        assert "PyTorch finds no GPU here" in command(*given, "--device", device).stderr
    refused = command(*given, "--device", "nonsense", "--dry-run")
    assert refused.exit_code == 2
    assert "device must be cpu, cuda or cuda:INDEX, got 'nonsense'" in refused.stderr


def test_a_forecast_is_of_what_is_left(monkeypatch, tmp_path):
    runs = [RunConfig(CopyFirstInput(5), "gru", seed=seed) for seed in range(2)]
    for config, epochs in zip(runs, [(1, 2), (3, 4)], strict=True):
        folder = RunFolder.of(config, tmp_path)
        folder.path.mkdir()
        for epoch in epochs:
            folder.write_checkpoint(epoch, Checkpoint({"w": torch.zeros(1)}, {}))
    monkeypatch.setattr(cli, "seconds", lambda configs, device, done: (len(configs), device, done))
    assert cli.forecast(runs, tmp_path, "cpu") == (2, "cpu", 2)
    assert cli.forecast(runs[1:], tmp_path, "cpu") == (1, "cpu", 4)
    assert cli.forecast(runs, tmp_path / "new", "cpu") == (2, "cpu", 0)


@pytest.mark.usefixtures("tiny")
def test_minutes_that_are_over_leave_a_report_of_what_there_is(command, tmp_path):
    result = command("reproduce", "tiny", "--scale", "smoke", "--out", tmp_path, "--device", "cpu", "--minutes", "0")
    assert result.exit_code == 0, result.output
    assert "The 0 minutes are over, 2 runs are left: the same command goes on from there." in result.output
    assert "No finished run." in (tmp_path / "report.html").read_text()


def test_what_could_not_run_is_told_when_the_minutes_are_over(tiny, command, tmp_path, monkeypatch):
    monkeypatch.setenv("MULTISTABLE_DATA", str(tmp_path / "nowhere"))
    images = replace(tiny, name="images", order=0, runs=(small(task=PermutedSequentialMNIST()),))
    monkeypatch.setattr("multistable.cli.experiments.experiments", lambda: {"images": images, "tiny": tiny})
    result = command("reproduce", "all", "--scale", "smoke", "--out", tmp_path, "--device", "cpu", "--minutes", "0")
    assert "The 0 minutes are over, 3 runs are left" in result.stdout
    assert "Not run: " in result.stderr
    assert "nowhere" in result.stderr
    assert result.exit_code == 1


@pytest.mark.usefixtures("tiny")
def test_runs_that_another_process_has_made_meanwhile_are_not_left(command, tmp_path, monkeypatch):
    def busy(*arguments, **options):
        reproduce(*arguments, **options)
        return ["another process is working on 1 of the runs"]

    monkeypatch.setattr("multistable.cli.bodies.reproduce.reproduce", busy)
    result = command("reproduce", "tiny", "--scale", "smoke", "--out", tmp_path, "--device", "cpu")
    told = "Not run: another process is working on 1 of the runs\nNo run is left: others have made them\n"
    assert result.stderr == told


def test_unknown_names_are_refused(command):
    assert "an experiment must be one of copy, " in command("reproduce", "copi").stderr
    assert (
        "--scale must be one of smoke, small, paper, got 'huge'" in command("report", "copy", "--scale", "huge").stderr
    )


def test_claims_are_read_from_stored_results(command, tmp_path):
    metrics = [{"epoch": 0, "validation_loss": 1.0, "vaa": 1 / 32}]
    results = []
    for T, cell, seed in product((50, 300, 600), ("lstm", "gru", "mgu"), range(3)):
        for version, loss in (("classic", 0.9), ("warmup", 1e-4)):
            config = RunConfig(CopyFirstInput(T), cell, version=version, seed=seed)
            results.append(Result(config, metrics, {"test_loss": loss, "warmup": None}, RECORD))
    write_results(results, tmp_path / "stored.json")
    shown = command("claims", "--scale", "paper", "--results", tmp_path / "stored.json", "--details")
    assert shown.exit_code == 0, shown.output
    assert re.search(r"C9 .* holds +18 of 18 as claimed", shown.output)
    assert re.search(r"C4 .* not enough runs", shown.output)
    assert "yes: copy first input, T = 50, gru warmed up, test loss: 0.0001 ± 0 (3 runs), below 0.001?" in shown.output


def test_the_report_says_what_scale_it_is_of(tiny, tmp_path):
    page = write_report([tiny], SCALES["smoke"], tmp_path, "multistable reproduce tiny").read_text()
    assert "smaller than the paper's" in page
    assert "0 of 2 runs" in page
    assert "Run here with T = 6." in page
    of_the_paper = write_report([tiny], SCALES["paper"], tmp_path, "multistable reproduce tiny").read_text()
    assert "Run here with" not in of_the_paper


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--where", "T=7"), "--where T must be one of 6 for tiny at the scale smoke, got '7'"),
        (("--precision", "double"), "--precision must be one of ieee, tf32, got 'double'"),
    ],
)
def test_conditions_that_cannot_be_are_told(tiny, command, tmp_path, arguments, message):
    done = command("reproduce", "tiny", "--scale", "smoke", "--out", tmp_path, *arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert not any(tmp_path.iterdir())


def test_only_the_runs_that_are_asked_for_are_run(tiny, command, tmp_path):
    done = command("reproduce", "tiny", "--scale", "smoke", "--where", "version=warmup", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert [config.version for config in tiny.at(SCALES["smoke"]) if RunFolder.of(config, tmp_path).finished] == [
        "warmup"
    ]
