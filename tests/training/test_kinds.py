"""Kinds of runs: what one is needs no import by whoever meets a run of it."""

import subprocess
import sys

from multistable.rl import AgentConfig, Maze
from multistable.rl.agent_tasks import PROCESSES
from multistable.rl.group import AgentGroup
from multistable.training import RunConfig, RunFolder
from multistable.training.kinds import config_class, group_class
from multistable.training.supervised import SupervisedGroup
from small_agents import small_agent
from small_runs import small

READING = """
import sys
import multistable
from multistable.training import RunFolder
assert not any(name.startswith("multistable.rl") for name in sys.modules)
for path in sys.argv[1:]:
    config = RunFolder(path).config()
    print(type(config).__name__, config.name)
"""


def test_a_folder_of_any_kind_is_read_after_import_multistable_alone(tmp_path):
    agent = small_agent(cell="chrono", cell_options={"t_max": 80}, version="double", reward_input=True)
    configs = [agent, small(seed=2)]
    for config in configs:
        folder = RunFolder.of(config, tmp_path)
        folder.path.mkdir()
        folder.write_config(config)
    paths = [str(tmp_path / config.name) for config in configs]
    read = subprocess.run([sys.executable, "-c", READING, *paths], capture_output=True, text=True, check=False)
    assert read.stdout.splitlines() == [f"{type(config).__name__} {config.name}" for config in configs], read.stderr


class Corridor(Maze):
    """A user's own process."""


def test_a_folder_of_an_agent_in_a_process_that_can_be_imported_is_read(tmp_path):
    config = small_agent(task=Corridor(2))
    assert config.task_name == f"{__name__}:Corridor"
    folder = RunFolder.of(config, tmp_path)
    folder.path.mkdir()
    folder.write_config(config)
    assert folder.config() == config


def test_a_folder_of_an_agent_in_a_process_that_another_has_registered_is_read(tmp_path, monkeypatch):
    with monkeypatch.context() as there:
        there.setitem(PROCESSES, "corridor", Corridor)
        config = small_agent(task=Corridor(2))
        folder = RunFolder.of(config, tmp_path)
        folder.path.mkdir()
        folder.write_config(config)
    monkeypatch.setitem(PROCESSES, "corridor", None)  # What is learnt is forgotten after the test.
    del PROCESSES["corridor"]
    read = folder.config()
    assert (type(read), read.task, read.task_name) == (AgentConfig, Corridor(2), "corridor")


def test_each_kind_has_its_configurations_and_its_group():
    assert [config_class(task) for task in ("tmaze", "copy", "a task of one's own", "nowhere:Task")] == [
        AgentConfig,
        RunConfig,
        RunConfig,
        RunConfig,
    ]
    assert [group_class(config) for config in (small_agent(), small())] == [AgentGroup, SupervisedGroup]
