"""Small files in the manner of MNIST, as fixtures."""

import gzip
import hashlib
import struct

import numpy as np
import pytest

from multistable.tasks import mnist


@pytest.fixture
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
    """The files of these digits; the library now expects their checksums."""
    files = {name: idx(array) for name, array in digits.items()}
    for name, content in files.items():
        monkeypatch.setitem(mnist.CHECKSUMS, name, hashlib.md5(content).hexdigest())
    return files


@pytest.fixture
def folder(contents, tmp_path):
    """A folder with two gzipped files and two plain files."""
    path = tmp_path / "digits"
    path.mkdir()
    for name, content in contents.items():
        if "labels" in name:
            (path / name).write_bytes(content)
        else:
            (path / f"{name}.gz").write_bytes(gzip.compress(content))
    return path
