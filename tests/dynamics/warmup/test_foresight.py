"""The VAA that is foreseen after few steps is that after all of them."""

import math

import pytest
import torch

import multistable as ms
from multistable.dynamics.measure.stabilisation import stabilise
from multistable.dynamics.system.system import system_of
from multistable.dynamics.warmup.foresight import FIRST_LOOK, Foresight

GROUPS, STATES, HORIZON, EPS = 3, 4, 2000, 1e-4


class Map(ms.Cell[ms.Hidden]):
    """h_t = f(h_{t-1}), whatever the input."""

    def __init__(self, f, units=2):
        super().__init__(1, units)
        self.f = f
        self.input_weight = torch.nn.Parameter(torch.zeros(1, units, dtype=torch.float64))
        self.input_bias = torch.nn.Parameter(torch.zeros(units, dtype=torch.float64))

    def step(self, projected, state):
        return ms.Hidden(self.f(state.h) + 0 * projected)


def foreseen(f, start, hopeless=lambda vaa: torch.tensor(False), **options):
    """The VAA of each group, how many states were advanced by how many steps, and the foresight itself."""
    system = system_of(Map(f), 1).with_present_weights()
    work = []
    foresight = Foresight((), GROUPS, STATES, HORIZON, EPS, on_steps=lambda n, *_: work.append(n), **options)
    states = [(ms.Hidden(start),)]
    u = torch.zeros(*start.shape[:-1], 1, dtype=torch.float64)
    values = foresight.run(system, states, u, hopeless)
    end = stabilise(system, states, u, HORIZON).states.unflatten(-2, (GROUPS, STATES))
    return values, ms.vaa(end, EPS), work, foresight


def starts(seed=0):
    return torch.randn(GROUPS * STATES, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "f",
    [
        lambda h: h,
        lambda h: 0.5 * h,
        lambda h: h.sign() + 0.9 * (h - h.sign()),
        lambda h: (1 - 3e-3) * h,  # merged after more than 2,000 steps only
        lambda h: (1 - 6e-3) * h,
        lambda h: h / (1 + h.square()).sqrt(),  # slowly, like 1 / sqrt(t)
        lambda h: h + 1e-5,  # together, and never at rest
    ],
)
def test_what_is_foreseen_comes_true(f):
    values, truth, _, foresight = foreseen(f, starts())
    assert values.tolist() == truth.tolist()
    assert foresight.after == HORIZON


def test_only_states_whose_fate_is_open_are_followed():
    start = starts()
    start[:2] = torch.tensor([[1.0, 1.0], [1.0, 1.1]])

    def f(h):
        """The second unit is forgotten, slowly, where the first is 1 to begin with; others stay."""
        slow = (h[..., :1] == 1.0) & torch.tensor([False, True])
        return torch.where(slow, (1 - 4e-3) * h, h)

    values, truth, work, _ = foreseen(f, start)
    assert values.tolist() == truth.tolist()
    assert values[0] < 1
    assert work[0] == GROUPS * STATES
    assert work[-1] == 2


def test_a_hopeless_network_is_given_up():
    values, _, work, _ = foreseen(lambda h: 0.5 * h, starts(), hopeless=lambda vaa: vaa.mean() < 0.5)
    assert values.tolist() == [1 / STATES] * GROUPS
    assert len(work) == 1


def test_states_that_diverge_have_a_vaa_of_0():
    values, _, _, _ = foreseen(lambda h: h + 1, starts(), hopeless=lambda vaa: torch.tensor(False))
    assert values.tolist() == [1.0] * GROUPS
    system = system_of(Map(lambda h: h * h), 1).with_present_weights()
    start = torch.full((GROUPS * STATES, 2), 2.0, dtype=torch.float64)
    foresight = Foresight((), GROUPS, STATES, 100, EPS)
    u = torch.zeros(GROUPS * STATES, 1, dtype=torch.float64)
    assert foresight.run(system, [(ms.Hidden(start),)], u, lambda vaa: torch.tensor(True)).tolist() == [0.0] * GROUPS


def test_when_the_time_is_up_vaa_is_told_as_it_is():
    values, _, work, foresight = foreseen(lambda h: (1 - 6e-3) * h, starts(), deadline=-math.inf)
    assert values.tolist() == [1.0] * GROUPS
    assert foresight.after == FIRST_LOOK
    assert len(work) == 1


def test_members_of_an_ensemble_are_foreseen_as_alone():
    members = [ms.RNN("gru", 1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in range(2)]
    with torch.no_grad():
        for p in members[1].parameters():
            p.mul_(4)
    start = 0.5 * torch.stack(
        [torch.randn(12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in (5, 6)]
    )
    u = torch.ones(2, 12, 1, dtype=torch.float64)

    def found(rnn, start, u):
        system = system_of(rnn, 1).with_present_weights()
        foresight = Foresight(system.leading, GROUPS, STATES, 1000, EPS)
        return foresight.run(
            system, [(ms.Hidden(start),)], u, lambda vaa: torch.zeros(vaa.shape[:-1], dtype=torch.bool)
        )

    together = found(ms.Ensemble(members), start, u)
    alone = torch.stack([found(member, start[i], u[i]) for i, member in enumerate(members)])
    assert together.tolist() == alone.tolist()
    assert 1 / STATES in together[0].tolist()
