"""Recurrent parts of every kind: directions, projections, parametrised weights, wrappers, ensembles."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import models
import multistable as ms
from models import FEATURES, SMALL, TIME, UNITS, N, numbers, read, same, seeded, tokens, warmed

LENGTHS = torch.arange(N) % TIME + 1
BATCH = numbers(TIME, N, FEATURES)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, partial(ms.RNN, "lstm")], ids=["GRU", "LSTM", "own LSTM"])
def test_each_direction_is_a_network_of_its_own(kind, layers):
    rnn = seeded(kind, FEATURES, UNITS, layers, bidirectional=True).double()
    names = [f"{layer}.{way}" for layer in range(layers) for way in ("forward", "backward")]
    names = names if layers == 2 else ["forward", "backward"]
    assert list(ms.recurrent_parts(rnn)) == names
    one_step = [BATCH[:, n : n + 1].double()[: LENGTHS[n]] for n in range(N)]
    found = ms.reachable_states(rnn, [each[:, 0] for each in one_step], generator=torch.Generator().manual_seed(0))
    assert list(found) == names
    data = read(rnn, [each[:, 0] for each in one_step])
    for index, name in enumerate(names):
        network = ms.recurrent_parts(rnn)[name]
        for n, each in enumerate(one_step):
            # The state of a direction after all of its sequence is the last one of torch's own.
            state = rnn(each)[1]
            state = torch.cat([field[index, 0] for field in ([state] if kind is nn.GRU else state)])
            alone = data[name].padded[: data[name].lengths[n], n : n + 1]
            torch.testing.assert_close(torch.cat(network(alone)[1], dim=-1)[0], state)


def test_a_network_with_hooks_is_called_as_it_is():
    """Also a state that is passed in then has the form that the module gives it."""

    class From(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(FEATURES, UNITS, 2)

        def forward(self, x):
            return self.rnn(x[2:], self.rnn(x[:2])[1])[0]

    model = seeded(From).double()
    expected = ms.reachable_states(model, BATCH.double())
    handle = model.rnn.register_forward_hook(lambda *call: None)
    found = ms.reachable_states(model, BATCH.double())
    assert read(model, BATCH.double()).before is None
    handle.remove()
    # Of each field the layers one after the other, not of each layer the fields.
    (h1, c1, h2, c2) = expected.split(UNITS, dim=-1)
    torch.testing.assert_close(found, torch.cat([h1, h2, c1, c2], dim=-1))


def test_a_bidirectional_part_with_states_passed_in():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(FEATURES, UNITS, 2, bidirectional=True)

        def forward(self, x):
            state = tuple(numbers(4, N, UNITS, seed=seed) for seed in (1, 2))
            return self.rnn(x, state)[0]

    model = seeded(Pair)
    state = tuple(numbers(4, N, UNITS, seed=seed) for seed in (1, 2))
    data = read(model, BATCH)
    _, ends = model.rnn(BATCH, state)
    for index, (name, network) in enumerate(ms.recurrent_parts(model).items()):
        each = data[name]
        torch.testing.assert_close(each.before, torch.cat([field[index] for field in state], dim=-1))
        end = network(each.padded, each.before.split(UNITS, dim=-1))[1]
        torch.testing.assert_close(end[0], ends[0][index])


def test_warming_up_both_directions():
    model = seeded(models.Classifier, bidirectional=True)
    before = copy.deepcopy(dict(model.rnn.named_parameters()))
    found = warmed(ms.warmup, model, tokens())
    assert list(found) == ["rnn.0.forward", "rnn.0.backward", "rnn.1.forward", "rnn.1.backward"]
    assert all(not torch.equal(p, before[name]) for name, p in model.rnn.named_parameters())
    before = copy.deepcopy(dict(model.rnn.named_parameters()))
    warmed(ms.warmup, model, tokens(), part="rnn.1.backward")
    changed = {name for name, p in model.rnn.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {f"{name}_l1_reverse" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}


def test_a_projected_lstm_is_what_torch_computes():
    rnn = seeded(nn.LSTM, FEATURES, UNITS, 2, proj_size=3).double()
    u = BATCH.double()
    for n, length in enumerate([1, TIME]):
        data = [u[:length, n]]
        states = ms.reachable_states(rnn, data, generator=torch.Generator().manual_seed(0))
        ends = [rnn(u[: t + 1, n : n + 1])[1] for t in range(length)]
        whole = [torch.cat([field[layer, 0] for layer in range(2) for field in end]) for end in ends]
        assert any(torch.allclose(states[0], each) for each in whole)
    history = warmed(ms.warmup, rnn, u)
    assert history.vaa_star.shape == (2, 2)


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal", "old weight_norm"])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_parametrised_weights_are_warmed_up_through_what_they_are_made_of(name):
    model = seeded(models.ByStep, nn.GRUCell) if "old" in name else seeded(models.Classifier)
    rnn, weight = (model.cell, "weight_hh") if "old" in name else (model.rnn, "weight_hh_l0")
    if "old" in name:
        nn.utils.weight_norm(rnn, weight)
    else:
        getattr(parametrizations, name)(rnn, weight)
    given = BATCH if "old" in name else tokens()
    training = getattr(rnn, weight).detach().clone()
    before = copy.deepcopy(model.state_dict())
    assert 0 < ms.measure(model, given, **SMALL).vaa <= 1
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    warmed(ms.warmup, model, given)
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert any("original" in key or key.endswith("_v") for key in changed)
    model.eval()
    model(given)
    assert not torch.equal(getattr(rnn, weight), training)


@pytest.mark.parametrize(
    "wrap",
    [
        nn.DataParallel,
        lambda model: nn.Sequential(nn.DataParallel(model)),
        lambda model: torch.compile(model, backend="eager"),
        lambda model: nn.Sequential(torch.compile(model, backend="eager")),
    ],
    ids=["parallel", "parallel inside", "compiled", "compiled inside"],
)
def test_wrappers_are_looked_through(wrap):
    model = seeded(models.Classifier)
    expected = ms.measure(model, tokens(), **SMALL)
    wrapped = wrap(model)
    (name,) = ms.recurrent_parts(wrapped)
    assert name in ("rnn", "0.rnn")
    assert same(ms.measure(wrapped, tokens(), **SMALL), expected)


def test_a_compiled_network_and_one_that_is_compiled_already():
    rnn = seeded(nn.GRU, FEATURES, UNITS)
    compiled = torch.compile(rnn, backend="eager")
    compiled(BATCH)
    assert same(ms.measure(compiled, BATCH, **SMALL), ms.measure(rnn, BATCH, **SMALL))
    model = seeded(models.ByStep)
    expected = read(model, BATCH).padded
    graphs = []
    compiled = torch.compile(model, backend=lambda graph, _: graphs.append(graph) or graph.forward)
    output = compiled(BATCH)
    inside = nn.Sequential(compiled)
    inside(BATCH)
    count = len(graphs)
    assert torch.equal(read(inside, BATCH).padded, expected)
    assert torch.equal(read(compiled, BATCH).padded, expected)
    assert torch.equal(compiled(BATCH), output)
    assert len(graphs) == count


def test_distributed_modules_are_looked_through():
    model = seeded(models.Translator)
    expected = ms.measure(model, BATCH, **SMALL)
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        found = ms.measure(nn.parallel.DistributedDataParallel(model), BATCH, **SMALL)
    finally:
        distributed.destroy_process_group()
    assert all(same(found[name], expected[name]) for name in expected)


def test_an_ensemble_inside_a_model():
    class Members(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = ms.Ensemble([ms.RNN("gru", FEATURES, UNITS) for _ in range(3)])

        def forward(self, x):
            return self.rnn(x)[0]

    model = seeded(Members)
    own = numbers(TIME, 3, N, FEATURES)
    for x in (BATCH, own):
        assert same(ms.measure(model, x, **SMALL), ms.measure(model.rnn, x, **SMALL))
