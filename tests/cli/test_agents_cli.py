"""Agents on the command line: what is trained, shown and said meanwhile, and going on after an interruption."""

import io
import re
import sys

import pytest
import torch
from rich.console import Console

from commands import call
from interruption import interrupted
from multistable.cli.progress import Bars, Pace
from multistable.training import RunFolder, train
from small_agents import small_agent, small_ppo
from small_runs import StopAt, StopError

# As small_agent.
COMMAND = (
    "train tmaze --L 2 --hidden 6 --layers 1 --episodes 5 --evaluate-every 2 --vaa-every 4 --batch-size 5 "
    "--set capacity=40 --set target_period=3 --set gradient_steps=2 --set vaa_batches=2 --set vaa_batch_size=4 "
    "--set stabilisation=50 --set warmup_steps=3 --set warmup_batch_size=8 --set max_stabilisation=10 "
    "--set dtype=float64 --device cpu"
)


def test_the_command_trains_what_it_says_and_ends_with_a_table(tmp_path):
    result = call(f"{COMMAND} --seeds 2", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    configs = [small_agent(version=version, seed=seed) for version in ("classic", "warmup") for seed in (0, 1)]
    assert {path.name for path in tmp_path.iterdir()} == {config.name for config in configs}
    lines = re.findall(r"^\[\d:\d\d:\d\d, .* left.*\] .*episode (\d)/5: (.*)$", result.stdout, re.MULTILINE)
    assert [int(episode) for episode, _ in lines] == [0, 2, 4, 5]
    rows = [RunFolder.of(config, tmp_path).metrics()[-1] for config in configs[:2]]
    said = {name: f"{sum(row[name] for row in rows) / 2:.3g}" for name in ("return", "optimal", "vaa")}
    assert f"classic return {said['return']}, optimal {said['optimal']}, VAA {said['vaa']};" in lines[-1][1]
    for config in configs:
        found = RunFolder.of(config, tmp_path).summary()["results"]
        (row,) = re.findall(rf"^ {config.name} +(\S+) +(\S+) +(\S+) +(\S+)", result.stdout, re.MULTILINE)
        first = "-" if found["first_optimal"] is None else str(found["first_optimal"])
        numbers = [found[name] for name in ("final_return", "initial_vaa", "final_vaa")]
        assert row == (first, *(f"{value:.4f}" for value in numbers))


def test_agents_are_trained_with_the_limit_that_was_asked_for(tmp_path):
    result = call(f"{COMMAND} --version classic --max-norm 1", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert [path.name for path in tmp_path.iterdir()] == [small_agent(max_norm=1.0).name]
    (direct,) = train(small_agent(max_norm=1.0), tmp_path / "direct")
    weights = RunFolder.of(small_agent(max_norm=1.0), tmp_path).weights()
    assert all(torch.equal(weights[name], weight) for name, weight in direct.weights().items())


def test_agents_are_trained_by_the_algorithm_that_was_asked_for(tmp_path):
    """What belongs to DRQN alone is taken and has no influence."""
    line = COMMAND.replace("tmaze --L 2", "passive-tmaze --L 3").replace("--episodes 5", "--episodes 6")
    more = "--version classic --algorithm ppo --copies 2 --set passes=2 --set minibatches=2"
    result = call(f"{line} {more}", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert [path.name for path in tmp_path.iterdir()] == [small_ppo().name]
    (direct,) = train(small_ppo(), tmp_path / "direct")
    rows = [
        [row | {"seconds": 0} for row in folder.metrics()] for folder in (RunFolder.of(small_ppo(), tmp_path), direct)
    ]
    assert rows[0] == rows[1]


def test_what_does_not_fit_an_update_is_refused(tmp_path):
    result = call(f"{COMMAND} --algorithm ppo", "--out", tmp_path)
    assert result.exit_code == 2
    assert "evaluate_every must be a multiple of copies = 20, got 2" in result.output
    assert not any(tmp_path.iterdir())


def test_a_dry_run_says_where_agents_go_on(tmp_path):
    with pytest.raises(StopError):
        train(small_agent(), tmp_path, callbacks=[StopAt("step", 3)])
    before = sorted(path.name for path in tmp_path.rglob("*"))
    result = call(f"{COMMAND} --version classic --seeds 2 --dry-run", "--out", tmp_path)
    assert re.search(rf"{small_agent().name} +goes on after episode 2 +group 1", result.stdout)
    assert re.search(rf"{small_agent(seed=1).name} +to begin +group 1", result.stdout)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_an_agent_is_shown(tmp_path):
    (folder,) = train(small_agent(version="warmup"), tmp_path)
    result = call("show", folder.path)
    assert result.exit_code == 0, result.output
    for row in folder.metrics():
        optimal = "yes" if row["optimal"] else "no"
        expected = rf"^ {row['episode']} +{row['return']:.4f} +{row['length']:.4f} +{optimal}"
        assert re.search(expected, result.stdout, re.MULTILINE)
    assert re.search(r"capacity +40\b", result.stdout)
    assert "first optimal" in result.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_interrupted_agents_go_on_with_the_same_command(tmp_path):
    arguments = [*COMMAND.split(), "--version", "classic", "--episodes", "400"]
    code, errors = interrupted(*arguments, "--out", tmp_path, at="episode 2/400")
    assert code == 130
    assert errors == f"Interrupted. What is done is kept in {tmp_path}: the same command goes on from there.\n"
    folder = RunFolder.of(small_agent(episodes=400), tmp_path)
    assert not folder.finished
    assert folder.checkpoints()[-1] >= 2


def test_bars_show_the_episodes_of_agents():
    runs = [small_agent(), small_agent(version="warmup")]
    bars = Bars(Pace(runs), Console(file=io.StringIO(), width=150))

    def shown():
        where = Console(file=io.StringIO(), width=150)
        where.print(bars.render())
        return where.file.getvalue()

    bars.on_start(runs, 0, 1)
    rows = [
        {"episode": 0, "return": -0.5, "optimal": False, "vaa": 0.25},
        {"episode": 0, "return": 4.0, "optimal": True},
    ]
    bars.on_epoch(runs, rows)
    bars.on_step(runs, 3, 1)
    assert "episode 3/5" in shown()
    assert re.search(r"classic +-0\.5 +0 +0\.25", shown())
    assert re.search(r"warmup +4 +1 +-", shown())


def test_the_time_left_of_agents_counts_episodes():
    clock = iter([0.0, 0.0, 10.0, 14.0, 15.0, 15.0]).__next__
    runs = [small_agent(), small_agent(seed=1)]
    pace = Pace(runs, clock)
    pace.on_start(runs, 0, 1)
    pace.on_epoch(runs, [{"episode": 0}] * 2)
    pace.on_epoch(runs, [{"episode": 2}] * 2)  # 4 of 10 episodes took 4 s
    assert pace.left == pytest.approx(6.0)
    pace.on_step(runs, 3, 1)
    assert pace.done == pytest.approx(6 / 10)
    assert pace.left == pytest.approx(4 * 5 / 6)  # 6 took 5 s


def test_tensorboard_has_what_the_metrics_of_agents_have(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert call(f"{COMMAND} --version warmup --tensorboard", "--out", tmp_path).exit_code == 0
    folder = RunFolder.of(small_agent(version="warmup"), tmp_path)
    events = reader.EventAccumulator(str(folder.path)).Reload()
    for name in ("return", "vaa"):
        expected = [(row["episode"], row[name]) for row in folder.metrics() if name in row]
        read = [(event.step, event.value) for event in events.Scalars(name)]
        assert read == [(episode, pytest.approx(value, rel=1e-6)) for episode, value in expected]
    assert [event.step for event in events.Scalars("warmup/vaa_star_1")] == [1, 2, 3]
