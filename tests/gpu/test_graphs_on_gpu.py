"""A recorded training step does what the step does."""

import pytest
import torch
from torch import nn

import multistable as ms
from multistable.scan.graphs import Graphed


def trained(cell, graphed, steps=12):
    """Weights and losses after a few steps of Adam on an ensemble."""
    members = [ms.RNN(cell, 1, 24, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    ensemble = ms.Ensemble(members).cuda()
    optimiser = torch.optim.Adam(ensemble.parameters(), lr=1e-3, capturable=True)

    def step(x, y):
        optimiser.zero_grad(set_to_none=False)
        loss = nn.functional.mse_loss(ensemble(x)[0][-1, ..., 0], y, reduction="none").mean(-1)
        loss.sum().backward()
        optimiser.step()
        return loss.detach()

    call = Graphed(step) if graphed else step
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(steps):
        x = torch.randn(20, 3, 8, 1, generator=generator).cuda()
        losses.append(call(x, x[0, ..., 0]).clone())
    return torch.stack(losses), [p.detach().clone() for p in ensemble.parameters()]


@pytest.mark.parametrize("cell", ms.CELLS)
def test_a_recorded_step_trains_as_the_step_does(cell):
    losses, weights = trained(cell, graphed=False)
    graphed_losses, graphed_weights = trained(cell, graphed=True)
    torch.testing.assert_close(graphed_losses, losses, rtol=1e-4, atol=1e-6)
    for a, b in zip(graphed_weights, weights, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_inputs_of_another_shape_are_refused():
    double = Graphed(lambda x: 2 * x, eager_calls=0)
    assert torch.equal(double(torch.ones(3, device="cuda")).cpu(), torch.full((3,), 2.0))
    with pytest.raises(ValueError, match=r"recorded with, \(3,\) of torch.float32, got \(4,\)"):
        double(torch.ones(4, device="cuda"))
