"""Methods that draw weights, each tested against its own definition."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.testing import assert_close

import multistable as ms
from multistable.cells.elman import Elman

INPUT, HIDDEN, LENGTH = 2, 400, 50
KINDS = {**ms.CELLS, "elman": Elman}
GATED = [name for name, kind in KINDS.items() if kind.keep_gate is not None]
DOUBLE = {"dtype": torch.float64}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sequences(n=5, length=LENGTH):
    return torch.randn(length, n, INPUT, generator=generator(9), dtype=torch.float64)


def cell_of(name, **options) -> ms.Cell:
    return KINDS[name](INPUT, HIDDEN, generator=generator(1), **DOUBLE, **options)


def assert_uniform(values: Tensor, low: float, high: float) -> None:
    """Kolmogorov-Smirnov: a sample of the distribution would fail with a probability below 1e-4."""
    ordered, n = (values.sort().values - low) / (high - low), len(values)
    assert ordered[0] >= 0
    assert ordered[-1] <= 1
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    assert max((ordered - steps[:-1]).abs().max(), (ordered - steps[1:]).abs().max()) < 2.23 / math.sqrt(n)


def share_kept(cell: ms.Cell) -> Tensor:
    """How much of its past each unit keeps, found by the cell's own step: no weight acts but those that were set.

    With zero matrices and without input, x becomes k x + (1 - k) tanh(a x) + a constant, where x is what a unit keeps,
    and a = 1 for BRC and NBRC, whose candidate reads the unit itself, else 0.
    """
    with torch.no_grad():
        for name in ("input_weight", "recurrent_weight"):
            getattr(cell, name).zero_()
        projected = cell.project(torch.zeros(1, INPUT, dtype=torch.float64))
        after = [
            cell.step(projected, cell.State(*(torch.full((1, HIDDEN), x).double() for _ in cell.State._fields)))[-1]
            for x in (0.5, 0.0)
        ]
    candidate = math.tanh(0.5) if isinstance(cell, ms.BRC | ms.NBRC) else 0.0
    return ((after[0] - after[1] - candidate) / (0.5 - candidate)).squeeze(0)


@pytest.mark.parametrize("name", KINDS)
def test_what_a_cell_declares_fits_its_parameters(name):
    cell = cell_of(name)
    width = cell.recurrent_weight.shape[-1] if cell.recurrent_weight.dim() == 2 else 0
    assert width == cell.recurrent_matrices * HIDDEN


@pytest.mark.parametrize("name", GATED)
def test_uniform_gates_keep_shares_that_are_uniform(name):
    cell = cell_of(name)
    matrices, others = cell.recurrent_weight.clone(), cell.bias.detach().clone()
    ms.prepare(cell, sequences(), method="uniform-gates", generator=generator())
    assert torch.equal(cell.recurrent_weight, matrices)
    gate = cell.keep_gate
    set_here = [gate.place] + ([] if gate.input is None else [gate.input])
    parts = zip(cell.bias.detach().split(HIDDEN), others.split(HIDDEN), strict=True)
    assert [not torch.equal(new, old) for new, old in parts] == [i in set_here for i in range(len(others) // HIDDEN)]
    kept = share_kept(cell)
    assert_uniform(kept, 1 / HIDDEN, 1 - 1 / HIDDEN)


@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("t_max", [None, 600.0])
def test_chrono_draws_time_scales_up_to_t_max(name, t_max):
    cell = cell_of(name)
    options = {} if t_max is None else {"t_max": t_max}
    ms.prepare(cell, [sequences()[:t, 0] for t in (7, LENGTH, 20)], method="chrono", generator=generator(), **options)
    gate, biases = cell.keep_gate, cell.bias.detach().split(HIDDEN)
    set_here = {gate.place, gate.input}
    assert all(not bias.any() for place, bias in enumerate(biases) if place not in set_here)
    kept = share_kept(cell)
    assert_uniform(kept / (1 - kept), 1, (t_max or LENGTH) - 1)


@pytest.mark.parametrize("method", ["chrono", "uniform-gates"])
def test_an_input_gate_is_the_complement_of_the_forget_gate(method):
    cell = cell_of("lstm")
    ms.prepare(cell, sequences(), method=method, generator=generator())
    forget, let_in, *_ = cell.bias.detach().split(HIDDEN)
    assert forget.any()
    assert_close(forget, -let_in, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("method", ["chrono", "uniform-gates"])
def test_two_biases_of_torch_are_drawn_once(kind, method):
    """The sum of both is that of the cell of this library with one bias, drawn from the same numbers."""
    module, cell = kind(INPUT, HIDDEN, **DOUBLE), cell_of(kind.__name__.lower())
    before = module.bias_ih_l0.detach() + module.bias_hh_l0.detach()
    for network in (module, cell):
        ms.prepare(network, sequences(), method=method, generator=generator())
    total = module.bias_ih_l0.detach() + module.bias_hh_l0.detach()
    ours = cell.bias.detach().split(HIDDEN)
    of_torch = {nn.LSTM: [1, 0], nn.GRU: [1]}[kind]  # i, f, g, o; r, z, n
    for place, mine in zip(of_torch, ours, strict=False):
        assert_close(total.split(HIDDEN)[place], mine, rtol=0, atol=0)
    rest = [i for i in range(len(total) // HIDDEN) if i not in of_torch]
    wanted = torch.zeros_like(total) if method == "chrono" else before
    assert all(torch.equal(total.split(HIDDEN)[i], wanted.split(HIDDEN)[i]) for i in rest)


NETWORKS = {
    "lstm": (lambda: nn.LSTM(INPUT, 24, 2, **DOUBLE), {"weight_hh_l0": 4, "weight_hh_l1": 4}),
    "gru": (
        lambda: nn.GRU(INPUT, 24, bidirectional=True, **DOUBLE),
        {"weight_hh_l0": 3, "weight_hh_l0_reverse": 3},
    ),
    "rnn": (lambda: nn.RNN(INPUT, 24, **DOUBLE), {"weight_hh_l0": 1}),
    "gru cell": (lambda: nn.GRUCell(INPUT, 24, **DOUBLE), {"weight_hh": 3}),
    "mgu": (lambda: ms.RNN("mgu", INPUT, 24, 2, **DOUBLE), {f"layers.{i}.cell.recurrent_weight": 2 for i in (0, 1)}),
    "double": (lambda: ms.RNN(("nbrc", "lstm"), INPUT, 48, **DOUBLE), {"layers.0.warmed.recurrent_weight": 2}),
    "ensemble": (
        lambda: ms.Ensemble([ms.RNN("lstm", INPUT, 24, **DOUBLE) for _ in range(3)]),
        {"network.layers.0.cell.recurrent_weight": 4},
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_each_gate_has_an_orthogonal_matrix_and_nothing_else_changes(name):
    make, expected = NETWORKS[name]
    network = make()
    before = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    draws = [generator(seed) for seed in range(3)] if name == "ensemble" else generator()
    done = ms.prepare(network, sequences(), method="orthogonal", generator=draws)
    assert done.changed == tuple(expected)
    blocks = []
    for weight, gates in expected.items():
        value = network.get_parameter(weight).detach()
        blocks += (value.chunk(gates) if weight.startswith("weight_hh") else value.chunk(gates, dim=-1))  # fmt: skip
    for block in blocks:
        assert_close(block @ block.mT, torch.eye(24, dtype=torch.float64).expand(block.shape), rtol=0, atol=1e-12)
    rotations = [matrix for block in blocks for matrix in block.reshape(-1, 24, 24)]
    assert all((a - b).abs().max() > 0.1 for a, b in itertools.combinations(rotations, 2))
    assert all(torch.equal(weight, before[name]) for name, weight in network.named_parameters() if name not in expected)


def test_orthogonal_matrices_are_uniform():
    """The determinant of half of them is 1, and the mean of each entry, of variance 1/d, is zero."""
    members = [ms.RNN("mgu", INPUT, 3, **DOUBLE)] * 200
    ensemble = ms.Ensemble(members)
    draws = [generator(seed) for seed in range(200)]
    ms.prepare(ensemble, sequences(), method="orthogonal", generator=draws)
    matrices = torch.cat(ensemble.network.layers[0].cell.recurrent_weight.detach().chunk(2, dim=-1))
    assert abs(float((torch.linalg.det(matrices) > 0).double().mean()) - 0.5) < 3.9 * 0.5 / 400**0.5
    assert matrices.mean(dim=0).abs().max() < 4.5 * (1 / 3) ** 0.5 / 400**0.5


def test_the_identity_keeps_a_state_of_rectified_units():
    rnn = nn.RNN(INPUT, 8, nonlinearity="relu", **DOUBLE)
    done = ms.prepare(rnn, sequences(), method="identity")
    assert done.changed == ("weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    assert torch.equal(rnn.weight_hh_l0, torch.eye(8, dtype=torch.float64))
    state = torch.rand(1, 3, 8, generator=generator(), dtype=torch.float64)
    assert torch.equal(rnn(torch.zeros(20, 3, INPUT, dtype=torch.float64), state)[1], state)
    one = Elman(INPUT, 8, recurrent_bias=True)
    with torch.no_grad():
        one.bias.fill_(1)
    ms.prepare(one, sequences(), method="identity")
    assert torch.equal(one.recurrent_weight, torch.eye(8))
    assert not one.bias.any()


def test_members_of_an_ensemble_are_drawn_as_single_networks():
    members = [ms.RNN("gru", INPUT, 6) for _ in range(3)]
    ensemble = ms.Ensemble(members)
    for method in ("orthogonal", "uniform-gates", "chrono"):
        ms.prepare(ensemble, sequences(), method=method, generator=[generator(seed) for seed in range(3)])
        for seed, (member, alone) in enumerate(zip(ensemble.unstack(), members, strict=True)):
            ms.prepare(alone, sequences(), method=method, generator=generator(seed))
            assert all(torch.equal(a, b) for a, b in zip(member.parameters(), alone.parameters(), strict=True))


def without_gradients(network):
    return network.requires_grad_(False)


@pytest.mark.parametrize(
    ("make", "method", "message"),
    [
        (lambda: nn.RNN(INPUT, 4), "chrono", "'chrono' is for cells with a gate that keeps the past.*got Elman"),
        (lambda: nn.RNN(INPUT, 4), "uniform-gates", "LSTM, ChronoLSTM, GRU, MGU, BRC, NBRC, got Elman"),
        (lambda: nn.GRU(INPUT, 4), "identity", "'identity' is for .* no gate .*: Elman, got GRU"),
        (lambda: ms.RNN("brc", INPUT, 4), "orthogonal", "LSTM, ChronoLSTM, GRU, MGU, NBRC, Elman, got BRC"),
        (lambda: nn.LSTM(INPUT, 4, proj_size=2), "orthogonal", "got ProjectedLSTM"),
        (lambda: ms.RNN("gru", INPUT, 1), "uniform-gates", "two units or more, got hidden_size = 1"),
        (lambda: nn.LSTM(INPUT, 4, bias=False), "chrono", "'bias_ih_l0' of LSTM are not there"),
        (lambda: ms.RNN("lstm", INPUT, 4, bias=False), "chrono", "'bias' of LSTM require no gradients"),
        (lambda: without_gradients(nn.GRU(INPUT, 4)), "orthogonal", "'weight_hh_l0' of GRU require no gradients"),
        (
            lambda: parametrizations.weight_norm(nn.GRU(INPUT, 4), "weight_hh_l0"),
            "orthogonal",
            "'weight_hh_l0' of .*GRU are derived from other weights",
        ),
    ],
)
def test_a_method_that_does_not_fit_is_refused(make, method, message):
    network = make()
    before = [weight.detach().clone() for weight in network.parameters()]
    with pytest.raises(ValueError, match=message):
        ms.prepare(network, sequences(), method=method)
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def test_t_max_needs_longer_sequences_or_a_number():
    rnn = nn.GRU(INPUT, 4)
    with pytest.raises(ValueError, match="sequences must be longer than 2 steps where t_max is not given, got 2"):
        ms.prepare(rnn, sequences(length=2), method="chrono")
    with pytest.raises(ValueError, match="t_max must be greater than 2, got 2"):
        ms.prepare(rnn, sequences(), method="chrono", t_max=2)
    ms.prepare(rnn, sequences(length=2), method="chrono", t_max=9)
