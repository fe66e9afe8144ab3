"""Sequences and targets in the forms in which a user may have them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

import multistable as ms
from models import FEATURES, TIME, TOKENS, Classifier, Packed
from multistable.dynamics.advise.material import IGNORED, material
from multistable.dynamics.advise.pieces import NoTrialError, cut, usual_loss

N = 12


def read(rnn, sequences, targets=None, **options):
    return material(rnn, sequences, targets, options.get("part"), options.get("forward"))


def gru(**options):
    return nn.GRU(FEATURES, 5, **options)


X = torch.randn(TIME, N, FEATURES)
CLASSES = torch.arange(N) % 3
STEPS = torch.randint(3, (TIME, N))


@pytest.mark.parametrize(
    ("rnn", "sequences", "targets"),
    [
        (gru(), X, CLASSES),
        (gru(), X, CLASSES.unsqueeze(-1)),
        (gru(), X.numpy(), CLASSES.numpy()),
        (gru(), X, CLASSES.tolist()),
        (gru(), (X, CLASSES), None),
        (gru(), [(X[:, :8], CLASSES[:8]), (X[:, 8:], CLASSES[8:])], None),
        (gru(), iter([(X[:, :8], CLASSES[:8]), (X[:, 8:], CLASSES[8:])]), 1),
        (gru(), X, lambda batch: CLASSES),
        (gru(batch_first=True), X.transpose(0, 1), CLASSES),
        (gru(batch_first=True), DataLoader(TensorDataset(X.transpose(0, 1), CLASSES), batch_size=5), None),
        (gru(), list(X.unbind(1)), CLASSES),
        (gru(), pack_sequence(list(X.unbind(1))), CLASSES),
        (ms.RNN("lstm", FEATURES, 4), X, CLASSES),
    ],
)
def test_one_class_a_sequence(rnn, sequences, targets):
    given = read(rnn, sequences, targets)
    assert given.bare
    assert torch.equal(given.answers.values, CLASSES)
    assert given.answers.classes == 3
    assert not given.answers.every_step
    assert len(given.read) == N


@pytest.mark.parametrize(("batch_first", "targets"), [(False, STEPS), (True, STEPS.T), (False, STEPS.unsqueeze(-1))])
def test_one_class_a_step(batch_first, targets):
    x = X.transpose(0, 1) if batch_first else X
    answers = read(gru(batch_first=batch_first), x, targets).answers
    assert answers.every_step
    assert torch.equal(answers.values, STEPS.T)


def test_steps_without_a_target():
    targets = torch.randn(TIME, N, 2)
    targets[:3] = torch.nan
    answers = read(gru(), X, targets).answers
    assert torch.equal(answers.given, torch.arange(TIME).expand(N, -1) >= 3)
    assert answers.outputs == 2
    some = STEPS.clone()
    some[:, 0] = IGNORED
    answers = read(gru(), X, some).answers
    assert not answers.given[0].any()
    assert answers.given[1:].all()


def test_numbers_of_a_sequence():
    answers = read(gru(), X, torch.randn(N, 2)).answers
    assert answers.values.shape == (N, 2)
    assert answers.classes == 0


def test_sequences_of_different_lengths():
    lengths = torch.arange(N) % TIME + 1
    some = [X[: lengths[row], row] for row in range(N)]
    padded = torch.full((N, TIME), 5)
    answers = read(gru(), some, padded).answers
    assert torch.equal(answers.given, torch.arange(TIME) < lengths.unsqueeze(-1))


def test_lengths_are_no_targets():
    lengths = torch.arange(N) % TIME + 1
    x = X * (torch.arange(TIME).unsqueeze(-1) < lengths).unsqueeze(-1)
    given = read(gru(), (x, lengths))
    assert given.answers is None
    assert given.why_not == "no targets were given"
    assert torch.equal(given.read.lengths, lengths)


def batches(entries, size=5):
    return [{name: entry[row : row + size] for name, entry in entries.items()} for row in range(0, N, size)]


TOKENS_READ = torch.randint(TOKENS, (N, TIME))


@pytest.mark.parametrize(
    ("sequences", "options"),
    [
        (DataLoader(TensorDataset(TOKENS_READ, CLASSES), batch_size=5), {}),
        (TensorDataset(TOKENS_READ, CLASSES), {}),
        ((TOKENS_READ, CLASSES), {}),
        (TOKENS_READ, {"targets": CLASSES}),
        (batches({"tokens": TOKENS_READ, "labels": CLASSES}), {"forward": lambda model, batch: model(batch["tokens"])}),
        (
            batches({"tokens": TOKENS_READ, "kind": CLASSES}),
            {"forward": lambda model, batch: model(batch["tokens"]), "targets": "kind"},
        ),
    ],
)
def test_a_model_and_its_batches(sequences, options):
    given = read(Classifier(), sequences, **options)
    assert not given.bare
    assert torch.equal(given.answers.values, CLASSES)
    assert (len(given.read), given.read.features) == (N, FEATURES)
    assert len(given.batches) == len(given.targets)


def test_targets_that_cannot_be_matched():
    model, forward = Packed(), lambda model, batch: model(batch[0], batch[1])
    lengths = torch.full((N,), TIME)
    given = read(model, [(X.transpose(0, 1), lengths, torch.zeros(3))], 2, forward=forward)
    assert given.why_not == "targets of shape (3,) could not be matched with the 12 sequences that were read"
    for targets, why in (
        (torch.full((N,), -1), "the classes are not numbers from 0 on"),
        (torch.full((N,), 5000), "the targets have 5001 classes, more than the 1000 that a probe takes"),
        (torch.full((N,), torch.nan), "the targets are not finite"),
        (
            torch.zeros(N, 2, 2, dtype=torch.long),
            "integer targets of shape (12, 2, 2) are neither one a sequence nor one a step",
        ),
    ):
        assert read(gru(), X, targets).why_not == why


@pytest.mark.parametrize("rows_dim", [0, 1])
def test_batches_are_cut_where_their_rows_can_be_told(rows_dim):
    n, generator = 70, torch.Generator().manual_seed(0)
    rows = torch.arange(n)
    square, target = torch.randn(n, n, 2), rows if rows_dim == 0 else rows.expand(3, n)
    pieces = list(cut({"x": square, "y": [rows, torch.randn(TIME, n)]}, target, rows_dim, generator))
    assert [piece.shape[rows_dim] for _, piece in pieces] == [32, 32, 6]
    seen = [piece.movedim(rows_dim, 0)[:, 0] if rows_dim else piece for _, piece in pieces]
    assert torch.equal(torch.cat(seen).sort().values, rows)
    assert not torch.equal(torch.cat(seen), rows)
    for (batch, _), some in zip(pieces, seen, strict=True):
        assert torch.equal(batch["x"], square.index_select(rows_dim, some))
        assert torch.equal(batch["y"][0], some)
    for whole in ((square, 3), (rows, pack_sequence([rows]))):
        assert list(cut(whole, rows, 0, generator)) == [(whole, rows)]
    assert list(cut(square, target, None, generator)) == [(square, target)]


@pytest.mark.parametrize(
    ("output", "target", "expected"),
    [
        (torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), torch.tensor(3.0).log()),
        (torch.zeros(4, 5, 3), torch.full((4, 5), 2), torch.tensor(3.0).log()),
        (torch.zeros(4, 3), torch.tensor([0, IGNORED, 1, 2]), torch.tensor(3.0).log()),
        (torch.zeros(4, 1), torch.full((4,), 2.0), torch.tensor(4.0)),
        ((torch.zeros(4), None), torch.tensor([1.0, torch.nan, 1.0, 1.0]), torch.tensor(1.0)),
        (torch.zeros(4, 1), torch.zeros(4, dtype=torch.bool), torch.tensor(2.0).log()),
    ],
)
def test_the_usual_loss(output, target, expected):
    assert torch.isclose(usual_loss(output, target), expected)


@pytest.mark.parametrize(
    ("output", "target"), [(np.zeros(3), torch.zeros(3)), (torch.zeros(4, 3), torch.zeros(5)), ({}, torch.zeros(3))]
)
def test_no_usual_loss(output, target):
    with pytest.raises(NoTrialError, match="loss="):
        usual_loss(output, target)
