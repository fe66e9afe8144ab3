"""Lyapunov exponents of systems of which they are known."""

import math
from itertools import product

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian

import multistable as ms
from generators import generator
from networks import FEATURES, FEW_FORMS, at_rest_and_restless, in_layout, make

SIZES = {"batches": 2, "batch_size": 8, "stabilisation": 200, "steps": 400}


class Map(nn.Module):
    """A state of two numbers that begins at the first input, or as it is told, and is mapped at each step."""

    def __init__(self, step, begin=None):
        super().__init__()
        self.step, self.begin = step, begin

    def forward(self, x, state=None):
        h = state if state is not None else x[0] if self.begin is None else torch.full_like(x[0], self.begin)
        for _ in x:
            h = self.step(h)
        return h, h


def logistic(h):
    """4 x (1 - x), of exponent log 2 from almost every x in (0, 1); what is outside begins inside."""
    h = torch.where((h > 0) & (h < 1), h, torch.sigmoid(h))
    return 4 * h * (1 - h)


def turned(h):
    """On the circle of radius 1, half of the way to which is gone at each step, by one radian."""
    radius = h.norm(dim=-1, keepdim=True)
    turn = torch.tensor([[math.cos(1), -math.sin(1)], [math.sin(1), math.cos(1)]], dtype=h.dtype)
    return h @ turn * (1 + radius) / (2 * radius)


def found(rnn, features=2, **settings):
    x = torch.randn(6, 20, features, generator=generator())
    return ms.lyapunov(rnn, x, generator=generator(), **SIZES | settings)


@pytest.mark.parametrize("factor", [0.5, 0.999, 0.999999])
def test_differences_that_shrink_by_a_factor_have_its_logarithm(factor):
    """The other direction shrinks faster, and does not count."""
    result = found(Map(lambda h: h * torch.tensor([factor, 0.3], dtype=h.dtype)))
    assert result.exponents.shape == (2, 8)
    torch.testing.assert_close(result.exponents, torch.full((2, 8), math.log(factor)).double(), rtol=1e-4, atol=5e-9)
    assert result.exponent == pytest.approx(math.log(factor), rel=1e-4, abs=5e-9)
    assert result.lifetime == pytest.approx(-1 / math.log(factor), rel=5e-3)
    assert result.chaotic == 0.0


def test_chaos_has_a_positive_exponent_and_no_lifetime():
    result = found(Map(logistic), steps=4000)
    assert result.exponent == pytest.approx(math.log(2), abs=0.02)
    assert result.spectrum == pytest.approx([math.log(2)], abs=0.005)
    assert result.lifetime == math.inf
    assert result.chaotic == 1.0


def henon(h):
    x, y = h.unbind(dim=-1)
    return torch.stack([1 - 1.4 * x * x + y, 0.3 * x], dim=-1)


def test_the_spectrum_of_the_henon_map():
    """0.419 and -1.623; their sum is the logarithm of the constant determinant, 0.3."""
    result = found(Map(henon, begin=0.1), exponents=2, steps=4000)
    assert result.exponents.shape == (2, 8, 2)
    assert result.spectrum == pytest.approx([0.419, -1.623], abs=0.005)
    torch.testing.assert_close(result.exponents.sum(dim=-1), torch.full((2, 8), math.log(0.3)).double())
    assert (result.chaotic, result.unstable) == (1.0, 0.0)


@pytest.mark.parametrize("r", [1.0, 0.95])
def test_the_spectrum_of_a_linear_network_is_that_of_its_matrix(r):
    """The logarithms of the moduli of its eigenvalues, a pair of complex ones among them."""
    matrix = r * torch.tensor([[0.9, 0.2, 0.1], [-0.3, 0.8, 0.4], [0.0, 0.0, 0.5]], dtype=torch.float64)
    expected = torch.linalg.eigvals(matrix).abs().log().sort(descending=True).values
    result = found(Map(lambda h: h @ matrix.to(h).mT), features=3, exponents=3, steps=2000)
    assert result.spectrum == pytest.approx(expected.tolist(), abs=2e-3)
    assert result.exponent == pytest.approx(expected[0].item(), abs=2e-3)


def test_the_first_of_several_is_the_one_that_is_asked_for_alone():
    rnn = ms.RNN("gru", 2, 8, 2, generator=generator())
    alone, several = found(rnn), found(rnn, exponents=4)
    assert several.exponents.shape == (2, 8, 4)
    assert found(rnn, exponents=1).exponents.shape == (2, 8, 1)
    assert several.exponents.diff(dim=-1).mean() < 0
    torch.testing.assert_close(several.exponents[..., 0], alone.exponents, rtol=0.02, atol=0.02)
    torch.testing.assert_close(alone.spectrum, [alone.exponents.mean().item()])


def test_an_unstable_fixed_point_is_not_chaos():
    """A network without biases that begins at zero rests there, however fast what is beside it leaves."""
    rnn = nn.RNN(1, 50, bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.normal_(0, 1.5 / 50**0.5, generator=generator())
    zeros = torch.zeros(5, 16, 1)
    result = ms.lyapunov(rnn, zeros, inputs="zero", **SIZES)
    radius = torch.linalg.eigvals(rnn.weight_hh_l0.double()).abs().max().log().item()
    assert result.exponent == pytest.approx(radius, abs=0.02)
    assert (result.chaotic, result.unstable) == (0.0, 1.0)
    assert ms.attractors(rnn, zeros, inputs="zero", stabilisation=100).fixed_points == 1.0
    beside = ms.lyapunov(rnn, states=torch.randn(16, 50, generator=generator()), inputs="zero", **SIZES)
    assert beside.chaotic > 0.5
    assert beside.unstable == 0.0


def test_an_unstable_cycle_is_not_chaos():
    """x -> -x^3 goes from 1 to -1 and back, exactly."""
    result = ms.lyapunov(Map(lambda h: -(h**3)), states=torch.ones(4, 1), inputs=torch.zeros(1), steps=100)
    assert result.exponent == pytest.approx(math.log(3))
    assert (result.chaotic, result.unstable) == (0.0, 1.0)


class Driven(nn.Module):
    """h -> tanh(2 h + u), and a second unit that soon forgets."""

    def forward(self, x, state=None):
        h = torch.zeros(x.shape[1], 2, dtype=x.dtype) if state is None else state
        for u in x:
            h = torch.cat([torch.tanh(2 * h[:, :1] + u), h[:, 1:] / 100], dim=-1)
        return h, h


def test_along_the_input_sequences_exponents_are_means_of_the_slopes_on_the_way():
    lengths = [40, 60, 61, 20]
    sequences = [torch.randn(n, 1, generator=generator(n), dtype=torch.float64) for n in lengths]
    result = ms.lyapunov(Driven(), sequences, inputs="sequences", batches=1, exponents=2, generator=generator())
    expected = []
    for sequence in sequences:
        h, slopes = 0.0, []
        for u in sequence.squeeze(-1).tolist():
            h = math.tanh(2 * h + u)
            slopes.append(math.log(2 * (1 - h * h)))
        # The first step has no state before it; the others are followed two by two.
        steps = len(sequence) - 1
        begin = next(even for even in range(0, steps, 2) if even + 2 > steps // 2)
        counted = slopes[1:][begin : steps // 2 * 2]
        expected.append([sum(counted) / len(counted), math.log(0.01)])
    for mine, known in zip(sorted(result.exponents[0].tolist()), sorted(expected), strict=True):
        assert mine == pytest.approx(known, abs=1e-4)
    assert result.unstable == 0.0


def test_a_number_of_exponents_that_cannot_be():
    for exponents, error in (
        (0, "exponents must be a positive integer"),
        (3, "must not exceed the size of the state, 2"),
    ):
        with pytest.raises(ValueError, match=error):
            found(Map(lambda h: h / 2), exponents=exponents)
    rnn, short = nn.GRU(1, 3), torch.zeros(4, 40, 1)
    with pytest.raises(ValueError, match=r'at least 5 time steps with inputs="sequences", got one of 4'):
        ms.lyapunov(rnn, short, inputs="sequences")
    with pytest.raises(ValueError, match=r'states cannot be given with inputs="sequences"'):
        ms.lyapunov(rnn, states=torch.zeros(40, 3), inputs="sequences")


def test_along_a_cycle_differences_stay():
    result = found(Map(turned))
    assert result.exponents.abs().max() < 1e-6
    assert result.chaotic == 0.0


def test_a_network_that_forgets_in_one_step_has_no_lifetime_at_all():
    result = found(Map(lambda h: 0 * h))
    assert (result.exponents == -math.inf).all()
    assert (result.exponent, result.lifetime, result.chaotic) == (-math.inf, 0.0, 0.0)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_at_a_fixed_point_it_is_the_spectral_radius_of_the_step(cell):
    """Two layers at their fixed point under one constant input, in float64: the logarithm of the largest eigenvalue."""
    rnn = ms.RNN(cell, 1, 6, num_layers=2, generator=generator()).double()
    x = torch.zeros(4, 20, 1)
    u, state = torch.zeros(1, 1, 1).double(), None
    for _ in range(500):
        _, state = rnn(u, state)
    fields = state if isinstance(state, tuple) else (state,)

    def step(*fields):
        _, after = rnn(u, fields if len(fields) > 1 else fields[0])
        return after if isinstance(after, tuple) else (after,)

    size = fields[0].numel()
    blocks = [[block.reshape(size, size) for block in row] for row in jacobian(step, fields)]
    radius = torch.linalg.eigvals(torch.cat([torch.cat(row, 1) for row in blocks])).abs().max().log().item()
    zero_input = ms.lyapunov(Silent(rnn), x, generator=generator(), **SIZES)
    # A pair of complex eigenvalues turns what it shrinks: over 200 steps that leaves a little.
    assert zero_input.exponent == pytest.approx(radius, abs=0.02)


class Silent(nn.Module):
    """A network that hears zero whatever its input is."""

    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn

    def forward(self, x, state=None):
        return self.rnn(torch.zeros_like(x), state)


@pytest.mark.parametrize(
    ("centre", "slope"), [*product([0.0, 0.7], [0.9, 1 - 1e-4, 1 - 1e-6]), (1e4, 0.9), (1e4, 1 - 1e-3)]
)
def test_a_step_that_is_not_straight_has_the_exponent_of_its_slope(centre, slope):
    """x -> c + s (x - c) + (x - c)^2, at c: the slope there is s, however curved it is beside."""
    result = found(Map(lambda h: centre + torch.zeros_like(h) + slope * (h - centre) + (h - centre) ** 2, begin=centre))
    assert result.exponent == pytest.approx(math.log(slope), rel=0.02)


@pytest.mark.parametrize("factor", [1.001, 1.2])
def test_states_that_grow_without_bound_magnify_differences(factor):
    """Up to 1e16 for the larger factor: companions are as far as is small beside such a state."""
    result = found(Map(lambda h: factor * h))
    assert result.exponent == pytest.approx(math.log(factor), rel=1e-3)


@pytest.mark.parametrize("factor", [1e-3, 1e-4])
def test_what_is_forgotten_almost_at_once_has_its_exponent_too(factor):
    assert found(Map(lambda h: 0.3 + factor * (h - 0.3))).exponent == pytest.approx(math.log(factor), rel=0.05)


def test_states_that_overflow_on_the_way_are_told():
    with pytest.raises(ms.DivergedError, match="16 of 16 states are not finite after 400 more steps"):
        found(Map(lambda h: 10 * h), stabilisation=10)


class OfItsOwnPrecision(nn.Module):
    """Computes in float32 whatever it is given, or fails to."""

    def __init__(self, inside):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(2))
        self.inside = inside

    def forward(self, x, state=None):
        h = x[0] if state is None else state
        h = self.inside(h, self.weight)
        return h, h


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (
            lambda h, weight: 0.5 * h.float() @ weight.float(),
            "OfItsOwnPrecision must compute in float64 .* got states in",
        ),
        (
            lambda h, weight: 0.25 * h @ torch.eye(2) * weight.sum(),
            "OfItsOwnPrecision must compute in float64 .* x.new_zeros",
        ),
    ],
)
def test_a_module_that_cannot_compute_in_float64_is_told(inside, message):
    rnn = OfItsOwnPrecision(inside)
    x = torch.randn(6, 20, 2, generator=generator())
    ms.measure(rnn, x, batches=2, batch_size=8, stabilisation=10)
    with pytest.raises(TypeError, match=message):
        found(rnn)


@pytest.mark.parametrize("kind", FEW_FORMS)
def test_every_kind_of_network_can_be_asked(kind):
    rnn = make(kind)
    x = torch.randn(12, 20, FEATURES, generator=generator())
    result = ms.lyapunov(rnn, in_layout(rnn, x), generator=generator(), **SIZES)
    assert result.exponents.shape == (2, 8)
    assert not result.exponents.isnan().any()


def test_a_state_and_its_companion_have_the_same_input():
    """An untrained network forgets: under one input two states meet, under two they do not."""
    assert found(ms.RNN("gru", 2, 8, generator=generator())).exponents.max() < -0.1


def test_a_network_in_half_precision_is_asked_in_float64():
    rnn = ms.RNN("gru", 2, 8, generator=generator())
    half = ms.RNN("gru", 2, 8, generator=generator()).bfloat16()
    assert found(half).exponent == pytest.approx(found(rnn).exponent, rel=0.1)
    assert next(half.parameters()).dtype == torch.bfloat16


def test_members_of_an_ensemble_are_told_as_alone():
    members = at_rest_and_restless(generator)
    x = torch.randn(15, 40, 1, generator=generator())
    together = ms.lyapunov(ms.Ensemble(members), x, generator=[generator(0), generator(1)], **SIZES)
    assert together.exponents.shape == (2, 2, 8)
    for seed, member in enumerate(members):
        alone = ms.lyapunov(member, x, generator=generator(seed), **SIZES)
        assert together.exponent[seed] == pytest.approx(alone.exponent, rel=1e-3)
        assert together.chaotic[seed] == alone.chaotic


@pytest.mark.parametrize("steps", [1, 4, 5, 6, 11])
def test_few_steps_are_enough_for_an_answer(steps):
    result = found(Map(lambda h: 0.5 * h), steps=steps)
    torch.testing.assert_close(result.exponents, torch.full((2, 8), math.log(0.5)).double(), rtol=1e-6, atol=0)
