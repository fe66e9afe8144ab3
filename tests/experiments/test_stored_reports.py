"""A report of results that are stored in files, without the folders of their runs."""

import json
import math
import re

import pytest
from typer.testing import CliRunner

from multistable.cli import app
from multistable.experiments.archive import by_name, read_results, write_results
from multistable.experiments.experiment import Result, finished
from multistable.experiments.paper import experiments
from multistable.experiments.scales import PAPER
from multistable.tasks import CopyFirstInput
from multistable.training import DamagedRunError, RunConfig, RunFolder, train
from small_agents import small_agent
from small_runs import RECORD

RESULTS = {"test_loss": 0.25, "warmup": None}


def stored(path, loss, precision="ieee", cells=("gru", "nbrc")):
    """A file of five seeds of each cell at the paper's scale, all with one test loss."""
    metrics = [{"epoch": epoch, "validation_loss": 1.0, "vaa": 1 / 32} for epoch in range(3)]
    runs = [RunConfig(CopyFirstInput(50), cell, seed=seed, precision=precision) for cell in cells for seed in range(5)]
    write_results([Result(run, metrics, RESULTS | {"test_loss": loss}, RECORD) for run in runs], path)
    return path


@pytest.fixture
def command(tmp_path):
    out = tmp_path / "report"
    return lambda *arguments: CliRunner().invoke(app, ["report", *map(str, arguments), "--out", str(out)])


def test_results_count_whatever_they_were_trained_in(tmp_path):
    found = by_name([stored(tmp_path / "stored.json", 0.25, "tf32")])
    runs = experiments()["copy-curves"].at(PAPER)
    results = finished(runs, found)
    assert [(result.config.cell, result.config.seed) for result in results] == [
        (run.cell, run.seed) for run in runs if run.cell in ("gru", "nbrc")
    ]
    assert {result.config.precision for result in results} == {"tf32"}


def test_the_last_file_that_has_a_run_counts(tmp_path):
    both = [stored(tmp_path / "a.json", 0.25), stored(tmp_path / "b.json", 0.5, "tf32", cells=("gru",))]
    for files, of_gru in ((both, 0.5), (both[::-1], 0.25)):
        losses = {(result.config.cell, result.results["test_loss"]) for result in by_name(files).values()}
        assert losses == {("gru", of_gru), ("nbrc", 0.25)}


def test_the_page_has_the_pictures_and_the_numbers_of_stored_results(command, tmp_path):
    files = [stored(tmp_path / "a.json", 0.25), stored(tmp_path / "b.json", 0.5, "tf32", cells=("brc",))]
    done = command("copy-curves", "--scale", "paper", "--results", files[0], "--results", files[1])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "report" / "report.html").read_text()
    assert "15 of 30 runs are finished" in page
    assert "PyTorch 2.0, a GPU." in page
    assert "PyTorch 2.0, a GPU, trained in tf32." in page
    assert page.count("<svg") == len(experiments()["copy-curves"].pictures)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("copy-curves",), "some of the experiments at the scale small, got those of the scale paper"),
        (("denoising", "--scale", "paper"), "some of the experiments at the scale paper, got none"),
        (("copy-curves", "--scale", "paper", "--where", "cell=lstm"), "at the scale paper, got none"),
        (
            ("copy-curves", "--scale", "paper", "--where", "cell=mine"),
            "--where cell must be one of lstm, chrono, gru, mgu, brc, nbrc for copy-curves at the scale paper, got",
        ),
        (("copy-curves", "--scale", "paper", "--precision", "tf32"), "--precision must not be given with --results"),
    ],
)
def test_what_cannot_be_reported_is_told(command, tmp_path, arguments, message):
    done = command(*arguments, "--results", stored(tmp_path / "stored.json", 0.25))
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "report").exists()


@pytest.fixture
def folders(tmp_path):
    """The folders of finished runs at the paper's scale."""
    out = tmp_path / "runs"
    for config in experiments()["copy-curves"].at(PAPER):
        folder = RunFolder.of(config, out)
        folder.path.mkdir(parents=True)
        folder.write_config(config)
        folder.add_metrics({"epoch": config.duration, "validation_loss": 1.0, "vaa": 1 / 32, "seconds": 1.0})
        folder.finish({"results": RESULTS, "record": RECORD})
    return out


def test_a_folder_without_such_runs_is_told_with_what_it_has(folders):
    def told(*arguments, name="report copy-curves"):
        done = CliRunner().invoke(app, [*name.split(), *map(str, arguments)])
        assert done.exit_code == 2
        return " ".join(done.stderr.split())

    some = f"--out {folders} must have some of the experiments at the scale"
    for name in ("claims", "report copy-curves"):
        assert f"{some} small, got those of the scale paper" in told("--out", folders, name=name)
    assert f"{some} paper, trained in tf32, got none" in told(
        "--out", folders, "--scale", "paper", "--precision", "tf32"
    )
    nowhere = folders / "nowhere"
    assert f"--out must be a folder with runs, there is no folder {nowhere}" in told("--out", nowhere)
    assert not nowhere.exists()


@pytest.mark.parametrize("name", ["claims", "report copy-curves", "reproduce copy-curves --dry-run"])
def test_folders_of_runs_are_read(folders, name):
    done = CliRunner().invoke(app, [*name.split(), "--out", str(folders), "--scale", "paper"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("claims", "config.json", "{}"),
        ("claims", "metrics.jsonl", "[1]\n"),
        ("report copy-curves", "metrics.jsonl", "[1]\n"),
        ("report copy-curves", "summary.json", "{"),
    ],
)
def test_a_damaged_run_is_told_with_what_to_delete(folders, name, file, text):
    folder = sorted(folders.iterdir())[0]
    (folder / file).write_text(text)
    done = CliRunner().invoke(app, [*name.split(), "--out", str(folders), "--scale", "paper"])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {folder / file} ")
    assert done.stderr.endswith(f". Delete {folder} to run it again\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "has no line"), ('{"epoch": 49, "vaa": 1.0, "seconds": 1.0}\n{"epo', "ends with epoch 49 of 50")],
)
def test_a_finished_run_whose_last_epochs_are_lost_is_not_judged_by_the_others(folders, text, told):
    """As after a power cut: without a fall of the loss in them, it would count as one that has not learned."""
    folder = sorted(folders.iterdir())[0]
    (folder / "metrics.jsonl").write_text(text)
    done = CliRunner().invoke(app, ["report", "copy-curves", "--out", str(folders), "--scale", "paper"])
    assert done.exit_code == 1
    assert done.stderr == f"Error: {folder / 'metrics.jsonl'} {told}. Delete {folder} to run it again\n"


def test_so_is_an_agent_whose_last_evaluation_is_lost(tmp_path):
    """Of five episodes, with an evaluation after every second one and after the last."""
    (folder,) = train(small_agent(), tmp_path)
    assert [row["episode"] for row in Result.of(folder).metrics] == [0, 2, 4, 5]
    lines = (folder.path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder.path / "metrics.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(DamagedRunError, match="ends with episode 4 of 5"):
        Result.of(folder)


def test_a_damaged_summary_is_told_with_what_is_wrong_with_it(folders):
    folder = sorted(folders.iterdir())[0]
    (folder / "summary.json").write_text(json.dumps({"results": RESULTS, "record": {}}))
    done = CliRunner().invoke(app, ["show", str(folder)])
    assert done.exit_code == 1
    told = "record.seconds must be a finite number, got nothing"
    assert done.stderr == f"Error: {folder / 'summary.json'}: {told}. Delete {folder} to run it again\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [("claims", "no JSON"), ("report all", '{"rows": []}'), pytest.param("claims", "[" * 100_000, id="nested")],
)
def test_a_file_that_holds_no_results_is_named(tmp_path, name, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    done = CliRunner().invoke(app, [*name.split(), "--results", str(file)])
    assert done.exit_code == 2
    assert f"{file} must hold the results of runs" in done.stderr.replace("\n", "")


DAMAGED = [
    ({"results": "x"}, 'results must be an object, got "x"'),
    ({"results": {}}, "results.warmup must be a printable text or null, got nothing"),
    ({"results": RESULTS | {"test_loss": "low"}}, 'results.test_loss must be a finite number or null, got "low"'),
    ({"results": RESULTS | {"test_loss": math.inf}}, "results.test_loss must be a finite number or null, got Infinity"),
    ({"record": 3}, "record must be an object, got 3"),
    ({"record": RECORD | {"together": 0}}, "record.together must be a positive integer, got 0"),
    ({"record": RECORD | {"pretraining": {}}}, "record.pretraining.seconds must be a finite number, got nothing"),
    ({"warmup": 3}, "warmup must be an object or null, got 3"),
    ({"metrics": {}}, "metrics.epoch must be a list, got nothing"),
    ({"metrics": {"epoch": [0, 1], "vaa": [1.0]}}, "metrics.vaa must be as many values as epoch, got [1.0]"),
    ({"metrics": {"epoch": [None]}}, "a value of metrics.epoch must be 0 or a positive integer, got null"),
    (
        {"metrics": {"epoch": [0], "vaa": ["all"]}},
        'a value of metrics.vaa must be a finite number, true, false or null, got "all"',
    ),
    (
        {"metrics": {"epoch": [0], "vaa": [math.nan]}},
        "a value of metrics.vaa must be a finite number, true, false or null, got NaN",
    ),
    ({"config": {}}, "config.task must be an object, got nothing"),
    ({"config": {"task": {"name": "chess"}, "cell": "gru"}}, "task must be one of copy, "),
]


def test_an_entry_that_is_no_result_is_told_with_what_is_wrong_with_it(tmp_path):
    file = stored(tmp_path / "stored.json", 0.25)
    known = json.loads(file.read_text())
    for changes, told in DAMAGED:
        file.write_text(json.dumps([*known[:3], known[3] | changes]))
        with pytest.raises(ValueError, match=re.escape(f"{file}, entry 3: {told}")):
            read_results(file)


def test_an_entry_that_is_no_object_is_told_by_the_commands(tmp_path):
    file = tmp_path / "stored.json"
    file.write_text("[1, 2]")
    done = CliRunner().invoke(app, ["claims", "--results", str(file)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {file}, entry 0: it must be an object, got 1\n")


def test_claims_count_a_run_once_and_by_the_last_file(tmp_path):
    first, last = (stored(tmp_path / f"{loss}.json", loss, cells=("gru", "lstm")) for loss in (0.25, 0.75))
    files = ["--results", str(first), "--results", str(last)]
    shown = CliRunner().invoke(app, ["claims", "--scale", "paper", "--details", *files])
    assert shown.exit_code == 0, shown.output
    assert "10 runs, 5 seeds" in " ".join(shown.output.split())
    assert "copy first input, T = 50, gru, test loss: 0.75 ± 0 (5 runs), above 0.5?" in " ".join(shown.output.split())


def test_a_section_has_the_command_of_each_precision(command, tmp_path):
    files = [stored(tmp_path / "a.json", 0.25), stored(tmp_path / "b.json", 0.5, "tf32", cells=("brc",))]
    assert command("copy-curves", "copy", "--scale", "paper", "--results", files[1]).exit_code == 0
    page = (tmp_path / "report" / "report.html").read_text()
    assert "<pre>multistable reproduce copy-curves --scale paper --precision tf32</pre>" in page
    assert command("copy-curves", "--scale", "paper", "--results", files[0], "--results", files[1]).exit_code == 0
    page = (tmp_path / "report" / "report.html").read_text()
    line = "multistable reproduce copy-curves --scale paper"
    assert f"<pre>{line}\n{line} --precision tf32</pre>" in page


def test_a_section_has_the_conditions_of_its_runs(command, tmp_path):
    conditions = ["--where", "cell=gru, nbrc", "--where", "seed=1", "--where", "cell=lstm"]
    results = ["--results", stored(tmp_path / "a.json", 0.25)]
    assert command("copy-curves", "--scale", "paper", *conditions, *results).exit_code == 0
    page = (tmp_path / "report" / "report.html").read_text()
    line = "multistable reproduce copy-curves --scale paper --where cell=gru,nbrc,lstm --where seed=1"
    assert f"<pre>{line}</pre>" in page
    assert "2 of 3 runs are finished" in page


def test_settings_that_are_not_the_papers_are_not_in_its_report(tmp_path):
    other = RunConfig(CopyFirstInput(50), "gru", learning_rate=0.1)
    write_results([Result(other, [{"epoch": 0}], RESULTS, RECORD)], tmp_path / "stored.json")
    assert finished(experiments()["copy-curves"].at(PAPER), by_name([tmp_path / "stored.json"])) == []
