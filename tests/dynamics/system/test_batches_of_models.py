"""What leaves a model and its data alone, and the forms that batches come in."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import Dataset

import models
import multistable as ms
from models import FEATURES, SHORT, SMALL, TIME, UNITS, N, numbers, read, seeded, tokens, warmed
from multistable.dynamics.system.models import WANTED

LENGTHS = torch.arange(N) % TIME + 1
BATCH = numbers(TIME, N, FEATURES)


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
    with pytest.raises(TypeError, match=r"sequences must be a batch .*, got int"):
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
