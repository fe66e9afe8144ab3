"""PPO against plain formulas, and what it learns."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import multistable as ms
from multistable.rl import POMDP, PPO, Evaluator, Outcome, PassiveTMaze, PPOSettings, TMaze, input_size, watch
from multistable.rl.ppo import advantages, clipped_loss, mean_where, normalised
from numpy_cells import with_random_weights

SMALL = PPOSettings(copies=6, passes=2, minibatches=3, lr=3e-3)


class Ends(POMDP):
    """Two actions: the first ends the episode and gives 2, the other gives 0.5; cut off after the horizon."""

    actions, observation_size, exploration = 2, 1, (0.5, 0.5)
    horizon, discount, device, dtype = 4, 0.9, torch.device("cpu"), torch.float64

    def reset(self, draws):
        return torch.zeros(draws.shape, dtype=torch.float64), torch.ones(*draws.shape, 1, dtype=torch.float64)

    def step(self, state, action):
        reward = torch.where(action == 0, 2.0, 0.5).double()
        seen = torch.ones(*action.shape, 1, dtype=torch.float64)
        over = action == 0
        return Outcome(state + 1, seen, reward, over, over)


class Bandit(Ends):
    """One step: the first action gives 2, the other 0.5."""

    horizon = 1

    def step(self, state, action):
        outcome = super().step(state, action)
        over = torch.ones_like(outcome.ended)
        return outcome._replace(terminated=over, ended=over)


def networks(pomdp, seeds, cell="gru", hidden=6, settings=SMALL, **options):
    size = input_size(pomdp, **settings.inputs)
    make = torch.Generator().manual_seed
    return [ms.RNN(cell, size, hidden, generator=make(seed), dtype=pomdp.dtype, **options) for seed in seeds]


def maze(length=3, **options):
    return PassiveTMaze(length, dtype=torch.float64, **options)


def agents(pomdp, seeds=(0,), settings=SMALL, warm=False, **options):
    return PPO(pomdp, networks(pomdp, seeds, settings=settings, **options), seeds=seeds, settings=settings, warm=warm)


# The formulas


def test_advantages_are_the_sums_of_their_definition():
    draw = torch.Generator().manual_seed(0)
    T, R, n, discount, trace = 7, 2, 5, 0.9, 0.8
    rewards, values = (torch.randn(t, R, n, generator=draw, dtype=torch.float64) for t in (T, T + 1))
    lengths = torch.randint(1, T + 1, (R, n), generator=draw)
    lengths[0, 0] = T
    terminated = torch.rand(R, n, generator=draw) < 0.5
    found = advantages(rewards, values, lengths, terminated, discount, trace)
    expected = np.zeros((T, R, n))
    for r in range(R):
        for i in range(n):
            end, later = int(lengths[r, i]), 0.0
            for t in reversed(range(end)):
                after = 0.0 if t == end - 1 and terminated[r, i] else float(values[t + 1, r, i])
                later = float(rewards[t, r, i]) + discount * after - float(values[t, r, i]) + discount * trace * later
                expected[t, r, i] = later
    assert_close(found.numpy(), expected)


def test_the_clipped_loss_and_its_gradient_are_those_of_the_article():
    draw = np.random.default_rng(0)
    now, before, gain = draw.normal(scale=0.3, size=(3, 200))
    ratio = np.exp(now - before)
    expected = -np.minimum(ratio * gain, np.clip(ratio, 0.8, 1.2) * gain)
    tensor = torch.tensor(now, requires_grad=True)
    loss = clipped_loss(tensor, torch.tensor(before), torch.tensor(gain), 0.2)
    assert_close(loss.detach().numpy(), expected)
    (gradient,) = torch.autograd.grad(loss.sum(), tensor)
    stopped = ((ratio > 1.2) & (gain > 0)) | ((ratio < 0.8) & (gain < 0))
    assert 20 < stopped.sum() < 180
    assert_close(gradient.numpy(), np.where(stopped, 0, -ratio * gain))


def test_means_are_those_of_each_agents_valid_steps():
    values = torch.randn(5, 2, 4, dtype=torch.float64)
    valid = torch.rand(5, 2, 4) < 0.6
    valid[0] = True
    mean, scaled = mean_where(values, valid), normalised(values, valid)
    for r in range(2):
        own = values[:, r][valid[:, r]]
        assert_close(mean[r], own.mean())
        assert_close(scaled[:, r][valid[:, r]], (own - own.mean()) / own.std(correction=0), rtol=1e-6, atol=1e-6)


def test_the_loss_of_an_agent_is_the_sum_of_its_terms_over_valid_steps():
    settings = replace(SMALL, value_weight=0.7, entropy_weight=0.3)
    ppo = agents(Ends(), (0, 1), settings)
    ppo.play("episodes", 0)
    batch = ppo.batch()
    assert not batch.valid.all()
    found, entropies = ppo.losses(batch).detach()
    with torch.no_grad():
        logs, values = ppo.network.sequences(batch.inputs)
    for r in range(2):
        terms, entropy = [], []
        for t, i in batch.valid[:, r].nonzero().tolist():
            p = logs[t, r, i].exp()
            entropy.append(float(-(p * p.log()).sum()))
            policy = -float(batch.advantages[t, r, i])  # the ratio is 1
            value = 0.5 * float(values[t, r, i] - batch.returns[t, r, i]) ** 2
            terms.append(policy + 0.7 * value - 0.3 * entropy[-1])
        assert found[r].item() == pytest.approx(np.mean(terms))
        assert entropies[r].item() == pytest.approx(np.mean(entropy))


# Episodes


def own_modules(features):
    return {
        "ensemble": ms.Ensemble([ms.RNN("lstm", features, 5, 2, dtype=torch.float64) for _ in range(2)]),
        "double": ms.RNN("gru", features, 6, double=True, dtype=torch.float64),
        "torch": nn.LSTM(features, 5, 2).double(),
        "batch first": nn.GRU(features, 5, batch_first=True).double(),
    }


@pytest.mark.parametrize("name", own_modules(1))
def test_probabilities_are_those_that_the_episodes_were_played_with(name):
    """Step by step as in play, and over whole episodes as in learning: the first ratio is 1."""
    pomdp = TMaze(3, dtype=torch.float64)
    module = with_random_weights(own_modules(input_size(pomdp))[name])
    seeds = range(2 if name == "ensemble" else 1)
    ppo = PPO(pomdp, module, seeds=seeds, settings=SMALL)
    with torch.no_grad():
        ppo.network.readout.weight[..., :-1] *= 300  # so that they are not all alike
    stepped, step = [], ppo.network.forward

    def remembering(x, state=None):
        logits, state = step(x, state)
        stepped.append(logits.detach().log_softmax(dim=-1))
        return logits, state

    ppo.network.forward = remembering
    ppo.play("episodes", 0)
    batch = ppo.batch()
    T = len(batch.actions)
    there = torch.stack(stepped[:T]).gather(-1, batch.actions.unsqueeze(-1)).squeeze(-1)
    assert_close(torch.where(batch.valid, there, 0), torch.where(batch.valid, batch.log_probabilities, 0))
    assert there[batch.valid].exp().std() > 0.02
    now = ppo.network.sequences(batch.inputs)[0].gather(-1, batch.actions.unsqueeze(-1)).squeeze(-1)
    assert torch.equal(now.detach(), batch.log_probabilities)


def test_actions_are_drawn_with_their_probabilities():
    settings = replace(SMALL, copies=6000)
    ppo = agents(TMaze(1, dtype=torch.float64), settings=settings)
    with torch.no_grad():
        ppo.network.readout.bias[..., :4] = torch.tensor([0.1, 0.2, 0.3, 0.4]).double().log()
        ppo.network.readout.weight.zero_()
    ppo.play("episodes", 0)
    shares = torch.bincount(ppo.player.actions[0, 0], minlength=4) / 6000
    assert_close(shares, torch.tensor([0.1, 0.2, 0.3, 0.4]), rtol=0, atol=6 * 0.5 / 6000**0.5)


def test_only_a_terminal_state_has_no_value():
    ppo = agents(Ends(), settings=replace(SMALL, copies=60, trace=0.0))
    ppo.play("episodes", 0)
    batch = ppo.batch()
    with torch.no_grad():
        values = ppo.network.sequences(ppo.player.inputs)[1]
    cut = ~ppo.player.terminated[0]
    assert 0 < cut.sum() < 60
    assert torch.equal(ppo.player.lengths[0][cut], torch.full_like(ppo.player.lengths[0][cut], 4))
    assert_close(batch.returns[3, 0, cut], 0.5 + 0.9 * values[4, 0, cut])
    ends = ppo.player.lengths[0] - 1
    last = batch.returns[:, 0].gather(0, ends.unsqueeze(0))[0]
    assert_close(last[~cut], torch.full_like(last[~cut], 2.0))


@pytest.mark.parametrize("action_input", [True, False])
@pytest.mark.parametrize("reward_input", [True, False])
def test_inputs_are_what_the_settings_say(action_input, reward_input):
    settings = replace(SMALL, action_input=action_input, reward_input=reward_input)
    ppo = agents(TMaze(2, dtype=torch.float64), settings=settings)
    ppo.play("episodes", 0)
    player = ppo.player
    x, action, reward = player.inputs[:, 0, 0], player.actions[:, 0, 0], player.rewards[:, 0, 0]
    first = 4 * action_input
    assert x.shape[-1] == first + 4 + reward_input
    assert x[0, first : first + 4].sum() == x[0].sum() == 1
    for t in range(int(player.lengths[0, 0])):
        if action_input:
            assert x[t + 1, :4].tolist() == torch.eye(4)[action[t]].tolist()
        assert x[t + 1, first : first + 4].sum() == 1
        if reward_input:
            assert x[t + 1, -1] == reward[t]


# Agents together, and again


def test_an_agent_does_not_depend_on_those_beside_it():
    settings = replace(SMALL, max_norm=0.05)
    together = agents(maze(noise=1.0), (3, 4), settings)
    alone = agents(maze(noise=1.0), (4,), settings)
    for both, one in zip(together.train(24), alone.train(24), strict=True):
        assert_close(both.returns[1:], one.returns)
        assert_close(both.loss[1:], one.loss)
    assert both.episode == 24
    for ours, theirs in zip(together.members()[1].parameters(), alone.members()[0].parameters(), strict=True):
        assert_close(ours, theirs)


def test_a_module_of_its_own_learns_as_in_an_ensemble():
    (network,) = networks(maze(), [5])
    stacked = PPO(maze(), [network], seeds=[5], settings=SMALL)
    bare = PPO(maze(), network, seeds=[5], settings=SMALL)
    before = copy.deepcopy(network.state_dict())
    losses = [[update.loss for update in ppo.train(18)] for ppo in (stacked, bare)]
    assert_close(*losses)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not torch.equal(next(bare.members()[0].parameters()), next(network.parameters()))


def test_training_goes_on_exactly_from_a_state():
    whole, first, second = (agents(maze(noise=1.0), (1, 2)) for _ in range(3))
    expected = [update.loss for update in whole.train(30)]
    begun = [update.loss for update in first.train(12)]
    tensors, notes = first.state()
    second.load({name: tensor.clone() for name, tensor in tensors.items()}, notes)
    assert second.episode == 12
    assert_close(begun + [update.loss for update in second.train(30)], expected, rtol=0, atol=0)
    for change in ({"settings": replace(SMALL, lr=1e-2)}, {"seeds": (1, 3)}, {"hidden": 5}):
        with pytest.raises(ValueError, match="the state is that of agents with other"):
            agents(maze(noise=1.0), **{"seeds": (1, 2)} | change).load(*first.state())


def test_only_warm_agents_are_warmed_up_each_as_ms_warmup_does():
    pomdp = maze(4, noise=1.0)
    ppo = agents(pomdp, (1, 1), warm=[False, True])
    classic = networks(pomdp, [1])[0]
    with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
        ppo.warm_up(algorithm="paper", steps=3, batch_size=30, max_stabilisation=5)
    untouched, warmed = ppo.members()
    assert ppo.warmups[0] is None
    assert len(ppo.warmups[1]) == 3
    for a, b, c in zip(untouched.parameters(), classic.parameters(), warmed.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_warmups_read_episodes_of_the_weights_of_the_moment(monkeypatch):
    read = []
    monkeypatch.setattr("multistable.rl.ppo.warmup", lambda member, sequences, **_: read.append(sequences))
    ppo = agents(maze(4, noise=1.0), (1, 2))
    ppo.fill()
    for index in (0, 1, 1):
        ppo.warm_up_agent(index)
    ppo.update()
    ppo.warm_up_agent(1)
    first, second, again, later = (torch.cat(sequences) for sequences in read)
    assert len(read[0]) == ppo.settings.histories["warmup_batch_size"] == 258  # rounds of six
    assert torch.equal(second, again)
    assert not torch.equal(first, second)
    assert not torch.equal(later, again)


def test_histories_are_new_episodes_that_change_nothing():
    watched, alone = agents(Ends()), agents(Ends())
    for _ in range(2):
        found = watched.histories(0)
        assert all(torch.equal(a, b) for a, b in zip(found, watched.histories(0), strict=True))
        assert {len(history) for history in found} <= {1, 2, 3, 4}
        assert len(found) == watched.settings.histories["vaa_batch_size"] == 66  # eleven rounds of six
        assert_close(watched.update().loss, alone.update().loss)


# What is learned


def test_a_bandit_is_learned():
    ppo = agents(Bandit(), settings=replace(SMALL, copies=30, lr=1e-2))
    updates = list(ppo.train(900))
    assert updates[0].returns.item() < 1.6
    assert updates[-1].returns.item() > 1.9
    assert updates[-1].entropy < updates[0].entropy / 2


def test_a_short_passive_maze_is_learned_by_several_agents():
    settings = PPOSettings(copies=32, minibatches=2, lr=1e-2, action_input=False)
    ppo = agents(maze(3, noise=0.3), (0, 1), settings, hidden=8)
    found = list(watch(ppo, 1280, evaluate_every=320, measure_every=640, batches=2, batch_size=8, stabilisation=50))
    assert [evaluation.episode for evaluation in found] == [0, 320, 640, 960, 1280]
    assert [evaluation.vaa is not None for evaluation in found] == [True, False, True, False, True]
    assert not any(found[0].optimal)
    assert found[-1].optimal == [True, True]
    assert found[-1].returns == [1.0, 1.0]


# Arguments


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"copies": 10, "minibatches": 4}, "copies must be a multiple of minibatches = 4, got 10"),
        ({"clip": 0}, "clip must be a positive number, got 0"),
        ({"trace": 1.1}, r"trace must lie in \[0, 1\], got 1.1"),
        ({"max_norm": -1}, "max_norm must be a positive number, got -1"),
        ({"passes": 0}, "passes must be a positive integer, got 0"),
    ],
)
def test_settings_are_checked(change, message):
    with pytest.raises(ValueError, match=message):
        PPOSettings(**change)


def test_arguments_must_fit_each_other():
    pomdp = maze()
    (network,) = networks(pomdp, [0])
    with pytest.raises(ValueError, match="networks must have input_size = 4, for the observation, got 6"):
        PPO(pomdp, [network], seeds=[0], settings=replace(SMALL, action_input=False))
    with pytest.raises(ValueError, match="seeds must have one entry for each of 1 agents, got 2"):
        PPO(pomdp, network, seeds=[0, 1])
    with pytest.raises(ValueError, match=r"networks must be torch.float64 on cpu as the pomdp is, got torch.float32"):
        PPO(pomdp, nn.GRU(6, 4), seeds=[0])
    with pytest.raises(ValueError, match="evaluate_every must be a multiple of copies = 6, got 20"):
        next(watch(agents(pomdp), 20))
    assert Evaluator(agents(pomdp)).evaluate().episode == 0
