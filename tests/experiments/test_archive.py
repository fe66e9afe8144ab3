"""Results in files: what a run is stored as, and that it is read as it was."""

import json
from dataclasses import replace

import pytest

from multistable.experiments.archive import read_results, write_results
from multistable.experiments.experiment import Result
from multistable.rl import AgentConfig, Maze
from multistable.tasks import CopyFirstInput, Denoising
from multistable.training import RunConfig
from small_agents import small_agent
from small_runs import RECORD, small

RESULTS = {"test_loss": 0.123456, "initial_vaa": 1.0, "final_cycles": None, "warmup": "multistable"}
COURSE = {"outcome": "multistable", "vaa": 1.0, "vaa_star": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]}
CONFIGS = [
    RunConfig(CopyFirstInput(50), "gru"),
    RunConfig(Denoising(200, 100), "chrono", "warmup", seed=3, cell_options={"t_max": 300}, precision="tf32"),
    RunConfig(Denoising(200, 5), "lstm", "auxiliary", hidden_size=128, num_layers=1, stretch_length=7),
    small(version="double", target=0.5),
    small_agent(seed=1),
]

DEFAULTS = {
    "version": "classic",
    "hidden_size": 128,
    "num_layers": 1,
    "cell_options": {},
    "seed": 0,
    "batch_size": 32,
    "learning_rate": 0.001,
    "vaa_every": 1,
    "vaa_batches": 10,
    "vaa_batch_size": 32,
    "stabilisation": 10000,
    "eps": 0.0001,
    "warmup_algorithm": "paper",
    "target": 0.95,
    "warmup_steps": 100,
    "warmup_batch_size": 200,
    "warmup_learning_rate": 0.01,
    "max_stabilisation": 200,
    "increment": 10,
    "precision": "ieee",
    "dtype": "float32",
    "data_seed": None,
    "epochs": 50,
    "training_sequences": None,
    "testing_sequences": None,
    "validation": 0.2,
    "selection": 0.0,
    "pretraining_epochs": 20,
    "auxiliary_weight": 1.0,
    "auxiliary_loss": "reconstruction",
    "stretch_length": None,
    "stretches": 1,
    "anchors": "cut",
    "teacher_forcing": True,
    "warmup_sequences": "data",
    "warmup_vaa_every": 0,
}
OF_AGENTS = {
    "hidden_size": 256,
    "num_layers": 2,
    "vaa_every": 100,
    "episodes": 2000,
    "evaluate_every": 20,
    "capacity": 8192,
    "target_period": 20,
    "gradient_steps": 10,
    "epsilon": 0.2,
    "reward_input": False,
    "max_norm": None,
    "algorithm": "drqn",
    "copies": 20,
    "passes": 4,
    "minibatches": 4,
    "clip": 0.2,
    "trace": 0.95,
    "value_weight": 0.5,
    "entropy_weight": 0.01,
    "action_input": True,
}
"""What the stored runs leave out is read as this: a default that changed would change what they say they are."""


def result(config, **changes):
    rows = [{config.unit: time, "vaa": 1 / 3, "phase": None, "seconds": 2.0, "training_loss": 1.0} for time in range(3)]
    return replace(Result(config, rows, RESULTS, RECORD, COURSE | {"loss": [1.0] * 3}), **changes)


@pytest.fixture
def file(tmp_path):
    write_results(map(result, CONFIGS), tmp_path / "stored.json")
    return tmp_path / "stored.json"


def test_runs_are_read_as_they_were(file):
    read = read_results(file)
    assert [one.config for one in read] == CONFIGS
    assert [one.config.name for one in read] == [config.name for config in CONFIGS]
    for one in read:
        assert (one.results, one.record, one.warmup) == (RESULTS, RECORD, COURSE)
        assert one.curve("vaa") == ([0, 1, 2], [0.33333] * 3)
        assert all(row.keys() == {one.config.unit, "vaa"} for row in one.metrics)


def test_a_run_is_a_line_with_the_settings_that_are_not_at_their_defaults(file):
    lines = file.read_text().splitlines()[1:-1]
    first, second, third, *_ = (json.loads(line.rstrip(","))["config"] for line in lines)
    assert first == {"task": {"name": "copy", "T": 50}, "cell": "gru"}
    assert second.keys() == {"task", "cell", "version", "seed", "cell_options", "precision"}
    assert third.keys() == {"task", "cell", "version", "hidden_size", "num_layers", "stretch_length"}


def test_a_run_without_a_warmup_has_none(tmp_path):
    write_results([result(CONFIGS[0], warmup=None)], tmp_path / "stored.json")
    assert read_results(tmp_path / "stored.json")[0].warmup is None


def test_what_was_stored_in_full_is_still_read(file):
    """With every setting, VAA* by step, and curves that are left out by now."""
    entries = json.loads(file.read_text())
    for entry, config in zip(entries, CONFIGS, strict=True):
        entry |= {"config": config.to_dict(), "warmup": COURSE | {"loss": [1.0] * 3}}
        entry["metrics"]["seconds"] = [1.5] * 3
    file.write_text(json.dumps(entries))
    read = read_results(file)
    assert [one.config.name for one in read] == [config.name for config in CONFIGS]
    assert read[0].warmup["vaa_star"] == COURSE["vaa_star"]
    assert read[0].metrics[0]["seconds"] == 1.5


def test_defaults_are_as_they_were_when_runs_were_stored():
    run, agent = RunConfig(CopyFirstInput(50), "gru").to_dict(), AgentConfig(Maze(20), "gru").to_dict()
    assert run | DEFAULTS == run
    assert agent | {name: value for name, value in (DEFAULTS | OF_AGENTS).items() if name in agent} == agent
    assert agent.keys() >= OF_AGENTS.keys()
