"""How files are written so that neither a killed process nor a power cut leaves anything torn.

All that is done to the files of a run, and to downloaded ones, is one of the :data:`OPERATIONS`.
"""

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OPERATIONS = ("make_folder", "create", "append", "sync", "rename", "remove")
"""The functions of this module that change the disk."""

STALE = 3600.0
"""Seconds after which a file that is not whole belongs to no process that still writes it."""

NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)
"""The errors of systems on which a folder cannot be synced."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name, rename it when it is whole, and return when all of this is on the disk."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        create(part, content)
        sync(part)
        rename(part, path)
    except BaseException:
        with suppress(OSError):
            remove(part)
        raise
    sync(path.parent)
    with suppress(OSError):
        _remove_stale_parts(path)


def make_folders(path: Path) -> None:
    """Make a folder and those above it that are missing."""
    if not path.is_dir():
        make_folders(path.parent)
        make_folder(path)
        sync(path.parent)


def remove_parts(folder: Path) -> None:
    """Remove what :func:`write_atomically` left in a folder when its process was killed."""
    for part in folder.glob(".*.part"):
        remove(part)


def _remove_stale_parts(path: Path) -> None:
    """Remove what processes that were killed left of a file, but not what another may be writing."""
    for part in path.parent.glob(".*.part"):
        if part.name.startswith(f".{path.name}.") and time.time() - part.lstat().st_mtime > STALE:
            remove(part)


def make_folder(path: Path) -> None:
    """Make a folder in one that exists."""
    with _named(path):
        path.mkdir(exist_ok=True)


def create(path: Path, content: bytes) -> None:
    """Write a new file. Whatever has this name already, a link for instance, is an error and is not followed."""
    with _named(path), path.open("xb") as file:
        file.write(content)


def append(path: Path, content: bytes) -> None:
    """Write at the end of a file. A link is an error and is not followed."""
    with _named(path), open(path, "ab", opener=_without_links) as file:
        file.write(content)


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    folder = path.is_dir()
    with _named(path):
        try:
            descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not (folder and error.errno in NO_SYNC):
                raise


def rename(old: Path, new: Path) -> None:
    """Give a file another name, in place of the file that has it."""
    with _named(new):
        old.replace(new)


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    with _named(path):
        path.unlink(missing_ok=True)


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Give errors the path that they are about: a full disk is told of a descriptor alone."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
