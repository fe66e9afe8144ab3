"""What the default warmup descends, and how far it goes in a step."""

import math

import pytest
import torch
from torch import nn

import multistable as ms
from multistable.dynamics.system.system import studying
from multistable.dynamics.warmup.default import PATIENCE, persistence_loss
from multistable.dynamics.warmup.gradient_steps import normalised
from networks import FEATURES
from warming import copy_sequences, generator, quick, remember, seeded


@pytest.mark.usefixtures("short_verification")
@pytest.mark.parametrize(("algorithm", "further"), [("fast", 30), ("reliable", 1)])
def test_how_far_biases_and_matrices_go_in_the_first_step(algorithm, further):
    """A first step of Adam has the length of the learning rate in each weight, whatever its gradient."""
    rnn = nn.GRU(FEATURES, 4)
    before = [p.detach().clone() for p in rnn.parameters()]
    quick(rnn, copy_sequences(9, 40, FEATURES), algorithm=algorithm, steps=1, lr=1e-3)
    for parameter, then in zip(rnn.parameters(), before, strict=True):
        expected = 1e-3 * (further if parameter.dim() == 1 else 1)
        assert (parameter - then).abs().max().item() == pytest.approx(expected, rel=0.05)


@pytest.mark.usefixtures("short_verification")
def test_biases_go_no_further_after_a_new_start():
    """With weights so small, and steps so short, that all states stay at one attractor."""
    rnn, seen = seeded(nn.GRU, FEATURES, 4, seed=0), []
    with torch.no_grad():
        for p in rnn.parameters():
            p.mul_(1e-3)
    before = [p.detach().clone() for p in rnn.parameters()]
    history = quick(rnn, copy_sequences(9, 40, FEATURES), steps=PATIENCE + 3, lr=1e-6, on_step=remember(rnn, seen))
    assert history.restarts == 1
    for index, then in enumerate(before):
        if then.dim() == 1:
            first, again = ((seen[step][index] - then).abs().max().item() for step in (0, -1))
            assert first == pytest.approx(3e-5, rel=0.05)
            assert again < 1e-5


def test_states_that_nearly_coincide_are_driven_apart_where_vaa_star_has_no_gradient():
    states = (1e-6 * torch.randn(5, 3, dtype=torch.float64, generator=generator())).requires_grad_()
    (nothing,) = torch.autograd.grad(ms.vaa_star(states), states)
    assert not nothing.any()

    def loss(x):
        return persistence_loss(x, x, eps=1e-4, repeats=100)

    (gradient,) = torch.autograd.grad(loss(states), states)
    assert loss(states - 1e-8 * gradient / gradient.norm()) < loss(states)


def test_the_loss_is_that_of_states_at_rest_and_higher_for_states_that_move():
    end = torch.randn(6, 4, dtype=torch.float64, generator=generator())
    ratios = 1e-4 / torch.cdist(end.tanh(), end.tanh()).fill_diagonal_(1e-4)
    at_rest = ratios.sum(dim=-1).log().mean()
    torch.testing.assert_close(persistence_loss(end, end, 1e-4, 100), at_rest, rtol=1e-9, atol=1e-9)
    moved = [persistence_loss(end - far, end, 1e-4, 100) for far in (1e-4, 1e-2, 1.0)]
    assert at_rest < moved[0] < moved[1] < moved[2]
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = persistence_loss((end - 0.1)[order], end[order], 1e-4, 100)
    torch.testing.assert_close(shuffled, persistence_loss(end - 0.1, end, 1e-4, 100))


def test_a_gradient_that_overflows_does_not_move_its_network_nor_spoil_the_others():
    ensemble = ms.Ensemble([ms.RNN("gru", 1, 4) for _ in range(3)])
    gradients = [torch.full_like(p, 1e30) for p in ensemble.parameters()]
    gradients[0][1, 0, 0] = math.inf
    gradients[1][2, 0, 0] = math.nan
    with studying(ensemble, copy_sequences(5, 4)) as (system, _):
        scaled, finite = normalised(gradients, system)
    assert finite.tolist() == [True, False, False]
    norms = torch.stack([g.reshape(3, -1).square().sum(dim=-1) for g in scaled]).sum(dim=0).sqrt()
    torch.testing.assert_close(norms, torch.tensor([1.0, 0.0, 0.0]))
