"""Algorithm 1 on systems whose attractors are known, and its early end against all the steps."""

import dataclasses
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import multistable as ms
from generators import generator
from multistable.dynamics.measure.algorithm_2_reachable_states import random_hidden_states
from multistable.dynamics.measure.stabilisation import stabilise
from multistable.dynamics.system import threads
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.system import studying
from multistable.dynamics.system.whole_states import flat, map_states
from networks import FEATURES, FEW_FORMS, in_layout, make


def bistable_units(units, a, gate_bias=0.0, input_weight=1e-3):
    """A BRC of units that see one input each, h' = c h + (1 - c) tanh(w u + a h), with constant c and a."""
    rnn = ms.RNN("brc", units, units)
    cell = rnn.layers[0].cell
    with torch.no_grad():
        for p in cell.parameters():
            p.zero_()
        cell.input_weight[:, 2 * units :] = input_weight * torch.eye(units)
        cell.bias[:units] = gate_bias
        cell.bias[units : 2 * units] = math.atanh(a - 1)
    return rnn


def pushes(signs, strength=5e3, time=30):
    """Sequences (time, n, units) that push each unit far to the side of its sign; their own inputs are far larger
    than the u ~ N(0, 1) of the stabilisation, which hardly moves anything."""
    return strength * signs.unsqueeze(0).expand(time, *signs.shape)


@given(st.floats(0.2, 1.8), st.floats(-2, 2))
@settings(max_examples=15)
def test_one_unit_brc_has_as_many_attractors_as_its_equation(a, gate_bias):
    """h = tanh(a h) has one stable solution for a <= 1 and two, of either sign, for a > 1."""
    assume(abs(a - 1) > 0.02)
    signs = torch.tensor([1.0, -1.0] * 8).unsqueeze(-1)
    result = ms.measure(
        bistable_units(1, a, gate_bias, 1e-6), pushes(signs, 5e6), batches=2, batch_size=16, generator=generator()
    )
    attractors = 1 if a < 1 else 2
    assert result.batches.tolist() == [attractors / 16] * 2
    assert result.vaa == attractors / 16


@pytest.mark.parametrize("push", [0.9, 1.1])
def test_a_constant_input_past_the_fold_leaves_one_attractor(push):
    """h = tanh(a h + b) loses one of its two stable solutions at b* = a h - artanh(h), h = sqrt(1 - 1/a)."""
    a = 1.6
    h = math.sqrt(1 - 1 / a)
    fold = a * h - math.atanh(h)
    rnn = bistable_units(1, a)
    with torch.no_grad():
        rnn.layers[0].cell.bias[2] = push * fold
    signs = torch.tensor([1.0, -1.0] * 8).unsqueeze(-1)
    result = ms.measure(rnn, pushes(signs), batches=1, batch_size=16, generator=generator())
    assert result.vaa == (2 if push < 1 else 1) / 16


@pytest.mark.parametrize("m", [1, 3])
def test_m_independent_bistable_units_have_two_to_the_m_attractors(m):
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * m).reshape(-1, m)
    every_basin_twice = signs.repeat(2, 1)
    n = len(every_basin_twice)
    result = ms.measure(
        bistable_units(m, 1.5), pushes(every_basin_twice), batches=3, batch_size=n, generator=generator()
    )
    assert result.vaa == 2**m / n == 0.5
    assert result.periodic == 1.0


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_a_contracting_gru_has_one_attractor(scale):
    rnn = nn.GRU(3, 24, 2)
    with torch.no_grad():
        for p in rnn.parameters():
            p.mul_(scale)
    x = torch.randn(20, 40, 3, generator=generator())
    assert ms.measure(rnn, x, generator=generator()).vaa == 1 / 32


def all_steps(system, states, u, steps):
    """f^M(x, u) computed step after step to the end."""
    u = u.expand(*flat(states).shape[:-1], -1)
    for _ in range(steps // 500):
        states = map_states(lambda x: x[-1], system.advance(u.expand(500, *u.shape), states))
    return flat(states)


def prepared(cell, seed, preparation):
    """A small network: untrained, warmed up, or briefly trained on the first input."""
    torch.manual_seed(seed)
    rnn, x = ms.RNN(cell, 1, 13, 1 + seed % 2), torch.randn(20, 64, 1)
    if preparation == "warmed up":
        ms.warmup(rnn, x, steps=15, batch_size=32, generator=generator(seed))
    if preparation == "trained":
        readout = nn.Linear(13, 1)
        optimiser = torch.optim.Adam([*rnn.parameters(), *readout.parameters()], lr=1e-2)
        for _ in range(40):
            optimiser.zero_grad()
            nn.functional.mse_loss(readout(rnn(x)[0][-1]), x[0]).backward()
            optimiser.step()
    return rnn, x


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
@pytest.mark.parametrize(("preparation", "seed"), [("untrained", 0), ("warmed up", 1), ("trained", 2)])
@pytest.mark.parametrize("cell", ms.CELLS)
def test_the_early_end_changes_no_bit_of_the_result(cell, preparation, seed):
    with torch.random.fork_rng():
        rnn, x = prepared(cell, seed, preparation)
    with torch.no_grad(), studying(rnn, x) as (system, data):
        draws = Draws(generator(seed))
        states = random_hidden_states(system, data, draws.batch(64, 32), draws)
        u = system.constant_input(0, draws)
        settled = stabilise(system, states, u, 10_000)
        expected = all_steps(system, states, u, 10_000)
    assert settled.steps <= 10_000
    assert torch.equal(settled.states, expected)
    assert ms.vaa(settled.states) == ms.vaa(expected)


def test_the_early_end_comes_early_for_settled_networks_and_never_for_drifting_ones():
    x = torch.randn(20, 64, 1, generator=generator())
    assert ms.measure(make_seeded("lstm"), x, batches=1, generator=generator()).steps < 1000
    drift = Drift()
    result = ms.measure(drift, x, batches=1, stabilisation=1_000, generator=generator())
    assert result.steps == 1_000
    assert result.periodic == 0.0


def test_cycles_are_followed_to_where_all_steps_lead():
    """Counters modulo 7, 11 and 90: after M steps each is where arithmetic says, although the loop ended early."""

    class Clock(nn.Module):
        def forward(self, x, state=None):
            hand = x.new_zeros(x.shape[1], 1) if state is None else state
            for u in x:
                hand = (hand + 1) % u.abs()
            return hand, hand

    periods = torch.tensor([7.0, 11.0, 90.0]).repeat(4)
    with studying(Clock(), periods.reshape(1, 12, 1)) as (system, data):
        states = [((torch.zeros(12, 1),),)]
        settled = stabilise(system, states, data.padded[0], 10_000)
    assert settled.steps < 5_000
    assert torch.equal(settled.states.flatten(), 10_000 % periods)


class Drift(nn.Module):
    """Moves a little every step and never comes back."""

    def forward(self, x, state=None):
        x_end = x.cumsum(0)[-1].abs() + 1
        return x, x_end if state is None else state + 1e-2


def make_seeded(cell, hidden=24, seed=0):
    return ms.RNN(cell, 1, hidden, generator=generator(seed))


@pytest.mark.parametrize("kind", FEW_FORMS)
def test_every_kind_of_network_can_be_measured(kind):
    rnn = make(kind)
    x = torch.randn(12, 20, FEATURES, generator=generator())
    result = ms.measure(rnn, in_layout(rnn, x), batches=2, batch_size=10, stabilisation=200, generator=generator())
    assert isinstance(result.vaa, float)
    assert result.batches.shape == (2,)
    assert result.vaa == pytest.approx(result.batches.mean().item(), rel=1e-12)
    assert 0.1 <= result.vaa <= 1


def test_the_whole_state_of_all_layers_is_compared():
    """The second layer alone remembers: it counts, although the first has settled."""
    rnn = ms.RNN("brc", 1, 1, 2)
    memory = bistable_units(1, 1.5, input_weight=1.0).layers[0].cell
    with torch.no_grad():
        for p in rnn.layers[0].cell.parameters():
            p.zero_()
        rnn.layers[0].cell.input_weight[0, 2] = 1e-4
    rnn.layers[1].cell = memory
    signs = torch.tensor([1.0, -1.0] * 8).unsqueeze(-1)
    assert ms.measure(rnn, pushes(signs, 1e5), batches=1, batch_size=16, generator=generator()).vaa == 2 / 16


def test_members_of_an_ensemble_are_measured_as_alone():
    members = [make("ms.RNN nbrc", seed) for seed in range(3)]
    x = torch.randn(15, 40, FEATURES, dtype=torch.float64, generator=generator())
    settings_ = {"batches": 3, "batch_size": 20, "stabilisation": 500}
    generators = [generator(seed) for seed in range(3)]
    together = ms.measure(ms.Ensemble(members), x, generator=generators, **settings_)
    assert together.batches.shape == (3, 3)
    for seed, member in enumerate(members):
        alone = ms.measure(member, x, generator=generator(seed), **settings_)
        assert together.vaa[seed] == pytest.approx(alone.vaa, abs=1e-12)


def test_low_precision_flags_do_not_reach_the_measure():
    """Float32 products through bfloat16 keep a settled network's states apart; the measure is not touched by it."""
    rnn, x = make_seeded("gru", 64), torch.randn(20, 64, 1, generator=generator())
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        vaa = ms.measure(rnn, x, batches=2, generator=generator()).vaa
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        torch.set_float32_matmul_precision(before)
    assert vaa == 1 / 32


def test_matrix_products_are_in_float32_inside_whatever_the_flags_say():
    seen = set()

    class Spy(Drift):
        def forward(self, x, state=None):
            backends = torch.backends
            seen.add((backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision))
            return super().forward(x, state)

    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        ms.measure(Spy(), torch.randn(3, 40, 1), batches=1, stabilisation=3, generator=generator())
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == {("ieee", "ieee")}


def test_a_network_that_diverges_says_so():
    rnn = nn.RNN(1, 4, nonlinearity="relu")
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(3 * torch.eye(4))
    # States that are no numbers stay so: it is told after few steps, not after all.
    with pytest.raises(ms.DivergedError, match=r"states are not finite after \d{2,3} steps: .* under a constant input"):
        ms.measure(rnn, torch.randn(5, 40, 1, generator=generator()), generator=generator())


def test_results_can_be_compared():
    rnn, x = make_seeded("gru"), torch.randn(20, 64, 1, generator=generator())
    first, second = (ms.measure(rnn, x, batches=2, generator=generator()) for _ in range(2))
    assert first == second


def test_a_module_without_parameters_is_measured_in_the_type_of_its_buffers():
    class Reservoir(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", 0.1 * torch.eye(3, dtype=torch.float64))
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x, state=None):
            self.calls += 1
            h = x.new_zeros(x.shape[1], 3) if state is None else state
            for u in x:
                h = torch.tanh(h @ self.weight + u)
            return h, h

    reservoir = Reservoir()
    assert ms.measure(reservoir, torch.randn(5, 40, 1), generator=generator()).vaa == 1 / 32
    assert reservoir.calls == 0


def test_autocast_does_not_reach_the_measure():
    rnn, x = make_seeded("gru", 64), torch.randn(20, 64, 1, generator=generator())
    plain = ms.measure(rnn, x, batches=2, generator=generator())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = ms.measure(rnn, x, batches=2, generator=generator())
        assert torch.is_autocast_enabled("cpu")
    assert cast.batches.tolist() == plain.batches.tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_networks_of_half_precision_are_measured_in_float32(dtype):
    x = torch.randn(20, 64, 1, generator=generator())
    rnn = nn.GRU(1, 24).to(dtype)
    copy = nn.GRU(1, 24)
    copy.load_state_dict(rnn.state_dict())
    half = ms.measure(rnn, x, batches=2, generator=generator())
    assert rnn.weight_ih_l0.dtype == dtype
    assert half.batches.tolist() == ms.measure(copy, x, batches=2, generator=generator()).batches.tolist()


@pytest.mark.parametrize("function", [ms.measure, ms.attractors, ms.lyapunov])
def test_of_fewer_sequences_than_a_batch_has_by_default_all_are_taken(function):
    rnn, x = make_seeded("gru"), torch.randn(20, 9, 1, generator=generator())
    settings = {"batches": 2, "stabilisation": 50}
    result = function(rnn, x, **settings, generator=generator())
    expected = function(rnn, x, **settings, batch_size=9, generator=generator())
    tensors = ("batches", "state_periods", "exponents")
    values, same = (next(getattr(r, name) for name in tensors if hasattr(r, name)) for r in (result, expected))
    assert torch.equal(values, same)
    assert result == expected


def test_results_are_shown_without_their_tensors():
    rnn, x = make_seeded("gru"), torch.randn(20, 64, 1, generator=generator())
    for function in (ms.measure, ms.attractors, ms.lyapunov):
        shown = repr(function(rnn, x, batches=2, stabilisation=50, generator=generator()))
        assert "tensor" not in shown
        assert len(shown) < 120


def test_the_same_generator_seed_gives_the_same_result_twice():
    rnn, x = make_seeded("nbrc"), torch.randn(20, 64, 1, generator=generator())
    first, second, other = (
        ms.measure(rnn, x, batches=3, stabilisation=300, generator=generator(seed)).batches for seed in (5, 5, 6)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_a_single_state_says_nothing():
    for x, options in ((torch.randn(5, 1, 1), {}), (torch.randn(5, 8, 1), {"batch_size": 1})):
        with pytest.raises(ValueError, match="at least two: the VAA of a single state is 1 in any network"):
            ms.measure(torch.nn.GRU(1, 4), x, **options)


def test_a_measure_says_in_words_what_it_found():
    x = torch.randn(5, 8, 1)
    one = ms.measure(torch.nn.GRU(1, 4), x, batches=2)
    assert one.n == 8
    assert str(one).startswith("VAA 0.125: all 8 states end at one attractor\n(mean of 2 batches, ")
    assert str(one).endswith("; one attractor gives 0.125)")
    many = dataclasses.replace(one, vaa=[0.5, 1.0])
    assert str(many).splitlines()[:2] == [
        "network 0: VAA 0.500: 8 states end at 4 different places on average",
        "network 1: VAA 1.000: 8 states end at 8 different places on average",
    ]


@pytest.mark.parametrize(("pays", "inside"), [(10**9, 1), (1, 3)])
def test_one_thread_where_more_do_not_pay_and_the_users_afterwards(pays, inside, monkeypatch):
    monkeypatch.setattr(threads, "PAYS", pays)
    before, seen = torch.get_num_threads(), []

    class Spy(nn.Module):
        """Forgets at once; a call that is one too many fails."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4))

        def forward(self, u, state):
            seen.append(torch.get_num_threads())
            if len(seen) == 40:
                raise RuntimeError("enough")
            h = u.sum(dim=-1, keepdim=True) * torch.ones(4)
            return h, h

    torch.set_num_threads(3)
    try:
        with pytest.raises(RuntimeError, match="enough"):
            ms.measure(Spy(), torch.randn(5, 8, 1))
        assert seen[-1] == inside
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
