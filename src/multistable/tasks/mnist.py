"""The files of MNIST, from a folder or downloaded once; their content is verified."""

import gzip
import hashlib
import http.client
import io
import math
import os
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from filelock import FileLock, Timeout

from multistable import files
from multistable.tasks.base import Split
from multistable.tasks.download import LONGEST, download

FILES: dict[Split, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""Images and labels of each set."""

CHECKSUMS = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""MD5 of the uncompressed content."""

LARGEST = 50_000_000
"""Bytes that no file of MNIST exceeds, gzipped or not: the largest has 47,040,016."""

MIRRORS = ["https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"]
"""Where the gzipped files are, tried in this order."""

VARIABLE = "MULTISTABLE_DATA"

_BYTE = 8  # IDX's code for unsigned bytes
_GZIP = b"\x1f\x8b"  # how a gzipped file begins; an IDX file begins with two zeros
_INSTEAD = (
    f"put the four gzipped files of {MIRRORS[0]} in a folder and name it by the argument data (--data of multistable "
    f"train and select) or the environment variable {VARIABLE}"
)


class MNISTError(RuntimeError):
    """A file of MNIST is missing or is not what it should be; the message says what to do."""


class Digits(NamedTuple):
    """``images (n, 28, 28)`` and ``labels (n,)``, unsigned bytes that cannot be written to."""

    images: np.ndarray
    labels: np.ndarray


def load(split: Split, folder: Path | str | None = None) -> Digits:
    """One of the two sets.

    The files are looked for in ``folder``, else in the folder that the environment variable ``MULTISTABLE_DATA``
    names, gzipped or not. Without either they are downloaded once, to ``multistable/mnist`` in the user's cache.
    """
    images, labels = FILES[split]
    named = folder or os.environ.get(VARIABLE)
    if named:
        source = "data" if folder else VARIABLE
        where = _existing(Path(named).expanduser(), source)
        return Digits(*(_read(_find(where, name), name) for name in (images, labels)))
    return Digits(*(_cached(name) for name in (images, labels)))


def cache_folder() -> Path:
    """Where downloaded files are kept: ``multistable/mnist`` in ``XDG_CACHE_HOME``, by default ``~/.cache``."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (given if given.is_absolute() else Path.home() / ".cache") / "multistable" / "mnist"


def parse_idx(content: bytes, dimensions: int) -> np.ndarray:
    """The array ``(...)`` in a file of unsigned bytes in IDX form: two zeros, type, dimensions, sizes, data.

    Raises:
        ValueError: says what is wrong with the content.
    """
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise ValueError(f"it has {len(content)} bytes, fewer than the {header} of an IDX header")
    if content[:4] != bytes([0, 0, _BYTE, dimensions]):
        raise ValueError(f"it is not an IDX file of {dimensions}-dimensional bytes")
    shape = [int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4)]
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise ValueError(f"its header announces {expected} bytes and it has {len(content)}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _existing(folder: Path, source: str) -> Path:
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise MNISTError(
            f"the MNIST folder {folder}, named by {source}, {problem}; name the folder that has the four MNIST files, "
            "or none to have them downloaded"
        )
    return folder


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise MNISTError(
        f"the MNIST folder {folder} has no file {name} or {name}.gz; add it, name another folder, or name none to have "
        "MNIST downloaded"
    )


def _read(path: Path, name: str) -> np.ndarray:
    try:
        with path.open("rb") as file:
            return _decode(_limited(file), name)
    except OSError as error:
        raise MNISTError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    except ValueError as error:
        raise MNISTError(f"{path}: {error}; delete it and fetch it again, or {_INSTEAD}") from error


def _limited(file: BinaryIO | gzip.GzipFile) -> bytes:
    """What is in a file, of which no more is read than any file of MNIST has: little can be made to expand to much."""
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes, and no file of MNIST has")
    return content


def _decode(content: bytes, name: str) -> np.ndarray:
    """The array in a file, gzipped or not; a ``ValueError`` says what is wrong with it."""
    if content.startswith(_GZIP):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = _limited(file)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"the gzipped file is truncated or damaged ({error})") from error
    dimensions = int(name.split("-")[2].removeprefix("idx"))
    # The form is checked first: "truncated" says more than "another checksum".
    try:
        array = parse_idx(content, dimensions)
    except ValueError as error:
        raise ValueError(f"the IDX file is truncated or damaged ({error})") from error
    checksum = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if checksum != CHECKSUMS[name]:
        raise ValueError(f"the content is not that of MNIST (MD5 {checksum}, expected {CHECKSUMS[name]})")
    return array


def _cached(name: str) -> np.ndarray:
    path = cache_folder() / f"{name}.gz"
    if not path.is_file():
        try:
            files.make_folders(path.parent)
            # Processes that begin together download a file once.
            with FileLock(path.parent / ".lock", timeout=len(MIRRORS) * LONGEST):
                files.remove_parts(path.parent)
                if not path.is_file():
                    files.write_atomically(path, _download(name))
        except Timeout as error:
            raise MNISTError(f"another process has been downloading to {path.parent} for too long; end it") from error
        except OSError as error:
            raise MNISTError(
                f"{path} cannot be written ({error.strerror}); set XDG_CACHE_HOME to a folder that can, or {_INSTEAD}"
            ) from error
    return _read(path, name)


def _download(name: str) -> bytes:
    """The gzipped file, from the first mirror that has it intact."""
    problems = []
    for mirror in MIRRORS:
        url = f"{mirror}{name}.gz"
        try:
            content = download(url, LARGEST)
            _decode(content, name)
            return content
        except (OSError, http.client.HTTPException, ValueError) as error:
            problems.append(f"{url}: {error}")
    raise MNISTError(f"MNIST could not be downloaded ({'; '.join(problems)}); check the network, or {_INSTEAD}")
