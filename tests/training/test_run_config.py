"""What a run is told: settings, what is refused, and the names that follow."""

import json
from dataclasses import replace

import numpy as np
import pytest

from multistable.cells import CELLS
from multistable.tasks import TASKS, CopyFirstInput, Denoising, PermutedLineSequentialMNIST
from multistable.training import RunConfig, train
from small_agents import small_agent
from small_runs import small


def test_a_configuration_survives_json():
    for task in (CopyFirstInput(7), Denoising(30, 6, cue=False), PermutedLineSequentialMNIST(3)):
        config = small(task=task, cell="chrono", cell_options={"t_max": 80}, version="double", seed=3)
        assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_every_setting_changes_the_name():
    base, auxiliary = small(version="warmup", num_layers=1), small(version="auxiliary", num_layers=1)
    of_auxiliary = {
        "pretraining_epochs": 3,
        "auxiliary_weight": 0.5,
        "auxiliary_loss": "prediction",
        "stretch_length": 2,
        "stretches": 1,
        "anchors": "random",
        "teacher_forcing": False,
    }
    short = replace(auxiliary, stretch_length=1, stretches=3)
    changed = [replace(short, **{field: value}).name for field, value in of_auxiliary.items()]
    assert len({short.name, *changed}) == 1 + len(of_auxiliary)
    others = {
        "task": CopyFirstInput(7),
        "cell": "mgu",
        "version": "double",
        "cell_options": {"recurrent_bias": True},
        "precision": "tf32",
        "warmup_algorithm": "reliable",
        "dtype": "float64",
        "training_sequences": None,
        "testing_sequences": None,
        "data_seed": 5,
        "selection": 0.1,
        "warmup_sequences": "random",
        "keep": True,
        "memory_before": True,
    }
    without = of_auxiliary | {"warmup_vaa_every": 2, "attractors_every": 2, "attractors_saddles": True}
    fast = replace(base, warmup_algorithm="fast")
    assert replace(fast, warmup_robust=0.2).name != fast.name
    for field in base.to_dict():
        if field not in others and field not in without and field != "warmup_robust":
            value = getattr(base, field)
            others[field] = value / 2 if isinstance(value, float) else value + 2
    names = {base.name, *(replace(base, **{field: value}).name for field, value in others.items())}
    assert len(names) == len(base.to_dict()) - len(without)  # and the one of none changed, less warmup_robust
    assert all(replace(base, **{field: value}).name == base.name for field, value in without.items())


def test_what_only_concerns_the_warmup_does_not_name_a_run_without():
    assert small(target=0.5, warmup_algorithm="reliable").name == small().name
    assert small(target=0.5, version="warmup").name != small(version="warmup").name
    assert small(warmup_sequences="random").name == small().name


def test_where_the_files_of_a_task_lie_does_not_name_a_run(tmp_path):
    tasks = PermutedLineSequentialMNIST(3), PermutedLineSequentialMNIST(3, data=tmp_path)
    assert small(task=tasks[0]).name == small(task=tasks[1]).name


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (RunConfig(CopyFirstInput(50), "gru", version="warmup", seed=3), "copy-gru-warmup-3-50e20f6f56fd"),
        (RunConfig(Denoising(200, 5), "gru", seed=1), "denoising-gru-classic-1-e0c6957046d9"),
    ],
)
def test_names_stay_what_they_are(config, name):
    """Results of months would be computed again if they changed."""
    assert config.name == name


@pytest.mark.parametrize(
    ("task", "layers", "units"),
    [(CopyFirstInput(50), 1, 128), (Denoising(200, 5), 2, 256), (PermutedLineSequentialMNIST(72), 2, 256)],
)
def test_sizes_that_are_not_given_are_the_papers_for_the_task(task, layers, units):
    config = RunConfig(task, "gru")
    assert (config.num_layers, config.hidden_size) == (layers, units)
    assert config == RunConfig(task, "gru", num_layers=layers, hidden_size=units)
    assert RunConfig(task, "gru", hidden_size=32) == RunConfig(task, "gru", num_layers=layers, hidden_size=32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "warm"}, "version must be one of classic, warmup, double, double-classic, auxiliary, got 'warm'"),
        (
            {"warmup_algorithm": "other"},
            "warmup_algorithm must be one of fast, reliable, paper, chrono, .*, got 'other'",
        ),
        ({"dtype": "float16"}, "dtype must be one of float32, float64, got 'float16'"),
        ({"batch_size": 1.5}, "batch_size must be a positive integer, got 1.5"),
        ({"learning_rate": -1.0}, "learning_rate must be a positive number, got -1.0"),
        ({"validation": 1.0}, "validation must be a share between 0 and 1, got 1.0"),
        ({"selection": 0.9}, r"selection must be a share from 0 to less than what validation leaves, 1 - 0.2, got 0.9"),
        ({"target": 2.0}, r"target must lie in \[0, 1\], got 2.0"),
        ({"vaa_every": -1}, "vaa_every must be 0 or a positive integer, got -1"),
        ({"version": "double", "hidden_size": 7}, "hidden_size must be even"),
        ({"cell_options": [1]}, r"cell_options must be a dict, arguments of the cell by their names, got \[1\]"),
        ({"cell": "chrono", "cell_options": {"t_max": 1}}, "t_max must be greater than 2, got 1"),
        ({"cell": "chrono", "cell_options": {"t_max": "a"}}, "t_max must be a positive number, got 'a'"),
        ({"validation": "much"}, r"validation must lie in \[0, 1\], got 'much'"),
        ({"selection": None}, r"selection must lie in \[0, 1\], got None"),
    ],
)
def test_a_bad_setting_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        small(**change)


def test_options_that_a_cell_cannot_take_are_refused(monkeypatch):
    class Halved(CELLS["gru"]):
        def __init__(self, *sizes, share=2, **factory):
            super().__init__(*sizes, **factory)
            self.share = 1 / share

    monkeypatch.setitem(CELLS, "halved", Halved)
    with pytest.raises(ValueError, match="cell_options must be as the cell 'halved' takes them"):
        small(cell="halved", cell_options={"share": "a"})


@pytest.mark.parametrize("make", [small, small_agent])
def test_a_seed_that_is_none_is_refused(make):
    for seed in (1.5, "abc", True, -1, None):
        with pytest.raises(ValueError, match=f"seed must be 0 or a positive integer, got {seed!r}"):
            make(seed=seed)


def test_a_wanted_vaa_that_no_states_have_is_refused_before_any_work():
    with pytest.raises(ValueError, match=r"target must be at least 1/32 .* got 0\.03"):
        small(version="warmup", warmup_algorithm="reliable", target=0.03)
    for accepted in ({"warmup_algorithm": "paper"}, {"version": "classic"}, {"target": 0.04}):
        small(**{"version": "warmup", "warmup_algorithm": "reliable", "target": 0.03} | accepted)


def test_robust_attractors_are_asked_for_of_the_warmup_that_makes_them():
    settings = {"version": "warmup", "warmup_algorithm": "fast", "warmup_robust": 0.2}
    assert small(**settings | {"version": "classic"}).name == small().name
    for change, message in (
        ({"warmup_algorithm": "paper"}, "warmup_algorithm must be fast with warmup_robust, got 'paper'"),
        ({"warmup_robust": 0}, "warmup_robust must be a positive number, got 0"),
        ({"target": 0.5}, "target must be at least 0.95 with robust=0.2"),
    ):
        with pytest.raises(ValueError, match=message):
            small(**settings | change)


def test_numbers_of_numpy_name_runs_as_plain_ones_do():
    theirs = small(
        task=CopyFirstInput(np.int64(6)), seed=np.int64(3), eps=np.float32(0.5), teacher_forcing=np.bool_(True)
    )
    assert theirs.name == small(task=CopyFirstInput(6), seed=3, eps=0.5).name


@pytest.mark.parametrize(
    ("cell", "option", "taken"),
    [
        ("gru", "a", "recurrent_bias"),
        ("chrono", "tmax", "t_max"),
        ("gru", "batch_first", "recurrent_bias"),  # arguments of the network, and of all cells, are no options
    ],
)
def test_an_option_that_the_cell_does_not_take_is_refused(cell, option, taken):
    message = f"the cell '{cell}' takes no argument '{option}'; beyond its sizes it takes: {taken}"
    with pytest.raises(TypeError, match=message):
        small(cell=cell, cell_options={option: 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 41}, "batch_size must not exceed the 40 training sequences, got 41"),
        ({"vaa_batch_size": 41}, "vaa_batch_size must not exceed the 40 training sequences, got 41"),
        ({"warmup_batch_size": 41, "version": "warmup"}, "warmup_batch_size must not exceed the 40 training"),
        (
            {"vaa_batch_size": 41, "version": "warmup", "vaa_every": 0, "warmup_vaa_every": 1},
            "vaa_batch_size must not exceed the 40 training sequences, got 41",
        ),
        (
            {"vaa_batch_size": 41, "vaa_every": 0, "attractors_every": 1},
            "vaa_batch_size must not exceed the 40 training sequences, got 41",
        ),
        ({"validation": 0.001}, "training_sequences must leave something to train on and to validate on"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_any_work(change, message):
    with pytest.raises(ValueError, match=message):
        small(**change)


def test_sizes_are_checked_against_a_set_whose_size_only_the_task_knows(monkeypatch, tmp_path):
    monkeypatch.setattr("multistable.tasks.generated.SEQUENCES", 50)
    config = small(training_sequences=None, batch_size=41)
    with pytest.raises(ValueError, match="batch_size must not exceed the 40 training sequences, got 41"):
        train(config, tmp_path)


def test_a_user_registers_cells_and_tasks(monkeypatch, tmp_path):
    monkeypatch.setitem(CELLS, "mine", CELLS["mgu"])
    monkeypatch.setitem(TASKS, "remember", type("Remember", (CopyFirstInput,), {}))
    config = small(cell="mine", task=TASKS["remember"](5))
    (folder,) = train(config, tmp_path)
    assert folder.path.name.startswith("remember-mine-classic-0-")
    assert folder.config() == config
