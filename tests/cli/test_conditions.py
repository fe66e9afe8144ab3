"""Some of the runs of experiments, chosen by their settings."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from multistable.cli import app
from multistable.cli.experiments import chosen_scale
from multistable.experiments.experiment import Experiment, Result, finished
from multistable.experiments.paper import experiments
from multistable.experiments.scales import PAPER, SMOKE, Scale
from multistable.experiments.selection import final_runs
from multistable.rl import Maze
from multistable.tasks import CopyFirstInput
from small_runs import small

ALL = experiments()


def test_conditions_choose_runs_by_their_settings_and_those_of_the_task():
    chosen = ALL["tmaze-warmup"].at(PAPER.only({"L": {"20", "100"}, "cell": {"gru"}}))
    assert {(config.task, config.cell) for config in chosen} == {(Maze(20), "gru"), (Maze(100), "gru")}
    assert {config.version for config in chosen} == {"classic", "warmup"}
    assert ALL["copy"].at(PAPER.only({"L": {"20"}})) == []
    assert {config.task for config in ALL["copy"].at(PAPER.only({"task": {"copy"}, "T": {"300"}}))} == {
        CopyFirstInput(300)
    }


def chosen(name, *where):
    """What ``--where`` leaves of an experiment at the paper's scale."""
    return ALL[name].at(chosen_scale("paper", where=where))


def test_values_of_one_setting_add_up_and_spaces_do_not_count():
    both = chosen("copy", "cell=gru,lstm")
    assert {config.cell for config in both} == {"gru", "lstm"}
    assert chosen("copy", "cell=lstm", "cell=gru") == both
    assert chosen("copy", " cell = gru, lstm ") == both


@pytest.mark.parametrize("where", ["learning_rate=1e-3", "cue=true"])
def test_numbers_are_compared_as_numbers_and_words_in_any_case(where):
    runs = [*ALL["other-settings-vaa"].at(PAPER), *ALL["denoising"].at(PAPER)]
    scale = chosen_scale("paper", where=[where])
    plain = {"learning_rate": {"0.001"}, "hidden_size": {"64"}, "cue": {"True"}}
    setting = where.partition("=")[0]
    kept = [run for run in runs if scale.wants(run)]
    assert 0 < len(kept) < len(runs)
    assert kept == [run for run in runs if PAPER.only({setting: plain[setting]}).wants(run)]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (["cel=gru"], ", T, got 'cel' (did you mean cell?)"),
        (["L=20"], ", T, got 'L'"),
        (["T=7"], "--where T must be one of 50, 300, 600 for copy at the scale paper, got '7'"),
        (["cell=gru,"], "--where must be SETTING=VALUE"),
    ],
)
def test_what_no_run_has_is_refused_by_name(where, message):
    options = [f"--where={text}" for text in where]
    done = CliRunner().invoke(app, ["reproduce", "copy", "--scale", "paper", "--dry-run", *options])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_conditions_that_leave_no_run_together_are_told():
    options = ["--where", "cell=brc", "--where", "version=warmup"]
    done = CliRunner().invoke(app, ["reproduce", "tmaze-warmup", "--scale", "paper", "--dry-run", *options])
    assert done.exit_code == 2
    assert "--where leaves no run of tmaze-warmup, got cell=brc, version=warmup" in " ".join(done.stderr.split())


# What follows from results


@pytest.fixture
def choice():
    """A choice between two rates."""
    runs = tuple(small(selection=0.2, data_seed=0, vaa_every=0, learning_rate=rate) for rate in (1e-3, 1e-2))
    return Experiment("choice", 1, (), "A choice", runs, (), (), then=final_runs)


TWO = Scale("as it is", "nothing is changed", seeds=2)


def source_of(configs, precision="ieee"):
    """Made-up results of runs, by their names in float32 as those in files are; the lower rate is the better."""
    return {
        config.name: Result(replace(config, precision=precision), [], {"selection_loss": config.learning_rate}, {})
        for config in configs
    }


def test_what_follows_meets_the_conditions_too(choice):
    one = TWO.only({"seed": {"1"}})
    finals = [config for config in choice.at(one, source_of(choice.at(one))) if config.selection == 0]
    assert [(config.seed, config.learning_rate) for config in finals] == [(1, 1e-3)]
    trials = TWO.only({"selection": {"0.2"}})
    assert choice.at(trials, source_of(choice.at(trials))) == choice.at(trials)


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_final_runs_are_found_whatever_they_were_trained_in(choice, precision):
    trials = choice.at(TWO)
    finals = [replace(config, selection=0.0) for config in trials if config.learning_rate == 1e-3]
    source = source_of([*trials, *finals], precision)
    assert choice.at(TWO, source) == [*trials, *finals]
    assert len(finished(choice.at(TWO, source), source)) == len(trials) + len(finals)


def test_a_run_in_which_vaa_is_never_measured_stays_so_when_scaled():
    assert {config.vaa_every for config in ALL["selection-denoising"].at(SMOKE)} == {0}
    assert 0 not in {config.vaa_every for config in ALL["copy"].at(SMOKE)}


@pytest.mark.parametrize(
    ("given", "told"), [("copy_curves", " (did you mean copy-curves?)\n"), ("nothing-of-the-kind", "\n")]
)
def test_an_experiment_that_is_not_there_is_told_with_the_one_that_is_like_it(given, told):
    done = CliRunner().invoke(app, ["reproduce", given])
    assert done.exit_code == 2
    assert f"or all, got {given!r}{told}" in done.stderr
