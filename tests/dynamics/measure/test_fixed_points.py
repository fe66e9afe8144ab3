"""Fixed points of systems of which all are known."""

import math
from itertools import product

import pytest
import torch
from torch import nn

import multistable as ms
from bistable_units import FOLD, FOLD_AT, A, C, units
from generators import generator
from networks import FEATURES, FORMS, Leaky, make, state_after

EXACT = {"rtol": 0, "atol": 1e-9}


def roots(b):
    """The fixed points of a unit, where atanh(h) - A h = b, by bisection between the folds."""

    def one(low, high):
        for _ in range(200):
            middle = (low + high) / 2
            if (math.atanh(low) - A * low - b) * (math.atanh(middle) - A * middle - b) <= 0:
                high = middle
            else:
                low = middle
        return low

    edges = [-1 + 1e-15, -FOLD_AT, FOLD_AT, 1 - 1e-15]
    value = [math.atanh(h) - A * h - b for h in edges]
    return [one(*edges[i : i + 2]) for i in range(3) if value[i] * value[i + 1] < 0]


def eigenvalue(h):
    return C + (1 - C) * A * (1 - h * h)


def somewhere(n, d):
    return 2 * torch.rand(n, d, generator=generator(), dtype=torch.float64) - 1


@pytest.mark.parametrize("b", [0.0, 0.1, 0.3, FOLD - 1e-4, FOLD + 1e-4, 0.5, 1.0, -0.2, -1.0])
def test_a_bistable_unit_through_its_fold(b):
    """Two stable points and the one between them up to the fold, one beyond it; u = b is the same as a bias b."""
    expected = roots(b)
    assert len(expected) == (3 if abs(b) < FOLD else 1)
    for rnn, u in ((units(b), "zero"), (units(0.0), torch.tensor([b], dtype=torch.float64))):
        found = ms.fixed_points(rnn, u, somewhere(50, 1))
        assert found.stable.sum() == (2 if abs(b) < FOLD else 1)
        points, order = found.points.squeeze(-1).sort()
        # Beside the fold the point is as uncertain as the root of the rounding.
        near = 1e-9 if abs(abs(b) - FOLD) > 1e-3 else 1e-7
        torch.testing.assert_close(points, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=near)
        values = torch.tensor([[eigenvalue(h)] for h in expected], dtype=torch.complex128)
        torch.testing.assert_close(found.eigenvalues[order], values, rtol=0, atol=10 * near)
        assert found.kinds[-1] == ("repellor" if len(expected) == 3 else "stable")
        assert found.speeds.max() < 1e-10


def test_what_is_left_of_two_points_after_the_fold_is_a_slow_point():
    """The speed (1 - C) (atanh-curve's distance) has its minimum where the two points met."""
    found = ms.fixed_points(units(FOLD + 1e-3), "zero", somewhere(200, 1))
    assert len(found) == 1
    assert found.slow_points.shape == (1, 1)
    assert found.slow_points.item() == pytest.approx(-FOLD_AT, abs=0.01)
    h = found.slow_points
    speed = (C * h + (1 - C) * torch.tanh(A * h + FOLD + 1e-3) - h).abs().item()
    assert found.slow_speeds.item() == pytest.approx(speed, rel=1e-9)
    assert speed < 4e-4
    assert (found.labels == 0).all()
    assert len(ms.fixed_points(units(FOLD + 1e-3), "zero", somewhere(200, 1), slow=1e-4).slow_points) == 0


@pytest.mark.parametrize("m", [2, 3])
def test_independent_units_have_the_products_of_their_points(m):
    biases = [0.0, 0.1, -0.25][:m]
    found = ms.fixed_points(units(*biases), "zero", somewhere(300, m))
    expected = [torch.tensor(point, dtype=torch.float64) for point in product(*map(roots, biases))]
    assert (len(found), int(found.stable.sum())) == (3**m, 2**m)
    assert found.kinds.count("repellor") == 1
    assert found.unstable.tolist() == sorted(found.unstable.tolist())
    for point in expected:
        place = (found.points - point).abs().amax(dim=-1).argmin()
        torch.testing.assert_close(found.points[place], point, **EXACT)
        values = sorted(map(eigenvalue, point.tolist()), reverse=True)
        torch.testing.assert_close(found.eigenvalues[place].real.tolist(), values, rtol=0, atol=1e-8)
        constants = [1 / abs(math.log(value)) for value in values]
        torch.testing.assert_close(found.time_constants[place].tolist(), constants, rtol=1e-6, atol=0)
        assert found.unstable[place] == sum(value > 1 for value in values)
    # A start leads to a point of its own.
    assert (found.labels >= 0).all()


def test_saddles_that_no_start_leads_to_are_found_between_those_that_one_does():
    stable = somewhere(300, 2).sign() * 0.95
    assert len(ms.fixed_points(units(0.0, 0.1), "zero", stable, rounds=0)) == 4
    assert len(ms.fixed_points(units(0.0, 0.1), "zero", stable, rounds=3)) == 9


@pytest.mark.parametrize(("m", "n"), [(5, 300), (6, 300), (5, 20)])
def test_many_points_are_all_found_between_and_beyond_those_that_few_starts_lead_to(m, n):
    """Of 243 and of 729; no promise, but what can be expected where all are so far apart."""
    rnn, starts = units(*[0.0, 0.1, -0.25, 0.2, -0.05, 0.15][:m]), somewhere(n, m)
    assert len(ms.fixed_points(rnn, "zero", starts, rounds=0)) < 0.9 * 3**m
    found = ms.fixed_points(rnn, "zero", starts)
    assert (len(found), int(found.stable.sum())) == (3**m, 2**m)


def test_a_search_that_has_found_very_many_points_does_not_begin_again(monkeypatch):
    """Their pairs would fill the memory: it ends with the round that goes beyond the limit."""
    monkeypatch.setattr("multistable.dynamics.measure.search_fixed_points.MOST_POINTS", 4)
    rnn, starts = units(0.0, 0.1, -0.25, 0.2, -0.05), somewhere(300, 5)
    first = ms.fixed_points(rnn, "zero", starts, rounds=0)
    assert len(first) > 4
    assert len(ms.fixed_points(rnn, "zero", starts)) == len(first)


def test_points_far_from_the_states_are_not_looked_for():
    """x + sin(x) / 2 rests at each multiple of pi; the states go up to 4, and 1 + 4 more on either side is near."""

    class Wave(nn.Module):
        def forward(self, x, state=None):
            h = torch.zeros_like(x[0]) if state is None else state
            for _ in x:
                h = h + torch.sin(h) / 2
            return h.unsqueeze(0), h

    states = torch.linspace(-4, 4, 40, dtype=torch.float64).unsqueeze(-1)
    found = ms.fixed_points(Wave(), torch.zeros(1), states)
    expected = torch.arange(-2, 3, dtype=torch.float64) * math.pi
    torch.testing.assert_close(found.points.squeeze(-1).sort().values, expected, **EXACT)


def test_what_a_closed_gate_keeps_is_not_taken_for_fixed_points():
    """h -> (1 - z) tanh(3 h) + z h, whose z is 1 to the last digit for h > 3, and nearly so from 2 on."""
    rnn = nn.GRU(1, 1).double()
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.zero_()
        rnn.bias_ih_l0[0] = 100.0
        rnn.weight_hh_l0[1:] = torch.tensor([[12.0], [3.0]])
    found = ms.fixed_points(rnn, "zero", somewhere(100, 1))
    rest = 1.0
    for _ in range(100):
        rest = math.tanh(3 * rest)
    torch.testing.assert_close(found.points.squeeze(-1).sort().values.tolist(), [-rest, 0.0, rest], rtol=0, atol=1e-4)
    assert found.kinds == ["stable", "stable", "repellor"]


def test_unstable_directions_are_those_of_the_units_that_leave():
    found = ms.fixed_points(units(0.0, 0.1), "zero", somewhere(300, 2))
    for index, n in enumerate(found.unstable.tolist()):
        ways = found.directions(index)
        leaving = (found.jacobians()[index].diagonal() > 1).nonzero().squeeze(-1)
        assert ways.shape == (n, 2)
        assert ways.abs().argmax(dim=-1).sort().values.tolist() == leaving.tolist()


@pytest.mark.parametrize("kind", FORMS)
def test_every_kind_of_network_has_the_point_where_it_settles(kind):
    rnn = make(kind)
    u = torch.full((FEATURES,), 0.3, dtype=torch.float64)
    rest = state_after(rnn, u.expand(600, -1)).detach()
    found = ms.fixed_points(rnn, u, torch.randn(6, len(rest), generator=generator(), dtype=torch.float64))
    apart = (found.points - rest).abs().amax(dim=-1)
    assert apart.min() < 1e-8
    assert found.stable[apart.argmin()]


def test_a_chaotic_network_rests_at_zero_and_is_unstable_there():
    """As many unstable directions as the matrix has eigenvalues outside the unit circle."""
    rnn = nn.RNN(1, 50, bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.normal_(0, 1.5 / 50**0.5, generator=generator())
    found = ms.fixed_points(rnn, "zero", 1e-2 * torch.randn(20, 50, generator=generator()), rounds=0)
    at_zero = found.points.norm(dim=-1) < 1e-9
    assert at_zero.sum() == 1
    outside = (torch.linalg.eigvals(rnn.weight_hh_l0.double()).abs() > 1).sum().item()
    assert found.unstable[at_zero].item() == outside > 0
    assert found.kinds[int(at_zero.nonzero())] == "saddle"


def test_members_of_an_ensemble_are_told_as_alone():
    members = [ms.RNN("gru", 1, 5, generator=generator(seed)) for seed in range(2)]
    states = torch.rand(2, 6, 5, generator=generator())
    together = ms.fixed_points(ms.Ensemble(members), "zero", states)
    for rnn, own, found in zip(members, states, together, strict=True):
        alone = ms.fixed_points(rnn, "zero", own)
        torch.testing.assert_close(found.points, alone.points, rtol=0, atol=0)
        assert torch.equal(found.labels, alone.labels)


def test_a_result_is_of_the_network_at_the_time():
    rnn = units(0.0)
    found = ms.fixed_points(rnn, "zero", somewhere(20, 1))
    before = found.jacobians()
    with torch.no_grad():
        rnn.layers[0].cell.bias.fill_(3.0)
    assert torch.equal(found.jacobians(), before)


def test_a_network_without_fixed_points_has_none():
    class Slide(nn.Module):
        def forward(self, x, state=None):
            h = torch.zeros_like(x[0]) if state is None else state
            return h + len(x), h + len(x)

    found = ms.fixed_points(Slide(), torch.zeros(2), torch.zeros(3, 2))
    assert (len(found), found.labels.tolist(), found.kinds, len(found.slow_points)) == (0, [-1] * 3, [], 0)


def test_what_cannot_be_asked():
    rnn, states = nn.GRU(2, 4), torch.zeros(3, 4)
    for u, message in (
        (torch.zeros(3), r"u must be \(features,\) or \(k, features\) with 2 features, got shape \(3,\)"),
        (torch.zeros(2, 2), "u must be one constant input, got 2"),
        (torch.tensor([0, math.nan]), "u must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            ms.fixed_points(rnn, u, states)
    with pytest.raises(TypeError, match=r"u must be .* got 'normal'"):
        ms.fixed_points(rnn, "normal", states)
    with pytest.raises(ValueError, match=r"states must be \(n, 4\), the whole state"):
        ms.fixed_points(rnn, "zero", torch.zeros(3, 5))
    with pytest.raises(ValueError, match="eps must be a positive number"):
        ms.fixed_points(rnn, "zero", states, eps=0)
    with pytest.raises(ValueError, match=r"Leaky does not tell its input_size: give a tensor in place of 'zero'"):
        ms.fixed_points(Leaky(2, 4), "zero", states)
    with pytest.raises(TypeError, match=r"rnn must be a torch.nn.Module"):
        ms.fixed_points(None, "zero", states)


@pytest.mark.parametrize("u", [0.0, 0.2, -0.3])
def test_no_point_is_told_where_gates_close_far_from_all_states(u):
    """A BRC keeps what is beyond 30 to the last bit: such states are not visited, and are no fixed points."""
    rnn = ms.BRC(1, 1, dtype=torch.float64)  # its recurrent weights are 1
    with torch.no_grad():
        rnn.input_weight.copy_(torch.tensor([[0.3, 0.4, 1.0]]))
        rnn.bias.copy_(torch.tensor([0.1, 0.9, 0.02]))
    h = torch.linspace(-1.5, 1.5, 100_001, dtype=torch.float64)
    still = torch.tanh(u + (1 + torch.tanh(0.4 * u + h + 0.9)) * h + 0.02) - h
    expected = h[:-1][still[:-1].sign() != still[1:].sign()]
    found = ms.fixed_points(rnn, torch.tensor([u], dtype=torch.float64), somewhere(50, 1))
    torch.testing.assert_close(found.points.squeeze(-1).sort().values, expected, rtol=0, atol=3e-5)
    assert (found.labels >= 0).all()
    assert found.slow_points.abs().le(3).all()


def test_a_point_that_is_far_from_the_states_is_found_where_the_network_goes_there():
    rnn = torch.nn.RNN(1, 1, nonlinearity="relu").double()
    with torch.no_grad():
        for weight, value in zip(rnn.parameters(), (0.0, 0.5, 25.0, 25.0), strict=True):
            weight.fill_(value)
    found = ms.fixed_points(rnn, "zero", torch.full((3, 1), 0.1, dtype=torch.float64))
    torch.testing.assert_close(found.points, torch.full((1, 1), 100.0, dtype=torch.float64))
    assert found.labels.tolist() == [0, 0, 0]


def test_a_result_prints_in_a_line():
    found = ms.fixed_points(units(0.0, 0.1), "zero", somewhere(300, 2))
    assert (str(found), repr(found)) == (
        "4 stable, 4 saddles, 1 repellor",
        "FixedPoints(4 stable, 4 saddles, 1 repellor)",
    )
    after_the_fold = ms.fixed_points(units(FOLD + 1e-3), "zero", somewhere(200, 1))
    assert str(after_the_fold) == "1 stable, 1 slow point"


def test_attractors_are_found_where_the_nearest_point_to_all_states_is_a_saddle():
    near_zero = 1e-3 * somewhere(20, 1)
    found = ms.fixed_points(units(0.0), "zero", near_zero, rounds=0)
    torch.testing.assert_close(found.points.squeeze(-1).sort().values.tolist(), roots(0.0), rtol=0, atol=1e-9)
    assert found.kinds == ["stable", "stable", "repellor"]
    assert set(found.labels.tolist()) == {2}
