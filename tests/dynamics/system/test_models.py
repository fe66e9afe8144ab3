"""Models with recurrent parts inside: each part is taken with what it reads when the model runs."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import models
import multistable as ms
from models import FEATURES, SHORT, SMALL, TIME, UNITS, N, numbers, read, same, seeded, tokens, warmed
from multistable.dynamics.system.draws import Draws
from multistable.dynamics.system.models import each_part
from multistable.dynamics.system.system import studying
from multistable.dynamics.warmup.wanted_vaa import beginnings

LENGTHS = torch.arange(N) % TIME + 1
BATCH = numbers(TIME, N, FEATURES)


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
