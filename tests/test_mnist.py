"""MNIST: the real files, small ones made here for everything that can go wrong, and the two tasks that show it.

Nothing here reaches the network: the mirrors are folders and servers of the test.
"""

import gzip
import hashlib
import math
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multistable.tasks import MNISTError, PermutedLineSequentialMNIST, PermutedSequentialMNIST, mnist
from multistable.tasks.permuted_mnist import permutation

REAL = Path(__file__).parents[2] / "shared" / "mnist"
NAMES = [name for names in mnist.FILES.values() for name in names]
IMAGES = "train-images-idx3-ubyte"
# What a message tells to do when a file is of no use.
INSTEAD = r"four gzipped files of https://\S+ in a folder and name it by the argument data .* MULTISTABLE_DATA"


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch, tmp_path):
    """No mirrors, no proxies, no folder from the environment, an empty cache."""
    monkeypatch.setattr(mnist, "MIRRORS", [(tmp_path / "no mirror").as_uri() + "/"])
    monkeypatch.delenv("MULTISTABLE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def digits():
    """Seven images to learn from and five for the test, with their labels, by the name of the file."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in (("train", 7), ("t10k", 5)):
        arrays[f"{split}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 28, 28), np.uint8)
        arrays[f"{split}-labels-idx1-ubyte"] = rng.permutation(10)[:n].astype(np.uint8)
    return arrays


@pytest.fixture
def contents(digits, monkeypatch):
    """The files of these digits, which are now the ones expected."""
    files = {name: idx(array) for name, array in digits.items()}
    for name, content in files.items():
        monkeypatch.setitem(mnist.CHECKSUMS, name, hashlib.md5(content).hexdigest())
    return files


@pytest.fixture
def folder(contents, tmp_path):
    """A folder with two files gzipped and two not."""
    path = tmp_path / "digits"
    path.mkdir()
    for name, content in contents.items():
        if "labels" in name:
            (path / name).write_bytes(content)
        else:
            (path / f"{name}.gz").write_bytes(gzip.compress(content))
    return path


def mirror(contents, path, damage=lambda content: content):
    """The address of a folder that has the gzipped files."""
    path.mkdir()
    for name, content in contents.items():
        (path / f"{name}.gz").write_bytes(damage(gzip.compress(content)))
    return path.as_uri() + "/"


@pytest.fixture
def serve():
    """Start a web server that answers every request by a function of its handler."""
    servers = []

    def start(answer):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                answer(self)

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def check(split, loaded, digits):
    images, labels = mnist.FILES[split]
    assert np.array_equal(loaded.images, digits[images])
    assert np.array_equal(loaded.labels, digits[labels])
    assert loaded.images.dtype == loaded.labels.dtype == np.uint8


# Where the files are found


@pytest.mark.parametrize("split", ["train", "test"])
def test_files_in_a_folder(split, folder, digits, monkeypatch):
    check(split, mnist.load(split, folder), digits)
    check(split, mnist.load(split, str(folder)), digits)
    monkeypatch.setenv("MULTISTABLE_DATA", str(folder))
    check(split, mnist.load(split), digits)


def test_files_gzipped_or_not_whatever_their_name(folder, contents, digits):
    (folder / f"{IMAGES}.gz").write_bytes(contents[IMAGES])
    (folder / "train-labels-idx1-ubyte").write_bytes(gzip.compress(contents["train-labels-idx1-ubyte"]))
    check("train", mnist.load("train", folder), digits)


def test_the_argument_goes_before_the_environment(folder, digits, monkeypatch):
    monkeypatch.setenv("MULTISTABLE_DATA", "nowhere")
    check("train", mnist.load("train", folder), digits)


def test_the_home_folder_may_be_abbreviated(folder, digits, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    check("train", mnist.load("train", f"~/{folder.name}"), digits)


def test_the_cache_is_where_xdg_says(monkeypatch, tmp_path):
    assert mnist.cache_folder() == tmp_path / "cache" / "multistable" / "mnist"
    monkeypatch.setenv("HOME", str(tmp_path))
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert mnist.cache_folder() == tmp_path / ".cache" / "multistable" / "mnist"


@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4), seed=st.integers(0, 100))
def test_idx_of_any_shape(shape, seed):
    array = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    assert np.array_equal(mnist.parse_idx(idx(array), len(shape)), array)


# What can be wrong with them


def test_a_missing_folder(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    with pytest.raises(MNISTError, match=r"gone, named by data, does not exist; name the folder .* or none to"):
        mnist.load("train", gone)
    monkeypatch.setenv("MULTISTABLE_DATA", str(gone))
    with pytest.raises(MNISTError, match="gone, named by MULTISTABLE_DATA, does not exist; name the folder"):
        mnist.load("train")
    gone.write_text("")
    with pytest.raises(MNISTError, match="gone, named by data, is not a folder; name the folder"):
        mnist.load("train", gone)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file(folder, name):
    for path in folder.glob(f"{name}*"):
        path.unlink()
    split = "train" if name.startswith("train") else "test"
    with pytest.raises(MNISTError, match=rf"digits has no file {name} or {name}\.gz; add it, name another folder, or"):
        mnist.load(split, folder)


def test_a_file_that_cannot_be_read(folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(MNISTError, match=rf"{IMAGES}\.gz cannot be read \(Permission denied\); check its permissions"):
        mnist.load("train", folder)


def cut(content):
    return content[: len(content) // 2]


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [cut, flip, lambda c: c[:2], lambda c: c[:-1], lambda c: c[:10] + b"\xff" * 9 + c[19:]],
    ids=["cut", "flip", "two", "last", "no deflate"],
)
def test_a_damaged_gzip(folder, contents, damage):
    (folder / f"{IMAGES}.gz").write_bytes(damage(gzip.compress(contents[IMAGES])))
    message = rf"{IMAGES}\.gz: the gzipped file is truncated or damaged \(.+\); delete it and fetch it again, or"
    with pytest.raises(MNISTError, match=f"{message} put the {INSTEAD}"):
        mnist.load("train", folder)


@pytest.mark.parametrize("compress", [gzip.compress, bytes], ids=["gzipped", "plain"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, r"its header announces 5504 bytes and it has 2752"),
        (lambda c: c + b"\0", r"its header announces 5504 bytes and it has 5505"),
        (lambda c: c[:15], r"it has 15 bytes, fewer than the 16 of an IDX header"),
        (lambda c: b"", r"it has 0 bytes, fewer than the 16 of an IDX header"),
        (lambda c: b"<html>" + c, r"it is not an IDX file of 3-dimensional bytes"),
        (lambda c: c[:4] + b"\xff" * 12 + c[16:], r"its header announces \d{29} bytes and it has 5504"),
    ],
    ids=["cut", "longer", "header", "empty", "html", "huge"],
)
def test_a_damaged_idx(folder, contents, damage, reason, compress):
    (folder / f"{IMAGES}.gz").write_bytes(compress(damage(contents[IMAGES])))
    message = rf"{IMAGES}\.gz: the IDX file is truncated or damaged \({reason}\); delete it and fetch it again, or"
    with pytest.raises(MNISTError, match=f"{message} put the {INSTEAD}"):
        mnist.load("train", folder)


@pytest.mark.parametrize("compress", [gzip.compress, bytes], ids=["gzipped", "plain"])
def test_another_content(folder, contents, compress):
    """One pixel is another: the form is right, the checksum is not."""
    other = flip(contents[IMAGES])
    (folder / f"{IMAGES}.gz").write_bytes(compress(other))
    sums = hashlib.md5(other).hexdigest(), hashlib.md5(contents[IMAGES]).hexdigest()
    message = rf"{IMAGES}\.gz: the content is not that of MNIST \(MD5 {sums[0]}, expected {sums[1]}\); delete it"
    with pytest.raises(MNISTError, match=f"{message} and fetch it again, or put the {INSTEAD}"):
        mnist.load("train", folder)


# Download


def test_a_download_is_kept(contents, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "MIRRORS", [mirror(contents, tmp_path / "mirror")])
    check("train", mnist.load("train"), digits)
    kept = sorted(path.name for path in mnist.cache_folder().iterdir())
    assert kept == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]
    monkeypatch.setattr(mnist, "MIRRORS", [])
    check("train", mnist.load("train"), digits)


@pytest.mark.parametrize("damage", [cut, flip, lambda c: b"moved"], ids=["cut", "flip", "moved"])
def test_the_next_mirror_serves_what_the_first_has_damaged(contents, digits, tmp_path, monkeypatch, damage):
    bad = mirror(contents, tmp_path / "bad", damage)
    monkeypatch.setattr(mnist, "MIRRORS", [bad, mirror(contents, tmp_path / "good")])
    check("test", mnist.load("test"), digits)
    monkeypatch.setattr(mnist, "MIRRORS", [])
    check("test", mnist.load("test"), digits)


def test_no_damaged_file_is_kept(contents, tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "MIRRORS", [mirror(contents, tmp_path / "bad", cut)])
    with pytest.raises(MNISTError, match=r"could not be downloaded .* the gzipped file is truncated or damaged"):
        mnist.load("train")
    assert not mnist.cache_folder().exists()


def refused():
    """The address of a port where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


def test_no_network(monkeypatch):
    mirrors = [refused(), refused()]
    monkeypatch.setattr(mnist, "MIRRORS", mirrors)
    with pytest.raises(MNISTError) as caught:
        mnist.load("train")
    message = str(caught.value)
    assert message.startswith("MNIST could not be downloaded (")
    for address in mirrors:
        assert f"{address}{IMAGES}.gz: " in message
    assert message.count("refused") == 2
    assert "; check the network, or put the four gzipped files of https://" in message
    assert "--data" in message
    assert "MULTISTABLE_DATA" in message


def test_a_server_without_the_file(serve, monkeypatch):
    monkeypatch.setattr(mnist, "MIRRORS", [serve(lambda handler: handler.send_error(404))])
    with pytest.raises(MNISTError, match=r"could not be downloaded .*404.* check the network, or put"):
        mnist.load("train")


def test_a_server_that_breaks_off(contents, serve, monkeypatch):
    def half(handler):
        body = gzip.compress(contents[IMAGES])
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(cut(body))

    monkeypatch.setattr(mnist, "MIRRORS", [serve(half)])
    with pytest.raises(MNISTError, match=r"could not be downloaded .*IncompleteRead"):
        mnist.load("train")


def test_a_server_that_does_not_answer(serve, monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(mnist, "MIRRORS", [serve(lambda handler: done.wait(10))])
    monkeypatch.setattr(mnist, "TIMEOUT", 0.1)
    try:
        with pytest.raises(MNISTError, match=r"could not be downloaded .*timed out"):
            mnist.load("train")
    finally:
        done.set()


def test_a_cache_that_cannot_be_written(contents, tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "MIRRORS", [mirror(contents, tmp_path / "mirror")])
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(MNISTError, match=r"cannot be written \(.+\); set XDG_CACHE_HOME to a folder that can, or put"):
        mnist.load("train")


def test_an_interrupted_write_leaves_nothing(contents, tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(mnist, "MIRRORS", [mirror(contents, tmp_path / "mirror")])
    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        mnist.load("train")
    assert list(mnist.cache_folder().iterdir()) == []


def test_a_damaged_file_in_the_cache(contents, tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "MIRRORS", [mirror(contents, tmp_path / "mirror")])
    mnist.load("train")
    path = mnist.cache_folder() / f"{IMAGES}.gz"
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(MNISTError, match=r"the gzipped file is truncated or damaged .* delete it and fetch it again"):
        mnist.load("train")
    path.unlink()
    mnist.load("train")


# The tasks


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


def generator():
    return torch.Generator().manual_seed(0)


def test_pixels_one_by_one(folder, digits):
    task = PermutedSequentialMNIST(folder)
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


@pytest.mark.parametrize("make", [PermutedSequentialMNIST, lambda data: PermutedLineSequentialMNIST(2, data)])
def test_some_images_are_the_first_of_a_permutation(make, folder):
    task = make(folder)
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


@pytest.mark.parametrize("N", [-1, 2.0, None, "7"])
def test_a_bad_number_of_black_lines(N):
    with pytest.raises(ValueError, match=f"N must be a non-negative integer, the number of black lines, got {N!r}"):
        PermutedLineSequentialMNIST(N)


def test_the_folder_is_no_part_of_what_a_task_is(folder):
    assert PermutedSequentialMNIST(folder) == PermutedSequentialMNIST()
    assert PermutedLineSequentialMNIST(2, folder) == PermutedLineSequentialMNIST(2)
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
    inputs, targets = PermutedSequentialMNIST(REAL).testing(generator=generator())
    assert inputs.shape == (784, 10_000, 1)
    assert (inputs.min(), inputs.max()) == (0, 1)
    assert targets[:5].tolist() == [7, 2, 1, 0, 4]
    for i in (0, 1, 9_999):
        image = raw[16 + 784 * i : 16 + 784 * (i + 1)]
        torch.testing.assert_close(inputs[:, i, 0], torch.tensor([image[p] / 255 for p in order]), rtol=1e-7, atol=0)

    lines, digits = PermutedLineSequentialMNIST(72, REAL).testing(generator=generator())
    assert lines.shape == (100, 10_000, 28)
    assert torch.equal(lines[:28].transpose(1, 2).reshape(784, 10_000, 1), inputs)
    assert lines[28:].count_nonzero() == 0
    assert torch.equal(digits, targets)


@real
def test_the_real_learning_set():
    inputs, targets = PermutedLineSequentialMNIST(2, REAL).training(generator=generator())
    assert inputs.shape == (30, 60_000, 28)
    assert targets.shape == (60_000,)
    raw = gzip.decompress((REAL / "train-images-idx3-ubyte.gz").read_bytes())
    image = raw[16 : 16 + 784]
    expected = torch.tensor([image[p] / 255 for p in legacy_permutation()]).reshape(28, 28)
    torch.testing.assert_close(inputs[:28, 0], expected, rtol=1e-7, atol=0)
