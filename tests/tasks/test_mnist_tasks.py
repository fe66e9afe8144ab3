"""The two tasks that show MNIST, and the real files where they are."""

import gzip
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from generators import generator
from multistable.tasks import PermutedLineSequentialMNIST, PermutedSequentialMNIST, mnist
from multistable.tasks.permuted_mnist import permutation
from paths import ROOT

pytestmark = pytest.mark.usefixtures("nothing_from_outside")

REAL = ROOT.parent / "shared" / "mnist"


def legacy_permutation():
    """The paper's footnote, word for word, with the global generator put back."""
    state = np.random.get_state()  # noqa: NPY002
    try:
        np.random.seed(42)  # noqa: NPY002
        return np.random.permutation(28 * 28)  # noqa: NPY002
    finally:
        np.random.set_state(state)  # noqa: NPY002


def test_the_permutation_is_that_of_the_footnote():
    assert permutation().tolist() == legacy_permutation().tolist()
    # Written down, should NumPy ever change: NEP 19 promises that it does not.
    assert permutation()[:8].tolist() == [598, 590, 209, 637, 174, 213, 429, 259]
    assert sorted(permutation()) == list(range(784))


def test_pixels_one_by_one(folder, digits):
    task = PermutedSequentialMNIST(data=folder)
    for draw, split in ((task.training, "train"), (task.testing, "t10k")):
        inputs, targets = draw(generator=generator(), dtype=torch.float64)
        images = digits[f"{split}-images-idx3-ubyte"]
        assert inputs.shape == (784, len(images), 1)
        for t, pixel in enumerate(legacy_permutation()):
            row, column = divmod(pixel, 28)
            assert inputs[t, :, 0].tolist() == (images[:, row, column] / 255).tolist()
        assert targets.tolist() == digits[f"{split}-labels-idx1-ubyte"].tolist()


@given(N=st.integers(0, 40))
def test_lines_then_black_lines(N):
    images = np.random.default_rng(N).integers(0, 256, (3, 28, 28), np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mnist, "load", lambda split, folder: mnist.Digits(images, np.array([3, 1, 4], np.uint8)))
        task = PermutedLineSequentialMNIST(N)
        inputs, targets = task.training(generator=generator(), dtype=torch.float64)
    assert task.length == 28 + N
    assert inputs.shape == (28 + N, 3, 28)
    for i, image in enumerate(images):
        permuted = np.array([image[divmod(pixel, 28)] for pixel in legacy_permutation()]).reshape(28, 28)
        assert np.array_equal(inputs[:28, i].numpy(), permuted / 255)
    assert inputs[28:].count_nonzero() == 0
    assert targets.tolist() == [3, 1, 4]


@pytest.mark.parametrize("make", [PermutedSequentialMNIST, partial(PermutedLineSequentialMNIST, 2)])
def test_some_images_are_the_first_of_a_permutation(make, folder):
    task = make(data=folder)
    everything = task.training(generator=generator())
    order = torch.randperm(7, generator=generator())
    for n in (1, 4, 7):
        some = task.training(n, generator=generator())
        assert torch.equal(some.inputs, everything.inputs[:, order[:n]])
        assert torch.equal(some.targets, everything.targets[order[:n]])
    with pytest.raises(ValueError, match="n must not exceed the 7 images of the train set, got 8"):
        task.training(8, generator=generator())
    with pytest.raises(ValueError, match="n must not exceed the 5 images of the test set, got 6"):
        task.testing(6, generator=generator())


@pytest.mark.parametrize("N", [-1, 2.0])
def test_a_bad_number_of_black_lines(N):
    with pytest.raises(ValueError, match=f"N must be 0 or a positive integer, got {N!r}"):
        PermutedLineSequentialMNIST(N)


def test_the_folder_is_no_part_of_what_a_task_is(folder):
    assert PermutedSequentialMNIST(data=folder) == PermutedSequentialMNIST()
    assert PermutedLineSequentialMNIST(2, data=folder) == PermutedLineSequentialMNIST(2)
    assert PermutedLineSequentialMNIST(2) != PermutedLineSequentialMNIST(3)


@given(n=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_the_loss_is_the_negative_log_likelihood_of_the_last_output(n, seed):
    g = torch.Generator().manual_seed(seed)
    outputs = 3 * torch.randn(4, n, 10, generator=g, dtype=torch.float64)
    targets = torch.randint(10, (n,), generator=g)
    task, losses, right = PermutedSequentialMNIST(), [], 0
    for i in range(n):
        scores = outputs[3, i].tolist()
        losses.append(-math.log(math.exp(scores[targets[i]]) / sum(math.exp(score) for score in scores)))
        right += scores.index(max(scores)) == int(targets[i])
    assert float(task.loss(outputs, targets)) == pytest.approx(sum(losses) / n, rel=1e-12)
    assert float(task.accuracy(outputs, targets)) == pytest.approx(right / n, rel=1e-15)


def test_large_outputs_have_a_finite_loss():
    outputs = torch.zeros(1, 2, 10)
    outputs[..., 3] = 1e4
    task = PermutedSequentialMNIST()
    assert task.loss(outputs, torch.tensor([3, 4])) == 5e3
    assert task.accuracy(outputs, torch.tensor([3, 4])) == 0.5


# The real files

real = pytest.mark.skipif(not REAL.is_dir(), reason="the MNIST files are not in ../shared/mnist")


@real
def test_the_real_images_and_labels():
    train, test = mnist.load("train", REAL), mnist.load("test", REAL)
    assert train.images.shape == (60_000, 28, 28)
    assert test.images.shape == (10_000, 28, 28)
    # Known of the data set: digits of each class, and the first labels of both sets.
    assert np.bincount(train.labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert train.images.mean() / 255 == pytest.approx(0.1307, abs=5e-5)


@real
def test_the_real_images_permuted():
    """Against the bytes of the file itself: 16 of header, then 784 for each image."""
    raw = gzip.decompress((REAL / "t10k-images-idx3-ubyte.gz").read_bytes())
    order = legacy_permutation()
    inputs, targets = PermutedSequentialMNIST(data=REAL).testing(generator=generator())
    assert inputs.shape == (784, 10_000, 1)
    assert (inputs.min(), inputs.max()) == (0, 1)
    assert targets[:5].tolist() == [7, 2, 1, 0, 4]
    for i in (0, 1, 9_999):
        image = raw[16 + 784 * i : 16 + 784 * (i + 1)]
        torch.testing.assert_close(inputs[:, i, 0], torch.tensor([image[p] / 255 for p in order]), rtol=1e-7, atol=0)

    lines, digits = PermutedLineSequentialMNIST(72, data=REAL).testing(generator=generator())
    assert lines.shape == (100, 10_000, 28)
    assert torch.equal(lines[:28].transpose(1, 2).reshape(784, 10_000, 1), inputs)
    assert lines[28:].count_nonzero() == 0
    assert torch.equal(digits, targets)


@real
def test_the_real_learning_set():
    inputs, targets = PermutedLineSequentialMNIST(2, data=REAL).training(generator=generator())
    assert inputs.shape == (30, 60_000, 28)
    assert targets.shape == (60_000,)
    raw = gzip.decompress((REAL / "train-images-idx3-ubyte.gz").read_bytes())
    image = raw[16 : 16 + 784]
    expected = torch.tensor([image[p] / 255 for p in legacy_permutation()]).reshape(28, 28)
    torch.testing.assert_close(inputs[:28, 0], expected, rtol=1e-7, atol=0)
