"""The command line: what it is asked for is what is trained."""

import inspect
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

import multistable as ms
from commands import SMALL, call
from multistable.cli.bodies import train as train_body
from multistable.cli.options import train as train_options
from multistable.cli.progress import duration
from multistable.cli.results import by_seed, differing
from multistable.experiments.estimate import seconds
from multistable.rl import AgentConfig, Maze
from multistable.rl.agent_tasks import PROCESSES
from multistable.setting import declared
from multistable.tasks import TASKS, CopyFirstInput
from multistable.training import VERSIONS, RunConfig, RunFolder, train


def configs_of(monkeypatch, line):
    """The runs that a command would train."""
    asked = []
    monkeypatch.setattr(train_body, "train_runs", lambda configs, *others: asked.extend(configs))
    result = call(f"train {line}")
    assert result.exit_code == 0, result.output
    return asked


def options_of_train():
    """The option of each parameter of ``train``."""
    parameters = inspect.signature(train_options.command).parameters
    return {name: parameter.annotation.__metadata__[0] for name, parameter in parameters.items()}


# Help


def test_help_names_everything_that_can_be_trained():
    told = {name: option.help for name, option in options_of_train().items()}
    for parameter, registry in (("task", TASKS | PROCESSES), ("cell", ms.CELLS), ("version", VERSIONS)):
        missing = set(registry) - set(re.findall(r"[\w-]+", told[parameter]))
        assert not missing, f"the help of {parameter} in cli/train.py does not name {', '.join(missing)}"
    assert "multistable train copy" in call("train --help").output


def test_help_tells_the_defaults_that_runs_have():
    defaults = {name: field.default for name, field in RunConfig.__dataclass_fields__.items()}
    told = {name: option.show_default for name, option in options_of_train().items()}
    settings = ["epochs", "batch_size", "learning_rate", "precision"]
    assert {name: told[name] for name in settings} == {name: str(defaults[name]) for name in settings}
    of_agents = {name: field.default for name, field in AgentConfig.__dataclass_fields__.items()}
    settings = ["episodes", "evaluate_every", "batch_size", "learning_rate"]
    assert {name: told[name] for name in settings} == {name: str(of_agents[name]) for name in settings}
    assert told["vaa_every"] == f"{defaults['vaa_every']}, {', '.join(PROCESSES)} {of_agents['vaa_every']}"
    assert told["target"] == str(defaults["target"])


# From options to runs


def test_every_combination_of_cell_version_and_seed_is_a_run(monkeypatch):
    line = "copy --T 7 --cell gru --cell brc --version classic --version double --seeds 3"
    found = [(c.cell, c.version, c.seed) for c in configs_of(monkeypatch, line)]
    assert sorted(found) == sorted((c, v, s) for c in ("gru", "brc") for v in ("classic", "double") for s in range(3))


def test_all_stands_for_every_one(monkeypatch):
    configs = configs_of(monkeypatch, "copy --T 7 --cell all --version all --seed 4 --seed 9")
    assert {c.cell for c in configs} == set(ms.CELLS)
    assert {c.version for c in configs} == set(VERSIONS)
    assert {c.seed for c in configs} == {4, 9}
    assert len(configs) == 2 * len(ms.CELLS) * len(VERSIONS)


def test_an_option_is_a_setting_of_the_run(monkeypatch):
    options = {
        "--hidden 12": ("hidden_size", 12),
        "--num-layers 3": ("num_layers", 3),
        "--learning-rate 0.01": ("learning_rate", 0.01),
        "--precision tf32": ("precision", "tf32"),
        "--vaa-every 0": ("vaa_every", 0),
        "--k 0.5": ("target", 0.5),
        "--set warmup_steps=12": ("warmup_steps", 12),
        "--set dtype=float64": ("dtype", "float64"),
        '--set cell_options={"recurrent_bias":true}': ("cell_options", {"recurrent_bias": True}),
    }
    plain, changed = (
        configs_of(monkeypatch, f"copy --T 7 --version classic {more}")[0].to_dict() for more in ("", " ".join(options))
    )
    assert all(plain[name] != value for name, value in options.values())
    assert changed == plain | dict(options.values())


def test_every_setting_with_a_panel_has_an_option():
    """Of the runs and of the tasks; the others are set by ``--set``."""
    kinds = [RunConfig, AgentConfig, *(TASKS | PROCESSES).values()]
    settings = {name: setting for kind in kinds for name, (_, setting) in declared(kind).items()}
    options = options_of_train()
    assert {name for name, setting in settings.items() if setting.panel} == settings.keys() & options.keys() - {"task"}
    assert all(settings[name].help.rstrip(".") in options[name].help for name in ("epochs", "T", "target", "max_norm"))


def test_all_settings_are_listed():
    rows = {line.split()[0]: line for line in call("list settings").stdout.splitlines() if line.strip()}
    for name, (_, setting) in (declared(RunConfig) | declared(AgentConfig)).items():
        assert name in rows
        assert setting.panel is not None or name == "task" or f"--set {name}=" in rows[name]
    assert re.search(r"--hidden +the paper's +Units of a layer\.", rows["hidden_size"])


@pytest.mark.parametrize(
    ("arguments", "task"),
    [
        ("copy --T 7", {"name": "copy", "T": 7}),
        ("denoising --T 20 --N 6 --no-cue", {"name": "denoising", "T": 20, "N": 6, "cue": False}),
        ("plmnist --N 72", {"name": "plmnist", "N": 72}),
    ],
)
def test_a_task_and_the_papers_sizes_for_it(monkeypatch, arguments, task):
    config = configs_of(monkeypatch, arguments)[0]
    assert config.to_dict()["task"] == task
    assert (config.num_layers, config.hidden_size) == ((1, 128) if task["name"] == "copy" else (2, 256))


def test_a_maze_and_the_papers_agents_in_it(monkeypatch):
    config = configs_of(monkeypatch, "tmaze --L 20 --seed 3 --episodes 70")[0]
    assert config == AgentConfig(Maze(20), "gru", seed=3, episodes=70)
    assert (config.num_layers, config.hidden_size) == (2, 256)


def test_data_is_the_folder_of_the_task(monkeypatch):
    assert configs_of(monkeypatch, "psmnist --data some/folder")[0].task.data == Path("some/folder")


# Training


def test_training_ends_with_a_table_of_runs_and_their_means(tmp_path):
    result = call(f"{SMALL} --epochs 2 --seeds 2", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    folders = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert len(folders) == 4
    rows = {words[0]: words[1:] for line in result.stdout.splitlines() if (words := line.split())}
    for folder in folders:
        found = RunFolder(folder).summary()["results"]
        numbers = [found[name] for name in ("validation_loss", "test_loss", "initial_vaa", "final_vaa")]
        warmup = [found["warmup"]] if found["warmup"] else []
        assert rows[folder.name][:-1] == [str(found["best_epoch"]), *(f"{x:.4f}" for x in numbers), *warmup]
    losses = [RunFolder(folder).summary()["results"]["test_loss"] for folder in folders if "classic" in folder.name]
    middle, deviation = sum(losses) / 2, abs(losses[0] - losses[1]) / 2**0.5
    mean_of_classic = next(line for line in result.stdout.splitlines() if "gru classic, mean" in line)
    assert f"{middle:.4f} ± {deviation:.4f}" in mean_of_classic


def test_a_log_has_a_plain_line_for_each_epoch(tmp_path):
    result = call(f"{SMALL} --epochs 3", "--out", tmp_path)
    epochs = re.findall(r"^\[\d:\d\d:\d\d, .* left.*\] .*epoch (\d)/3: (.*)$", result.stdout, re.MULTILINE)
    assert [int(epoch) for epoch, _ in epochs] == [0, 1, 2, 3]
    for epoch, told in epochs:
        for version in ("classic", "warmup"):
            (folder,) = tmp_path.glob(f"copy-gru-{version}-*")
            row = RunFolder(folder).metrics()[int(epoch)]
            assert f"{version} validation loss {row['validation_loss']:.3g}, VAA {row['vaa']:.3g}" in told
    assert "\x1b" not in result.stdout


def test_a_finished_run_is_not_run_again(tmp_path):
    first = call(f"{SMALL} --epochs 1", "--out", tmp_path)
    again = call(f"{SMALL} --epochs 1", "--out", tmp_path)
    assert "2 of 2 runs are finished already" in again.stdout
    assert "epoch 1/1" in first.stdout
    assert "epoch 1/1" not in again.stdout
    assert first.stdout[first.stdout.index(" run ") :] == again.stdout[again.stdout.index(" run ") :]


def test_a_dry_run_lists_what_is_done_and_does_nothing(tmp_path):
    call(f"{SMALL} --epochs 1 --version classic", "--out", tmp_path)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    result = call(f"{SMALL} --epochs 1 --version all --dry-run", "--out", tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    states = dict(re.findall(r"copy-gru-([a-z-]+)-0-\w+ +(finished|to begin +group \d)", result.stdout))
    groups = {version: re.sub(" +", " ", state) for version, state in states.items()}
    assert groups == {
        "classic": "finished",
        "warmup": "to begin group 1",
        "double": "to begin group 2",
        "double-classic": "to begin group 2",
        "auxiliary": "to begin group 3",
    }
    assert "4 of 5 runs to train" in result.stdout


def test_a_dry_run_tells_how_long_it_may_take(monkeypatch, tmp_path):
    device = "cuda"
    line = "copy --T 50 --cell gru --cell lstm --version classic --seeds 2"
    configs = configs_of(monkeypatch, line)
    forecast = sum(seconds([c for c in configs if c.cell == cell], device) for cell in ("gru", "lstm"))
    told = call(f"train {line} --dry-run --device {device}", "--out", tmp_path).stdout
    expected = f"in 2 groups, folders in {tmp_path}. Roughly {duration(forecast)} on {device}."
    assert f"4 of 4 runs to train, {expected}" in " ".join(told.split())


def test_runs_are_shown_and_compared(tmp_path):
    call(f"{SMALL} --epochs 2 --version warmup --seeds 2", "--out", tmp_path)
    folders = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    one, both = call("show", folders[0]), call("show", *folders)
    assert one.exit_code == both.exit_code == 0
    for row in RunFolder(folders[0]).metrics():
        assert re.search(rf"^ {row['epoch']} .*{row['validation_loss']:.4f}", one.stdout, re.MULTILINE)
    assert re.search(r"hidden_size +4\b", one.stdout)
    assert all(folder.name in both.stdout for folder in folders)
    assert "gru warmup, mean ± sd of 2" in both.stdout


def test_a_run_tells_how_its_warmup_ended(tmp_path):
    """The mean VAA* of the last ten steps, layer by layer: the first stayed behind."""
    call(f"{SMALL} --version warmup --layers 2", "--out", tmp_path)
    (path,) = (path for path in tmp_path.iterdir() if path.is_dir())
    steps = [[0.9, 0.9]] * 3 + [[0.25, 0.9]] * 5 + [[0.75, 0.94]] * 5
    course = {"outcome": "multistable", "vaa": 1.0, "vaa_star": steps}
    told = {}
    short = {"outcome": "short", "vaa": 0.25, "vaa_star": steps[:2]}
    for ended in (course, short, {"outcome": "diverged", "reason": "VAA* is not a number"}):
        (path / "warmup.json").write_text(json.dumps(ended))
        told[ended["outcome"]] = " ".join(call("show", path).stdout.split())
    end = "VAA* of each layer in its last 10 steps: 0.50, 0.92 (target 0.95)"
    assert f"Warmup: multistable after 13 steps, VAA 1.00; {end}" in told["multistable"]
    assert "short after 2 steps, VAA 0.25; VAA* of each layer in its last 2 steps: 0.90, 0.90" in told["short"]
    assert "Warmup: diverged, VAA* is not a number" in told["diverged"]
    (path / "warmup.json").unlink()
    assert "Warmup:" not in call("show", path).stdout


def settings_shown(folders):
    """Of the table of ``show``, the titles before the results, and the words of each row after its name."""
    lines = call("show", *folders).stdout.splitlines()
    (header,) = (line for line in lines if "best epoch" in line)
    rows = {words[0]: words[1:] for line in lines if (words := line.split()) and words[0].startswith("copy-")}
    return re.split(" {2,}", header.partition("best epoch")[0].strip()), [rows[folder.name] for folder in folders]


def test_a_table_has_the_settings_in_which_runs_differ(tmp_path):
    small = f"{SMALL} --epochs 1 --version classic --out {tmp_path} --seeds 2"
    for line in (small, small.replace("--T 5", "--T 9"), small.replace("--hidden 4", "--hidden 6")):
        call(line)
    folders = sorted((path for path in tmp_path.iterdir()), key=lambda path: RunFolder(path).config().hidden_size)
    header, rows = settings_shown(folders)
    assert header == ["run", "hidden size", "T"]
    configs = [RunFolder(folder).config() for folder in folders]
    assert [row[:2] for row in rows] == [[str(config.hidden_size), str(config.task.T)] for config in configs]
    assert settings_shown(folders[-2:])[0] == ["run"]
    means = re.findall(r"mean ± sd of 2 +(\d) +(\d) ", call("show", *folders).stdout)
    assert sorted(means) == [("4", "5"), ("4", "9"), ("6", "5")]


def test_a_setting_without_meaning_for_a_run_tells_no_runs_apart():
    classic, warmed = (RunConfig(CopyFirstInput(5), "gru", version=version) for version in ("classic", "warmup"))
    assert differing([replace(classic, target=0.5), warmed]) == []
    assert differing([replace(warmed, target=0.5), classic, warmed]) == ["target"]
    assert len(by_seed([(classic, {}), (replace(classic, seed=1, warmup_vaa_every=10), {})])) == 1


def test_the_demo_ends_with_a_table_and_a_page(tmp_path, monkeypatch):
    demo = pytest.importorskip("multistable.experiments.demo", exc_type=ImportError)  # needs the extra "report"
    small = configs_of(monkeypatch, f"{SMALL} --epochs 1".removeprefix("train "))

    def trained(out, callbacks):
        train(small, out, callbacks=callbacks)
        return out / "page.html"

    opened = []
    monkeypatch.setattr(demo, "configs", lambda: small)
    monkeypatch.setattr(demo, "demo", trained)
    monkeypatch.setattr("webbrowser.open", opened.append)
    result = call("demo --open --out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "epoch 1/1: classic validation loss" in result.stdout
    assert all(re.search(rf"^ {config.name} +[01] ", result.stdout, re.MULTILINE) for config in small)
    assert opened == [(tmp_path / "page.html").as_uri()]
    assert opened[0] in result.stdout


# Looking around


def test_list_has_the_registries():
    everything = call("list").stdout
    for what, registry in (("tasks", TASKS | PROCESSES), ("cells", ms.CELLS), ("versions", VERSIONS)):
        alone = call(f"list {what}").stdout
        names = re.findall(r"^ ([\w-]+) ", alone, re.MULTILINE)[1:]
        assert names == list(registry)
        assert alone in everything
    assert call("list nothing").exit_code == 2


def test_info_tells_the_time_loop_of_every_cell():
    told = call("info").stdout
    assert torch.__version__ in told
    for cell in ms.CELLS:
        assert re.search(rf"^ {cell} +{ms.backends(ms.RNN(cell, 1, 128))[0]}", told, re.MULTILINE)


def test_version():
    assert call("--version").stdout == f"multistable {ms.__version__}\n"


def test_what_has_no_option_is_listed_as_it_can_be_set(monkeypatch):
    """Here k is the target of a warmup, and --shuffled is no option at all."""

    @dataclass(frozen=True)
    class SumOfFirst(CopyFirstInput):
        k: int = 2
        shuffled: bool = False

    monkeypatch.setitem(TASKS, "sum", SumOfFirst)
    listed = {line.split()[0]: line for line in call("list tasks").stdout.splitlines() if line.strip()}
    assert " --T T [--set k=K] [--set shuffled=SHUFFLED]  " in listed["sum"]
    assert " --T T --N N [--no-cue]  " in listed["denoising"]
    assert " [--data DATA]  " in listed["psmnist"]
    config = configs_of(monkeypatch, "sum --T 7 --set k=3 --set shuffled=true --k 0.5")[0]
    assert (config.task, config.target) == (SumOfFirst(7, 3, True), 0.5)
