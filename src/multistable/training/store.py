"""A run is a folder: its files, written so that a process killed at any moment leaves them usable."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from multistable import files
from multistable.training.kinds import config_class
from multistable.training.settings import Config
from multistable.training.summary import (
    OBJECT,
    TEXT,
    check_attractors,
    check_course,
    check_entries,
    check_kind,
    check_row,
    check_summary,
)

UNREADABLE = (ValueError, TypeError, KeyError, RecursionError, SafetensorError)
"""The errors of reading a file whose content is not as it was written."""

Rows = Sequence[Mapping[str, Any]]
"""What was recorded at each epoch or evaluation."""


def config_of(settings: dict[str, Any], data: Path | str | None = None) -> Config:
    """The inverse of ``Config.to_dict``, for a run of any kind; ``data`` is the folder of the task's files."""
    check_entries("config", settings, {"task": OBJECT, "cell": TEXT})
    check_entries("config.task", settings["task"], {"name": TEXT})
    imports = settings.get("imports", {})
    check_kind("config.imports", imports, OBJECT)
    check_entries("config.imports", imports, dict.fromkeys(imports, TEXT))
    return config_class(settings["task"]["name"], imports.get("task")).from_dict(settings, data)


class DamagedRunError(RuntimeError):
    """A file of a run cannot be read."""


class BusyRunError(RuntimeError):
    """Another process is working on a run."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on after an epoch or an episode.

    Attributes:
        tensors: weights, the optimiser's state and all other tensors, by name.
        notes: everything else, as JSON has it.
        rows: all that was recorded until then; ``None`` in a file that an earlier version wrote.
    """

    tensors: Mapping[str, Tensor]
    notes: dict[str, Any]
    rows: Rows | None = None


class RunFolder:
    """The files of one run.

    ============================  =====================================================================
    ``config.json``               the configuration
    ``metrics.jsonl``             a line for each epoch or evaluation; that of 0 is from before training
    ``warmup.json``               VAA* at each step of the warmup, and VAA where asked for
    ``attractors.json``           the attractors in the course of training, where asked for
    ``weights.safetensors``       the weights of the lowest validation loss; of an agent the last ones
    ``summary.json``              the results, written last: a run that has this file is finished
    ``checkpoint-E.safetensors``  what is needed to go on after epoch or episode E; the latest two
    ============================  =====================================================================

    Args:
        path: the folder; it is made when something is first written to it.
    """

    def __init__(self, path: os.PathLike[str] | str) -> None:
        self.path = Path(path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @classmethod
    def of(cls, config: Config, out: Path | str) -> "RunFolder":
        """The folder of a run under ``out``."""
        return cls(Path(out) / config.name)

    @contextmanager
    def claimed(self, patience: float = 0.0, name: str = ".lock") -> Iterator[None]:
        """Keep other processes away; a claim ends with its process, however that ends.

        If another process has the claim, wait up to ``patience`` seconds for it. Claims by different names do not
        exclude each other.
        """
        files.make_folders(self.path)
        lock = FileLock(self.path / name)
        try:
            lock.acquire(timeout=patience)
        except Timeout as error:
            raise BusyRunError(f"another process is working on {self.path}") from error
        try:
            yield
        finally:
            lock.release()

    @property
    def finished(self) -> bool:
        """Whether the run has its results."""
        return (self.path / "summary.json").exists()

    def config(self, data: Path | str | None = None) -> Any:
        """The configuration of the run, whatever its kind; ``data`` is the folder of the task's files."""
        settings = self._read_json("config.json", "task", "cell")
        try:
            return config_of(settings, data)
        except (ValueError, TypeError) as error:
            raise DamagedRunError(f"{self.path / 'config.json'}: {error}") from error

    def summary(self) -> dict[str, Any]:
        """The results of a finished run."""
        return self._checked("summary.json", check_summary, "results", "record")

    def warmup(self) -> dict[str, Any] | None:
        """The course of the warmup, if the run had one."""
        return self._checked("warmup.json", check_course) if (self.path / "warmup.json").exists() else None

    def attractors(self) -> list[dict[str, Any]]:
        """The attractors that were recorded in the course of training; none unless they were asked for."""
        name = "attractors.json"
        return self._checked(name, check_attractors, "records")["records"] if (self.path / name).exists() else []

    def metrics(self, unit: str | None = None) -> list[dict[str, Any]]:
        """What was recorded at each epoch, without a last line that was cut off while it was written.

        ``unit`` is what each line must say that it is of, an ``"epoch"`` or an ``"episode"``; either when not given.
        """
        rows, wrong = self._rows(unit)
        if wrong:
            raise DamagedRunError(f"{self.path / 'metrics.jsonl'} {wrong}. Delete {self.path} to run it again")
        return rows

    def _rows(self, unit: str | None = None) -> tuple[list[dict[str, Any]], str]:
        """The rows before the first that is damaged, and what is wrong with that one."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        rows = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                rows.append(check_row(json.loads(line), unit))
            except json.JSONDecodeError as error:
                if number < len(lines):
                    return rows, f"cannot be read: {error} in its line {number}"
            except (ValueError, RecursionError) as error:
                return rows, f"cannot be read: {error} in its line {number}"
        return rows, ""

    def weights(self) -> dict[str, Tensor]:
        """The weights that are kept of a finished run."""
        path = self.path / "weights.safetensors"
        try:
            return load_file(path)
        except Exception as error:
            raise DamagedRunError(f"{path} cannot be read: {error}") from error

    def write_config(self, config: Config) -> None:
        """Write the configuration of a new run, or check that the one that is there is of this run."""
        path = self.path / "config.json"
        if not path.exists():
            self.write_json("config.json", config.stored())
        elif other := config.unlike(self._read_json("config.json", "task", "cell")):
            told = ", ".join(f"{name} is {there} instead of {here}" for name, (there, here) in other.items())
            raise DamagedRunError(f"{path} is of another run: {told}. Undo the change, or delete the file")

    def write_json(self, name: str, content: Any) -> None:
        """Write one of the JSON files."""
        files.write_atomically(self.path / name, (json.dumps(content, indent=1) + "\n").encode())

    def write_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Write the final weights."""
        files.write_atomically(self.path / "weights.safetensors", save(_plain(weights)))

    def add_metrics(self, row: Mapping[str, Any]) -> None:
        """Record an epoch. The line is not synced: the checkpoint of the epoch has it too."""
        files.append(self.path / "metrics.jsonl", _lines([row]))

    def write_metrics(self, rows: Rows) -> None:
        """Replace all that was recorded."""
        path = self.path / "metrics.jsonl"
        if rows:
            files.write_atomically(path, _lines(rows))
        else:
            files.remove(path)

    def write_attractors(self, records: Rows) -> None:
        """Write what has been recorded of the attractors, unless it is there as it must be. Checkpoints have it too."""
        path, content = self.path / "attractors.json", _listed(records)
        there = path.read_bytes() if path.exists() else None
        if records and there != content:
            files.write_atomically(path, content)
        elif not records and there is not None:
            files.remove(path)

    def checkpoints(self) -> list[int]:
        """The epochs that the run can go on from, the latest last."""
        found = (re.fullmatch(r"checkpoint-(\d+)\.safetensors", path.name) for path in self._files())
        return sorted(int(match[1]) for match in found if match)

    def checkpoint(self, epoch: int) -> Checkpoint:
        """Read a checkpoint, and check that it is of this run and epoch, and as it was written."""
        path = self._checkpoint_path(epoch)
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                bound = dict(file.metadata())
            notes, rows = json.loads(bound["notes"]), None
            if bound.keys() == {"notes"}:  # An earlier version wrote no more.
                if epoch not in (notes.get("epoch"), notes.get("episode")):
                    raise ValueError("it is not of the epoch or episode that its name says")
            else:
                if bound.pop("digest") != _digest(bound, tensors):
                    raise ValueError("it is not as it was written")
                if (bound["run"], bound["number"]) != (self.path.name, str(epoch)):
                    raise ValueError(f"it is checkpoint {bound['number']} of the run {bound['run']}")
                rows = json.loads(bound["rows"])
        except UNREADABLE as error:
            raise DamagedRunError(f"{path} cannot be read: {error}") from error
        return Checkpoint(tensors, notes, rows)

    def resumable(self, config: Config, epoch: int) -> Checkpoint:
        """A checkpoint of the run, if exactly the rows until then and the course of the warmup are there."""
        checkpoint = self.checkpoint(epoch)
        rows = checkpoint.rows
        if rows is None:
            rows = [row for row in self._rows(config.unit)[0] if row[config.unit] <= epoch]
        if [row[config.unit] for row in rows] != config.recorded(epoch):
            there = self.path / "metrics.jsonl"
            raise DamagedRunError(f"{there} has not exactly one line for each {config.unit} recorded up to {epoch}")
        if config.kind.warmed and self.warmup() is None:
            raise DamagedRunError(f"{self.path / 'warmup.json'} is missing")
        return replace(checkpoint, rows=rows)

    def write_checkpoint(self, epoch: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint. The one before stays: runs that train together go on from one that all of them have."""
        tensors = _plain(checkpoint.tensors)
        bound = {
            "run": self.path.name,
            "number": str(epoch),
            "notes": json.dumps(checkpoint.notes),
            "rows": json.dumps(list(checkpoint.rows or ())),
        }
        content = save(tensors, metadata=bound | {"digest": _digest(bound, tensors)})
        files.write_atomically(self._checkpoint_path(epoch), content)
        self._remove_checkpoints([earlier for earlier in self.checkpoints() if earlier < epoch][:-1])

    def finish(self, summary: Any) -> None:
        """Write the results, and remove the checkpoints, which are no longer needed."""
        self.write_json("summary.json", summary)
        self.tidy()

    def tidy(self) -> None:
        """Remove what a killed process left: unfinished files, and the checkpoints of a finished run."""
        files.remove_parts(self.path)
        if self.finished:
            self._remove_checkpoints(self.checkpoints())

    def _remove_checkpoints(self, epochs: Iterable[int]) -> None:
        for epoch in list(epochs):
            files.remove(self._checkpoint_path(epoch))

    def _checkpoint_path(self, epoch: int) -> Path:
        return self.path / f"checkpoint-{epoch}.safetensors"

    def _files(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.exists() else []

    def _checked(self, name: str, check: Callable[[Any], None], *entries: str) -> dict[str, Any]:
        """An object with these entries that passes a check."""
        content = self._read_json(name, *entries)
        try:
            check(content)
        except ValueError as error:
            raise DamagedRunError(f"{self.path / name}: {error}{self._again}") from error
        return content

    def _read_json(self, name: str, *entries: str) -> dict[str, Any]:
        """An object with these entries."""
        path = self.path / name
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise DamagedRunError(f"{path} cannot be read: {error}{self._again}") from error
        if not isinstance(content, dict) or not content.keys() >= set(entries):
            what = f"have the entries {', '.join(entries)}" if entries else "be an object"
            raise DamagedRunError(f"{path} must {what}, and {'has' if entries else 'is'} not{self._again}")
        return content

    @property
    def _again(self) -> str:
        """What to do about a damaged file: a run with a summary counts as finished and is not run again by itself."""
        return f". Delete {self.path} to run it again" if self.finished else ""


def _lines(rows: Rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _listed(records: Rows) -> bytes:
    """Records as JSON, a line for each."""
    return ('{"records": [\n' + ",\n".join(map(json.dumps, records)) + "\n]}\n").encode()


def _digest(bound: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """A hash of all that a checkpoint has: to whom it belongs, its notes and rows, and every byte of its tensors."""
    described = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
    digest = hashlib.sha256(json.dumps([bound, described], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
