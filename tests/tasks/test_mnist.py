"""The files of MNIST: small ones made here for everything that can go wrong.

Nothing here reaches the network: the mirrors are folders and servers of the test.
"""

import gzip
import hashlib
import io
import socket
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnist_files import idx
from multistable.tasks import MNISTError, mnist
from multistable.tasks.download import SafeRedirects

pytestmark = pytest.mark.usefixtures("nothing_from_outside")

IMAGES = "train-images-idx3-ubyte"
# What a message tells to do when a file is of no use.
INSTEAD = r"four gzipped files of https://\S+ in a folder and name it by the argument data .* MULTISTABLE_DATA"


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


@pytest.mark.parametrize("name", [IMAGES, "t10k-labels-idx1-ubyte"])
def test_a_missing_file(folder, name):
    for path in folder.glob(f"{name}*"):
        path.unlink()
    split = "train" if name.startswith("train") else "test"
    with pytest.raises(MNISTError, match=rf"digits has no file {name} or {name}\.gz; add it, name another folder, or"):
        mnist.load(split, folder)


def test_a_file_that_cannot_be_read(folder, monkeypatch):
    def refuse(path, mode):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(MNISTError, match=rf"{IMAGES}\.gz cannot be read \(Permission denied\); check its permissions"):
        mnist.load("train", folder)


def cut(content):
    return content[: len(content) // 2]


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [cut, flip, lambda c: c[:10] + b"\xff" * 9 + c[19:]],
    ids=["cut", "flip", "no deflate"],
)
def test_a_damaged_gzip(folder, contents, damage):
    (folder / f"{IMAGES}.gz").write_bytes(damage(gzip.compress(contents[IMAGES])))
    message = rf"{IMAGES}\.gz: the gzipped file is truncated or damaged \(.+\); delete it and fetch it again, or"
    with pytest.raises(MNISTError, match=f"{message} put the {INSTEAD}"):
        mnist.load("train", folder)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, r"its header announces 5504 bytes and it has 2752"),
        (lambda c: c[:15], r"it has 15 bytes, fewer than the 16 of an IDX header"),
        (lambda c: b"<html>" + c, r"it is not an IDX file of 3-dimensional bytes"),
        (lambda c: c[:4] + b"\xff" * 12 + c[16:], r"its header announces \d{29} bytes and it has 5504"),
    ],
    ids=["cut", "header", "html", "huge"],
)
def test_a_damaged_idx(folder, contents, damage, reason):
    (folder / f"{IMAGES}.gz").write_bytes(damage(contents[IMAGES]))
    message = rf"{IMAGES}\.gz: the IDX file is truncated or damaged \({reason}\); delete it and fetch it again, or"
    with pytest.raises(MNISTError, match=f"{message} put the {INSTEAD}"):
        mnist.load("train", folder)


def test_another_content(folder, contents):
    """One pixel is another: the form is right, the checksum is not."""
    other = flip(contents[IMAGES])
    (folder / f"{IMAGES}.gz").write_bytes(gzip.compress(other))
    sums = hashlib.md5(other).hexdigest(), hashlib.md5(contents[IMAGES]).hexdigest()
    message = rf"{IMAGES}\.gz: the content is not that of MNIST \(MD5 {sums[0]}, expected {sums[1]}\); delete it"
    with pytest.raises(MNISTError, match=f"{message} and fetch it again, or put the {INSTEAD}"):
        mnist.load("train", folder)


def test_little_that_expands_to_much(folder, contents, monkeypatch):
    """Ten megabytes of zeros in ten kilobytes: they are refused, and never in memory."""
    monkeypatch.setattr(mnist, "LARGEST", 20_000)
    (folder / f"{IMAGES}.gz").write_bytes(gzip.compress(bytes(10_000_000)))
    tracemalloc.start()
    with pytest.raises(MNISTError, match=rf"{IMAGES}\.gz: it has more than 20000 bytes, and no file of MNIST has; del"):
        mnist.load("train", folder)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_file_larger_than_any_of_mnist(folder, monkeypatch):
    monkeypatch.setattr(mnist, "LARGEST", 20_000)
    (folder / f"{IMAGES}.gz").write_bytes(bytes(20_001))
    with pytest.raises(MNISTError, match=rf"{IMAGES}\.gz: it has more than 20000 bytes, and no file of MNIST has; del"):
        mnist.load("train", folder)


# Download


def kept():
    """The names in the cache, without the file of the lock."""
    return sorted(path.name for path in mnist.cache_folder().iterdir() if path.name != ".lock")


def test_mirrors_are_asked_by_https(monkeypatch):
    monkeypatch.undo()
    assert all(mirror.startswith("https://") for mirror in mnist.MIRRORS)


def test_a_download_is_kept(contents, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "MIRRORS", [mirror(contents, tmp_path / "mirror")])
    check("train", mnist.load("train"), digits)
    assert kept() == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]
    monkeypatch.setattr(mnist, "MIRRORS", [])
    check("train", mnist.load("train"), digits)


@pytest.mark.parametrize("damage", [cut, lambda c: b"moved"], ids=["cut", "moved"])
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
    assert kept() == []


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
    monkeypatch.setattr("multistable.tasks.download.TIMEOUT", 0.1)
    try:
        with pytest.raises(MNISTError, match=r"could not be downloaded .*timed out"):
            mnist.load("train")
    finally:
        done.set()


def endless(handler, done, piece, pause):
    """Answer with pieces until the client has gone."""
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        while not done.wait(pause):
            handler.wfile.write(piece)


@pytest.mark.parametrize(
    ("piece", "pause", "told"),
    [
        (b"0", 0.01, r"it took longer than 0.2 seconds"),
        (bytes(10_000), 0, r"it has more than 20000 bytes"),
    ],
    ids=["a byte at a time", "no end"],
)
def test_a_server_that_does_not_stop(serve, monkeypatch, piece, pause, told):
    done = threading.Event()
    monkeypatch.setattr(mnist, "MIRRORS", [serve(lambda handler: endless(handler, done, piece, pause))])
    monkeypatch.setattr(mnist, "LARGEST", 20_000)
    monkeypatch.setattr("multistable.tasks.download.LONGEST", 0.2 if pause else 60)
    try:
        with pytest.raises(MNISTError, match=rf"could not be downloaded .*{IMAGES}\.gz: {told}"):
            mnist.load("train")
    finally:
        done.set()


def test_nobody_is_led_from_https_to_http():
    asked = Request("https://mirror.test/file")
    with pytest.raises(HTTPError, match=r"it leads to http://mirror.test/file, which is not HTTPS"):
        SafeRedirects().redirect_request(asked, io.BytesIO(), 302, "Found", {}, "http://mirror.test/file")
    elsewhere = SafeRedirects().redirect_request(asked, None, 302, "Found", {}, "https://other.test/file")
    assert elsewhere.full_url == "https://other.test/file"


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
    assert kept() == []


def test_what_killed_downloads_left_is_removed(contents, tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "MIRRORS", [mirror(contents, tmp_path / "mirror")])
    mnist.cache_folder().mkdir(parents=True)
    (mnist.cache_folder() / f".{IMAGES}.gz.0123456789abcdef.part").touch()
    mnist.load("train")
    assert kept() == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]


def test_processes_that_begin_together_download_a_file_once(contents, digits, serve, monkeypatch):
    asked, both = [], threading.Barrier(2)

    def answer(handler):
        asked.append(handler.path)
        body = gzip.compress(contents[handler.path.removeprefix("/").removesuffix(".gz")])
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def load():
        both.wait()
        check("train", mnist.load("train"), digits)

    monkeypatch.setattr(mnist, "MIRRORS", [serve(answer)])
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(load), pool.submit(load)]:
            done.result()
    assert sorted(asked) == [f"/{IMAGES}.gz", "/train-labels-idx1-ubyte.gz"]


def test_a_damaged_file_in_the_cache(contents, tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "MIRRORS", [mirror(contents, tmp_path / "mirror")])
    mnist.load("train")
    path = mnist.cache_folder() / f"{IMAGES}.gz"
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(MNISTError, match=r"the gzipped file is truncated or damaged .* delete it and fetch it again"):
        mnist.load("train")
    path.unlink()
    mnist.load("train")
