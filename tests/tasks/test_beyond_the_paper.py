"""The tasks that the paper does not have: every answer follows from the sequence by a rule that is written again here.

What holds of all registered tasks is in ``test_tasks.py``.
"""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from generators import generator
from multistable.tasks import (
    TASKS,
    Adding,
    AssociativeRecall,
    Counting,
    DelayedMatch,
    FirstWord,
    FlipFlop,
    NoisySine,
    Parity,
    RepeatPrevious,
    SelectiveCopying,
    SmallPermutedMNIST,
    SparseParity,
    TemporalOrder,
    WordCounts,
    mnist,
)

seeds = st.integers(0, 2**32)


def tokens(rows):
    """The place of the 1 in each time step of a one-hot sequence, None where there is none; nothing else is there."""
    assert all(sorted(row) in ([0.0] * len(row), [0.0] * (len(row) - 1) + [1.0]) for row in rows)
    return [row.index(1.0) if 1.0 in row else None for row in rows]


def adding(task, rows):
    assert {mark for _, mark in rows} == {0.0, 1.0}
    first, second = [t for t, (_, mark) in enumerate(rows) if mark]
    assert first < task.T // 2 <= second
    assert all(0 <= number < 1 for number, _ in rows)
    return [rows[first][0] + rows[second][0]]


def selective_copying(task, rows):
    read = tokens(rows)
    assert read[-task.items :] == [task.symbols + 1] * task.items
    assert task.symbols + 1 not in read[: -task.items]
    return [token for token in read[: -task.items] if token != task.symbols]


def recall(task, rows):
    read = tokens(rows)
    keys, values = read[0 : 2 * task.pairs : 2], read[1 : 2 * task.pairs : 2]
    assert len(set(keys)) == task.pairs
    assert read[2 * task.pairs : -1] == [None] * (task.T - 2 * task.pairs - 1)
    return [dict(zip(keys, values, strict=True))[read[-1]] - task.keys]


def flip_flop(task, rows):
    held, answers = None, []
    for row in rows:
        held = row if held is None else [new or old for new, old in zip(row, held, strict=True)]
        answers += held
    assert set(answers) <= {-1.0, 1.0}
    return answers


def delayed_match(task, rows):
    sample, test = tokens([rows[0], rows[-1]])
    return [int(sample == test)]


def parity(task, rows):
    assert {bit for (bit,) in rows} <= {-1.0, 1.0}
    return [sum(bit == 1 for (bit,) in rows[: t + 1]) % 2 for t in range(task.T)]


def sparse_parity(task, rows):
    return [sum(rows[math.floor(i * task.T / task.of)] == [1.0] for i in range(task.of)) % 2]


def first_word(task, rows):
    return [tokens(rows)[0] % task.topics]


def word_counts(task, rows):
    # Counter keeps the order in which topics are first met, and the first of the most common wins.
    return [Counter(word % task.topics for word in tokens(rows)).most_common(1)[0][0]]


def repeat_previous(task, rows):
    return tokens(rows)[: task.T - task.lag]


def counting(task, rows):
    return [(sum(bit == 1 for (bit,) in rows) - task.T / 2) / math.sqrt(task.T / 4)]


def temporal_order(task, rows):
    read = tokens(rows)
    told = {t: "XY"[token - 4] for t, token in enumerate(read) if token > 3}
    first, second = sorted(told)
    assert math.floor(task.T / 10) <= first < math.floor(2 * task.T / 10)
    assert math.floor(4 * task.T / 10) <= second < math.floor(5 * task.T / 10)
    return [["XX", "XY", "YX", "YY"].index(told[first] + told[second])]


LENGTHS = st.integers(12, 40)
MADE = {
    adding: st.builds(Adding, LENGTHS),
    selective_copying: st.builds(SelectiveCopying, LENGTHS, items=st.integers(1, 6), symbols=st.integers(1, 5)),
    recall: st.builds(AssociativeRecall, LENGTHS, pairs=st.integers(1, 4), keys=st.integers(4, 6)),
    flip_flop: st.builds(FlipFlop, LENGTHS, bits=st.integers(1, 4), pulses=st.floats(0, 1)),
    delayed_match: st.builds(DelayedMatch, LENGTHS, symbols=st.integers(2, 5)),
    parity: st.builds(Parity, LENGTHS),
    sparse_parity: st.builds(SparseParity, LENGTHS, of=st.integers(1, 5)),
    first_word: st.builds(FirstWord, LENGTHS, topics=st.integers(1, 5), words=st.integers(1, 4)),
    word_counts: st.builds(WordCounts, LENGTHS, topics=st.integers(1, 5), share=st.floats(0, 1)),
    repeat_previous: st.builds(RepeatPrevious, LENGTHS, lag=st.integers(1, 11)),
    counting: st.builds(Counting, LENGTHS),
    temporal_order: st.builds(TemporalOrder, LENGTHS),
}
SOME = {
    "adding": (Adding(10), 2, 1, 1),
    "selective-copying": (SelectiveCopying(20, items=3, symbols=5), 7, 5, 3),
    "recall": (AssociativeRecall(9, keys=5, values=3), 8, 3, 1),
    "flip-flop": (FlipFlop(10, bits=2), 2, 2, 10),
    "delayed-match": (DelayedMatch(10, symbols=3), 3, 2, 1),
    "parity": (Parity(10), 1, 2, 10),
    "sparse-parity": (SparseParity(10, of=3), 1, 2, 1),
    "first-word": (FirstWord(10, topics=3), 15, 3, 1),
    "word-counts": (WordCounts(10, topics=3), 15, 3, 1),
    "repeat-previous": (RepeatPrevious(10, lag=4, symbols=3), 3, 3, 6),
    "counting": (Counting(10), 1, 1, 1),
    "noisy-sine": (NoisySine(11), 1, 1, 5),
    "temporal-order": (TemporalOrder(10), 6, 4, 1),
    "small-psmnist": (SmallPermutedMNIST(7), 1, 10, 1),
}
"""Each task, its input_size, output_size and answers."""
DRAWN = [name for name in SOME if name != "small-psmnist"]


def test_every_task_beyond_the_paper_is_here():
    assert {"copy", "denoising", "psmnist", "plmnist", *SOME} == set(TASKS)
    assert all(type(task) is TASKS[name] for name, (task, *_) in SOME.items())


@pytest.mark.parametrize("rule", MADE, ids=lambda rule: rule.__name__)
@given(data=st.data(), seed=seeds)
def test_the_answers_follow_from_the_sequence(rule, data, seed):
    task = data.draw(MADE[rule])
    inputs, targets = task.training(5, generator=generator(seed))
    assert inputs.shape == (task.T, 5, task.input_size)
    for i in range(5):
        assert targets[i].tolist() == pytest.approx(rule(task, inputs[:, i].tolist()), abs=1e-5)


@pytest.mark.parametrize("name", SOME)
def test_sizes(name):
    task, *sizes = SOME[name]
    assert [task.input_size, task.output_size, task.answers] == sizes


@pytest.mark.parametrize("name", DRAWN)
def test_guessing_has_the_loss_that_the_task_says(name):
    """The best constant answer, in the mean of n sequences; 5 standard deviations. All classes are equally likely."""
    n, (task, *_) = 20_000, SOME[name]
    targets = task.training(n, generator=generator()).targets
    if targets.is_floating_point():
        errors = (targets - targets.mean(0)).square().mean(1)
        assert abs(errors.mean() - task.guessing) <= 5 * errors.std() / math.sqrt(n)
        assert task.accuracy(torch.zeros(task.answers, n, task.output_size), targets) is None
    else:
        assert task.guessing == math.log(task.output_size)
        p = 1 / task.output_size
        shares = torch.stack([(targets == c).double().mean(0) for c in range(task.output_size)])
        assert ((shares - p).abs() <= 5 * math.sqrt(p * (1 - p) / n)).all()
        same = torch.zeros(task.answers, n, task.output_size)
        assert float(task.loss(same, targets)) == pytest.approx(task.guessing, rel=1e-5)


def test_what_is_to_be_remembered_comes_at_every_time_that_is_told():
    marks = Adding(9).training(2000, generator=generator()).inputs[..., 1].sum(1)
    assert [float(count) for count in marks] == pytest.approx([500.0] * 4 + [400.0] * 5, abs=5 * 20)
    told = TemporalOrder(30).training(2000, generator=generator()).inputs[..., 4:].sum((1, 2))
    assert told.nonzero().flatten().tolist() == [3, 4, 5, 12, 13, 14]
    assert told.max() < 2000 / 3 + 5 * math.sqrt(2000 * 2 / 9)


@given(seed=seeds)
def test_classes_are_scored_at_every_answer(seed):
    """Against the definition, in numbers of Python."""
    task = RepeatPrevious(9, lag=3, symbols=3)
    outputs = torch.randn(9, 4, 3, generator=generator(seed), dtype=torch.float64)
    targets = task.training(4, generator=generator(seed)).targets
    losses, hits = [], []
    for i in range(4):
        for j in range(6):
            scores = outputs[3 + j, i].tolist()
            losses.append(math.log(sum(map(math.exp, scores))) - scores[int(targets[i, j])])
            hits.append(scores.index(max(scores)) == int(targets[i, j]))
    assert float(task.loss(outputs, targets)) == pytest.approx(sum(losses) / 24, rel=1e-12)
    assert float(task.accuracy(outputs, targets)) == pytest.approx(sum(hits) / 24, rel=1e-12)


@given(seed=seeds)
def test_numbers_of_several_outputs_are_those_of_a_time_step_together(seed):
    task = FlipFlop(6, bits=2)
    outputs = torch.randn(6, 4, 2, generator=generator(seed), dtype=torch.float64)
    targets = task.training(4, generator=generator(seed), dtype=torch.float64).targets
    errors = [
        float(outputs[t, i, b] - targets[i, 2 * t + b]) ** 2 for t in range(6) for i in range(4) for b in range(2)
    ]
    assert float(task.loss(outputs, targets)) == pytest.approx(sum(errors) / 48, rel=1e-12)


@pytest.mark.parametrize("T", [2, 11, 60])
def test_a_noisy_sine_is_continued_without_its_noise(T):
    """A wave obeys x[t + 1] + x[t - 1] = 2 cos(2 pi / period) x[t]; the inputs differ from it by the noise."""
    inputs, targets = NoisySine(T, noise=1e-6).training(50, generator=generator())
    waves = torch.cat([inputs[..., 0], targets[:, -1:].T]).double()
    assert torch.allclose(waves[-targets.shape[1] :].T, targets.double(), atol=1e-5)
    if T > 2:
        middle = waves[1:-1]
        twice = ((waves[2:] + waves[:-2]) * middle).sum(0) / middle.square().sum(0)
        periods = 2 * math.pi / torch.acos(twice / 2)
        assert ((periods > 9.9) & (periods < 30.1)).all()
        assert torch.allclose(waves[2:] + waves[:-2], twice * middle, atol=1e-4)
    noise = (NoisySine(T, noise=0.5).training(2000, generator=generator()).inputs - waves_of(T)).flatten()
    assert abs(noise.std() - 0.5) < 5 * 0.5 / math.sqrt(2 * len(noise))


def waves_of(T):
    """The waves of a draw of 2000, without noise but for a trace."""
    return NoisySine(T, noise=1e-6).training(2000, generator=generator()).inputs


def test_noise_between_sample_and_test():
    inputs = DelayedMatch(30, symbols=3, noise=0.25).training(500, generator=generator()).inputs[1:-1].flatten()
    assert abs(inputs.std() - 0.25) < 5 * 0.25 / math.sqrt(2 * len(inputs))


def test_a_share_of_the_words_is_of_one_topic():
    """A share s of one topic of k, all others equally likely: it is met s + (1 - s) / k of the time."""
    texts = WordCounts(200, topics=4, words=2, share=0.5).training(500, generator=generator())
    topics = texts.inputs.argmax(-1) % 4
    assert float((topics == texts.targets.T).double().mean()) == pytest.approx(0.5 + 0.5 / 4, abs=0.01)


def test_small_images_are_means_of_squares_in_the_order_of_the_permutation(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
    digits = mnist.Digits(images, np.arange(3, dtype=np.uint8))
    monkeypatch.setattr(mnist, "load", lambda split, folder: digits)
    inputs, targets = SmallPermutedMNIST(7).training(generator=generator())
    assert inputs.shape == (49, 3, 1)
    assert targets.tolist() == [0, 1, 2]
    order = np.random.RandomState(42).permutation(49)
    for t, pixel in enumerate(order):
        row, column = divmod(int(pixel), 7)
        square = images[1, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        assert float(inputs[t, 1, 0]) == pytest.approx(round(float(square.mean())) / 255, abs=1e-6)
    assert torch.equal(
        SmallPermutedMNIST(28).training(generator=generator()).inputs,
        TASKS["psmnist"]().training(generator=generator()).inputs,
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adding(1), "T must be at least 2, for a time step in either half, got 1"),
        (lambda: SelectiveCopying(5, items=3), "T must be at least 6, for 3 symbols and as many answers, got 5"),
        (lambda: AssociativeRecall(4), "T must be at least 5, for 2 keys with their values, and a question, got 4"),
        (lambda: AssociativeRecall(9, keys=1), "keys must be at least 2, for different keys in a sequence, got 1"),
        (lambda: DelayedMatch(1), "T must be at least 2, for a sample and a test, got 1"),
        (lambda: DelayedMatch(5, symbols=1), "symbols must be at least 2, for tests that are not the sample, got 1"),
        (lambda: DelayedMatch(5, noise=0), "noise must be a positive number, got 0"),
        (lambda: SparseParity(2, of=3), "T must be at least 3, for the bits that count, got 2"),
        (lambda: RepeatPrevious(5), "T must be at least 6, for an answer, got 5"),
        (lambda: NoisySine(1), "T must be at least 2, for a second half, got 1"),
        (lambda: TemporalOrder(9), "T must be at least 10, for a time step in each tenth, got 9"),
        (lambda: WordCounts(9, share=1.5), r"share must lie in \[0, 1\], got 1.5"),
        (lambda: FlipFlop(9, pulses=-1), r"pulses must lie in \[0, 1\], got -1"),
        (lambda: SmallPermutedMNIST(5), "side must divide 28, the side of an image, got 5"),
        (lambda: Parity(0), "T must be a positive integer, got 0"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
