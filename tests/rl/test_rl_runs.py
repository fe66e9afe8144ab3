"""Agents in run folders: names, what is recorded, agents together."""

import math
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import multistable as ms
from multistable.rl import (
    DRQN,
    PPO,
    AgentConfig,
    Evaluator,
    MaskedCartPole,
    Maze,
    PassiveMaze,
    PassiveTMaze,
    PPOSettings,
    RepeatFirst,
    RepeatPrevious,
    Settings,
    TMaze,
    network_vaa,
)
from multistable.rl.group import AgentGroup
from multistable.training import Model, RunFolder, load, train
from multistable.training.trainer import groups
from paths import HELPERS
from small_agents import UPDATES, small_agent, small_ppo
from small_runs import StopAt, StopError, outcome, small

# Configurations and names


def test_the_defaults_are_those_of_appendix_c():
    config = AgentConfig(Maze(20), "gru")
    assert config.settings == Settings() == Settings(8192, 20, 10, 0.2, 1e-3, 32, False, None)
    assert (config.num_layers, config.hidden_size) == (2, 256)
    assert (config.warmup_steps, config.warmup_batch_size, config.target, config.increment) == (100, 200, 0.95, 10)


OTHERS = {
    "cell": "mgu",
    "version": "double",
    "cell_options": {"recurrent_bias": True},
    "precision": "tf32",
    "warmup_algorithm": "reliable",
    "dtype": "float32",
    "reward_input": True,
    "action_input": False,
    "max_norm": 1.0,
    "averaged_episodes": 3,
    "advantage_learning": 0.5,
    "vaa_every": 8,
    "evaluate_every": 4,
}


@pytest.mark.parametrize(
    ("base", "others"),
    [
        (
            small_agent(version="warmup", copies=1, minibatches=1),
            {"task": Maze(3), "algorithm": "ppo", "keep": True},
        ),
        (
            small_ppo(version="warmup", minibatches=1),
            {"task": PassiveMaze(4), "algorithm": "drqn", "copies": 1, "minibatches": 2},
        ),
    ],
    ids=["drqn", "ppo"],
)
def test_every_setting_that_matters_changes_the_name(base, others):
    mattering = base.to_dict().keys() - base.without_meaning() - {"keep", "warmup_robust"}
    others = {name: value for name, value in OTHERS.items() if name in mattering} | others
    for field in mattering - others.keys():
        value = getattr(base, field)
        others[field] = value / 2 if isinstance(value, float) else value + 2
    names = {base.name, *(replace(base, **{name: value}).name for name, value in others.items())}
    assert len(names) == 1 + len(others)
    assert mattering <= others.keys()
    fast = replace(base, warmup_algorithm="fast")
    assert replace(fast, warmup_robust=0.2).name != fast.name


@pytest.mark.parametrize(
    ("config", "others"),
    [(small_agent(), {"copies": 4, "clip": 0.1}), (small_ppo(), {"capacity": 60, "batch_size": 6})],
)
def test_settings_of_the_other_algorithm_do_not_change_the_name(config, others):
    assert others.keys() <= set(config.without_meaning())
    assert replace(config, **others).name == config.name


def test_names_stay_what_they_are():
    """Results of months would be computed again if they changed."""
    assert AgentConfig(Maze(20), "gru", version="warmup", seed=3).name == "tmaze-gru-warmup-3-b6d7dcb9a29e"
    limited = AgentConfig(Maze(20), "gru", version="warmup", seed=3, max_norm=1.0)
    assert limited.name == "tmaze-gru-warmup-3-82c40882c996"
    assert replace(limited, max_norm=1).name == limited.name
    assert replace(limited, max_norm=None).name == "tmaze-gru-warmup-3-b6d7dcb9a29e"


def test_a_folder_from_before_a_setting_is_that_of_a_run_at_its_default(tmp_path):
    (undisturbed,) = train(small_agent(), tmp_path / "undisturbed")
    with pytest.raises(StopError):
        train(small_agent(), tmp_path, callbacks=[StopAt("step", 3)])
    folder = RunFolder.of(small_agent(), tmp_path)
    known = {name: value for name, value in small_agent().to_dict().items() if name != "max_norm"}
    folder.write_json("config.json", known)
    assert folder.config() == small_agent()
    train(folder.config(), tmp_path)
    assert outcome(folder) == outcome(undisturbed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "auxiliary"}, "version must be one of classic, warmup, double, double-classic, got 'auxiliary'"),
        ({"vaa_every": 3}, "vaa_every must be a multiple of evaluate_every = 2, got 3"),
        ({"vaa_batch_size": 41}, "vaa_batch_size must not exceed the capacity, 40, got 41"),
        ({"warmup_batch_size": 41, "version": "warmup"}, "warmup_batch_size must not exceed the capacity, 40, got 41"),
        (UPDATES | {"copies": 3}, "copies must be a multiple of minibatches = 2, got 3"),
        (UPDATES | {"evaluate_every": 3, "vaa_every": 6}, "evaluate_every must be a multiple of copies = 2, got 3"),
        (UPDATES | {"episodes": 5}, "episodes must be a multiple of copies = 2, got 5"),
        (UPDATES | {"keep": True}, "keep must be False with the algorithm ppo, got True"),
        (UPDATES | {"vaa_batch_size": 65}, "vaa_batch_size must not exceed the episodes .* for it, 64, got 65"),
        (
            UPDATES | {"warmup_batch_size": 257, "version": "warmup"},
            "warmup_batch_size must not exceed the episodes .* for it, 256, got 257",
        ),
        ({"algorithm": "a2c"}, "algorithm must be one of drqn, ppo, got 'a2c'"),
        ({"task": TMaze(3)}, "task must be of a class that is registered, Maze, .*, got .*TMaze object at [^;]*$"),
    ],
)
def test_a_bad_setting_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        small_agent(**change)


def test_a_maze_has_a_length():
    with pytest.raises(ValueError, match="L must be a positive integer, got 0"):
        Maze(0)


# What is recorded


def test_a_run_is_the_training_of_one_agent(tmp_path):
    config = small_agent(version="warmup", seed=1)
    (folder,) = train(config, tmp_path)
    maze = TMaze(2, dtype=torch.float64)
    agents = DRQN(maze, [Model.of(config).rnn], seeds=[1], warm=True, settings=config.settings)
    agents.fill()
    with pytest.warns(ms.WarmupWarning):  # three steps are not enough
        history = agents.warm_up_agent(0, steps=3, batch_size=8, max_stabilisation=10)
    agents.prepared = True
    expected, losses = [], []
    measured = {"batches": 2, "batch_size": 4, "stabilisation": 50}
    for episode in range(6):
        if episode:
            losses.append(next(iter(agents.train(episode))).loss.item())
        if episode in (0, 2, 4, 5):
            found = Evaluator(agents).evaluate()
            row = {"episode": episode, "return": found.returns[0], "length": found.lengths[0]}
            row |= {"loss": pytest.approx(sum(losses) / len(losses))} if losses else {}
            losses.clear()
            row |= {"optimal": found.optimal[0]}
            row |= {"vaa": network_vaa(agents, **measured)[0]} if episode in (0, 4, 5) else {}
            expected.append(row)
    rows, results, weights, course, _ = outcome(folder)
    assert rows == expected
    assert course["vaa_star"] == history.vaa_star.tolist()
    assert results["warmup"] == history.outcome
    assert results["final_return"] == expected[-1]["return"]
    assert (results["initial_vaa"], results["final_vaa"]) == (expected[0]["vaa"], expected[-1]["vaa"])
    assert weights["readout.weight"] == agents.network.readout.weight[0].tolist()


def test_a_run_by_ppo_is_the_training_of_one_agent(tmp_path):
    config = small_ppo(version="warmup", seed=1)
    (folder,) = train(config, tmp_path)
    maze = PassiveTMaze(3, noise=1.0, dtype=torch.float64)
    agents = PPO(maze, [Model.of(config).rnn], seeds=[1], warm=True, settings=config.settings)
    with pytest.warns(ms.WarmupWarning):  # three steps are not enough
        agents.warm_up(algorithm="paper", steps=3, batch_size=8, max_stabilisation=10)
    agents.prepared = True
    measured = {"batches": 2, "batch_size": 4, "stabilisation": 50}
    expected = []
    for episode in (0, 2, 4, 6):
        losses = [update.loss.item() for update in agents.train(episode)]
        found = Evaluator(agents).evaluate()
        row = {"episode": episode, "return": found.returns[0], "length": found.lengths[0]}
        row |= {"loss": losses[0]} if losses else {}
        row |= {"optimal": found.optimal[0]}
        expected.append(row | ({} if episode == 2 else {"vaa": network_vaa(agents, **measured)[0]}))
    rows, _, weights, course, _ = outcome(folder)
    assert rows == expected
    assert course["vaa_star"] == agents.warmups[0].vaa_star.tolist()
    assert weights["readout.weight"] == agents.network.readout.weight[0].tolist()
    assert load(folder.path)(torch.zeros(4, 1, 7, dtype=torch.float64)).shape == (4, 1, 3)  # two logits and a value


def test_a_method_of_prepare_takes_the_place_of_the_warmup_with_ppo(tmp_path):
    config = small_ppo(version="warmup", warmup_algorithm="flossing", cell="gru")
    (folder,) = train(config, tmp_path)
    assert folder.warmup()["reason"] == "by flossing"


def test_by_default_updates_fit_between_evaluations():
    config = AgentConfig(PassiveMaze(100), "gru", "warmup", algorithm="ppo")
    assert config.settings == PPOSettings(copies=20, max_norm=0.5)


def test_the_first_optimal_episode_is_the_first_at_which_an_evaluation_saw_it(tmp_path, monkeypatch):
    seen = iter([[False, False], [False, True], [False, False], [False, True]])
    evaluate = AgentGroup.evaluate
    monkeypatch.setattr(AgentGroup, "evaluate", lambda group: replace(evaluate(group), optimal=next(seen)))
    folders = train([small_agent(), small_agent(seed=1)], tmp_path)
    assert [folder.summary()["results"]["first_optimal"] for folder in folders] == [None, 2]


def test_a_trained_network_is_loaded(tmp_path):
    config = small_agent(cell="lstm", reward_input=True, version="double")
    (folder,) = train(config, tmp_path)
    model = load(folder.path)
    assert isinstance(model.rnn, ms.RNN)
    initial = Model.of(config)
    for (name, a), b in zip(model.named_parameters(), initial.parameters(), strict=True):
        assert a.shape == b.shape, name
        assert not torch.equal(a, b), name
    assert model(torch.zeros(3, 1, 9, dtype=torch.float64)).shape == (3, 1, 4)


def test_a_warmup_that_diverges_does_not_stop_the_others(tmp_path, monkeypatch):
    configs = [small_agent(version="warmup"), small_agent(version="warmup", seed=1)]
    (alone,) = train(configs[1], tmp_path / "alone")
    warm_up = DRQN.warm_up_agent

    def diverging(self, index, **options):
        if index == 0:
            raise ms.WarmupDivergedError("infinite")
        return warm_up(self, index, **options)

    monkeypatch.setattr(DRQN, "warm_up_agent", diverging)
    folders = train(configs, tmp_path / "both")
    assert folders[0].warmup() == {"outcome": "diverged", "reason": "infinite"}
    theirs = [folder.warmup() | {"seconds": 0} for folder in (folders[1], alone)]
    assert theirs[0] == theirs[1]


def test_gradients_that_were_not_finite_are_told_and_recorded(tmp_path, monkeypatch):
    """Those of the third episode, also where training was interrupted after it."""
    configs, loss = [small_agent(), small_agent(seed=1)], DRQN.loss

    def infinite_for_a_while(self, *arguments):
        spoilt = [math.inf if self.episode == 2 and seed == 1 else 1.0 for seed in self.seeds]
        return loss(self, *arguments) * torch.tensor(spoilt)

    undisturbed = train(configs, tmp_path / "undisturbed")
    monkeypatch.setattr(DRQN, "loss", infinite_for_a_while)
    with (
        warnings.catch_warnings(action="error", category=RuntimeWarning),
        pytest.raises(RuntimeWarning, match="2 gradients passed over"),
    ):
        train(configs, tmp_path / "errors")
    assert [RunFolder.of(config, tmp_path / "errors").checkpoints()[-1] for config in configs] == [4, 4]
    with (
        pytest.warns(RuntimeWarning, match=f"{configs[1].name}: 2 gradients passed over") as caught,
        pytest.raises(StopError),
    ):
        train(configs, tmp_path, callbacks=[StopAt("step", 5)])
    assert len(caught) == 1
    folders = train(configs, tmp_path)
    assert [row.get("passed_over") for row in folders[1].metrics()] == [None, None, 2, None]
    assert folders[1].summary()["record"]["passed_over"] == 2
    assert outcome(folders[0]) == outcome(undisturbed[0])
    assert "passed_over" not in folders[0].summary()["record"]


# Together


def test_agents_of_one_architecture_go_together():
    configs = [small_agent(version=v, seed=s) for v in ("classic", "warmup") for s in (0, 1)]
    others = [small_agent(cell="mgu"), small_agent(version="double"), small_agent(task=Maze(3)), small()]
    others += [small_agent(max_norm=1.0), small_agent(**UPDATES)]
    assert [len(group) for group in groups([*configs, *others], 32)] == [4, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("made", [small_agent, small_ppo])
def test_together_each_ends_as_alone(made, tmp_path):
    configs = [made(version=version, seed=seed) for version in ("classic", "warmup") for seed in (0, 1)]
    together = train(configs, tmp_path / "together")
    for config, folder in zip(configs, together, strict=True):
        (alone,) = train(config, tmp_path / "alone")
        for name, weight in alone.weights().items():
            assert_close(folder.weights()[name], weight, rtol=1e-9, atol=1e-11)
        for a, b in zip(folder.metrics(), alone.metrics(), strict=True):
            assert {**a, "seconds": 0} == pytest.approx({**b, "seconds": 0}, rel=1e-9)


@pytest.mark.parametrize("task", [RepeatFirst(), RepeatPrevious(2), MaskedCartPole(), PassiveMaze(2), Maze(2)])
@pytest.mark.parametrize("algorithm", [UPDATES, {}], ids=["ppo", "drqn"])
def test_every_task_is_played_by_every_algorithm(task, algorithm, tmp_path):
    few = {"episodes": 2, "evaluate_every": 2, "vaa_every": 2, "capacity": 80, "vaa_batches": 1}
    (folder,) = train(small_agent(task=task, **algorithm | few), tmp_path)
    rows = folder.metrics()
    assert [row["episode"] for row in rows] == [0, 2]
    assert all({"return", "length", "optimal", "vaa"} <= row.keys() for row in rows)
    assert folder.config().task == task


def test_agents_and_supervised_runs_are_trained_by_one_call(tmp_path):
    folders = train([small_agent(), small(epochs=1)], tmp_path)
    assert [folder.finished for folder in folders] == [True, True]
    assert [folder.path.name.split("-")[0] for folder in folders] == ["tmaze", "copy"]
    agent = folders[0].summary()["record"]
    assert agent["seconds"] == pytest.approx(sum(row["seconds"] for row in folders[0].metrics()))


def test_a_limit_to_its_gradients_makes_another_agent_with_the_same_weights_by_name(tmp_path):
    limited, unlimited = train([small_agent(max_norm=0.01), small_agent()], tmp_path)
    assert limited.weights().keys() == unlimited.weights().keys()
    assert not any(torch.equal(limited.weights()[name], weight) for name, weight in unlimited.weights().items())


def test_gymnasium_is_not_needed(tmp_path):
    program = f"""
import sys
sys.modules["gymnasium"] = None
sys.path.insert(0, {str(HELPERS)!r})
from small_agents import UPDATES, small_agent, small_ppo
from multistable.training import train
assert train(small_agent(episodes=1), {str(tmp_path)!r})[0].finished
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
