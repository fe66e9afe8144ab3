"""A disk that remembers what each moment would leave of it, and that can be full at any operation."""

import errno
import os
import time
from itertools import count

from multistable import files
from multistable.training import Callback

LOCKS = (".lock", ".group")
"""Files of claims, which say nothing after their process is gone."""


class Node:
    """A file with what was written to it and what of this was synced, or a folder, whose content is ``None``."""

    def __init__(self, content, synced=b""):
        self.content, self.synced = content, None if content is None else synced


class FaultyDisk(Callback):
    """Stands between ``multistable.files`` and the disk under ``root``.

    Attributes:
        operations: how many there have been.
        left: what a fault at some moment leaves, as paths with their contents, and the last epoch or episode that was
            over then. The moments are before each operation, and in the middle of each that writes. The faults are a
            killed process, and three power cuts: names and contents that were not synced are lost, or either alone.
    """

    def __init__(self, root, full_at=None):
        self.root, self.full_at = root, full_at
        self.operations, self.reached, self.left = 0, -1, {}
        there = {root / path: content for path, content in state_of(root)}
        self.entries = {path: Node(content, content) for path, content in there.items()}
        self.kept = dict(self.entries)

    def on_epoch(self, configs, metrics):
        self.reached = metrics[0][configs[0].unit]

    def install(self, monkeypatch):
        """Take the place of the operations. Clocks stand still, and names that are drawn come from a counter."""
        hold_still(monkeypatch)
        real = {name: getattr(files, name) for name in files.OPERATIONS}
        for name in files.OPERATIONS:
            monkeypatch.setattr(files, name, self._wrapped(name, real))
        return self

    def remember(self):
        """Add what faults would leave now; first check that all there is was made by the operations."""
        there = {path for path in self.root.rglob("*") if path.name not in LOCKS}
        assert there == self.entries.keys()
        assert all(path.read_bytes() == node.content for path, node in self.entries.items() if path.is_file())
        for entries in (self.entries, self.kept):
            # What is in a folder whose name is lost is lost with it.
            names = [p for p in entries if all(up in entries for up in p.parents if self.root in up.parents)]
            for part in ("content", "synced"):
                state = frozenset((path.relative_to(self.root), getattr(entries[path], part)) for path in names)
                self.left[state] = max(self.reached, self.left.get(state, -1))

    def _wrapped(self, name, real):
        def act(path, *arguments):
            self.remember()
            if name in ("create", "append"):
                # In two halves: a fault in the middle leaves the first.
                (content,) = arguments
                half = len(content) // 2
                real[name](path, content[:half])
                self._note(name, path, content[:half])
                self.remember()
                self._fail(path)
                real["append"](path, content[half:])
                self._note("append", path, content[half:])
            else:
                self._fail(path)
                if name != "sync":
                    real[name](path, *arguments)
                self._note(name, path, *arguments)
            self.operations += 1

        return act

    def _fail(self, path):
        if self.operations == self.full_at:
            self.operations += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def _note(self, name, path, *arguments):
        if name == "make_folder":
            self.entries[path] = Node(None)
        elif name == "create":
            self.entries[path] = Node(*arguments)
        elif name == "append":
            self.entries.setdefault(path, Node(b"")).content += arguments[0]
        elif name == "rename":
            self.entries[arguments[0]] = self.entries.pop(path)
        elif name == "remove":
            self.entries.pop(path, None)
        elif path.is_dir():
            self.kept = {p: node for p, node in self.kept.items() if p.parent != path}
            self.kept |= {p: node for p, node in self.entries.items() if p.parent == path}
        else:
            self.entries[path].synced = self.entries[path].content


def hold_still(monkeypatch):
    """Let clocks and drawn names be the same in each run, and syncing take no time."""
    names = count()
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: f"{next(names):0{2 * size}x}")
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def restore(state, root):
    """Make the files of a state."""
    root.mkdir()
    for path, content in sorted(state, key=lambda entry: entry[0]):
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)


def state_of(root):
    """What is under a folder, as :attr:`FaultyDisk.left` has it."""
    paths = [path for path in root.rglob("*") if path.name not in LOCKS]
    return frozenset((path.relative_to(root), None if path.is_dir() else path.read_bytes()) for path in paths)


def alike(state):
    """A key that states share which differ in the order of what is in their files: safetensors writes in any."""
    return frozenset((path, content and bytes(sorted(content))) for path, content in state)
