"""Data as people have them: what is read is what was meant, or an error says what to pass."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_sequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import multistable as ms
from generators import generator
from multistable.dynamics.system.draws import Draws

FEATURES = 2
LENGTHS = [3, 7, 5, 1, 7, 6]


def states(rnn, sequences):
    return ms.reachable_states(rnn, sequences, generator=generator())


@pytest.fixture
def rnn():
    return nn.GRU(FEATURES, 4, batch_first=True)


@pytest.fixture
def listed():
    return [torch.randn(length, FEATURES, generator=generator(length)) for length in LENGTHS]


class Items(Dataset):
    """A data set of given items."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Stream(IterableDataset):
    """The same, without a length."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def test_targets_of_a_loader_without_batches_are_no_sequences(rnn):
    x = torch.randn(6, 9, FEATURES)
    expected = states(rnn, x)
    pairs = [(inputs, torch.zeros(9, FEATURES)) for inputs in x]
    for data in (TensorDataset(x, torch.zeros_like(x)), Items(pairs), Stream(pairs)):
        assert torch.equal(states(rnn, DataLoader(data, batch_size=None)), expected)
    kept = DataLoader(Items(pairs), batch_size=None, num_workers=1, persistent_workers=True)
    first = [item for batch in kept for item in batch]
    assert torch.equal(states(rnn, kept), expected)
    assert all(torch.equal(a, b) for a, b in zip(first, [item for batch in kept for item in batch], strict=True))


def test_a_list_of_a_loader_without_batches_is_refused_since_it_may_be_either(rnn, listed):
    items = Items([listed[:2], listed[2:]])
    with pytest.raises(ValueError, match=r"sequences must say what a list of 2 tensors .* is.*tuple.*collate_fn=list"):
        states(rnn, DataLoader(items, batch_size=None))
    assert torch.equal(states(rnn, DataLoader(items, batch_size=None, collate_fn=list)), states(rnn, listed))


def test_vectors_and_their_targets_are_no_sequences():
    """What a loader made of items without a time dimension, two lists of numbers each."""
    x = torch.randn(6, FEATURES)
    loader = DataLoader(TensorDataset(x, x + 1), batch_size=3)
    assert len(states(nn.GRU(FEATURES, 4), loader)) == 2


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [torch.tensor, lambda x: torch.tensor(x, dtype=torch.int32), np.array, list])
def test_lengths_beside_a_padded_batch_are_lengths(batch_first, kind, listed):
    rnn = nn.GRU(FEATURES, 4, batch_first=batch_first)
    padded, lengths, classes = pad_sequence(listed, batch_first), kind(LENGTHS), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = states(rnn, listed)
    for entries in ((padded, lengths), (padded, lengths, classes), (padded, classes, lengths)):
        for form in (entries, [entries], [list(entries)]):
            assert torch.equal(states(rnn, form), expected)


def test_lengths_are_found_whatever_the_padding_is(rnn, listed):
    lengths = torch.tensor(LENGTHS)
    expected = states(rnn, listed)
    for value in (-1.0, math.nan, math.inf):
        padded = pad_sequence(listed, batch_first=True, padding_value=value)
        longer = torch.cat([padded, torch.full((6, 5, FEATURES), value)], dim=1)
        for x in (padded, longer):
            assert torch.equal(states(rnn, (x, lengths)), expected)


def test_a_loader_of_padded_sequences_with_lengths_and_classes(rnn, listed):
    items = [(sequence, index % 3) for index, sequence in enumerate(listed)]

    def collate(batch):
        inputs, classes = zip(*batch, strict=True)
        lengths = torch.tensor([len(sequence) for sequence in inputs])
        return pad_sequence(inputs, batch_first=True), lengths, torch.tensor(classes)

    assert torch.equal(states(rnn, DataLoader(items, batch_size=4, collate_fn=collate)), states(rnn, listed))
    fixed = TensorDataset(pad_sequence(listed, batch_first=True), torch.tensor(LENGTHS))
    assert torch.equal(states(rnn, DataLoader(fixed, batch_size=4)), states(rnn, listed))


@pytest.mark.parametrize(
    "classes", [[1, 2, 3, 4, 5, 6], [0, 1, 1, 0, 2, 2], [7] * 6, [70] * 6, [-1] * 6, [1.0] * 6, [True] * 6], ids=str
)
def test_classes_beside_a_batch_are_no_lengths(rnn, classes):
    x = torch.randn(6, 7, FEATURES)
    assert torch.equal(states(rnn, (x, torch.tensor(classes))), states(rnn, x))


def test_integers_that_may_be_lengths_or_classes_are_refused(rnn):
    """A signal at the first step and nothing after it: the classes 1, 2, 3 may be lengths of sequences with zeros."""
    x = torch.zeros(3, 7, FEATURES)
    x[:, 0] = 1
    with pytest.raises(ValueError, match=r"lengths or something else, such as classes: pass .*pack_padded_sequence"):
        states(rnn, (x, torch.tensor([1, 2, 3])))
    packed = pack_padded_sequence(x, torch.tensor([1, 2, 3]), batch_first=True, enforce_sorted=False)
    assert torch.equal(states(rnn, packed), states(rnn, [x[0, :1], x[1, :2], x[2, :3]]))


def test_an_empty_sequence_among_padded_ones_is_refused(rnn):
    x = torch.randn(2, 5, FEATURES)
    x[1] = 0
    with pytest.raises(ValueError, match="may be their lengths"):
        states(rnn, (x, torch.tensor([5, 0])))


def test_members_with_sequences_of_their_own_and_lengths(listed):
    ensemble = ms.Ensemble([ms.RNN("gru", FEATURES, 4) for _ in range(2)])
    padded = pad_sequence(listed)
    own = torch.stack([padded, padded], dim=1)
    assert torch.equal(states(ensemble, [(own, torch.tensor(LENGTHS))]), states(ensemble, listed))
    with pytest.raises(ValueError, match="for each member, or for all members, in all batches"):
        states(ensemble, [own, padded])


class Largest(TorchDispatchMode):
    """Notes the numbers of the largest tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not func.is_view:
            self.numbers = max(self.numbers, result.numel())
        return result


@pytest.mark.parametrize("form", ["list", "packed", "batches", "padded batches"])
def test_memory_follows_the_sum_of_lengths(form):
    """One sequence of 3,000 steps among 1,000 of two: padded, they would be 3,003,000 numbers, not 5,000."""
    rnn = ms.RNN("gru", 1, 2)
    listed = [torch.randn(2, 1, generator=generator(index)) for index in range(1000)]
    listed[700] = torch.randn(3000, 1, generator=generator())
    alone = [listed[:700], [listed[700]], listed[701:]]
    sequences = {
        "list": listed,
        "packed": pack_sequence(listed, enforce_sorted=False),
        "batches": alone,
        "padded batches": [pad_sequence(batch) for batch in alone],
    }[form]
    with Largest() as largest:
        found = states(rnn, sequences)
        ms.measure(rnn, sequences, batches=1, batch_size=2, stabilisation=5, generator=generator())
    assert largest.numbers < 300_000
    times = Draws(generator()).times(torch.tensor([len(sequence) for sequence in listed]))
    for index in (0, 699, 700, 701, 999):
        _, end = rnn(listed[index][: times[index]].unsqueeze(1))
        torch.testing.assert_close(found[index], end[0, 0])


def test_gradients_flow_through_sequences_of_very_different_lengths():
    rnn = ms.RNN("gru", 1, 2).double()
    listed = [torch.randn(2, 1, dtype=torch.float64, generator=generator(index)) for index in range(30)]
    listed[3] = torch.randn(200, 1, dtype=torch.float64, generator=generator())
    times = Draws(generator()).times(torch.tensor([len(sequence) for sequence in listed]))
    ends = [rnn(u[:t].unsqueeze(1))[1][0, 0] for u, t in zip(listed, times, strict=True)]
    expected = torch.autograd.grad(torch.stack(ends).square().sum(), list(rnn.parameters()))
    found = torch.autograd.grad(states(rnn, listed).square().sum(), list(rnn.parameters()))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("function", [ms.reachable_states, ms.measure, ms.warmup])
def test_an_iterable_without_an_end_is_an_error(rnn, function):
    batch = torch.zeros(50_000, 2, FEATURES)
    endless = DataLoader(Stream(itertools.repeat(batch)), batch_size=None)
    for sequences in (
        itertools.repeat(batch),
        endless,
        itertools.repeat(torch.zeros(1, 1, FEATURES).expand(2, 2**26, -1)),
    ):
        with pytest.raises(
            ValueError, match=r"sequences must have an end, got a (repeat|DataLoader).* itertools.islice"
        ):
            function(rnn, sequences)
    assert len(states(rnn, itertools.islice(itertools.repeat(batch[:5]), 3))) == 15


def test_what_tells_its_length_is_read_to_its_end(rnn):
    batch = torch.zeros(100_000, 1, FEATURES)
    assert len(states(rnn, [batch] * 11)) == 1_100_000


@pytest.mark.parametrize("function", [ms.reachable_states, ms.measure, ms.attractors, ms.lyapunov, ms.warmup])
def test_numbers_beyond_those_of_the_network_are_named(rnn, function):
    x = torch.randn(6, 9, FEATURES, dtype=torch.float64)
    x[2, 3, 1] = -1e39
    with pytest.raises(ValueError, match=r"sequences must be .*torch.float32 has, up to 3.403e\+38, got 1e\+39"):
        function(rnn, x)
    assert len(states(rnn.double(), x)) == 6


@pytest.mark.parametrize("function", [ms.reachable_states, ms.measure, ms.warmup])
def test_what_are_no_real_numbers_is_refused(rnn, function):
    x = torch.randn(6, 9, FEATURES)
    unreal = x.to(torch.complex64)
    for sequences in (unreal, list(unreal), [unreal[:2], unreal[2:]], unreal.numpy(), pack_sequence(list(unreal))):
        with pytest.raises(TypeError, match=r"sequences must be of real numbers, got torch.complex64"):
            function(rnn, sequences)
    for sequences, kind in ((x.to_sparse(), "torch.sparse_coo"), (x.to("meta"), "meta")):
        with pytest.raises(TypeError, match=f"sequences must be dense tensors with values, got a {kind} tensor"):
            function(rnn, sequences)
