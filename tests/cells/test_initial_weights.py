"""The distributions that initial weights are drawn from, and where the random numbers come from."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import multistable as ms

INPUT, HIDDEN = 24, 48


def make(name: str, seed: int = 0, **options) -> ms.Cell:
    generator = torch.Generator().manual_seed(seed)
    return ms.CELLS[name](INPUT, HIDDEN, generator=generator, dtype=torch.float64, **options)


def gate_blocks(weight: Tensor) -> list[Tensor]:
    """The matrix, or vector, of each gate."""
    assert weight.shape[-1] % HIDDEN == 0
    return list(weight.detach().split(HIDDEN, dim=-1))


def assert_drawn_from(values: Tensor, distribution: Callable[[Tensor], Tensor]) -> None:
    """Kolmogorov-Smirnov: a sample of the distribution would fail with a probability below 1e-4."""
    ordered = values.flatten().sort().values
    expected = distribution(ordered)
    n = len(ordered)
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    statistic = torch.maximum((expected - steps[:-1]).abs().max(), (expected - steps[1:]).abs().max())
    assert statistic < 2.23 / math.sqrt(n)


def assert_uniform(values: Tensor, low: float, high: float) -> None:
    assert values.min() >= low
    assert values.max() <= high
    assert_drawn_from(values, lambda x: (x - low) / (high - low))


def assert_glorot(weight: Tensor, gates: int) -> None:
    """Each gate has its own fan: a matrix of the gates side by side would have a smaller bound."""
    rows = weight.shape[0]
    bound = math.sqrt(6 / (rows + HIDDEN))
    assert weight.shape == (rows, gates * HIDDEN)
    for block in gate_blocks(weight):
        assert_uniform(block, -bound, bound)


def assert_orthogonal(weight: Tensor, gates: int) -> None:
    assert weight.shape == (HIDDEN, gates * HIDDEN)
    blocks = gate_blocks(weight)
    for block in blocks:
        assert_close(block @ block.T, torch.eye(HIDDEN, dtype=torch.float64), rtol=0, atol=1e-12)
        # A rotation drawn at random, not a trivial one: entries are close to N(0, 1/size).
        assert_drawn_from(block, lambda x: torch.special.ndtr(x * math.sqrt(HIDDEN)))
    assert all((first - second).abs().max() > 0.1 for first, second in itertools.pairwise(blocks))


def assert_zero(weight: Tensor, gates: int) -> None:
    assert weight.shape == (gates * HIDDEN,)
    assert torch.count_nonzero(weight) == 0


def assert_torch_lstm_matrices(cell: ms.Cell) -> None:
    bound = 1 / math.sqrt(HIDDEN)
    assert cell.input_weight.shape == (INPUT, 4 * HIDDEN)
    assert cell.recurrent_weight.shape == (HIDDEN, 4 * HIDDEN)
    for block in gate_blocks(cell.input_weight) + gate_blocks(cell.recurrent_weight):
        assert_uniform(block, -bound, bound)


def assert_sum_of_two_uniforms(values: Tensor, bound: float) -> None:
    """The triangular distribution on (-2 bound, 2 bound), whose variance is 2 bound^2 / 3."""
    assert values.abs().max() <= 2 * bound
    assert values.abs().max() > bound
    assert_close(values.var(), values.new_tensor(2 * bound**2 / 3), rtol=0.15, atol=0)

    def distribution(x: Tensor) -> Tensor:
        tail = (2 * bound - x.abs()) ** 2 / (8 * bound**2)
        return torch.where(x < 0, tail, 1 - tail)

    assert_drawn_from(values, distribution)


def check_lstm(cell: ms.Cell) -> None:
    assert_torch_lstm_matrices(cell)
    assert cell.bias.shape == (4 * HIDDEN,)
    assert_sum_of_two_uniforms(cell.bias.detach(), 1 / math.sqrt(HIDDEN))


def check_chrono(cell: ms.Cell) -> None:
    """The matrices; the biases have tests of their own."""
    assert_torch_lstm_matrices(cell)


def check_gru(cell: ms.Cell) -> None:
    assert_glorot(cell.input_weight, gates=3)
    assert_orthogonal(cell.recurrent_weight, gates=3)
    assert_zero(cell.bias, gates=3)


def check_mgu(cell: ms.Cell) -> None:
    assert_glorot(cell.input_weight, gates=2)
    assert_glorot(cell.recurrent_weight, gates=2)
    assert_zero(cell.bias, gates=2)


def check_nbrc(cell: ms.Cell) -> None:
    assert_glorot(cell.input_weight, gates=3)
    assert_glorot(cell.recurrent_weight, gates=2)
    assert_zero(cell.bias, gates=3)


def check_brc(cell: ms.Cell) -> None:
    assert_glorot(cell.input_weight, gates=3)
    assert_close(cell.recurrent_weight.detach(), torch.ones(2 * HIDDEN, dtype=torch.float64), rtol=0, atol=0)
    assert_zero(cell.bias, gates=3)


DISTRIBUTIONS = {
    "lstm": check_lstm,
    "chrono": check_chrono,
    "gru": check_gru,
    "mgu": check_mgu,
    "nbrc": check_nbrc,
    "brc": check_brc,
}


@pytest.mark.parametrize("name", ms.CELLS)
def test_initial_weights_follow_the_distribution_of_the_cell(name):
    DISTRIBUTIONS[name](make(name))


def test_the_recurrent_bias_of_a_gru_starts_at_zero():
    cell = make("gru", recurrent_bias=True)
    check_gru(cell)
    assert_zero(cell.recurrent_bias, gates=3)
    assert make("gru").recurrent_bias is None


def test_both_biases_of_an_lstm_are_drawn_and_add_up_to_the_one_bias():
    two, one = make("lstm", recurrent_bias=True), make("lstm")
    bound = 1 / math.sqrt(HIDDEN)
    assert_uniform(two.bias, -bound, bound)
    assert_uniform(two.recurrent_bias, -bound, bound)
    assert torch.equal(two.bias + two.recurrent_bias, one.bias)


def test_the_second_bias_of_a_chrono_lstm_starts_at_zero():
    cell = make("chrono", recurrent_bias=True)
    assert_zero(cell.recurrent_bias, gates=4)
    assert torch.equal(cell.bias, make("chrono").bias)


@pytest.mark.parametrize("t_max", [5, 600])
def test_chrono_time_scales_are_uniform_up_to_t_max(t_max):
    generator = torch.Generator().manual_seed(3)
    cell = ms.CELLS["chrono"](1, 2000, t_max=t_max, generator=generator, dtype=torch.float64)
    b_f = cell.bias.detach()[:2000]
    assert b_f.min() >= 0
    assert b_f.max() <= math.log(t_max - 1)
    assert_uniform(b_f.exp(), 1, t_max - 1)


def test_chrono_input_biases_are_the_negated_forget_biases_and_all_others_zero():
    b_f, b_i, b_r, b_c = make("chrono").bias.detach().chunk(4)
    assert torch.count_nonzero(b_f) == HIDDEN
    assert torch.equal(b_i, -b_f)
    assert torch.count_nonzero(b_r) == torch.count_nonzero(b_c) == 0


def test_t_max_reaches_chrono_through_a_network():
    generator = torch.Generator().manual_seed(0)
    rnn = ms.RNN("chrono", 2, 500, 2, t_max=20, generator=generator, dtype=torch.float64)
    for layer in rnn.layers:
        assert_uniform(layer.cell.bias.detach()[:500].exp(), 1, 19)


@pytest.mark.parametrize("name", ms.CELLS)
def test_weights_have_the_given_type_and_can_be_trained(name):
    for dtype in (torch.float32, torch.float64):
        for rnn in (ms.CELLS[name](2, 4, dtype=dtype), ms.RNN(name, 2, 4, 2, double=True, dtype=dtype)):
            assert {p.dtype for p in rnn.parameters()} == {dtype}
            assert all(w.requires_grad and w.is_leaf for w in rnn.parameters())


@pytest.mark.parametrize("name", ms.CELLS)
def test_the_generator_decides_the_draws_and_the_global_one_is_left_alone(name):
    before = torch.random.get_rng_state()
    first, again, other = make(name, seed=7), make(name, seed=7), make(name, seed=8)
    assert torch.equal(torch.random.get_rng_state(), before)
    for parameter, same in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(parameter, same)
    assert not torch.equal(first.input_weight, other.input_weight)
    if name != "brc":
        assert not torch.equal(first.recurrent_weight, other.recurrent_weight)
    if name in ("lstm", "chrono"):
        assert not torch.equal(first.bias, other.bias)


@pytest.mark.parametrize(("name", "double"), [("lstm", False), ("gru", True)])
def test_the_generator_of_a_network_decides_the_draws_of_all_its_layers(name, double):
    def network(seed: int) -> ms.RNN:
        generator = torch.Generator().manual_seed(seed)
        return ms.RNN(name, 3, 4, 2, double=double, generator=generator, dtype=torch.float64)

    before = torch.random.get_rng_state()
    first, again, other = network(1), network(1), network(2)
    assert torch.equal(torch.random.get_rng_state(), before)
    for key, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
        if key.endswith("input_weight"):
            assert not torch.equal(value, other.state_dict()[key]), key


def test_layers_and_halves_are_drawn_apart():
    rnn = ms.RNN("gru", 4, 4, 2, double=True, generator=torch.Generator().manual_seed(0))
    drawn = [cell.input_weight for layer in rnn.layers for cell in (layer.warmed, layer.transient)]
    for i, weight in enumerate(drawn):
        assert not any(torch.equal(weight, other) for other in drawn[:i])


def test_without_a_generator_the_global_seed_decides():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        first = ms.RNN("gru", 3, 4, 2)
        torch.manual_seed(11)
        again = ms.RNN("gru", 3, 4, 2)
        following = ms.RNN("gru", 3, 4, 2)
    for parameter, same in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(parameter, same)
    assert not torch.equal(again.layers[0].cell.input_weight, following.layers[0].cell.input_weight)
