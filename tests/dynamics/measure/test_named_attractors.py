"""Attractors, their places, basins and numbers, on systems of which they are known."""

import math

import pytest
import torch
from torch import nn

import multistable as ms
from bistable_units import FOLD, A, C, units
from generators import generator
from networks import FEATURES, FEW_FORMS, in_layout, make


class Map(nn.Module):
    """A state that begins at the first input and is mapped at each step, whatever the input is."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def forward(self, x, state=None):
        h = x[0] if state is None else state
        for _ in x:
            h = self.step(h)
        return h, h


def towards(threshold):
    """Half of the way to 1 from above a threshold, to -1 from below it."""
    return Map(lambda h: h + (torch.where(h > threshold, 1.0, -1.0) - h) / 2)


def logistic(r):
    return Map(lambda h: r * h * (1 - h))


def grid(n):
    """n states of one number, evenly between -1 and 1."""
    return ((torch.arange(n, dtype=torch.float64) + 0.5) * 2 / n - 1).unsqueeze(-1)


@pytest.mark.parametrize(("threshold", "shares"), [(0.0, [0.5, 0.5]), (0.4, [0.7, 0.3]), (-0.9, [0.95, 0.05])])
def test_fractions_are_the_sizes_of_the_basins(threshold, shares):
    found = ms.attractors(towards(threshold), states=grid(1000), inputs=torch.zeros(1), stabilisation=100)
    assert found.fractions.tolist() == shares
    ends = [-1.0, 1.0] if threshold >= 0 else [1.0, -1.0]
    torch.testing.assert_close(found.points.squeeze(-1).tolist(), ends, rtol=0, atol=1e-6)
    above = grid(1000).squeeze(-1) > threshold
    assert torch.equal(found.labels == ends.index(1.0), above)
    assert (found.kinds, found.periods.tolist(), found.moving) == (["fixed point"] * 2, [1, 1], 0.0)
    assert found.eigenvalues.real.tolist() == [[0.5], [0.5]]
    torch.testing.assert_close(found.time_constants, torch.full((2,), 1 / math.log(2), dtype=torch.float64))


def test_inputs_that_change_nothing_leave_the_attractors_one():
    """Ten inputs of the default, and a map that does not hear them."""
    x = torch.rand(6, 100, 1, generator=generator()) * 2 - 1
    found = ms.attractors(towards(0.0), x, stabilisation=100, generator=generator())
    assert (len(found), len(found.inputs), found.labels.shape) == (2, 10, (320,))
    assert found.fractions.sum() == 1.0
    assert all(sorted(part.ids) == [0, 1] for part in found.portraits)


def test_a_cycle_of_two_is_that_of_its_equation():
    """x = (r + 1 +- sqrt((r - 3)(r + 1))) / 2r, and the product of the slopes is 4 + 2r - r^2."""
    r = 3.2
    found = ms.attractors(logistic(r), states=grid(100).abs(), inputs=torch.zeros(1), stabilisation=300)
    root = math.sqrt((r - 3) * (r + 1))
    expected = [(r + 1 - root) / (2 * r), (r + 1 + root) / (2 * r)]
    torch.testing.assert_close(found.orbits[0].squeeze(-1).sort().values.tolist(), expected, rtol=0, atol=1e-7)
    assert (found.periods.tolist(), found.kinds, found.fractions.tolist()) == ([2], ["cycle"], [1.0])
    assert found.eigenvalues.item().real == pytest.approx(4 + 2 * r - r * r, abs=1e-5)
    assert found.time_constants.item() == pytest.approx(-2 / math.log(4 + 2 * r - r * r), rel=1e-5)


def test_states_at_all_phases_of_a_cycle_are_at_one_attractor():
    """A network that turns by a right angle: its corners (+-h, +-h) with h = tanh(2 h) are one cycle of four."""
    rnn = nn.RNN(1, 2, bias=False).double()
    with torch.no_grad():
        rnn.weight_ih_l0.zero_()
        rnn.weight_hh_l0.copy_(2 * torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    states = torch.randn(200, 2, generator=generator(), dtype=torch.float64)
    found = ms.attractors(rnn, states=states, inputs="zero", stabilisation=501)
    h = 0.9575040240772687
    assert math.tanh(2 * h) == pytest.approx(h, abs=1e-12)
    assert (found.periods.tolist(), found.fractions.tolist(), found.cycles) == ([4], [1.0], 1.0)
    assert found.ends.sign().unique(dim=0).shape == (4, 2)
    torch.testing.assert_close(found.orbits[0].abs(), torch.full((4, 2), h, dtype=torch.float64), rtol=0, atol=1e-9)
    turned = torch.stack([-found.orbits[0][:, 1], found.orbits[0][:, 0]], dim=-1)
    torch.testing.assert_close(turned[:-1], found.orbits[0][1:], rtol=0, atol=1e-9)
    slope = 2 * (1 - h * h)
    torch.testing.assert_close(found.eigenvalues.abs()[0].tolist(), [slope**4] * 2, rtol=1e-6, atol=0)


def test_two_cycles_are_two_attractors():
    """Signs that change at each step, on either side of an axis that stays."""
    step = Map(lambda h: torch.stack([-torch.tanh(2 * h[:, 0]), torch.tanh(2 * h[:, 1])], dim=-1))
    found = ms.attractors(step, states=torch.randn(90, 2, generator=generator()), inputs=torch.zeros(1, 2))
    assert found.periods.tolist() == [2, 2]
    assert torch.equal(found.labels == found.labels[0], found.starts[:, 1].sign() == found.starts[0, 1].sign())


def test_what_never_comes_back_has_no_attractor_and_a_speed():
    """On a circle, by an irrational angle: each step leads as far as the chord."""
    angle = math.pi * (math.sqrt(5) - 1)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    rnn = Map(lambda h: h / h.norm(dim=-1, keepdim=True) @ turn.to(h))
    found = ms.attractors(rnn, states=torch.randn(20, 2, generator=generator()), inputs=torch.zeros(1, 2))
    assert (len(found), found.points.shape, found.moving) == (0, (0, 2), 1.0)
    assert found.labels.tolist() == [-1] * 20
    torch.testing.assert_close(found.speeds, torch.full((20,), abs(2 * math.sin(angle / 2))), rtol=1e-4, atol=0)
    assert (found.fractions.shape, found.eigenvalues.shape, found.kinds) == ((0,), (0, 2), [])


@pytest.mark.parametrize("m", [1, 3])
def test_independent_units_have_all_combinations_of_signs(m):
    """And the signs of each state are those of the attractor where it ends."""
    states = 2 * torch.rand(300, m, generator=generator(), dtype=torch.float64) - 1
    found = ms.attractors(units(*[0.0] * m), states=states, inputs="zero")
    assert len(found) == 2**m
    assert torch.equal(found.points.sign()[found.labels], states.sign())
    h = found.points.abs().double()
    torch.testing.assert_close(torch.atanh(h), A * h, rtol=0, atol=1e-8)
    values = (C + (1 - C) * A * (1 - h * h)).to(torch.complex128)
    torch.testing.assert_close(found.eigenvalues, values, rtol=0, atol=1e-8)
    assert found.stable.all()
    assert (found.fractions.diff() <= 0).all()


def test_an_attractor_keeps_its_number_as_the_input_changes():
    """Two between the folds, and of these the one with the sign of the input beyond."""
    u = torch.linspace(-1, 1, 21, dtype=torch.float64)
    found = ms.attractors(units(0.0), states=grid(100), inputs=u)
    low, high = (0, 1) if found.points[0] < 0 else (1, 0)
    assert len(found) == 2
    for value, part in zip(u.tolist(), found.portraits, strict=True):
        expected = {low, high} if abs(value) < FOLD else {low} if value < 0 else {high}
        assert set(part.ids) == expected
        assert all((point < 0) == (i == low) for i, point in zip(part.ids, part.points, strict=True))
    assert found.fractions_under()[0].tolist() == [float(low == 0), float(low == 1)]
    torch.testing.assert_close(found.fractions_under().sum(dim=-1), torch.ones(21, dtype=torch.float64))


def test_labels_are_in_the_order_of_the_states_and_origins_say_from_where():
    states = torch.tensor([[0.5], [-0.5], [0.7], [0.1], [-0.3]])
    found = ms.attractors(towards(0.0), states=states, inputs=torch.zeros(1), stabilisation=100)
    assert found.labels.tolist() == [0, 1, 0, 0, 1]
    assert found.origins.tolist() == list(range(5))
    x = torch.tensor([0.5, -0.5, 0.7, 0.1, -0.3]).reshape(1, 5, 1)
    drawn = ms.attractors(towards(0.0), x, inputs="zero", stabilisation=100, batches=3, generator=generator())
    assert drawn.labels.tolist() == [found.labels.tolist()[i] for i in drawn.origins.tolist()]
    assert drawn.origins.sort().values.tolist() == [i for i in range(5) for _ in range(3)]


@pytest.mark.parametrize("kind", FEW_FORMS)
def test_every_kind_of_network_has_its_attractor_where_it_settles(kind):
    rnn = make(kind)
    x = in_layout(rnn, torch.randn(12, 20, FEATURES, generator=generator()))
    found = ms.attractors(rnn, x, inputs="zero", stabilisation=1000)
    assert (len(found), found.stable.tolist()) == (1, [True])
    fixed = ms.fixed_points(rnn, torch.zeros(FEATURES), found.ends[:3])
    torch.testing.assert_close(fixed.points, found.points.double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(fixed.eigenvalues.abs(), found.eigenvalues.abs(), rtol=1e-4, atol=1e-6)


def test_vaa_counts_the_attractors():
    choices = {"states": torch.rand(60, 3, generator=generator()) * 2 - 1, "inputs": torch.tensor([0.1])}
    found = ms.attractors(units(0.0, 0.2, 0.9), **choices)
    assert len(found) == round(60 * ms.measure(units(0.0, 0.2, 0.9), **choices).vaa) == 4


def test_the_plain_loop_finds_the_same():
    rnn = ms.RNN("nbrc", 1, 4, generator=generator())
    x = torch.randn(20, 60, 1, generator=generator())
    found = ms.attractors(rnn, x, inputs=torch.tensor([0.0, 0.3]), generator=generator())
    with ms.engine(backend="reference"):
        plain = ms.attractors(rnn, x, inputs=torch.tensor([0.0, 0.3]), generator=generator())
    assert len(found) > 1
    assert torch.equal(found.labels, plain.labels)
    torch.testing.assert_close(found.points, plain.points, rtol=0, atol=1e-5)


def test_members_of_an_ensemble_are_told_as_alone():
    members = [units(0.0, 0.1), units(0.0, 0.9)]
    states = torch.rand(50, 2, generator=generator(), dtype=torch.float64) * 2 - 1
    together = ms.attractors(ms.Ensemble(members), states=states, inputs=torch.tensor([0.0, 0.2]))
    assert [len(member) for member in together.members] == [4, 2]
    for index, rnn in enumerate(members):
        alone = ms.attractors(rnn, states=states, inputs=torch.tensor([0.0, 0.2]))
        assert torch.equal(together.labels[index], alone.labels)
        torch.testing.assert_close(together.points[index], alone.points, rtol=0, atol=1e-12)
        torch.testing.assert_close(together.eigenvalues[index], alone.eigenvalues, rtol=0, atol=1e-12)
        assert together.kinds[index] == alone.kinds


def test_a_result_is_of_the_network_at_the_time():
    rnn = units(0.0)
    found = ms.attractors(rnn, states=grid(10), inputs="zero")
    with torch.no_grad():
        rnn.layers[0].cell.bias.fill_(3.0)
    h = found.points.double()
    torch.testing.assert_close(found.eigenvalues.real, C + (1 - C) * A * (1 - h * h), rtol=0, atol=1e-8)


def test_a_point_of_rest_that_is_unstable_is_told():
    """A network without biases that begins at zero stays there."""
    rnn = nn.RNN(1, 50, bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.normal_(0, 1.5 / 50**0.5, generator=generator())
    found = ms.attractors(rnn, torch.zeros(5, 10, 1), inputs="zero", stabilisation=100)
    assert (found.fixed_points, found.stable.tolist()) == (1.0, [False])
