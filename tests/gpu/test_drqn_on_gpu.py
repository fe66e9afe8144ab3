"""Agents on a GPU, their steps recorded, against the same agents on the CPU."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import multistable as ms
from multistable.rl import DRQN, Evaluator, Settings, TMaze, input_size
from multistable.rl.play import LOOK_EVERY

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SETTINGS = Settings(capacity=400, target_period=2, gradient_steps=6, batch_size=8, lr=1e-4)


def make_agents(device, cell, layers=2, length=12, settings=SETTINGS):
    maze = TMaze(length, device=device)
    networks = [
        ms.RNN(cell, input_size(maze), 16, layers, generator=torch.Generator().manual_seed(seed)).to(maze.device)
        for seed in range(3)
    ]
    return DRQN(maze, networks, seeds=[0, 1, 2], settings=settings)


@pytest.mark.parametrize("cell", ms.CELLS)
def test_agents_learn_on_a_gpu_as_on_the_cpu(cell):
    """Few episodes: in the end rounding makes an action differ, and all that follows."""
    there, here = make_agents("cuda", cell), make_agents("cpu", cell)
    there.fill()
    here.fill()
    for agent in range(3):
        pairs = zip(there.replay.histories(agent), here.replay.histories(agent), strict=True)
        assert all(torch.equal(a.cpu(), b) for a, b in pairs)
    assert_close(Evaluator(there).evaluate().returns, Evaluator(here).evaluate().returns, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(there.train(3), here.train(3), strict=True):
        assert torch.equal(ours.lengths.cpu(), theirs.lengths), ours.number
        assert_close(ours.returns.cpu(), theirs.returns)
        assert_close(ours.loss.cpu(), theirs.loss, rtol=1e-3, atol=1e-5)


def test_recorded_steps_are_the_steps():
    """Enough episodes that playing and learning are replayed, at several lengths, and not run as they are."""
    recorded, eager = make_agents("cuda", "gru"), make_agents("cuda", "gru")
    assert recorded.pomdp.horizon > LOOK_EVERY
    for agents in (recorded, eager):
        agents.prepare()
    for graphed in (eager.player._greedy, eager.player._explore):
        graphed._eager_calls = 10**9
    training = eager.train(8)
    for ours in recorded.train(8):
        theirs = next(training)
        for graphed in eager._recorded.values():
            graphed._eager_calls = 10**9
        assert torch.equal(ours.lengths, theirs.lengths)
        assert_close(ours.loss, theirs.loss, rtol=1e-4, atol=1e-6)
    assert any(graphed._graph is not None for graphed in recorded._recorded.values())
    assert recorded.player._greedy._graph is not None
    for ours, theirs in zip(recorded.network.parameters(), eager.network.parameters(), strict=True):
        assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_training_goes_on_from_a_state_that_was_stored():
    through, stopped, resumed = (make_agents("cuda", "gru") for _ in range(3))
    expected = list(through.train(6))
    list(stopped.train(3))
    tensors, notes = stopped.state()
    list(resumed.train(1))  # so that its steps have been recorded with an optimiser that is no longer there
    resumed.load({name: tensor.cpu() for name, tensor in tensors.items()}, notes)
    for ours, theirs in zip(resumed.train(6), expected[3:], strict=True):
        assert torch.equal(ours.lengths, theirs.lengths)
        assert_close(ours.loss, theirs.loss, rtol=1e-4, atol=1e-6)


def test_a_recorded_step_passes_over_a_gradient_that_is_not_finite():
    """One that was recorded when all was well; the agents beside it are as they would have been."""
    spoilt, undisturbed = make_agents("cuda", "gru"), make_agents("cuda", "gru")
    for agents in (spoilt, undisturbed):
        list(agents.train(8))
        assert any(graphed._graph is not None for graphed in agents._recorded.values())
        rewards = agents.replay.rewards.clone()
        if agents is spoilt:
            agents.replay.rewards[0] = torch.inf
        agents.learn()
        agents.replay.rewards.copy_(rewards)
        assert agents.optimiser.passed_over() == ([SETTINGS.gradient_steps, 0, 0] if agents is spoilt else [0, 0, 0])
        agents.episode += 1
        agents.learn()
    for ours, theirs in zip(spoilt.network.parameters(), undisturbed.network.parameters(), strict=True):
        assert ours.isfinite().all()
        assert_close(ours[1:], theirs[1:], rtol=1e-3, atol=1e-5)


def test_a_recorded_step_shortens_a_gradient_that_is_too_large_to_be_squared():
    """The first agent has rewards so large that it would pass its gradients over; the others are as they would be."""
    settings = replace(SETTINGS, max_norm=0.1)
    spoilt, undisturbed = (make_agents("cuda", "gru", settings=settings) for _ in range(2))
    for agents in (spoilt, undisturbed):
        list(agents.train(8))
        assert any(graphed._graph is not None for graphed in agents._recorded.values())
        before = [p.detach().clone() for p in agents.network.parameters()]
        if agents is spoilt:
            agents.replay.rewards[0] = 1e25
        agents.learn()
        assert agents.optimiser.passed_over() == [0, 0, 0]
        for now, then in zip(agents.network.parameters(), before, strict=True):
            assert (now != then).flatten(1).any(dim=1).all()
    for ours, theirs in zip(spoilt.network.parameters(), undisturbed.network.parameters(), strict=True):
        assert ours.isfinite().all()
        assert_close(ours[1:], theirs[1:], rtol=1e-3, atol=1e-5)
