"""Networks with converted weights compute what ``torch.nn`` computes, in both directions."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.testing import assert_close

import multistable as ms
from multistable.networks import from_torch, to_torch
from multistable.networks.convert import torch_recurrences
from numpy_cells import fields, normal, with_random_weights

TIME, N, INPUT, HIDDEN = 5, 3, 2, 4
TIGHT = {"rtol": 1e-11, "atol": 1e-13}

KINDS = [
    pytest.param(nn.GRU, {}, id="gru"),
    pytest.param(nn.LSTM, {}, id="lstm"),
    pytest.param(nn.RNN, {"nonlinearity": "tanh"}, id="rnn-tanh"),
    pytest.param(nn.RNN, {"nonlinearity": "relu"}, id="rnn-relu"),
]
every_kind = pytest.mark.parametrize(("kind", "options"), KINDS)
every_form = pytest.mark.parametrize(
    "form",
    [{"bias": False}, {"num_layers": 3, "batch_first": True}, {"num_layers": 2, "bidirectional": True}],
    ids=lambda form: "-".join(f"{k}={v}" for k, v in form.items()) or "plain",
)
every_cell = pytest.mark.parametrize(
    ("cell", "options"),
    [
        pytest.param("gru", {}, id="gru"),
        pytest.param("gru", {"recurrent_bias": True}, id="gru-recurrent_bias"),
        pytest.param("lstm", {}, id="lstm"),
        pytest.param("lstm", {"recurrent_bias": True}, id="lstm-recurrent_bias"),
        pytest.param("chrono", {"t_max": 30}, id="chrono"),
    ],
)
FORM = {"num_layers": 2, "batch_first": True}


def random_state(kind: type[nn.RNNBase], entries: int):
    h, c = (0.5 * normal(entries, N, HIDDEN, seed=seed) for seed in (1, 2))
    return (h, c) if kind is nn.LSTM else h


def assert_same_function(ours: ms.RNN, theirs: nn.RNNBase) -> None:
    """Outputs, final states, and gradients with respect to input and initial state agree."""
    x = normal(N, TIME, INPUT) if theirs.batch_first else normal(TIME, N, INPUT)
    before = random_state(type(theirs), theirs.num_layers * (1 + theirs.bidirectional))
    variables = [tensor.requires_grad_() for tensor in (x, *fields(before))]
    results = [network(x, before) for network in (ours, theirs)]
    assert_close(*results, **TIGHT)
    upstream = [normal(*t.shape, seed=3 + i) for i, t in enumerate((results[0][0], *fields(results[0][1])))]
    gradients = [
        torch.autograd.grad((output, *fields(end)), variables, upstream, retain_graph=True) for output, end in results
    ]
    assert all(gradient.abs().max() > 1e-3 for gradient in gradients[1])
    assert_close(*gradients, **TIGHT)
    assert_close(ours(x), theirs(x), **TIGHT)


@every_kind
@every_form
def test_from_torch_computes_the_same(kind, options, form):
    module = with_random_weights(kind(INPUT, HIDDEN, dtype=torch.float64, **options, **form))
    network = from_torch(module)
    assert isinstance(network, ms.RNN)
    assert (network.input_size, network.hidden_size, network.num_layers) == (INPUT, HIDDEN, module.num_layers)
    for name in ("bias", "batch_first", "bidirectional"):
        assert getattr(network, name) is getattr(module, name)
    assert_same_function(network, module)


@every_cell
def test_to_torch_computes_the_same(cell, options):
    network = with_random_weights(ms.RNN(cell, INPUT, HIDDEN, dtype=torch.float64, **FORM, **options))
    module = to_torch(network)
    assert type(module) is (nn.GRU if cell == "gru" else nn.LSTM)
    assert_same_function(network, module)


def test_initial_chrono_weights_convert():
    network = ms.RNN("chrono", INPUT, HIDDEN, t_max=30, dtype=torch.float64)
    assert_same_function(network, to_torch(network))


@every_kind
def test_both_biases_are_kept_apart(kind, options):
    """An optimiser moves each of them: their sum alone would be another network to train."""
    module = with_random_weights(kind(INPUT, HIDDEN, dtype=torch.float64, **options))
    returned = to_torch(from_torch(module))
    assert torch.equal(returned.bias_ih_l0, module.bias_ih_l0)
    assert torch.equal(returned.bias_hh_l0, module.bias_hh_l0)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_a_step_of_adam_moves_both_biases_as_in_torch(kind):
    module = with_random_weights(kind(INPUT, HIDDEN, dtype=torch.float64))
    network, x = from_torch(module), normal(TIME, N, INPUT)
    for trained in (module, network):
        optimiser = torch.optim.Adam(trained.parameters(), lr=0.1)
        trained(x)[0].square().sum().backward()
        optimiser.step()
    assert_close(to_torch(network).state_dict(), dict(module.state_dict()), rtol=1e-6, atol=1e-9)


@every_cell
def test_there_and_back_again_is_exact(cell, options):
    network = with_random_weights(ms.RNN(cell, INPUT, HIDDEN, dtype=torch.float64, **FORM, **options))
    returned = from_torch(to_torch(network))
    weights = returned.state_dict()
    for name, value in network.state_dict().items():
        assert torch.equal(value, weights.pop(name)), name
    # What is left are the second biases of torch.nn.
    assert all(name.endswith("recurrent_bias") and torch.count_nonzero(w) == 0 for name, w in weights.items())
    assert returned.batch_first is network.batch_first


@every_kind
@every_form
def test_back_and_there_again_computes_the_same(kind, options, form):
    module = with_random_weights(kind(INPUT, HIDDEN, dtype=torch.float64, **options, **form))
    returned = to_torch(from_torch(module))
    assert type(returned) is type(module)
    assert returned.extra_repr() == module.extra_repr()
    weights = returned.state_dict()
    assert weights.keys() == module.state_dict().keys()
    assert all(torch.equal(weights[name], value) for name, value in module.state_dict().items())
    x = normal(N, TIME, INPUT) if module.batch_first else normal(TIME, N, INPUT)
    assert_close(returned(x), module(x), **TIGHT)


@pytest.mark.parametrize(("kind", "lengths"), [(nn.GRU, (2, 5, 1, 5, 3)), (nn.LSTM, (5, 4, 4, 2))])
def test_packed_sequences_compute_the_same(kind, lengths):
    module = with_random_weights(kind(INPUT, HIDDEN, 2, dtype=torch.float64))
    enforce_sorted = lengths == tuple(sorted(lengths, reverse=True))
    packed = pack_sequence([normal(t, INPUT, seed=t) for t in lengths], enforce_sorted=enforce_sorted)
    assert_close(from_torch(module)(packed), module(packed), **TIGHT)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_one_sequence_without_a_batch_computes_the_same(kind):
    module = with_random_weights(kind(INPUT, HIDDEN, 2, dtype=torch.float64))
    assert_close(from_torch(module)(normal(TIME, INPUT)), module(normal(TIME, INPUT)), **TIGHT)


@every_kind
def test_dropout_and_the_mode_are_kept(kind, options):
    module = kind(INPUT, HIDDEN, 2, dropout=0.5, **options).eval()
    network = from_torch(module)
    assert (network.dropout, network.training) == (0.5, False)
    returned = to_torch(network)
    assert (returned.dropout, returned.training) == (0.5, False)
    assert from_torch(returned.train()).training


@every_kind
def test_what_has_no_bias_learns_none(kind, options):
    network = from_torch(kind(INPUT, HIDDEN, bias=False, dtype=torch.float64, **options))
    network(normal(TIME, N, INPUT))[0].sum().backward()
    learn = {name for name, weight in network.named_parameters() if weight.grad is not None}
    assert learn == {"layers.0.cell.input_weight", "layers.0.cell.recurrent_weight"}
    assert torch.count_nonzero(network.layers[0].cell.bias) == 0


@every_kind
def test_weights_are_copied(kind, options):
    module = with_random_weights(kind(INPUT, HIDDEN, dtype=torch.float64, **options))
    network = from_torch(module)
    again = to_torch(network)
    x = normal(TIME, N, INPUT)
    expected = module(x)
    with torch.no_grad():
        for parameter in (*network.parameters(), *again.parameters()):
            parameter.add_(1)
    assert_close(module(x), expected, rtol=0, atol=0)
    assert all(p.grad is None and p.is_leaf and p.requires_grad for p in network.parameters())
    shared = {p.data_ptr() for p in network.parameters()} & {p.data_ptr() for p in again.parameters()}
    assert not shared


@pytest.mark.parametrize(
    ("kind", "dtype"), [(nn.GRU, torch.float32), (nn.LSTM, torch.float64), (nn.RNN, torch.float32)]
)
def test_conversion_keeps_the_type_and_draws_no_random_numbers(kind, dtype):
    module = kind(INPUT, HIDDEN, 2, dtype=dtype)
    before = torch.random.get_rng_state()
    network = from_torch(module)
    again = to_torch(network)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert {p.dtype for p in (*network.parameters(), *again.parameters())} == {dtype}


def test_converted_networks_train():
    module = nn.GRU(INPUT, HIDDEN, dtype=torch.float64)
    network = from_torch(module)
    network(normal(TIME, N, INPUT))[0].sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in network.parameters())
    assert all(p.grad is None for p in module.parameters())


def test_each_direction_is_a_recurrence():
    found = torch_recurrences(nn.GRU(INPUT, HIDDEN, 2, bidirectional=True))
    assert [cell.suffix for cell in found] == ["_l0", "_l0_reverse", "_l1", "_l1_reverse"]
    assert [cell.outline.input_size for cell in found] == [INPUT, INPUT, 2 * HIDDEN, 2 * HIDDEN]


def test_projections_are_refused():
    with pytest.raises(ValueError, match="LSTM with proj_size=2 is not supported"):
        from_torch(nn.LSTM(INPUT, HIDDEN, proj_size=2))


@pytest.mark.parametrize(
    "module", [nn.Linear(2, 3), nn.GRUCell(2, 3), ms.RNN("gru", 2, 3)], ids=lambda m: type(m).__name__
)
def test_modules_that_are_no_recurrence_of_torch_are_refused(module):
    message = rf"torch\.nn\.GRU, torch\.nn\.LSTM or torch\.nn\.RNN, got {type(module).__name__}"
    with pytest.raises(TypeError, match=message):
        from_torch(module)


@pytest.mark.parametrize(("cell", "options"), [
    ("mgu", {}),
    ("brc", {}),
    ("nbrc", {}),
    ("gru", {"double": True}),
    (("gru", "lstm"), {"double": True}),
], ids=str)  # fmt: skip
def test_networks_without_a_counterpart_are_refused(cell, options):
    with pytest.raises(
        TypeError, match=r"network must have .* single gru, lstm or chrono layers, or .* torch\.nn\.RNN"
    ):
        to_torch(ms.RNN(cell, INPUT, HIDDEN, **options))


def test_a_cell_derived_from_gru_with_other_equations_is_refused():
    class Halved(ms.CELLS["gru"]):
        def step(self, projected, state):
            return self.State(0.5 * super().step(projected, state).h)

    with pytest.raises(TypeError, match=r"torch\.nn counterpart"):
        to_torch(ms.RNN(Halved, INPUT, HIDDEN))


def test_a_module_that_is_no_network_is_refused():
    with pytest.raises(TypeError, match="GRU"):
        to_torch(nn.GRU(INPUT, HIDDEN))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_networks_of_half_precision_are_converted(kind, dtype):
    module = kind(INPUT, HIDDEN, 2).to(dtype)
    network = from_torch(module)
    assert {p.dtype for p in network.parameters()} == {dtype}
    for name, value in to_torch(network).state_dict().items():
        assert torch.equal(value, module.state_dict()[name])
