"""Models with recurrent parts inside: each part is taken with what it reads when the model runs."""

import copy
import itertools
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

import models
import multistable as ms
from models import FEATURES, TIME, UNITS, N, numbers, seeded, tokens
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.models import WANTED, each_part
from multistable.dynamics.system.sequences import PaddedSequences, SequenceSet
from multistable.dynamics.system.system import studying
from multistable.dynamics.warmup.wanted_vaa import beginnings

SMALL = {"batches": 2, "stabilisation": 60}
SHORT = {"algorithm": "paper", "steps": 2, "batch_size": 16, "max_stabilisation": 5}
LENGTHS = torch.arange(N) % TIME + 1
BATCH = numbers(TIME, N, FEATURES)


def read(model, batches, **options):
    """What the parts read: for one part a set of padded sequences, for several a dict."""
    return each_part(lambda network, data, turn: padded(data), model, batches, **options)


def padded(data):
    if isinstance(data, SequenceSet):
        u, lengths = data.select(torch.arange(len(data)))
        return PaddedSequences(u, lengths, before=data.before)
    return data


def same(a, b):
    return a == b and torch.equal(a.batches, b.batches)


def warmed(call, *arguments, **options):
    with pytest.warns(ms.WarmupWarning):
        return call(*arguments, **SHORT, **options)


@pytest.mark.parametrize(
    "given",
    [
        lambda x: x,
        lambda x: (x, torch.zeros(N)),
        lambda x: [x[:25], x[25:]],
        lambda x: [(x[:25], None), [x[25:], None]],
        lambda x: [{"tokens": x[:25]}, {"tokens": x[25:]}],
        lambda x: DataLoader(TensorDataset(x, x), batch_size=7),
        lambda x: TensorDataset(x, x),
        lambda x: iter([x[:25], x[25:]]),
        lambda x: x.numpy(),
    ],
    ids=["tensor", "pair", "list", "pairs", "dicts", "loader", "data set", "iterator", "array"],
)
def test_a_part_is_measured_and_warmed_up_as_if_it_were_taken_out(given):
    """With every form of batches, one after the other and together."""
    model, x = seeded(models.Classifier), tokens()
    alone, inputs = copy.deepcopy(model.rnn), model.eval().inputs(x).detach()
    model.train()
    assert same(ms.measure(model, given(x), **SMALL), ms.measure(alone, inputs, **SMALL))
    ours, theirs = warmed(ms.warmup, model, given(x)), warmed(ms.warmup, alone, inputs)
    assert torch.equal(ours.loss, theirs.loss)
    assert all(torch.equal(a, b) for a, b in zip(model.rnn.parameters(), alone.parameters(), strict=True))
    states = ms.reachable_states(model, given(x))
    assert torch.equal(states, ms.reachable_states(model.rnn, inputs))


def test_only_the_recurrent_part_is_warmed_up():
    model = seeded(models.Classifier)
    before = copy.deepcopy(model.state_dict())
    warmed(ms.warmup, model, tokens())
    changed = {name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"rnn"}


def test_what_is_read_with_lengths_has_these_lengths():
    x = BATCH.transpose(0, 1)
    data = read(models.Packed(), [(x, LENGTHS, "label")], forward=lambda model, batch: model(batch[0], batch[1]))
    assert torch.equal(data.lengths, LENGTHS)
    assert data.before is None
    for n, length in enumerate(LENGTHS):
        assert torch.equal(data.padded[:length, n], x[n, :length])


def test_pictures_go_through_the_convolution():
    model, film = seeded(models.Pictures), numbers(TIME, N, 1, 4, 4)
    data = read(model, film)
    with torch.no_grad():
        expected = torch.stack([model.eval().features(each) for each in film])
    torch.testing.assert_close(data.padded, expected)


@pytest.mark.parametrize("kind", [nn.LSTMCell, ms.LSTM], ids=["torch", "own"])
def test_the_steps_of_a_cell_are_sequences(kind):
    """The model's own loop hands on what the cell returned, so each row is one sequence."""

    class Loop(models.ByStep):
        def forward(self, x):
            state = None
            for u in x:
                returned = self.cell(u, state)
                state = returned[1] if isinstance(self.cell, ms.Cell) else tuple(s.clone() for s in returned)

    data = read(Loop(kind), [BATCH, BATCH + 1])
    assert data.before is None
    assert torch.equal(data.padded, torch.cat([BATCH, BATCH + 1], dim=1))


def test_rows_that_are_held_have_ended():
    """All but the last step of those that ended, whose result the loop threw away before it was done."""
    data = read(models.Masked(), [(BATCH, LENGTHS)], forward=lambda model, batch: model(*batch))
    assert torch.equal(data.lengths, (LENGTHS + 1).clamp(max=TIME))
    assert torch.equal(data.padded[0], BATCH[0])


def test_a_state_that_is_passed_in_is_where_the_sequence_begins():
    model = seeded(models.Translator).double()
    found = read(model, BATCH.double())
    assert list(found) == ["encoder", "decoder"]
    assert torch.equal(found["encoder"].padded, BATCH.double())
    output, state = model.encoder(BATCH.double())
    decoder = found["decoder"]
    torch.testing.assert_close(decoder.before, torch.cat(list(state), dim=-1), rtol=0, atol=0)
    assert decoder.padded.shape == (3, N, UNITS)
    assert torch.equal(decoder.padded[0], output[-1])
    generator = torch.Generator().manual_seed(0)
    states = ms.reachable_states(model, BATCH.double(), part="decoder", generator=generator)
    times = (torch.rand(N, generator=generator.manual_seed(0), dtype=torch.float64) * 3).long()
    for n, time in enumerate(times):
        _, end = model.decoder(decoder.padded[: time + 1, n : n + 1], state[:, n : n + 1])
        torch.testing.assert_close(states[n], end.flatten())


def test_each_layer_and_field_of_a_state_that_is_passed_in_is_where_it_belongs():
    class From(nn.Module):
        def __init__(self, rnn):
            super().__init__()
            self.rnn = rnn

        def forward(self, x, state):
            return self.rnn(x, state)[0]

    for make in (
        lambda: nn.LSTM(FEATURES, UNITS, 2),
        lambda: nn.LSTM(FEATURES, UNITS, 2, proj_size=3),
        lambda: nn.LSTMCell(FEATURES, UNITS),
        lambda: ms.RNN("lstm", FEATURES, 6, 2, double=True),
        lambda: ms.LSTM(FEATURES, UNITS),
        models.Leaky,
    ):
        rnn = seeded(make).double()
        steps = isinstance(rnn, nn.LSTMCell | ms.Cell)
        x = BATCH[0].double() if steps else BATCH.double()
        end = rnn(x)[1] if not isinstance(rnn, nn.LSTMCell) else rnn(x)
        states = ms.reachable_states(
            From(rnn), [(x[:1] if not steps else x, end)], forward=lambda model, batch: model(*batch), part="rnn"
        )
        again = rnn(x[:1] if not steps else x, end)
        sequence = torch.stack([x, x]) if steps else torch.cat([x, x[:1]])
        after = again if isinstance(rnn, nn.LSTMCell) else again[1]
        fields = [after] if isinstance(after, torch.Tensor) else list(after)
        assert states.shape[0] == N
        for field in fields:
            for row in field.reshape(-1, N, field.shape[-1]):
                wanted = row if not isinstance(rnn, ms.RNN) else row[:, :3]
                assert any(torch.allclose(wanted, part) for part in states.unfold(1, wanted.shape[-1], 1).unbind(1))
        assert sequence.isfinite().all()


def test_a_state_that_is_reset_begins_a_sequence():
    class Episodes(nn.Module):
        def __init__(self, batch_first):
            super().__init__()
            self.rnn = ms.RNN("gru", FEATURES, UNITS, batch_first=batch_first)

        def forward(self, x, resets, state):
            return self.rnn(x, state, resets=resets)[0]

    resets = torch.zeros(TIME, N, dtype=torch.bool)
    resets[0, 0] = resets[3, 1] = resets[5, 1] = True
    state = numbers(1, N, UNITS)
    for batch_first in (False, True):
        x, of_x = (BATCH.transpose(0, 1), resets.T) if batch_first else (BATCH, resets)
        data = read(Episodes(batch_first), [(x, of_x, state)], forward=lambda model, batch: model(*batch))
        assert torch.equal(data.lengths[[0, 1, N, N + 1]], torch.tensor([TIME, 3, 2, TIME - 5]))
        assert torch.equal(data.padded[: TIME - 5, N + 1], BATCH[5:, 1])
        assert not data.before[[0, N, N + 1]].any()
        assert torch.equal(data.before[1:N], state[0, 1:])


def test_a_part_that_is_called_twice_reads_both():
    data = read(models.Twice(), BATCH)
    assert torch.equal(data.padded, torch.cat([BATCH, BATCH.flip(0)], dim=1))


class Once(nn.Module):
    """One part that is called once, as ``call(rnn, x)`` does."""

    def __init__(self, call):
        super().__init__()
        self.rnn = self.again = nn.GRU(FEATURES, UNITS)
        self.call = call

    def forward(self, x):
        return self.call(self.rnn, x)


def test_what_is_read_is_what_the_part_was_given():
    """Whatever the model does with its tensors afterwards, and without what hooks of the part make of it."""

    def then_written_into(rnn, x):
        x = x.clone()
        output = rnn(x)[0]
        x.zero_()
        return output

    zero = torch.zeros(1, N, UNITS)
    for call in (then_written_into, lambda rnn, x: rnn(x, zero)[0], lambda rnn, x: rnn(hx=None, input=x)[0]):
        data = read(Once(call), BATCH)
        assert torch.equal(data.padded, BATCH)
        assert data.before is None
    model = Once(lambda rnn, x: rnn(x)[0])
    model.rnn.register_forward_pre_hook(lambda module, given: (2 * given[0],))
    assert torch.equal(read(model, BATCH).padded, BATCH)
    assert torch.equal(read(model, BATCH.double().numpy()).padded, BATCH)


def test_a_part_with_two_names_is_one():
    model = Once(lambda rnn, x: rnn(x)[0])
    assert ms.recurrent_parts(model) == {"rnn": model.rnn}


def test_a_wanted_vaa_tells_sequences_apart_by_the_states_that_are_passed_in():
    """Inputs and lengths are all equal here, so that states differ by where they began alone."""
    model = seeded(Once, lambda rnn, x: rnn(torch.zeros_like(x), numbers(1, N, UNITS))[0])
    data = read(model, BATCH)
    with studying(model.rnn, data) as (system, data):
        found = beginnings(system, data, Draws(torch.Generator()), torch.tensor([2, 2]))
    assert len(found.place.unique(dim=0)) > N / 2


def test_a_part_of_the_users_own_is_named():
    model = seeded(models.WithOwn)
    alone = ms.measure(model.memory, BATCH, **SMALL)
    assert same(ms.measure(model, BATCH, part="memory", **SMALL), alone)
    with pytest.raises(TypeError, match=r"WithOwn has no recurrent layers .*inside a model by part='name'.*Leaky"):
        ms.measure(model, BATCH)


def test_a_model_that_is_a_network_itself_is_taken_as_one():
    """It keeps (input, state) -> (output, state), so sequences are its own input."""

    class Readout(nn.Module):
        def __init__(self):
            super().__init__()
            self.read, self.rnn = nn.Linear(FEATURES, 3), nn.GRU(3, UNITS)

        def forward(self, x, state=None):
            return self.rnn(self.read(x), state)

    class Pooled(Readout):
        def forward(self, x, mask=None):
            return x, self.rnn(self.read(x))[0][-1]

    assert read(Readout(), BATCH) is BATCH
    assert read(Pooled(), BATCH).padded.shape == (TIME, N, 3)


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


def test_looking_at_the_first_batch_draws_no_random_numbers():
    """A shuffled loader draws from the global generator."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(FEATURES, UNITS, batch_first=True)

        def forward(self, x, mask=None):
            return self.rnn(x)[0]

    loader = DataLoader(BATCH.transpose(0, 1), batch_size=10, shuffle=True)
    model, before = Masked(), torch.get_rng_state()
    ms.measure(model, loader, **SMALL)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_of_several_parts_is_chosen_by_its_name():
    model = seeded(models.Translator)
    both = ms.measure(model, BATCH, **SMALL)
    assert same(ms.measure(model, BATCH, part="decoder", **SMALL), both["decoder"])
    with pytest.raises(ValueError, match=r"part must be the name of a recurrent part, 'encoder', 'decoder', .*'rnn'"):
        ms.measure(model, BATCH, part="rnn")


def test_each_part_is_warmed_up_after_those_before_it():
    """What a part reads is found again once those before it have changed."""
    model = seeded(models.Translator)
    second = copy.deepcopy(model)
    warmed(ms.warmup, model, BATCH)
    warmed(ms.warmup, second, BATCH, part="encoder")
    warmed(ms.warmup, second, BATCH, part="decoder")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), second.parameters(), strict=True))


def test_a_time_budget_is_shared_and_progress_names_the_part(capsys):
    shares = each_part(lambda network, data, turn: turn, seeded(models.Translator), BATCH)
    assert shares == {"encoder": ("encoder", 0.5), "decoder": ("decoder", 1.0)}
    assert each_part(lambda network, data, turn: turn, seeded(models.Twice), BATCH) == ("", 1.0)
    warmed(ms.warmup, seeded(models.Translator), BATCH, progress=True)
    told = capsys.readouterr().err
    assert "warmup of encoder: step" in told
    assert "warmup of decoder: step" in told


def test_frozen_parts_stay():
    model = seeded(models.Translator)
    model.encoder.requires_grad_(False)
    before = copy.deepcopy(model.encoder.state_dict())
    assert isinstance(warmed(ms.warmup, model, BATCH), ms.WarmupHistory)
    assert all(torch.equal(value, before[name]) for name, value in model.encoder.state_dict().items())
    assert list(ms.measure(model, BATCH, **SMALL)) == ["encoder", "decoder"]
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="have no parameters that require gradients"):
        ms.warmup(model, BATCH, **SHORT)


class Rows(Dataset):
    """A data set of rows that are dicts, as those of Hugging Face are: with text, and lengths that differ."""

    def __init__(self, differing):
        self.lengths = LENGTHS + 1 if differing else torch.full((N,), TIME)

    def __len__(self):
        return N

    def __getitem__(self, index):
        if index >= N:
            raise IndexError
        x = BATCH[: self.lengths[index], index]
        return {"text": "of a row", "x": x.numpy(), "labels": [int(index)], "further": 3}


@pytest.mark.parametrize("differing", [False, True])
def test_data_sets_of_rows_that_are_dicts(differing):
    rows = Rows(differing)
    for model in (models.OfDict(), nn.GRU(FEATURES, UNITS)):
        data = read(model, rows)
        sequences = data if isinstance(data, list) else [data.padded[: data.lengths[n], n] for n in range(N)]
        for n in range(N):
            assert torch.equal(sequences[n], BATCH[: rows.lengths[n], n])


def test_rows_without_a_column_of_sequences():
    rows = Rows(differing=False)
    rows.__class__ = type("Labels", (Rows,), {"__getitem__": lambda self, index: {"b": [1.0, 2.0, 3.0]}})
    with pytest.raises(ValueError, match=r"must have one column of \(time, features\), got b \(3,\); forward="):
        ms.measure(nn.GRU(FEATURES, UNITS), rows)


def test_an_iterator_that_never_ends_is_read_until_there_is_enough():
    read_batches = itertools.count()

    def endless():
        while True:
            next(read_batches)
            yield BATCH

    assert len(read(models.Translator(), endless())["decoder"]) == WANTED
    assert next(read_batches) == WANTED // N
    assert len(read(models.Twice(), endless(), least=1010)) == 1010


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr("multistable.dynamics.system.reads.MOST_BYTES", BATCH.nbytes)
    assert len(read(models.Twice(), [BATCH] * 9)) == N
    assert len(read(models.Twice(), [BATCH] * 9, least=100)) == 100


def test_what_a_model_does_not_call_is_an_error():
    class Idle(models.Translator):
        def forward(self, x):
            return self.encoder(x)[0]

    with pytest.warns(UserWarning, match=r"Idle did not call 'decoder' on these batches.*It is left out"):
        assert isinstance(ms.measure(Idle(), BATCH, **SMALL), ms.Measure)
    with pytest.raises(ValueError, match="Idle did not call 'decoder' on these batches"):
        ms.measure(Idle(), BATCH, part="decoder")


def test_errors_say_what_to_do():
    with pytest.raises(TypeError, match=r"Sequential has no recurrent layers .*It consists of Linear, Sequential"):
        ms.warmup(nn.Sequential(nn.Linear(3, 4)), tokens())
    with pytest.raises(ValueError, match="batches must not be empty"):
        ms.measure(models.Classifier(), [])
    with pytest.raises(TypeError, match=r"batches must be a batch .*, got int"):
        ms.measure(models.Classifier(), 3)
    with pytest.raises(TypeError, match=r"forward must be called as forward\(model, batch\), got 'forward'"):
        ms.measure(models.Classifier(), tokens(), forward="forward")
    with pytest.raises(ValueError, match="what rnn reads must be finite"):
        ms.measure(models.Twice(), BATCH / 0)
    with pytest.raises(TypeError, match="lengths") as caught:
        ms.measure(models.Packed(), [(BATCH, LENGTHS)])
    assert "Packed was called as model(batch[0]); forward=lambda model, batch: ..." in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="batch_size must not exceed") as caught:
        ms.measure(models.Translator(), BATCH, batch_size=N + 1)
    assert caught.value.__notes__ == ["in the part 'encoder' of Translator"]


class Counting(models.Classifier):
    """A model that remembers its calls and its last state, in an attribute and in a buffer that it replaces."""

    def __init__(self):
        super().__init__()
        self.calls, self.fails = 0, None
        self.register_buffer("last", torch.zeros(3))

    def forward(self, tokens):
        self.calls += 1
        self.state = tokens
        self.last = self.last + torch.rand(3)
        self.norm.running_mean += 1
        output = super().forward(tokens)
        if self.fails is not None:
            raise self.fails
        return output


@pytest.mark.parametrize("fails", [None, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["model", "step"])
def test_nothing_else_changes(fails, where):
    """Also in a call that fails or is interrupted: in the model itself, or later in the warmup."""
    model = seeded(Counting)
    model.dropout.eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    model.embedding.weight.requires_grad_(False)
    handle = model.rnn.register_forward_hook(lambda *call: None)

    def present():
        return {
            "modes": [m.training for m in model.modules()],
            "gradients": [(p.requires_grad, p.grad.sum().item()) for p in model.parameters()],
            "hooks": [(list(m._forward_hooks), list(m._forward_pre_hooks)) for m in model.modules()],
            "attributes": [sorted(vars(m)) for m in model.modules()],
            "random": torch.get_rng_state().tolist(),
            "buffers": [(id(b), b.tolist()) for b in model.buffers()],
            "calls": model.calls,
        }

    def step(step):
        if fails is not None and where == "step":
            raise fails

    if where == "model":
        model.fails = fails
    before, weights = present(), copy.deepcopy(dict(model.named_parameters()))
    for call in (
        lambda: ms.measure(model, tokens(), **SMALL),
        lambda: warmed(ms.warmup, model, tokens(), on_step=step),
    ):
        if fails is None or (where == "step" and call.__code__.co_names[0] == "ms"):
            call()
        else:
            with pytest.raises(fails):
                ms.warmup(model, tokens(), **SHORT, on_step=step)
            assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
        assert present() == before
    handle.remove()


def test_if_one_part_fails_all_are_as_before():
    model = seeded(models.Translator)
    before = copy.deepcopy(model.state_dict())
    steps = itertools.count()

    def on_step(step):
        if next(steps) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ms.warmup(model, BATCH, **SHORT, on_step=on_step)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_packed_sequences_as_batches():
    packed = pack_padded_sequence(BATCH, LENGTHS, enforce_sorted=False)

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(FEATURES, UNITS)

        def forward(self, packed):
            return self.rnn(packed)[0]

    assert torch.equal(read(Reads(), [packed]).lengths, LENGTHS)
    assert torch.equal(read(Reads(), packed).lengths, LENGTHS)
