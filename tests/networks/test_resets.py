"""Resets inside sequences: as if each part between two resets were a sequence of its own."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.testing import assert_close

import multistable as ms
from multistable.networks import pieces
from numpy_cells import entry, fields, normal, with_random_weights
from own_cells import LeakyCell
from small_networks import HIDDEN, INPUT, make, random_state

TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def part_by_part(rnn: ms.RNN, x: Tensor, state, resets: Tensor):
    """One sequence ``(time, features)`` from reset to reset: the output, and the last state as a tuple."""
    ways = 1 + rnn.bidirectional
    cuts = [0, *(t for t in range(1, len(x)) if resets[t]), len(x)]
    outputs, ends = [], []
    for start, stop in pairwise(cuts):
        before = [torch.zeros_like(field) for field in fields(state)]
        for own, field in zip(before, fields(state), strict=True):
            if start == 0 and not resets[0]:
                own[::ways] = field[::ways]
            if stop == len(x) and ways == 2:
                own[1::2] = field[1::2]
        output, end = rnn(x[start:stop], tuple(before) if len(before) > 1 else before[0])
        outputs.append(output)
        ends.append([field.clone() for field in fields(end)])
    for last, first in zip(ends[-1], ends[0], strict=True):
        if ways == 2:
            last[1::2] = first[1::2]
    return torch.cat(outputs), tuple(ends[-1])


def check(rnn: ms.RNN, sequences: list[Tensor], resets: list[Tensor], call) -> None:
    """``call(sequences, state, resets)`` gives, for all at once, outputs ``(time, n, units)`` padded and the state."""
    state = random_state(rnn, len(sequences))
    leaves = [*sequences, *fields(state), *(p for p in rnn.parameters() if p.requires_grad)]
    for leaf in leaves:
        leaf.requires_grad_()
    output, end = call(sequences, state, resets)
    together, alone = [], []
    for i, (x, own) in enumerate(zip(sequences, resets, strict=True)):
        expected, expected_end = part_by_part(rnn, x, entry(state, i), own)
        assert_close(output[: len(x), i], expected, **TIGHT)
        assert_close(fields(entry(end, i)), expected_end, **TIGHT)
        together += [output[: len(x), i], *fields(entry(end, i))]
        alone += [expected, *expected_end]
    upstream = [normal(*result.shape, seed=i) for i, result in enumerate(alone)]
    gradients = [
        torch.autograd.grad(results, leaves, upstream, materialize_grads=True) for results in (together, alone)
    ]
    assert_close(*gradients, **TIGHT)


FORMS = [
    ("gru", {"num_layers": 2}),
    ("lstm", {"double": True, "batch_first": True}),
    ("lstm", {"num_layers": 2, "bidirectional": True}),
    (("gru", "lstm"), {"double": True, "bidirectional": True}),
    (LeakyCell, {}),
]


@settings(max_examples=30)
@given(
    form=st.sampled_from(FORMS),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    rate=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    padding=st.sampled_from([0, 2, 8]),
    packed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_resets_are_as_sequences_of_their_own(form, lengths, rate, padding, packed, seed):
    cell, options = form
    rnn = make(cell, **options)
    lengths = lengths if packed else [lengths[0]] * len(lengths)
    sequences = [normal(length, INPUT, seed=i) for i, length in enumerate(lengths)]
    generator = torch.Generator().manual_seed(seed)
    resets = [torch.rand(length, generator=generator) < rate for length in lengths]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "ROWS_FOR_A_STEP", padding)
        check(rnn, sequences, resets, packed_call(rnn) if packed else batch_call(rnn))


def batch_call(rnn):
    dim = 0 if rnn.batch_first else 1

    def call(sequences, state, resets):
        output, end = rnn(torch.stack(sequences, dim), state, resets=torch.stack(resets, dim))
        return output.movedim(dim, 1), end

    return call


def packed_call(rnn):
    def call(sequences, state, resets):
        mask = pack_sequence(resets, enforce_sorted=False)
        output, end = rnn(pack_sequence(sequences, enforce_sorted=False), state, resets=mask)
        padded = pad_packed_sequence(mask, batch_first=rnn.batch_first, padding_value=True)[0]
        again = rnn(pack_sequence(sequences, enforce_sorted=False), state, resets=padded)
        assert_close((again[0].data, again[1]), (output.data, end), rtol=0, atol=0)
        return pad_packed_sequence(output)[0], end

    return call


@pytest.mark.parametrize("batch_first", [False, True])
def test_one_sequence_without_a_batch(batch_first):
    rnn, x, resets = make("lstm", batch_first=batch_first), normal(5, INPUT), torch.tensor([0, 1, 0, 0, 1]).bool()
    state = entry(random_state(rnn, 1), 0)
    output, end = rnn(x, state, resets=resets)
    assert_close((output, end), part_by_part(rnn, x, state, resets), **TIGHT)


@pytest.mark.parametrize(("cell", "double"), [("gru", False), ("lstm", True)])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_members_of_an_ensemble_have_resets_of_their_own(cell, double, batch_first, shared):
    options = {"double": double, "batch_first": batch_first, "dtype": torch.float64}
    members = [with_random_weights(ms.RNN(cell, INPUT, HIDDEN, 2, **options), seed) for seed in range(3)]
    ensemble, dim = ms.Ensemble(members), 0 if batch_first else 1
    shape = (4, 9) if batch_first else (9, 4)
    x = torch.stack([normal(*shape, INPUT, seed=r) for r in range(3)], dim)
    rates = torch.tensor([0.0, 0.2, 0.9])[:, None, None]
    masks = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0)) < (0.2 if shared else rates)
    masks = masks[:1].expand(3, *shape) if shared else masks
    before = random_state_of(ensemble, x)
    output, end = ensemble(x, before, resets=masks[0] if shared else masks.movedim(0, dim))
    together = torch.autograd.grad(total(output, end), list(ensemble.parameters()))
    for r, member in enumerate(members):
        own, own_end = member(x.select(dim, r), entry(before, r), resets=masks[r])
        assert_close((output.select(dim, r), entry(end, r)), (own, own_end), **TIGHT)
        alone = torch.autograd.grad(total(own, own_end), list(member.parameters()))
        assert_close([gradient[r] for gradient in together], list(alone), **TIGHT)


def test_what_is_not_finite_in_one_member_stays_there():
    ensemble = ms.Ensemble([make("gru") for _ in range(2)])
    x, resets = normal(6, 2, 3, INPUT), torch.zeros(6, 2, 3, dtype=torch.bool)
    x[:, 0, 0], resets[1:, 0] = torch.nan, True
    output, _ = ensemble(x, resets=resets)
    output.sum().backward()
    assert all(weight.grad[0].isnan().any() and weight.grad[1].isfinite().all() for weight in ensemble.parameters())


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("n", [0, 2])
def test_resets_of_nothing(bidirectional, n):
    rnn = make("gru", bidirectional=bidirectional)
    assert rnn(normal(3, 0, INPUT), resets=torch.zeros(3, 0, dtype=torch.bool))[0].shape[:2] == (3, 0)
    with pytest.raises(ValueError, match="length 0"):
        rnn(normal(0, n, INPUT), resets=torch.zeros(0, n, dtype=torch.bool))


def random_state_of(ensemble, x):
    with torch.no_grad():
        return ensemble(x)[1]


def total(output, end) -> Tensor:
    return sum(tensor.square().sum() for tensor in (output, *fields(end)))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("time", range(4))
def test_a_single_reset_at_any_time(time, bidirectional):
    rnn, x = make("gru", 2, bidirectional=bidirectional), normal(4, 1, INPUT)
    resets = torch.zeros(4, 1, dtype=torch.bool)
    state, resets[time] = random_state(rnn, 1), True
    output, end = rnn(x, state, resets=resets)
    assert_close((output[:, 0], (end[:, 0],)), part_by_part(rnn, x[:, 0], state[:, 0], resets[:, 0]), **TIGHT)


def test_no_reset_is_no_argument():
    rnn, x = make("lstm", 2), normal(6, 3, INPUT)
    state = random_state(rnn)
    assert_close(rnn(x, state, resets=torch.zeros(6, 3, dtype=torch.bool)), rnn(x, state), **TIGHT)


def test_a_reset_before_the_first_step_forgets_the_given_state():
    """What an agent does at each step: it knows of the end of an episode when it sees the next observation."""
    rnn, x = make("gru"), normal(1, 3, INPUT)
    state, done = random_state(rnn), torch.tensor([[True, False, True]])
    output, _ = rnn(x, state, resets=done)
    assert_close(output, rnn(x, torch.where(done.unsqueeze(-1), 0, state))[0], **TIGHT)


def test_few_groups_have_all_pieces():
    """However often states are reset, there are few batches, and padding at most doubles the rows beyond a few."""
    for rate in (0.001, 0.02, 0.3):
        resets = torch.rand(500, 40, generator=torch.Generator().manual_seed(1)) < rate
        found = pieces.pieces_of_batch(resets)
        rows = sum(group.steps.numel() for group in found.groups)
        assert len(found.groups) <= 10
        assert sum(len(group.steps) for group in found.groups) <= 2 * 500
        assert rows <= 2 * resets.numel() + pieces.ROWS_FOR_A_STEP * 1000


@pytest.mark.parametrize(
    ("resets", "error", "message"),
    [
        (torch.zeros(5, 3), TypeError, r"resets must be a tensor of torch.bool, got torch.float32"),
        ([[True]], TypeError, r"resets must be a tensor of torch.bool, got list"),
        (torch.zeros(3, 5, dtype=torch.bool), ValueError, r"without its features, \(5, 3\), got \(3, 5\)"),
    ],
)
def test_resets_of_another_form_are_refused(resets, error, message):
    with pytest.raises(error, match=message):
        make("gru")(normal(5, 3, INPUT), resets=resets)


def test_packed_resets_of_other_lengths_are_refused():
    packed = pack_sequence([normal(4, INPUT), normal(2, INPUT)])
    mask = pack_padded_sequence(torch.zeros(4, 1, dtype=torch.bool), torch.tensor([4]))
    with pytest.raises(ValueError, match=r"without its features, \(4, 2\), got \(4, 1\)"):
        make("gru")(packed, resets=mask)
