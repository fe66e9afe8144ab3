"""The experiment on agents that learn by PPO: its runs, and how they are drawn and told."""

import pytest

from multistable.experiments.archive import read_results, write_results
from multistable.experiments.beyond.agents import NEEDS, sized
from multistable.experiments.catalogue import experiments
from multistable.experiments.claims.reinforcement import in_mazes
from multistable.experiments.experiment import Result, finished
from multistable.experiments.reproduce import plan, reproduce
from multistable.experiments.scales import PAPER, SCALES, SMALL, SMOKE
from multistable.rl import AgentConfig, Maze, PassiveMaze
from small_agents import small_ppo
from small_runs import RECORD

AGENTS = experiments()["agents"]
(BESIDE,) = AGENTS.pictures


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_each_task_is_run_with_both_cells_in_three_versions_as_often(scale):
    configs = AGENTS.at(scale)
    tasks, seeds = {config.task for config in configs}, {"small": 5, "smoke": 2}.get(scale.name, 3)
    assert len({(c.task, c.cell, c.version, c.seed) for c in configs}) == len(configs) == len(tasks) * 2 * 3 * seeds
    assert {config.algorithm for config in configs} == {"ppo"}
    assert len(tasks) == {"paper": 7, "small": 6, "smoke": 5}[scale.name]


def test_sizes_at_the_scales():
    """What is played is the same on a CPU as on a GPU, but for a corridor that is not tried there."""
    small, paper = ({config.task for config in AGENTS.at(scale)} for scale in (SMALL, PAPER))
    assert paper == set(NEEDS)
    assert small == paper - {PassiveMaze(500)}
    assert {c.hidden_size for c in AGENTS.at(SMALL)} == {32}
    assert {c.hidden_size for c in AGENTS.at(PAPER)} == {128}
    assert {c.episodes for c in AGENTS.at(SMALL)} == {1280, 2560}
    assert sized(SMALL.computed_in("tf32")).agents["precision"] == "tf32"


def test_some_of_it_runs_and_is_drawn(tmp_path):
    """A group of each task."""
    scale = SMOKE.only({"cell": ["gru"], "version": ["double"]})
    todo = plan([AGENTS], scale, tmp_path)
    assert [len(group) for group in todo.groups] == [2] * 5
    assert reproduce(todo, tmp_path) == []
    results = finished(AGENTS.at(scale), tmp_path)
    assert len(results) == 10
    write_results(results, tmp_path / "stored.json")
    assert [one.config for one in read_results(tmp_path / "stored.json")] == [one.config for one in results]
    assert len(BESIDE.draw(results).axes) == 5 * 2


def made(version, seed, returns, first, vaa=(0.5, 1.0), seconds=0.0, **settings):
    """An agent with these returns, optimal first after so many episodes, trained together with four others."""
    config = small_ppo(version=version, seed=seed, episodes=2 * (len(returns) - 1), **settings)
    rows = [{"episode": 2 * i, "return": value} for i, value in enumerate(returns)]
    rows[0]["vaa"], rows[-1]["vaa"] = vaa
    results = {"first_optimal": first, "final_return": returns[-1], "warmup": None}
    return Result(config, rows, results, RECORD, {"seconds": seconds} if seconds else None)


@pytest.fixture
def results():
    return [
        made("classic", 0, [0.0, 0.5, 1.0], 4),
        made("classic", 1, [0.0, 0.0, 0.0], None, vaa=(0.25, 0.5)),
        made("warmup", 0, [0.5, 1.0, 1.0], 2, seconds=3.0),
        made("warmup", 0, [0.5, 0.5, 0.5], None, task=Maze(2), cell="lstm"),
    ]


def test_the_table_tells_of_each_task_cell_and_version(results, monkeypatch):
    monkeypatch.setitem(NEEDS, PassiveMaze(3), "the cue")
    monkeypatch.setitem(NEEDS, Maze(2), "to walk")
    header, rows = BESIDE.table(results)
    told = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(row["task"], row["cell"], row["version"]) for row in told] == [
        ("passive-tmaze, L = 3", "GRU", "classic"),
        ("passive-tmaze, L = 3", "GRU", "warmed up"),
        ("tmaze, L = 2", "LSTM", "warmed up"),
    ]
    assert told[0] == {
        "task": "passive-tmaze, L = 3",
        "needs": "the cue",
        "cell": "GRU",
        "version": "classic",
        "agents": "2",
        "return at the end": "0.5 ± 0.71",
        "over training": "0.25 ± 0.35",
        "always right": "1 of 2",
        "first after episodes": "4, never",
        "VAA, first to last": "0.38 to 0.75",
        "warmup, s": "0.0",
        "all, s": "12",
    }
    assert told[1]["warmup, s"] == "3.0"


def test_each_cell_has_a_panel_of_returns_and_one_of_vaa(results):
    drawn = BESIDE.draw(results)
    titles = [axes.get_title() for axes in drawn.axes]
    assert titles[:4] == ["GRU, passive-tmaze, L = 3", "LSTM, passive-tmaze, L = 3"] * 2
    (classic, warmed), (vaa, _) = drawn.axes[0].lines, drawn.axes[2].lines
    assert classic.get_ydata().tolist() == [0.0, 0.25, 0.5]
    assert warmed.get_ydata().tolist() == [0.5, 1.0, 1.0]
    assert vaa.get_ydata().tolist() == [0.375, 0.75]
    assert not drawn.axes[1].lines, "no LSTM has played the passive maze"


def test_agents_by_ppo_bear_on_no_claim_of_the_paper():
    ours = Result(small_ppo(task=Maze(2)), [], {}, RECORD)
    theirs = Result(AgentConfig(Maze(2), "gru"), [], {}, RECORD)
    assert in_mazes([ours, theirs]) == [theirs]
