"""Searches for hyperparameters: what is tried, what wins, and that nothing is done twice."""

import re
import sys

import pytest
from typer.testing import CliRunner

from multistable.cli import app
from multistable.experiments.experiment import Result, finished
from multistable.experiments.search import Space, by_grid, by_optuna, select
from multistable.experiments.selection import final, setting_of
from multistable.extras import how_to_install
from multistable.training import train
from small_runs import SMALL, small

SPACE = Space(num_layers=(1, 2), hidden_size=(4, 8), learning_rate=(1e-4, 1e-2), batch_size=(8, 16))


def losses(setting):
    """The lower the nearer the rate is to 1e-3; two layers diverge."""
    layers, units, rate, _ = setting
    return None if layers == 2 else abs(rate - 1e-3) + 1 / units


def settings_of(search, loss=losses):
    """Everything a search has evaluated, in turn, in the groups in which it asked."""
    asked = []

    def evaluate(settings):
        asked.append(list(settings))
        return [loss(setting) for setting in settings]

    search(evaluate)
    return asked


def made_up(configs):
    return [
        Result(config, [], {"selection_loss": losses(setting_of(config)), "test_loss": 0.0}, {}) for config in configs
    ]


def test_a_grid_is_every_setting_at_once():
    (asked,) = settings_of(by_grid(SPACE))
    assert len(set(asked)) == len(asked) == 16
    assert (2, 8, 1e-2, 16) in asked


def test_optuna_stays_within_the_space_and_is_no_grid():
    pytest.importorskip("optuna")
    asked = [setting for group in settings_of(by_optuna(SPACE, 12)) for setting in group]
    assert len(asked) == 12
    for layers, units, rate, batch in asked:
        assert layers in SPACE.num_layers
        assert units in SPACE.hidden_size
        assert 1e-4 <= rate <= 1e-2
        assert batch in SPACE.batch_size
    assert len({rate for _, _, rate, _ in asked}) == 12


def test_what_optuna_proposes_follows_from_its_seed_and_the_losses():
    pytest.importorskip("optuna")
    assert settings_of(by_optuna(SPACE, 15)) == settings_of(by_optuna(SPACE, 15))
    assert settings_of(by_optuna(SPACE, 15)) != settings_of(by_optuna(SPACE, 15, seed=1))
    assert settings_of(by_optuna(SPACE, 15)) != settings_of(by_optuna(SPACE, 15), lambda setting: -setting[2])


def test_optuna_looks_where_the_losses_are_low():
    pytest.importorskip("optuna")
    asked = [group[0] for group in settings_of(by_optuna(SPACE, 40))]
    diverging = [layers == 2 for layers, *_ in asked]
    distances = [abs(rate - 1e-3) for _, _, rate, _ in asked]
    assert sum(distances[-15:]) < sum(distances[:15])
    assert not all(diverging)


def test_every_trial_is_on_the_same_splits_and_the_best_is_run_on_the_usual_division():
    results = select(small(), by_grid(SPACE), made_up, splits=3)
    trials = [result.config for result in results if result.config.selection > 0]
    assert len(trials) == 16 * 3
    assert {(config.seed, config.data_seed, config.selection) for config in trials} == {(s, 0, 0.2) for s in range(3)}
    finals = [result.config for result in final(results)]
    assert [config.seed for config in finals] == [0, 1, 2]
    assert {setting_of(config)[:3] for config in finals} == {(1, 8, 1e-4)}


def test_nothing_is_run_when_every_setting_diverges():
    results = select(small(), by_grid(Space((2,), (8,), (1e-3,), (16,))), made_up, splits=2)
    assert len(results) == 2
    assert final(results) == []


def test_a_search_that_is_begun_again_repeats_no_run(tmp_path):
    pytest.importorskip("optuna")

    def run(configs):
        train(configs, tmp_path)
        return finished(configs, tmp_path)

    space = Space((1,), (4, 8), (1e-3, 1e-2), (16,))
    first = select(small(), by_optuna(space, 2), run, splits=2)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = select(small(), by_optuna(space, 2), run, splits=2)
    assert [result.config for result in again] == [result.config for result in first]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == written
    longer = select(small(), by_optuna(space, 3), run, splits=2)
    assert [result.config for result in longer[:4]] == [result.config for result in first[:4]]
    assert len(longer) == 3 * 2 + 2


@pytest.fixture
def command(tmp_path):
    others = {name: value for name, value in SMALL.items() if name not in ("task", "cell", "hidden_size", "batch_size")}
    settings = [f"--set={name}={value}" for name, value in others.items()]
    space = ["--hidden=4", "--layers=1", "--rate=0.001", "--rate=0.01", "--batch-size=16", "--splits=2"]
    fixed = [*settings, *space, "--device=cpu", f"--out={tmp_path}"]
    return lambda *arguments: CliRunner().invoke(app, ["select", *arguments, *fixed])


@pytest.mark.parametrize(("search", "groups"), [("grid", 1), ("optuna", 2)])
def test_a_search_does_what_its_dry_run_tells_and_shows_the_final_runs(command, tmp_path, search, groups):
    """A grid is trained at once, what Optuna proposes one setting after the other."""
    pytest.importorskip("optuna")
    line = ("copy", "--T", "6", "--version", "classic", "--search", search, "--trials", "2")
    told = command(*line, "--dry-run").stdout
    assert not any(tmp_path.iterdir())
    assert re.search(r"gru classic +2 +4 +0 +2 +0\b", told)
    assert "After these come 2 runs with the setting that wins, for gru classic." in told
    assert f"4 of 4 runs to train, in {groups} group" in told
    assert re.search(r"Roughly 0:00:\d\d on cpu\.", told)
    result = command(*line)
    assert result.exit_code == 0, result.output
    assert "selection loss" in result.output
    assert "gru classic, mean ± sd of 2" in result.output
    assert len([path for path in tmp_path.iterdir() if (path / "summary.json").exists()]) == 2 * 2 + 2
    told = command(*line, "--dry-run").stdout
    assert re.search(r"gru classic +2 +4 +4 +2 +2\b", told)
    assert "0 of 6 runs to train" in told
    assert "After these come" not in told


def test_unknown_searches_are_refused(command):
    assert "--search must be one of grid, optuna, got 'luck'" in command("copy", "--T", "6", "--search", "luck").stderr


@pytest.mark.parametrize(
    ("setting", "by"),
    [("num_layers", "--layers"), ("data_seed", "the selection itself"), ("seed", "--splits")],
)
def test_what_is_chosen_among_cannot_be_set(command, tmp_path, setting, by):
    result = command("copy", "--T", "6", "--set", f"{setting}=1")
    assert result.exit_code == 2
    assert f"--set {setting}: {by} sets it" in result.stderr
    assert not any(tmp_path.iterdir())


def test_a_setting_that_is_given_twice_is_refused(command, tmp_path):
    result = command("copy", "--T", "6", "--epochs", "3")  # the fixture sets them too
    assert result.exit_code == 2
    assert "epochs must be given once, got 3 and, by --set, 2" in result.stderr
    assert not any(tmp_path.iterdir())


def test_without_optuna_the_command_says_which_extra_to_install(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = command("copy", "--T", "6", "--search", "optuna")
    assert result.exit_code == 1
    assert f"--search optuna needs the package optuna: {how_to_install('optuna')}" in result.stderr
