"""PPO on a GPU, its play recorded, against the same agents on the CPU."""

import pytest
import torch
from torch.testing import assert_close

import multistable as ms
from multistable.rl import PPO, Evaluator, PassiveTMaze, PPOSettings, TMaze, input_size

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

MAZES = {
    "passive": lambda device: PassiveTMaze(40, noise=1.0, device=device, dtype=torch.float64),
    "walked": lambda device: TMaze(12, device=device, dtype=torch.float64),
}


def make_agents(device, maze, cell):
    pomdp = MAZES[maze](device)
    settings = PPOSettings(copies=6, passes=2, minibatches=3, reward_input=True)
    networks = [
        ms.RNN(cell, input_size(pomdp, reward_input=True), 16, dtype=torch.float64, generator=generator).to(device)
        for generator in map(torch.Generator().manual_seed, range(2))
    ]
    return PPO(pomdp, networks, seeds=[0, 1], settings=settings)


@pytest.mark.parametrize("maze", MAZES)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_agents_learn_on_a_gpu_as_on_the_cpu(maze, cell):
    """More steps of play than run before a step is recorded."""
    there, here = (make_agents(device, maze, cell) for device in ("cuda", "cpu"))
    for ours, theirs in zip(there.train(18), here.train(18), strict=True):
        assert_close(ours.returns.cpu(), theirs.returns)
        assert_close(ours.lengths.cpu(), theirs.lengths)
        assert_close(ours.loss.cpu(), theirs.loss, rtol=1e-6, atol=1e-8)
    assert_close(Evaluator(there).evaluate().returns, Evaluator(here).evaluate().returns)


def test_agents_are_warmed_up_on_a_gpu():
    agents = make_agents("cuda", "passive", "gru")
    agents.warm = [False, True]
    with pytest.warns(ms.WarmupWarning):
        agents.warm_up(algorithm="paper", steps=2, batch_size=20, max_stabilisation=5)
    assert len(agents.warmups[1]) == 2
    assert all(p.is_cuda for p in agents.network.parameters())
