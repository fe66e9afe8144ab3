"""One step as a function of whole states, and its derivative, beside the network's own forward and differences."""

import pytest
import torch
from torch import nn

import multistable as ms
from generators import generator
from multistable.dynamics.system.step import precise_step
from networks import FEATURES, FORMS, KINDS, Leaky, in_layout, make, state_after

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("kind", FORMS)
def test_a_step_from_a_state_is_the_networks_own(kind):
    rnn, u = make(kind), torch.randn(4, FEATURES, generator=generator(), dtype=torch.float64)
    with precise_step(rnn, FEATURES) as step:
        after = step(state_after(rnn, u[:-1]).unsqueeze(0), u[-1:])
    torch.testing.assert_close(after.squeeze(0), state_after(rnn, u).detach(), **CLOSE)


class Normed(ms.Cell):
    """A cell whose units depend on one another besides by products, so that no rate of a unit tells its derivative."""

    from multistable.cells.base import Hidden as State

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.input_weight = nn.Parameter(torch.ones(input_size, hidden_size))
        self.bias = nn.Parameter(torch.linspace(-1, 1, hidden_size))

    def step(self, projected, state):
        return self.State(torch.tanh(projected + state.h - state.h.mean(dim=-1, keepdim=True)))


class InItsOwnWay(ms.GRU):
    def project(self, u):
        return super().project(u.sin())


class NotForward(torch.autograd.Function):
    """Squares, with a derivative that only a backward pass knows."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Squared(Leaky):
    def step(self, u, h):
        return 0.3 * NotForward.apply(super().step(u, h))


MORE = {
    "sums over units": lambda: Normed(FEATURES, 4),
    "an input of its own way": lambda: InItsOwnWay(FEATURES, 4),
    "backward alone": lambda: Squared(FEATURES, 4),
    "two layers of both kinds": lambda: ms.RNN(Normed, FEATURES, 4, 2),
}


@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_derivatives_are_those_of_differences(kind):
    rnn = make(kind) if kind in KINDS else MORE[kind]().double()
    with precise_step(rnn, FEATURES) as step:
        draws = generator()
        x = torch.randn(3, step.size, generator=draws, dtype=torch.float64)
        u = torch.randn(3, FEATURES, generator=draws, dtype=torch.float64)
        small = 1e-6 * torch.eye(step.size, dtype=torch.float64)
        differences = torch.stack([(step(x + way, u) - step(x - way, u)) / 2e-6 for way in small], dim=-1)
        torch.testing.assert_close(step.jacobians(x, u), differences, rtol=1e-6, atol=1e-8)


def test_the_copy_is_of_the_weights_at_the_time():
    rnn = nn.GRU(1, 3)
    x, u = torch.zeros(1, 3, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    with precise_step(rnn, 1) as step:
        before = step(x, u)
        with torch.no_grad():
            for parameter in rnn.parameters():
                parameter.zero_()
        assert torch.equal(step(x, u), before)


def test_reachable_states_are_where_the_steps_lead():
    """Whole states are divided among the layers as they were joined."""
    rnn = make("mixed double ms.RNN")
    x = torch.randn(1, 5, FEATURES, generator=generator(), dtype=torch.float64).expand(5, -1, -1)[:1]
    states = ms.reachable_states(rnn, in_layout(rnn, x)).detach()
    with precise_step(rnn, FEATURES) as step:
        torch.testing.assert_close(step(torch.zeros_like(states), x[0]), states, **CLOSE)
