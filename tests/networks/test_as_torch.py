"""``ms.RNN`` in place of ``torch.nn.GRU``, ``LSTM`` and ``RNN``: the same weights, calls and results."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.testing import assert_close

import multistable as ms
from numpy_cells import fields, normal, with_random_weights

TIGHT = {"rtol": 1e-10, "atol": 1e-12}
KINDS = (nn.GRU, nn.LSTM, nn.RNN)
INPUT, HIDDEN = 2, 3


def pair(kind: type[nn.RNNBase], num_layers: int = 1, **options) -> tuple[nn.RNNBase, ms.RNN]:
    """A module of PyTorch and the same network of ours."""
    with warnings.catch_warnings(action="ignore"):
        theirs = with_random_weights(kind(INPUT, HIDDEN, num_layers, dtype=torch.float64, **options))
    return theirs, ms.from_torch(theirs)


def state_for(module: nn.RNNBase, *batch: int):
    shape = (module.num_layers * (1 + module.bidirectional), *batch, HIDDEN)
    h, c = (0.5 * normal(*shape, seed=seed) for seed in (1, 2))
    return (h, c) if isinstance(module, nn.LSTM) else h


def as_type(state, dtype: torch.dtype):
    return state.to(dtype) if isinstance(state, Tensor) else tuple(field.to(dtype) for field in state)


def everything(network: nn.Module, x, state) -> tuple:
    """Output, last state, and the gradients of input, state and the weights of ``torch.nn``."""
    leaves = [x.data if isinstance(x, PackedSequence) else x, *(() if state is None else fields(state))]
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    data, *given = leaves
    x = x._replace(data=data) if isinstance(x, PackedSequence) else data
    state = None if state is None else tuple(given) if len(given) > 1 else given[0]
    output, end = network(x, state)
    results = (output.data if isinstance(x, PackedSequence) else output, *fields(end))
    upstream = [normal(*result.shape, seed=9 + i) for i, result in enumerate(results)]
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    gradients = torch.autograd.grad(results, [*leaves, *weights], upstream)
    return output, end, gradients[: len(leaves)], gradients[len(leaves) :]


def in_their_order(network: ms.RNN, gradients: tuple[Tensor, ...]) -> list[Tensor]:
    """Gradients of our weights as those of the weights of ``torch.nn``."""
    holder = ms.from_torch(ms.to_torch(network))
    with torch.no_grad():
        for weight, gradient in zip((w for w in holder.parameters() if w.requires_grad), gradients, strict=True):
            weight.copy_(gradient)
    return list(ms.to_torch(holder).parameters())


@st.composite
def calls(draw):
    """A module, an input for it and a state."""
    kind = draw(st.sampled_from(KINDS))
    options = {name: draw(st.booleans()) for name in ("bias", "batch_first", "bidirectional")}
    num_layers = draw(st.integers(1, 3))
    if kind is nn.RNN:
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    theirs, ours = pair(kind, num_layers, **options)
    form = draw(st.sampled_from(["batch", "one", "packed"]))
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    if form == "packed":
        enforce_sorted = draw(st.booleans())
        lengths = sorted(lengths, reverse=True) if enforce_sorted else lengths
        sequences = [normal(length, INPUT, seed=i) for i, length in enumerate(lengths)]
        x = pack_sequence(sequences, enforce_sorted=enforce_sorted)
    elif form == "one":
        x = normal(lengths[0], INPUT)
    else:
        x = normal(*((len(lengths), lengths[0]) if options["batch_first"] else (lengths[0], len(lengths))), INPUT)
    batch = () if form == "one" else (len(lengths),)
    return theirs, ours, x, draw(st.sampled_from([None, state_for(theirs, *batch)]))


@settings(max_examples=30)
@given(calls())
def test_outputs_states_and_gradients_are_those_of_torch(call):
    theirs, ours, x, state = call
    output, end, of_input, of_weights = everything(ours, x, state)
    expected, expected_end, expected_of_input, expected_of_weights = everything(theirs, x, state)
    assert type(output) is type(expected)
    assert_close((output, end), (expected, expected_end), **TIGHT)
    assert type(end) is type(expected_end)
    assert_close(of_input, expected_of_input, **TIGHT)
    assert_close(in_their_order(ours, of_weights), list(expected_of_weights), **TIGHT)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_bidirectional_double_layer_is_its_halves_in_both_directions(cell):
    rnn = with_random_weights(ms.RNN(cell, INPUT, 4, 2, bidirectional=True, double=True, dtype=torch.float64))
    x = normal(5, 3, INPUT)
    output, end = rnn(x)
    u, ends = x, []
    for layer in rnn.layers:
        assert layer.cells == (*layer.onward.cells, *layer.reverse.cells)
        onward = [ms.scan.scan(half, u) for half in layer.onward.cells]
        reverse = [ms.scan.scan(half, u.flip(0)) for half in layer.reverse.cells]
        u = torch.cat([*(half.h for half in onward), *(half.h.flip(0) for half in reverse)], dim=-1)
        ends += [onward, reverse]
    assert_close(output, u, **TIGHT)
    for i, field in enumerate(fields(end)):
        assert_close(field, torch.stack([torch.cat([half[i][-1] for half in both], -1) for both in ends]), **TIGHT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "batch_first": True}], ids=["one-way", "both-ways"])
def test_dropout_is_that_of_torch_to_the_draw(kind, options):
    theirs, ours = pair(kind, 3, dropout=0.4, **options)
    x = normal(5, 4, INPUT)
    results = []
    for network in (theirs, ours):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            results.append(network(x))
    assert_close(*results, **TIGHT)
    assert not torch.equal(results[1][0], ours(x)[0])
    assert_close(ours.eval()(x), theirs.eval()(x), **TIGHT)
    assert_close(ours(x), ours(x), rtol=0, atol=0)


def test_advance_drops_out_too():
    _, ours = pair(nn.GRU, 2, dropout=0.4)
    x = normal(5, 4, INPUT)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        output = ours(x)[0]
        torch.manual_seed(3)
        assert_close(ours.advance(x)[0], output, **TIGHT)


def test_dropout_of_packed_sequences_is_of_their_own_steps():
    """All that the second layer reads is dropped: no sequence differs from one that reads zeros."""
    _, ours = pair(nn.GRU, 2, dropout=1.0)
    sequences = [normal(length, INPUT, seed=length) for length in (2, 5, 3)]
    _, end = ours(pack_sequence(sequences, enforce_sorted=False))
    for i, sequence in enumerate(sequences):
        zeros = torch.zeros(len(sequence), 1, HIDDEN, dtype=torch.float64)
        assert_close(end[1, i : i + 1], ms.scan.scan(ours.layers[1].cell, zeros).h[-1], **TIGHT)


def test_dropout_of_a_single_layer_warns_as_in_torch():
    for make in (nn.GRU, lambda *sizes, **options: ms.RNN("gru", *sizes, **options)):
        with pytest.warns(UserWarning, match=r"dropout.*0\.5"):
            make(2, 3, dropout=0.5)


@pytest.mark.parametrize("dropout", [-0.1, 1.1, True, "half", None])
def test_a_dropout_that_is_no_share_is_refused(dropout):
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\]"):
        ms.RNN("gru", 2, 3, 2, dropout=dropout)


@pytest.mark.parametrize("training", [True, False])
def test_measure_and_warmup_see_no_dropout_and_leave_the_mode(training):
    x = torch.randn(12, 40, INPUT, generator=torch.Generator().manual_seed(0))

    def after_warmup(dropout):
        rnn = ms.RNN("gru", INPUT, 4, 2, dropout=dropout, generator=torch.Generator().manual_seed(1)).train(training)
        options = {"batch_size": 8, "generator": torch.Generator().manual_seed(2)}
        measured = ms.measure(rnn, x, batches=1, stabilisation=20, **options)
        with warnings.catch_warnings(action="ignore", category=ms.WarmupWarning):
            ms.warmup(rnn, x, steps=2, algorithm="paper", **options)
        assert all(module.training is training for module in rnn.modules())
        return measured.batches, list(rnn.parameters())

    assert_close(after_warmup(0.9), after_warmup(0.0), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("given", [None, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_types_under_autocast_are_those_of_torch(kind, bidirectional, given, dtype):
    theirs = kind(INPUT, HIDDEN, 2, bidirectional=bidirectional)
    ours = ms.from_torch(theirs)
    x = torch.randn(5, 4, INPUT).to(dtype).requires_grad_()
    state = None if given is None else as_type(state_for(theirs, 4), given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = [network(x, state) for network in (ours, theirs)]
        with ms.engine(backend="fused"):
            ours(x, state)
        assert set(ms.backends(ours)) == {"cpu"}
    types = [[tensor.dtype for tensor in (output, *fields(end))] for output, end in results]
    assert types[0] == types[1]
    float32 = ours(x.float(), None if state is None else as_type(state, torch.float32))
    assert_close(results[0], float32, rtol=0, atol=0.004, check_dtype=False)  # but for the last rounding
    of_input, of_weight = torch.autograd.grad(results[0][0].float().sum(), [x, next(ours.parameters())])
    assert (of_input.dtype, of_weight.dtype) == (dtype, torch.float32)


def test_autocast_leaves_float64_alone():
    theirs, ours = pair(nn.GRU, 2)
    x = normal(5, 4, INPUT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(ours(x), theirs(x), **TIGHT)


class Model(nn.Module):
    """A network between others, as it stands in what is compiled."""

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.before, self.rnn, self.after = nn.Linear(INPUT, INPUT), rnn, nn.Linear(4, 2)

    def forward(self, x: Tensor, state=None, **options) -> tuple[Tensor, Tensor]:
        output, end = self.rnn(torch.tanh(self.before(x)), state, **options)
        return self.after(torch.relu(output)), end


# The compiler looks for a gradient in every tensor, and hides what PyTorch says to that, unless warnings are errors.
compiling = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


@compiling
@pytest.mark.parametrize(("cell", "backend"), [(("gru", "brc"), "eager"), ("lstm", "aot_eager")])
def test_compiled_networks_compute_the_same(cell, backend):
    torch.compiler.reset()
    double = isinstance(cell, tuple)
    model = with_random_weights(Model(ms.RNN(cell, INPUT, 4, 2, double=double)))
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        before = model(torch.randn(1, 3, INPUT))[1]
    for time, state in ((6, None), (3, before)):
        x, resets = torch.randn(time, 3, INPUT, requires_grad=True), torch.rand(time, 3) < 0.3
        results = [network(x, state, resets=resets) for network in (compiled, model)]
        assert_close(*results, rtol=0, atol=1e-6)
        leaves = [x, *model.parameters()]
        sums = [y.square().sum() + fields(end)[0].sum() for y, end in results]
        assert_close(*(torch.autograd.grad(total, leaves) for total in sums), rtol=1e-5, atol=1e-6)


@compiling
def test_compiling_takes_networks_as_they_are():
    """What stands before and behind a network is compiled, and nothing of it."""
    torch.compiler.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    model = Model(ms.RNN("gru", INPUT, 4, 2))
    torch.compile(model, backend=backend)(torch.randn(5, 3, INPUT))
    called = [str(node.target) for graph in graphs for node in graph.graph.nodes if node.op == "call_function"]
    assert len(called) == 4, called  # linear, tanh, relu, linear


@pytest.mark.parametrize("cell", ["gru", "chrono", ("lstm", "mgu")])
def test_without_bias_the_biases_stay_zero(cell):
    rnn = ms.RNN(cell, INPUT, 4, 2, bias=False, double=isinstance(cell, tuple))
    biases = [weight for name, weight in rnn.named_parameters() if name.endswith("bias")]
    optimiser = torch.optim.AdamW(rnn.parameters(), lr=0.1)
    rnn(torch.randn(5, 3, INPUT))[0].sum().backward()
    optimiser.step()
    assert len(biases) == (4 if isinstance(cell, tuple) else 2)
    assert all(torch.count_nonzero(bias) == 0 and not bias.requires_grad for bias in biases)
    member, _ = ms.Ensemble([rnn, rnn]).unstack()
    assert (member.bias, member.layers[0].cells[0].bias.requires_grad) == (False, False)


class NoBias(ms.GRU):
    def __init__(self, *sizes, **factory):
        super().__init__(*sizes, **factory)
        del self._parameters["bias"]


def test_what_cannot_be_as_in_torch_is_refused():
    with pytest.raises(ValueError, match="bias=False is for cells with a parameter 'bias', NoBias has none"):
        ms.RNN(NoBias, 2, 3, bias=False)
    with pytest.raises(TypeError, match="the cell LSTM takes no argument 'proj_size'"):
        ms.RNN("lstm", 2, 4, proj_size=2)
    for name in ("bias", "batch_first", "bidirectional", "double"):
        with pytest.raises(ValueError, match=f"{name} must be true or false, got 'no'"):
            ms.RNN("gru", 2, 4, **{name: "no"})


def test_a_state_whose_fields_differ_is_refused_as_in_torch():
    theirs, ours = pair(nn.LSTM)
    h, c = state_for(theirs, 4)
    for network in (theirs, ours):
        with pytest.raises((RuntimeError, ValueError), match=r"4.*1"):
            network(normal(5, 4, INPUT), (h, c[:, :1]))


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "2, 3"),
        ({"num_layers": 2, "dropout": 0.5}, "2, 3, num_layers=2, dropout=0.5"),
        ({"bias": False, "batch_first": True, "bidirectional": True}, None),
    ],
)
def test_networks_are_shown_as_in_torch(options, shown):
    theirs, ours = pair(nn.GRU, **options)
    assert ours.extra_repr() == theirs.extra_repr() == (shown or theirs.extra_repr())
    assert repr(ours).startswith(f"RNN(\n  {theirs.extra_repr()}\n")


def test_what_torch_can_be_asked_to_do_with_its_weights():
    assert ms.RNN("gru", 2, 3).flatten_parameters() is None


@pytest.mark.parametrize("double", [False, True])
def test_names_of_weights_in_both_directions(double):
    names = ["input_weight", "recurrent_weight", "bias"]
    cells = ["warmed", "transient"] if double else ["cell"]
    rnn = ms.RNN("gru", 2, 4, 2, bidirectional=True, double=double)
    assert list(rnn.state_dict()) == [
        f"layers.{layer}.{way}.{cell}.{name}"
        for layer in range(2) for way in ("onward", "reverse") for cell in cells for name in names
    ]  # fmt: skip


def test_both_directions_together_are_no_dynamical_system():
    """Each by itself is: tests/dynamics/system/test_models.py."""
    rnn = ms.RNN("gru", 2, 4, bidirectional=True)
    assert set(ms.backends(rnn)) == {"cpu"}
    for function in (ms.attractors, ms.measure):
        with pytest.raises(ValueError, match="with bidirectional=True has two states that nothing joins"):
            function(ms.Ensemble([rnn]), torch.zeros(5, 250, 2))
