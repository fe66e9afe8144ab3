"""DRQN against Algorithm 4 computed plainly, agents together against each alone, and learning itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import multistable as ms
from multistable.rl import Evaluator, Settings
from multistable.rl.network import stages_of
from multistable.rl.replay import Episodes
from numpy_cells import NUMPY_CELLS, with_random_weights
from small_agents import SETTINGS, make_agents, run

TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def plain_q(network, agent, inputs):
    """Q(eta, .) of one history ``(time, features)``, in NumPy, for a network of one GRU layer."""
    cell = network.rnn.network.layers[0].cell
    weights = {name: p[agent].detach().numpy() for name, p in cell.named_parameters()}
    gru = NUMPY_CELLS["gru"]
    states = gru.run(weights, inputs[:, None, :], {"h": np.zeros((1, cell.hidden_size))})
    weight, bias = (p[agent].detach().numpy() for p in (network.readout.weight, network.readout.bias))
    return states["h"][-1, 0] @ weight + bias


@pytest.fixture
def hand_made():
    """Two agents and a buffer of two episodes each: one that ends, and one that is truncated at the horizon."""
    agents = make_agents([0, 1], length=2, settings=Settings(capacity=50, batch_size=4))
    with_random_weights(agents.network, 5)
    H, lengths = agents.pomdp.horizon, [[4, 3], [6, 6]]
    draw = np.random.default_rng(0)
    made = []
    for number, length in enumerate(lengths):
        inputs = draw.normal(size=(H + 1, 2, 8))
        episode = Episodes(
            torch.tensor(inputs),
            torch.tensor(draw.integers(4, size=(H, 2))),
            torch.tensor(draw.normal(size=(H, 2))),
            torch.tensor(length),
            torch.tensor([number == 0] * 2),
        )
        agents.replay.append(episode)
        made.append(episode)
    return agents, made


def plain_targets(agents, episodes, target):
    """(agent, episode, t) -> y, by the formula of Algorithm 4, or that of advantage learning."""
    y, share = {}, agents.settings.advantage_learning
    for number, episode in enumerate(episodes):
        for agent in range(2):
            length = int(episode.lengths[agent])
            for t in range(length):
                r = float(episode.rewards[t, agent])
                terminal = t == length - 1 and bool(episode.terminated[agent])
                eta, eta_next = (episode.inputs[: t + more, agent].numpy() for more in (1, 2))
                here, action = plain_q(target, agent, eta), int(episode.actions[t, agent])
                missed = share * (here.max() - here[action])
                y[agent, number, t] = r if terminal else r + 0.98 * (plain_q(target, agent, eta_next).max() - missed)
    return y


def batch_of(agents, slots):
    """The transitions in some slots, and the lengths of the histories that are computed for them."""
    passes = agents.replay.passes(slots)
    return agents.replay.transitions(slots, passes.slots, passes.rows, int(passes.lengths.max())), passes.lengths


@pytest.mark.parametrize("share", [0.0, 0.9])
def test_targets_and_loss_are_those_of_algorithm_4(hand_made, share):
    agents, episodes = hand_made
    agents.settings = replace(agents.settings, advantage_learning=share)
    agents.update_target()
    with_random_weights(agents.network, 6)  # so that theta' is not theta
    y = plain_targets(agents, episodes, agents.target)
    draw = torch.Generator().manual_seed(3)
    for _ in range(5):
        batch, _ = batch_of(agents, agents.replay.sample(torch.rand(2, 7, generator=draw, dtype=torch.float64)))
        targets, loss = agents.targets(batch), agents.loss(batch)
        for agent in range(2):
            total = 0.0
            for row in range(7):
                t = int(batch.times[agent, row])
                eta = batch.inputs[: t + 1, agent, batch.rows[agent, row]].numpy()
                number = next(i for i, e in enumerate(episodes) if np.array_equal(e.inputs[0, agent].numpy(), eta[0]))
                expected = y[agent, number, t]
                assert float(targets[agent, row]) == pytest.approx(expected, rel=1e-12)
                action = int(episodes[number].actions[t, agent])
                total += (expected - plain_q(agents.network, agent, eta)[action]) ** 2
            assert float(loss[agent].detach()) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_advantage_learning_widens_the_gaps_and_leaves_the_best_values(share):
    """In a table of Q, which exact targets replace again and again; where the episode ends, gaps stay what they are."""
    agents = make_agents([0], length=3, settings=replace(SETTINGS, advantage_learning=share))
    maze, discount = agents.pomdp, agents.pomdp.discount
    states, actions = torch.meshgrid(torch.arange(12), torch.arange(4), indexing="ij")
    outcome, going_on = maze.step(states, actions), ~maze.terminal(torch.arange(12))

    def settled(agents):
        table = torch.zeros(12, 4, dtype=maze.dtype)
        for _ in range(2000):
            following = agents._next_values(table.unsqueeze(1).expand(-1, 4, -1), actions, table[outcome.state])
            table = outcome.reward + discount * following.masked_fill(outcome.terminated, 0)
        return table

    plain, widened = settled(make_agents([0], length=3)), settled(agents)
    best = plain.amax(dim=-1, keepdim=True)
    assert_close(widened.amax(dim=-1, keepdim=True), best, **TIGHT)
    factor = torch.ones(12, 4, dtype=maze.dtype).masked_fill(~outcome.terminated, 1 / (1 - discount * share))
    assert_close((best - widened)[going_on], (factor * (best - plain))[going_on], **TIGHT)
    assert float((best - plain)[0, 2]) > 0.1  # a wall


def test_a_terminal_transition_has_its_reward_as_target_and_a_truncated_one_has_not(hand_made):
    agents, episodes = hand_made
    agents.update_target()
    batch, _ = batch_of(agents, agents.replay.stored().last)
    assert batch.terminal.tolist() == [[True, False], [True, False]]
    targets = agents.targets(batch)
    for agent in range(2):
        ended, truncated = (e.rewards[int(e.lengths[agent]) - 1, agent] for e in episodes)
        assert float(targets[agent, 0]) == float(ended)
        ahead = 0.98 * plain_q(agents.target, agent, episodes[1].inputs[:7, agent].numpy()).max()
        assert float(targets[agent, 1]) == pytest.approx(float(truncated) + ahead, rel=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.9])
def test_an_episode_is_stored_with_the_values_that_an_update_of_the_target_would_give(share):
    settings = replace(SETTINGS, advantage_learning=share)
    agents = make_agents([0, 1, 2], cell="lstm", layers=2, settings=settings)
    run(agents, 5)
    stored = agents.replay.stored().slots
    rows = torch.arange(3).unsqueeze(-1)
    kept = agents.replay.next_values[rows, stored].clone()
    with torch.no_grad():
        for ours, theirs in zip(agents.network.parameters(), agents.target.parameters(), strict=True):
            ours.copy_(theirs)
    agents.update_target()
    assert_close(agents.replay.next_values[rows, stored], kept, **TIGHT)


def test_many_episodes_are_valued_in_several_passes_with_the_same_result(monkeypatch):
    agents = make_agents([0, 1])
    run(agents, 1)
    agents.update_target()
    whole = agents.replay.next_values.clone()
    agents.replay.next_values.fill_(torch.nan)
    monkeypatch.setattr("multistable.rl.drqn.EPISODES_AT_ONCE", 3)
    agents.update_target()
    slots = agents.replay.stored().slots
    rows = torch.arange(2).unsqueeze(-1)
    assert_close(agents.replay.next_values[rows, slots], whole[rows, slots], **TIGHT)


@pytest.mark.parametrize(("cell", "count"), [("gru", 1), ("lstm", 5), ("gru", 100)])
def test_stages_change_neither_the_loss_nor_its_gradient(cell, count):
    agents = make_agents([0, 1, 2], cell=cell, layers=2, length=5)
    agents.fill()
    agents.update_target()
    with_random_weights(agents.network)
    slots = agents.replay.sample(torch.rand(3, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    batch, lengths = batch_of(agents, slots)
    stages = stages_of(lengths, count)
    assert sum(stage.end - stage.start for stage in stages) == int(lengths.max())
    weights = list(agents.network.parameters())
    whole, staged = (agents.loss(batch, part) for part in ((), stages))
    assert_close(staged, whole, **TIGHT)
    pairs = zip(*(torch.autograd.grad(loss.sum(), weights) for loss in (staged, whole)), strict=True)
    for own, expected in pairs:
        assert_close(own, expected, **TIGHT)


@pytest.mark.parametrize("longest", [1, 15])
def test_the_step_for_a_gpu_pads_further_and_gives_the_same(longest):
    """Without a GPU it runs as it is, not recorded: what differs is the padding, to quarters of the horizon."""
    weights = []
    for name in ("_staged_step", "_recorded_step"):
        agents = make_agents([0, 1], length=5)
        agents.fill()
        agents.update_target()
        every = agents.replay.stored().slots
        lengths = agents.replay.lengths(every)
        slots = torch.stack([own[own_lengths <= longest][:6] for own, own_lengths in zip(every, lengths, strict=True)])
        passes = agents.replay.passes(slots)
        loss = getattr(agents, name)(slots, passes.slots, passes.rows, passes.lengths)
        weights.append([loss, *(p.detach() for p in agents.network.parameters())])
    assert_close(*weights, **TIGHT)


def test_a_gradient_step_is_one_of_torchs_adam(hand_made):
    agents, _ = hand_made
    agents.update_target()
    batch, _ = batch_of(agents, agents.replay.stored().last)
    copies = [p.detach().clone().requires_grad_() for p in agents.network.parameters()]
    adam = torch.optim.Adam(copies, lr=agents.settings.lr)
    for _ in range(3):
        gradients = torch.autograd.grad(agents.loss(batch).sum(), list(agents.network.parameters()))
        for copy, gradient in zip(copies, gradients, strict=True):
            copy.grad = gradient
        adam.step()
        agents.descend(agents.loss(batch))
        assert_close(list(agents.network.parameters()), copies, **TIGHT)


def test_each_gradient_step_samples_its_own_transitions_of_the_whole_buffer(monkeypatch):
    agents = make_agents([0, 1], settings=Settings(capacity=60, gradient_steps=7, batch_size=20))
    agents.fill()
    agents.update_target()
    seen, transitions = [], agents.replay.transitions
    monkeypatch.setattr(
        agents.replay, "transitions", lambda slots, *rest: seen.append(slots) or transitions(slots, *rest)
    )
    for episode in range(6):
        agents.episode = episode
        agents.learn()
    assert len(seen) == 6 * 7
    drawn = torch.stack(seen)
    assert drawn.shape == (42, 2, 20)
    assert len(drawn.flatten(1).unique(dim=0)) == 42
    assert not torch.equal(drawn[:, 0], drawn[:, 1])
    for agent, stored in enumerate(agents.replay.stored().slots):
        # 840 draws out of 60: none is left out but with a probability of 60 exp(-14).
        assert drawn[:, agent].unique().tolist() == sorted(stored.tolist())


def test_an_agent_goes_on_after_a_gradient_that_was_not_finite(monkeypatch):
    """The one beside it never knows, to the last bit."""
    spoilt, undisturbed = make_agents([4, 5]), make_agents([4, 5])
    evaluator, loss, calls = Evaluator(spoilt), spoilt.loss, []

    def once_infinite(*arguments):
        calls.append(0)
        return loss(*arguments) * torch.tensor([math.inf if len(calls) == 5 else 1.0, 1.0])

    monkeypatch.setattr(spoilt, "loss", once_infinite)
    run(spoilt, 2)
    before = [p[0].detach().clone() for p in spoilt.network.parameters()]
    message = r"agent 0 \(seed 4\): 1 gradient passed over, not finite.* norm of gradients, max_norm, may help"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        assert evaluator.evaluate().passed_over == [1, 0]
    assert len(caught) == 1
    episodes = run(spoilt, 6)
    assert evaluator.evaluate().passed_over == [0, 0]
    assert all(episode.loss.isfinite().all() for episode in episodes)
    run(undisturbed, 6)
    for own, other, earlier in zip(spoilt.network.parameters(), undisturbed.network.parameters(), before, strict=True):
        assert own.isfinite().all()
        assert not torch.equal(own[0], earlier)
        assert not torch.equal(own[0], other[0])
        assert torch.equal(own[1], other[1])


def test_with_a_limit_an_agent_whose_gradients_explode_learns_as_one_whose_gradients_do_not(monkeypatch):
    """Too large to be squared; shortened, they are those of the agent of the same seed beside it."""
    limited, frozen = (make_agents([4, 4], settings=replace(SETTINGS, max_norm=max_norm)) for max_norm in (1e-3, None))
    for agents in (limited, frozen):
        loss, scale = agents.loss, torch.tensor([1e200, 1.0], dtype=torch.float64)
        monkeypatch.setattr(agents, "loss", lambda *arguments, loss=loss, scale=scale: loss(*arguments) * scale)
        before = [p.detach().clone() for p in agents.network.parameters()]
        run(agents, 3)
        for own, earlier in zip(agents.network.parameters(), before, strict=True):
            assert torch.equal(own[0], earlier[0]) == (agents is frozen)
            assert not torch.equal(own[1], earlier[1])
    assert frozen.optimiser.passed_over() == [9, 0]
    assert limited.optimiser.passed_over() == [0, 0]
    for own in limited.network.parameters():
        assert_close(own[0], own[1], **TIGHT)


def test_the_greedy_policy_may_be_that_of_a_running_mean_of_the_weights():
    """It is the mean over the first three episodes, and from then on a third of it is new each episode."""
    plain, averaged = make_agents([4, 5]), make_agents([4, 5], settings=replace(SETTINGS, averaged_episodes=3))
    mean = {}
    for number, (own, other) in enumerate(zip(plain.train(6), averaged.train(6), strict=True), start=1):
        assert torch.equal(own.loss, other.loss)
        assert torch.equal(own.returns, other.returns)
        for name, weight in plain.network.named_parameters():
            mean[name] = mean.get(name, 0) + (weight.detach() - mean.get(name, 0)) / min(number, 3)
    for name, weight in averaged.acting.named_parameters():
        assert_close(weight, mean[name], **TIGHT)
    evaluated = Evaluator(averaged).evaluate(vaa=True, batch_size=8, batches=2, stabilisation=100)
    with torch.no_grad():
        for weight, own in zip(plain.network.parameters(), mean.values(), strict=True):
            weight.copy_(own)
    expected = Evaluator(plain).evaluate(vaa=True, batch_size=8, batches=2, stabilisation=100)
    assert (evaluated.returns, evaluated.lengths) == (expected.returns, expected.lengths)
    assert evaluated.vaa == pytest.approx(expected.vaa, rel=1e-12)


def test_before_the_first_episode_the_mean_is_the_warmed_up_network():
    agents = make_agents([4], settings=replace(SETTINGS, averaged_episodes=3))
    agents.fill()
    before = agents.members()[0].state_dict()
    with pytest.warns(ms.WarmupWarning):
        agents.warm_up_agent(0, steps=2, batch_size=8)
    assert not all(torch.equal(after, before[name]) for name, after in agents.members()[0].state_dict().items())
    for own, other in zip(agents.acting.parameters(), agents.network.parameters(), strict=True):
        assert torch.equal(own, other)
