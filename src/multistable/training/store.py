"""A run is a folder: its files, written so that a process killed at any moment leaves them usable."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from multistable.training.kinds import config_class
from multistable.training.settings import Config
from multistable.training.summary import check_summary


def config_of(settings: dict[str, Any], data: Path | str | None = None) -> Config:
    """The inverse of ``Config.to_dict``, for a run of any kind; ``data`` is the folder of the task's files."""
    return config_class(settings["task"]["name"]).from_dict(settings, data)


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
    """

    tensors: Mapping[str, Tensor]
    notes: dict[str, Any]


class RunFolder:
    """The files of one run.

    ============================  =====================================================================
    ``config.json``               the configuration
    ``metrics.jsonl``             a line for each epoch or evaluation; that of 0 is from before training
    ``warmup.json``               VAA* at each step of the warmup, and VAA where asked for
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
        self.path.mkdir(parents=True, exist_ok=True)
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
        return config_of(self._read_json("config.json", "task", "cell"), data)

    def summary(self) -> dict[str, Any]:
        """The results of a finished run."""
        summary = self._read_json("summary.json", "results", "record")
        try:
            check_summary(summary)
        except ValueError as error:
            raise DamagedRunError(f"{self.path / 'summary.json'}: {error}{self._again}") from error
        return summary

    def warmup(self) -> dict[str, Any] | None:
        """The course of the warmup, if the run had one."""
        return self._read_json("warmup.json") if (self.path / "warmup.json").exists() else None

    def metrics(self) -> list[dict[str, Any]]:
        """What was recorded at each epoch, without a last line that was cut off while it was written."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        rows = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                if number < len(lines):
                    told = f"{path} cannot be read: {error} in its line {number}. Delete {self.path} to run it again"
                    raise DamagedRunError(told) from error
        return rows

    def weights(self) -> dict[str, Tensor]:
        """The weights that are kept of a finished run."""
        path = self.path / "weights.safetensors"
        try:
            return load_file(path)
        except Exception as error:
            raise DamagedRunError(f"{path} cannot be read: {error}") from error

    def write_config(self, config: Config) -> None:
        """Write the configuration of a new run."""
        if not (self.path / "config.json").exists():
            self.write_json("config.json", config.stored())

    def write_json(self, name: str, content: Any) -> None:
        """Write one of the JSON files."""
        write_atomically(self.path / name, (json.dumps(content, indent=1) + "\n").encode())

    def write_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Write the final weights."""
        write_atomically(self.path / "weights.safetensors", save(_plain(weights)))

    def add_metrics(self, row: Mapping[str, Any]) -> None:
        """Record an epoch."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def keep_metrics(self, up_to: int, unit: str = "epoch") -> None:
        """Forget the rows whose epoch or episode (the ``unit``) is after ``up_to``: these will be trained again."""
        path = self.path / "metrics.jsonl"
        # Also where no row is kept: the next row must not be appended to a line that was cut off.
        if path.exists():
            kept = [row for row in self.metrics() if row[unit] <= up_to]
            write_atomically(path, "".join(json.dumps(row) + "\n" for row in kept).encode())

    def checkpoints(self) -> list[int]:
        """The epochs that the run can go on from, the latest last."""
        found = (re.fullmatch(r"checkpoint-(\d+)\.safetensors", path.name) for path in self._files())
        return sorted(int(match[1]) for match in found if match)

    def checkpoint(self, epoch: int) -> Checkpoint:
        """Read a checkpoint."""
        path = self._checkpoint_path(epoch)
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return Checkpoint(tensors, json.loads(file.metadata()["notes"]))
        except Exception as error:
            raise DamagedRunError(f"{path} cannot be read: {error}. Without it the run starts anew") from error

    def write_checkpoint(self, epoch: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint. The one before stays: runs that train together go on from one that all of them have."""
        notes = {"notes": json.dumps(checkpoint.notes)}
        write_atomically(self._checkpoint_path(epoch), save(_plain(checkpoint.tensors), metadata=notes))
        self._remove_checkpoints([earlier for earlier in self.checkpoints() if earlier < epoch][:-1])

    def finish(self, summary: Any) -> None:
        """Write the results, and remove the checkpoints, which are no longer needed."""
        self.write_json("summary.json", summary)
        self._remove_checkpoints(self.checkpoints())

    def _remove_checkpoints(self, epochs: Iterable[int]) -> None:
        for epoch in list(epochs):
            self._checkpoint_path(epoch).unlink(missing_ok=True)

    def _checkpoint_path(self, epoch: int) -> Path:
        return self.path / f"checkpoint-{epoch}.safetensors"

    def _files(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.exists() else []

    def _read_json(self, name: str, *entries: str) -> dict[str, Any]:
        """An object with these entries."""
        path = self.path / name
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise DamagedRunError(f"{path} cannot be read: {error}{self._again}") from error
        if not isinstance(content, dict) or not content.keys() >= set(entries):
            raise DamagedRunError(f"{path} must have the entries {', '.join(entries)}, and has not{self._again}")
        return content

    @property
    def _again(self) -> str:
        """What to do about a damaged file: a run with a summary counts as finished and is not run again by itself."""
        return f". Delete {self.path} to run it again" if self.finished else ""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name, and rename it when it is whole and on the disk."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
