"""VAA and VAA*: their definitions and the properties that follow from them."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import multistable as ms

EPS = 1e-4


@st.composite
def states(draw, max_n=12, max_d=5, scale=3.0):
    """A set of states (n, d) with near-coincident and far ones, at any scale around eps."""
    n, d = draw(st.integers(1, max_n)), draw(st.integers(1, max_d))
    size = draw(st.sampled_from([EPS / 10, EPS, 10 * EPS, scale]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    return size * torch.randn(n, d, generator=generator, dtype=torch.float64)


def vaa_by_definition(x, eps=EPS):
    """Eq. practical_vaa, entry by entry."""
    n = len(x)
    counts = [sum(math.dist(x[i], x[j]) <= eps for j in range(n)) for i in range(n)]
    return sum(1 / count for count in counts) / n


def vaa_star_by_definition(x, eps=EPS):
    """Eq. vaa_star, term by term, with the 0/0 of coincident states taken as C* = 1."""
    n = len(x)
    y = [[math.tanh(value) for value in row] for row in x]

    def c_star(i, j):
        d = math.dist(y[i], y[j])
        return 1.0 if d == 0 else 1 - max(0.0, d - eps) / d

    return sum(1 / sum(c_star(i, j) for j in range(n)) for i in range(n)) / n


@given(states())
def test_vaa_is_its_definition(x):
    assert ms.vaa(x).item() == pytest.approx(vaa_by_definition(x.tolist()), rel=1e-12)


@given(states(), st.sampled_from([1e-6, 1e-4, 0.3]))
def test_vaa_star_is_its_definition_term_by_term(x, eps):
    assert ms.vaa_star(x, eps).item() == pytest.approx(vaa_star_by_definition(x.tolist(), eps), rel=1e-10)


@given(states())
def test_both_lie_between_one_over_n_and_one(x):
    for value in (ms.vaa(x).item(), ms.vaa_star(x).item()):
        assert 1 / len(x) <= value <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_attractor_is_one_over_n_and_not_less(dtype):
    for n in range(1, 60):
        assert ms.vaa(torch.zeros(n, 2, dtype=dtype)).item() == 1 / n
        value, bound = ms.vaa_star(torch.zeros(n, 2, dtype=dtype)), torch.tensor(1 / n, dtype=dtype)
        assert bound <= value <= bound * (1 + 4 * torch.finfo(dtype).eps)


@given(states(), st.randoms(use_true_random=False))
def test_both_are_invariant_to_permutation(x, random):
    order = list(range(len(x)))
    random.shuffle(order)
    assert ms.vaa(x[order]).item() == pytest.approx(ms.vaa(x).item(), rel=1e-12)
    assert ms.vaa_star(x[order]).item() == pytest.approx(ms.vaa_star(x).item(), rel=1e-9)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.sampled_from([torch.float32, torch.float64]))
def test_k_well_separated_groups_give_k_over_n(group_sizes, dtype):
    centres = torch.arange(len(group_sizes), dtype=dtype).repeat_interleave(torch.tensor(group_sizes))
    jitter = 1e-6 * torch.randn(len(centres), 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert ms.vaa(centres.unsqueeze(-1) + jitter).item() == pytest.approx(len(group_sizes) / len(centres), rel=1e-6)


@pytest.mark.parametrize("eps", [1e-5, 1e-4, 0.1, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exactly_eps_apart_is_the_same_and_more_is_not(dtype, eps):
    on_the_line = torch.tensor([[0.0], [eps]], dtype=dtype)
    in_the_plane = torch.tensor([[0.0, 0.0], [0.6 * eps, 0.8 * eps]], dtype=dtype)
    for x in (on_the_line, in_the_plane):
        assert ms.vaa(x, eps).item() == 0.5
        assert ms.vaa(1.00001 * x, eps).item() == 1.0


def test_distances_are_right_near_zero():
    """Offsets of 1e-6 around states of size 1, in float32: the count is that of float64 on the same numbers."""
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(1, 256, generator=generator)
    x = base + 1e-6 * torch.randn(40, 256, generator=generator)
    difference = x.double().unsqueeze(0) - x.double().unsqueeze(1)
    exact = difference.pow(2).sum(-1).sqrt()
    for eps in exact[0, 1:4].tolist():
        expected = (1 / (exact <= eps * (1 + 1e-9)).sum(-1).double()).mean().item()
        assert 1 / 40 < expected < 1
        assert ms.vaa(x, eps).item() == pytest.approx(expected, rel=1e-6)


def test_vaa_star_is_accurate_in_float32_near_zero():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 64, generator=generator) + 1e-5 * torch.randn(30, 64, generator=generator)
    assert ms.vaa_star(x).item() == pytest.approx(ms.vaa_star(x.double()).item(), rel=1e-2)
    assert ms.vaa_star(x.double()).item() < 0.9


def test_leading_dimensions_are_separate_sets():
    x = torch.randn(2, 3, 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[0, 1, 3] = x[0, 1, 2]
    for function in (ms.vaa, ms.vaa_star):
        together = function(x)
        assert together.shape == (2, 3)
        for i in range(2):
            for j in range(3):
                assert together[i, j].item() == pytest.approx(function(x[i, j]).item(), rel=1e-12)


def test_gradients_of_coincident_states_are_finite_and_zero_below_eps():
    x = torch.zeros(6, 3, dtype=torch.float64)
    x[3:] = 1.0
    x[1, 0] = EPS / 2
    x.requires_grad_()
    ms.vaa_star(x).backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad[3:].abs().sum() > 0
    alone = torch.zeros(4, 3, requires_grad=True)
    ms.vaa_star(alone).backward()
    assert torch.equal(alone.grad, torch.zeros(4, 3))


def test_gradient_of_vaa_star_is_right():
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: ms.vaa_star(s, 0.3), x)


@pytest.mark.parametrize("function", [ms.vaa, ms.vaa_star])
def test_half_precision_states_are_compared_in_float32(function):
    x = torch.tensor([[0.0], [1.0], [1.0]], dtype=torch.bfloat16)
    value = function(x)
    assert value.dtype == (torch.float64 if function is ms.vaa else torch.float32)
    assert value.item() == pytest.approx(function(x.double()).item(), rel=1e-6)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3), r"states must be \(\.\.\., n, d\)"),
        (torch.zeros(0, 3), r"n >= 1"),
        (torch.tensor([[0.0], [math.nan]]), "finite, got NaN or infinity"),
        (torch.tensor([[0.0], [math.inf]]), "finite, got NaN or infinity"),
    ],
)
def test_bad_states_are_refused(x, message):
    for function in (ms.vaa, ms.vaa_star):
        with pytest.raises(ValueError, match=message):
            function(x)


@pytest.mark.parametrize("function", [ms.vaa, ms.vaa_star])
def test_states_of_another_type_are_refused(function):
    with pytest.raises(TypeError, match=r"floating-point type, got torch.int64"):
        function(torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(TypeError, match="states must be a tensor"):
        function([[0.0]])


@pytest.mark.parametrize("function", [ms.vaa, ms.vaa_star])
def test_eps_must_be_positive(function):
    for eps in (0, -1e-4, math.nan, math.inf, "small", True):
        with pytest.raises(ValueError, match="eps must be a positive number"):
            function(torch.zeros(3, 2), eps=eps)


@pytest.mark.parametrize("function", [ms.vaa, ms.vaa_star])
def test_a_network_in_place_of_states_is_pointed_to_the_measure(function):
    with pytest.raises(TypeError, match=r"states must be a tensor \(..., n, d\), got GRU; ms.measure takes a network"):
        function(torch.nn.GRU(1, 4), torch.randn(5, 20, 1))


@pytest.mark.parametrize("function", [ms.vaa, ms.vaa_star])
def test_no_tensor_is_printed_in_an_error(function):
    with pytest.raises(ValueError, match=r"eps must be a positive number, got Tensor of shape \(5, 20, 1\)$"):
        function(torch.randn(5, 2), torch.randn(5, 20, 1))


@pytest.mark.parametrize("function", [ms.vaa, ms.vaa_star])
def test_any_number_that_float32_has_is_a_tolerance(function):
    states = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert function(states, Fraction(1, 2)) == function(states, 0.5)
    for eps in (5e-324, 1e300, 10**400):
        with pytest.raises(ValueError, match="eps must be a positive number"):
            function(states, eps)


@pytest.mark.parametrize("function", [ms.vaa, ms.vaa_star])
@pytest.mark.parametrize("states", [torch.eye(3).to_sparse(), torch.eye(3, device="meta")], ids=["sparse", "meta"])
def test_states_without_all_their_values_are_refused(function, states):
    with pytest.raises(TypeError, match="states must be a tensor with all its values, got one in torch"):
        function(states)
