"""Models as people build them, small: something before and after a recurrent part, and several ways to call it."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import multistable as ms
from multistable.dynamics.system.models import each_part
from multistable.dynamics.system.sequences import PaddedSequences, SequenceSet

TOKENS, FEATURES, UNITS, TIME, N = 30, 4, 5, 7, 40


class Classifier(nn.Module):
    """An embedding, dropout and batch normalisation before an LSTM of two layers, and a readout."""

    def __init__(self, kind=nn.LSTM, **options):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, FEATURES)
        self.norm = nn.BatchNorm1d(FEATURES)
        self.dropout = nn.Dropout(0.5)
        self.rnn = kind(FEATURES, UNITS, 2, batch_first=True, dropout=0.3, **options)
        ends = (1 + self.rnn.bidirectional) * (getattr(self.rnn, "proj_size", 0) or UNITS)
        self.readout = nn.Linear(ends, 2)

    def inputs(self, tokens):
        return self.dropout(self.norm(self.embedding(tokens).mT).mT)

    def forward(self, tokens):
        return self.readout(self.rnn(self.inputs(tokens))[0][:, -1])


class Packed(nn.Module):
    """Padded sequences with their lengths."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(FEATURES, UNITS, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


class Pictures(nn.Module):
    """A convolution over each picture of a film before the recurrent part."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Tanh(), nn.Flatten())
        self.rnn = nn.GRU(8, UNITS)

    def forward(self, film):
        return self.rnn(self.features(film.flatten(0, 1)).unflatten(0, film.shape[:2]))[0]


class ByStep(nn.Module):
    """A cell in a loop of the model's own."""

    def __init__(self, kind=nn.LSTMCell):
        super().__init__()
        self.cell = kind(FEATURES, UNITS)

    def forward(self, x):
        state, outputs = None, []
        for u in x:
            state = self.cell(u, state)
            outputs.append(state[0])
        return torch.stack(outputs)


class Masked(ByStep):
    """The same for sequences of different lengths: rows that have ended are held."""

    def __init__(self):
        super().__init__(nn.GRUCell)

    def forward(self, x, lengths):
        h = x.new_zeros(x.shape[1], UNITS)
        for t, u in enumerate(x):
            going_on = (t < lengths).unsqueeze(-1)
            h = torch.where(going_on, self.cell(u, h), h)
        return h


class Translator(nn.Module):
    """An encoder, and a decoder that begins at its last state and is called step by step."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(FEATURES, UNITS, 2)
        self.decoder = nn.GRU(UNITS, UNITS, 2)

    def forward(self, x):
        output, state = self.encoder(x)
        u = output[-1:]
        for _ in range(3):
            u, state = self.decoder(u, state)
        return u


class Twice(nn.Module):
    """One part, called for each of two sequences."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(FEATURES, UNITS)

    def forward(self, x):
        return self.rnn(x)[0][-1] - self.rnn(x.flip(0))[0][-1]


class OfDict(nn.Module):
    """A model that is given a dict."""

    def __init__(self):
        super().__init__()
        self.rnn = ms.RNN("mgu", FEATURES, UNITS, batch_first=True)

    def forward(self, x, labels=None):
        return self.rnn(x)[0]


class Leaky(nn.Module):
    """A recurrence of the user's own, with the convention (input, state) -> (output, state)."""

    def __init__(self):
        super().__init__()
        self.read = nn.Linear(FEATURES, UNITS)
        self.keep = nn.Linear(UNITS, UNITS)

    def forward(self, x, state=None):
        h = x.new_zeros(x.shape[1], UNITS) if state is None else state
        outputs = []
        for u in x:
            h = 0.5 * h + 0.5 * torch.tanh(self.read(u) + self.keep(h))
            outputs.append(h)
        return torch.stack(outputs), h


class WithOwn(nn.Module):
    """A recurrence of the user's own inside a model."""

    def __init__(self):
        super().__init__()
        self.memory = Leaky()

    def forward(self, x):
        return self.memory(x)[0].mean(0)


def tokens(n=N):
    return torch.randint(TOKENS, (n, TIME), generator=torch.Generator().manual_seed(0))


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def seeded(make, *arguments, **options):
    """A model with the same weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make(*arguments, **options)


SMALL = {"batches": 2, "stabilisation": 60}
SHORT = {"algorithm": "paper", "steps": 2, "batch_size": 16, "max_stabilisation": 5}


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
