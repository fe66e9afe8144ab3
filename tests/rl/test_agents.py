"""Agents: how they act, together against each alone, stored and taken up again, evaluated, and learning itself."""

import json
import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import multistable as ms
from multistable.rl import (
    DRQN,
    Evaluator,
    Settings,
    TMaze,
    first_optimal,
    greedy_policy,
    network_vaa,
    watch,
)
from multistable.rl.play import Chance
from multistable.training.seeds import generator
from numpy_cells import with_random_weights
from small_agents import SETTINGS, make_agents, run

TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def test_the_target_network_is_updated_every_c_episodes():
    agents = make_agents([0], settings=Settings(capacity=40, target_period=3, gradient_steps=1, batch_size=2))
    before, updated = None, []
    for episode in agents.train(8):
        now = agents.target.readout.weight.clone()
        updated.append(before is None or not torch.equal(now, before))
        before = now
        assert not torch.equal(now, agents.network.readout.weight), episode.number
    assert updated == [True, False, False, True, False, False, True, False]


def test_acting_follows_the_values_of_whole_histories():
    """The hidden state that is carried gives what a pass over the history from its start gives."""
    agents = make_agents([0, 1], cell="lstm", layers=2, length=4, settings=Settings(capacity=40, epsilon=0.3))
    with_random_weights(agents.network)
    chance = agents._chance("episode", 0)
    agents.player.play(chance)
    played = agents.player.episodes()
    values = agents.network.all_values(played.inputs.unsqueeze(2))[:, :, 0]
    for agent, length in enumerate(played.lengths.tolist()):
        explores = chance.explores[:length, agent, 0]
        assert 0 < explores.sum() < length
        expected = torch.where(explores, chance.actions[:length, agent, 0], values[:length, agent].argmax(dim=-1))
        assert torch.equal(played.actions[:length, agent], expected)


@pytest.mark.parametrize("reward_input", [False, True])
def test_inputs_are_the_previous_action_the_observation_and_the_reward_where_asked(reward_input):
    agents = make_agents([0, 1], settings=Settings(capacity=40, epsilon=0.5, reward_input=reward_input))
    agents.player.play(agents._chance("episode", 1))
    played, maze = agents.player.episodes(), agents.pomdp
    state, observation = maze.reset(agents._chance("episode", 1).starts[:, 0])
    zero = torch.zeros(2, 4)
    parts = [zero, observation] + [torch.zeros(2, 1)] * reward_input
    for t in range(int(played.lengths.min()) + 1):
        assert torch.equal(played.inputs[t], torch.cat(parts, dim=-1).double())
        if t < len(played.actions):
            state, observation, reward, *_ = maze.step(state, played.actions[t])
            one_hot = torch.nn.functional.one_hot(played.actions[t], 4)
            parts = [one_hot, observation] + [reward.unsqueeze(-1)] * reward_input


def test_episodes_end_at_the_terminal_state_or_at_the_horizon():
    agents = make_agents([0, 1], length=2)
    up, right, left = 1, 0, 2
    H = agents.pomdp.horizon
    actions = torch.full((H, 2, 1), left)
    actions[:3, 0, 0] = torch.tensor([right, right, up])
    agents.player.play(Chance(torch.tensor([[0.2], [0.2]]), torch.ones(H, 2, 1).bool(), actions), explore_only=True)
    played = agents.player.episodes()
    assert played.lengths.tolist() == [3, H]
    assert played.terminated.tolist() == [True, False]
    assert_close(played.rewards.sum(dim=0), torch.tensor([4.0, -0.1 * H], dtype=torch.float64))


def test_exploration_has_its_rate_and_its_law():
    agents = make_agents([0], length=300, settings=Settings(epsilon=0.2))
    chances = [agents._chance("episode", number) for number in range(20)]
    explores = torch.stack([chance.explores for chance in chances]).double().mean()
    counts = torch.stack([chance.actions for chance in chances]).flatten().bincount(minlength=4) / (20 * 900)
    # Standard deviations of about 0.004 and less.
    assert float(explores) == pytest.approx(0.2, abs=0.015)
    assert counts.tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6], abs=0.015)


def test_the_buffer_is_filled_by_the_exploration_policy_before_learning():
    agents = make_agents([3, 4], length=4, settings=Settings(capacity=700))
    agents.fill()
    assert (agents.replay.written >= 700).all()
    assert (agents.replay.written < 700 + agents.pomdp.horizon).all()
    stored = agents.replay.stored().slots
    actions = agents.replay.actions.gather(1, stored)
    assert ((actions == 0).double().mean(dim=-1) - 0.5).abs().max() < 0.08  # standard deviation 0.019
    assert torch.count_nonzero(agents.replay.next_values) == 0  # no network was asked


@pytest.mark.parametrize(
    ("cell", "layers", "settings"), [("lstm", 2, {"reward_input": True}), ("gru", 1, {"max_norm": 1.0})]
)
def test_agents_together_are_each_as_if_alone(cell, layers, settings):
    options = {"cell": cell, "layers": layers, "settings": replace(SETTINGS, **settings)}
    together = make_agents([3, 4, 5], **options)  # they fill their buffers in 7, 8 and 9 episodes
    episodes = run(together, 6)
    evaluation = Evaluator(together).evaluate(vaa=True, batch_size=8, batches=2, stabilisation=100)
    for index, seed in enumerate([3, 4, 5]):
        alone = make_agents([seed], **options)
        for ours, theirs in zip(run(alone, 6), episodes, strict=True):
            assert ours.number == theirs.number
            assert_close(ours.returns[0], theirs.returns[index], **TIGHT)
            assert int(ours.lengths[0]) == int(theirs.lengths[index])
            assert_close(ours.loss[0], theirs.loss[index], **TIGHT)
        for (name, own), other in zip(alone.network.named_parameters(), together.network.parameters(), strict=True):
            assert_close(own[0], other[index], msg=name, **TIGHT)
        own = Evaluator(alone).evaluate(vaa=True, batch_size=8, batches=2, stabilisation=100)
        assert own.returns[0] == pytest.approx(evaluation.returns[index], rel=1e-12)
        assert own.vaa[0] == pytest.approx(evaluation.vaa[index], rel=1e-12)


def test_agents_of_one_seed_differ_by_a_warmup_on_the_histories_of_the_buffer():
    agents = make_agents([7, 7], warm=[False, True], settings=Settings(capacity=300), hidden=8)
    before = [p.detach().clone() for p in agents.network.parameters()]
    agents.fill()
    buffers = agents.replay.histories(0), agents.replay.histories(1)
    assert all(torch.equal(a, b) for a, b in zip(*buffers, strict=True))
    alone = agents.network.rnn.unstack()[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ms.WarmupWarning)
        ms.warmup(alone, buffers[1], generator=generator(7, "warmup"), algorithm="paper")
        agents.warm_up()
    assert agents.warmups[0] is None
    assert len(agents.warmups[1]) == 100
    assert_close(agents.network.rnn.unstack()[1].state_dict(), alone.state_dict(), **TIGHT)
    for (name, after), initial in zip(agents.network.named_parameters(), before, strict=True):
        assert torch.equal(initial[0], initial[1])
        assert torch.equal(after[0], initial[0])
        assert torch.equal(after[1], initial[1]) == name.startswith("readout"), name


def copied(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


CHANGED = {"max_norm": 0.1, "averaged_episodes": 4, "advantage_learning": 0.5}


@pytest.mark.parametrize(("episodes_before", "settings"), [(0, {}), (5, CHANGED)])
def test_training_goes_on_exactly_from_a_stored_state(episodes_before, settings):
    settings = replace(SETTINGS, **settings)
    through = make_agents([0, 1], settings=settings)
    expected = run(through, 9)
    stopped = make_agents([0, 1], settings=settings)
    stopped.prepare()
    run(stopped, episodes_before)
    tensors, notes = stopped.state()
    tensors = copied(tensors)
    assert json.loads(json.dumps(notes)) == notes
    assert all(tensor.dtype is not torch.uint8 for tensor in tensors.values())
    resumed = make_agents([0, 1], settings=settings)
    with_random_weights(resumed.network)
    with_random_weights(resumed.target)
    with_random_weights(resumed.acting)
    resumed.load(tensors, notes)
    continued = run(resumed, 9)
    assert [e.number for e in continued] == [e.number for e in expected[episodes_before:]]
    for ours, theirs in zip(continued, expected[episodes_before:], strict=True):
        assert torch.equal(ours.loss, theirs.loss)
        assert torch.equal(ours.returns, theirs.returns)
    for name, value in through.state()[0].items():
        if not name.startswith("replay."):
            assert torch.equal(resumed.state()[0][name], value), name
    for agent in range(2):
        pairs = zip(through.replay.histories(agent), resumed.replay.histories(agent), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_a_state_of_other_agents_is_refused():
    tensors, notes = make_agents([0, 1]).state()
    with pytest.raises(ValueError, match="other seeds"):
        make_agents([0, 2]).load(tensors, notes)
    with pytest.raises(ValueError, match="other settings"):
        make_agents([0, 1], settings=Settings(capacity=61)).load(tensors, notes)
    with pytest.raises(ValueError, match="other networks"):
        make_agents([0, 1], hidden=7).load(tensors, notes)


def test_a_state_from_before_a_setting_is_one_of_agents_at_its_default():
    stopped, resumed = make_agents([0, 1]), make_agents([0, 1])
    run(stopped, 2)
    tensors, notes = stopped.state()
    del notes["settings"]["max_norm"]
    resumed.load(tensors, notes)
    assert resumed.episode == 2
    with pytest.raises(ValueError, match="other settings"):
        make_agents([0, 1], settings=replace(SETTINGS, max_norm=1.0)).load(tensors, notes)


def test_evaluation_changes_nothing_that_training_uses():
    watched, plain = make_agents([0, 1]), make_agents([0, 1])
    evaluations = list(watch(watched, 4, evaluate_every=2, measure_every=4, batch_size=8, stabilisation=50))
    run(plain, 4)
    assert [e.episode for e in evaluations] == [0, 2, 4]
    assert [e.vaa is None for e in evaluations] == [False, True, False]
    for ours, theirs in zip(watched.network.parameters(), plain.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_evaluation_plays_both_layouts_greedily():
    agents = make_agents([0, 1, 2], length=2)
    with_random_weights(agents.network)
    evaluation = Evaluator(agents).evaluate()
    for index in range(3):
        policy = greedy_policy(agents, index)
        maze, memory = agents.pomdp, None
        state, _ = maze.reset(torch.tensor(maze.starts))
        returns, discounted, lengths = torch.zeros(3, 2, dtype=torch.float64)
        for t in range(maze.horizon):
            lengths += ~maze.terminal(state)
            action, memory = policy(maze.observe(state), memory)
            state, _, reward, *_ = maze.step(state, action)
            returns += reward
            discounted += 0.98**t * reward
        assert evaluation.returns[index] == pytest.approx(float(returns.mean()), rel=1e-12)
        assert evaluation.discounted[index] == pytest.approx(float(discounted.mean()), rel=1e-12)
        assert evaluation.lengths[index] == float(lengths.mean())
        assert evaluation.optimal[index] == maze.is_optimal(policy)


def test_vaa_is_measured_on_the_histories_of_the_buffer():
    agents = make_agents([0, 1])
    agents.fill()
    values = network_vaa(agents, batch_size=8, batches=3, stabilisation=30)
    for index, member in enumerate(agents.network.rnn.unstack()):
        own = ms.measure(
            member,
            agents.replay.histories(index),
            batch_size=8,
            batches=3,
            stabilisation=30,
            generator=generator(index, "measure"),
        )
        assert values[index] == own.vaa


def test_a_warmed_up_agent_becomes_optimal():
    """From a fixed seed, on a short maze, and its network is multistable from the start."""
    settings = Settings(capacity=1000, target_period=10)
    agents = make_agents([0], length=5, hidden=32, warm=True, settings=settings, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ms.WarmupWarning)
        agents.prepare()
    assert agents.warmups[0].vaa > 3 / 32
    evaluations = []
    for evaluation in watch(agents, 300, evaluate_every=5):
        evaluations.append(evaluation)
        if evaluation.optimal == [True]:
            break
    assert evaluations[0].optimal == [False]
    assert evaluations[-1].optimal == [True]
    assert evaluations[-1].returns == [4.0]
    assert evaluations[-1].lengths == [6.0]
    assert first_optimal(evaluations) == [agents.episode]
    assert agents.pomdp.is_optimal(greedy_policy(agents, 0))


def test_first_optimal_is_none_where_it_never_was():
    agents = make_agents([0, 1], length=3)
    evaluations = list(watch(agents, 1))
    assert first_optimal(evaluations) == [None, None]
    assert first_optimal([]) == []


@pytest.mark.parametrize(("change", "message"), [
    ({"seeds": [0]}, "seeds must have one entry for each of 2 agents, got 1"),
    ({"warm": [True]}, "warm must have one entry for each of 2 agents, got 1"),
    ({"seeds": [0, "b"]}, r"seeds must be a list of integers, one for each agent, got \[0, 'b'\]"),
    ({"networks": [torch.nn.GRU(8, 4)] * 2}, "networks must be a list of ms.RNN, .* got list of GRU"),
    ({"settings": Settings(reward_input=True)}, "input_size = 9, .* and the previous reward, got 8"),
    ({"pomdp": TMaze(2, dtype=torch.float64)}, "networks must be torch.float64 on cpu as the pomdp is"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(change, message):
    arguments = {"pomdp": TMaze(2), "networks": [ms.RNN("gru", 8, 4)] * 2, "seeds": [0, 1], **change}
    with pytest.raises((ValueError, TypeError), match=message):
        DRQN(arguments.pop("pomdp"), arguments.pop("networks"), **arguments)


@pytest.mark.parametrize(("name", "value"), [
    ("gradient_steps", 1.5), ("epsilon", 1.1), ("lr", math.inf), ("max_norm", 0.0),
])  # fmt: skip
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must .* got {value!r}"):
        Settings(**{name: value})


def test_a_number_of_episodes_that_is_none_is_refused_before_any_work():
    agents = make_agents([0])
    for training in (agents.train(2.5), watch(agents, 2.5)):
        with pytest.raises(ValueError, match=r"episodes must be 0 or a positive integer, got 2.5"):
            next(training)
    assert not agents.prepared


def test_nothing_can_be_learnt_from_an_empty_buffer():
    for call in (DRQN.learn, DRQN.update_target):
        with pytest.raises(RuntimeError, match=r"the replay buffer is empty.* DRQN.prepare\(\) fills it"):
            call(make_agents([0]))


def test_a_buffer_that_is_too_small_for_the_warmup_is_refused_by_name():
    with pytest.raises(ValueError, match="capacity must be at least the batch_size of the warmup, 200, got 60"):
        make_agents([0], warm=True).prepare()
