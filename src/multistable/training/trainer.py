"""Which runs are trained, on which device, and which of them together in one launch."""

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from multistable.arguments import positive_integer
from multistable.tasks import Task
from multistable.training.callbacks import Callback, Callbacks
from multistable.training.group import AnyConfig
from multistable.training.loop import NEW, train_together
from multistable.training.settings import Config
from multistable.training.store import BusyRunError, RunFolder

CLAIMING = 10.0
"""How many seconds a process waits while another claims runs of the same group."""


def train(
    configs: Config | Iterable[Config],
    out: Path | str = "runs",
    *,
    device: torch.device | str | int | None = None,
    callbacks: Iterable[Callback] | Callback = (),
    together: int = 32,
) -> list[RunFolder]:
    """Train runs, each in its own folder under ``out``.

    Runs that differ only in their seed, version, learning rate and k are trained as one ensemble (see
    :meth:`Config.goes_with`); each ends as it would alone. A finished run is not run again. A run can be interrupted at
    any moment: it then goes on after its last whole epoch, an agent after its last evaluation, and ends with the same
    numbers.

    Args:
        configs: the runs.
        out: where their folders are.
        device: where to train; when not given, a GPU if there is one.
        callbacks: objects that hear of what happens.
        together: the largest number of runs in one launch.

    Returns:
        The folders, in the order of ``configs``.

    Raises:
        BusyRunError: another process is working on some of the runs; all others are finished by then.
    """
    configs = _runs(configs)
    together = positive_integer("together", together)
    where = chosen_device(device) or usual_device()
    callback = Callbacks(callbacks)
    launches = groups(configs, together)
    for group in launches:
        _check_files(group, out)
    busy: list[RunFolder] = []
    for group in launches:
        busy += _train_unfinished(group, Path(out), where, callback)
    if busy:
        names = ", ".join(folder.path.name for folder in busy)
        raise BusyRunError(f"another process is working on {len(busy)} of the runs: {names}. The others are finished")
    return [RunFolder.of(config, out) for config in configs]


def usual_device() -> torch.device:
    """A GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def chosen_device(device: torch.device | str | int | None, here: bool = True) -> torch.device | None:
    """The device that was asked for, or ``None``. With ``here`` it must be one that this machine has."""
    if device is None:
        return None
    there = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    there += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    name = f"cuda:{device}" if isinstance(device, int) else re.sub("^cpu:0$", "cpu", str(device))
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name) or (here and name not in there):
        told = f"accepted here: {', '.join(there)}" if "cuda" in there else "PyTorch finds no GPU here"
        raise ValueError(f"device must be cpu, cuda or cuda:INDEX, got {name!r}; {told}")
    return torch.device(name)


def _runs(given: Any) -> list[Config]:
    """What :func:`train` was given, as a list of configurations."""
    runs = [given] if isinstance(given, Config) or not isinstance(given, Iterable) else list(given)
    other = [run for run in runs if not isinstance(run, Config)]
    if other:
        raise TypeError(f"configs must be a RunConfig or an AgentConfig, or a list of them, got {other[0]!r}")
    return runs


def groups(configs: Iterable[AnyConfig], together: int) -> list[list[AnyConfig]]:
    """Divide runs, without repetitions, into groups of at most ``together`` that can be trained in one launch."""
    alike: dict[str, dict[str, AnyConfig]] = {}
    for config in configs:
        # The name of a classic run leaves out the settings of the warmup, but one ensemble has one warmup.
        alike.setdefault(json.dumps(config.goes_with().to_dict()), {})[config.name] = config
    lists = [list(runs.values()) for runs in alike.values()]
    return [runs[start : start + together] for runs in lists for start in range(0, len(runs), together)]


def _check_files(configs: Sequence[Config], out: Path | str) -> None:
    """Check that the files of a group's task are there, if any of its runs has yet to be trained."""
    task = configs[0].task
    if isinstance(task, Task) and not all(RunFolder.of(config, out).finished for config in configs):
        task.check_files()


Run = tuple[Config, RunFolder]


def _train_unfinished(
    configs: Sequence[Config], out: Path, device: torch.device, callback: Callback
) -> list[RunFolder]:
    """Train those runs of a group that are not finished. Returns the folders that another process works on."""
    with ExitStack() as claims:
        mine, busy = _claim(configs, out, claims)
        for epoch, runs in _starts(mine):
            train_together([config for config, _ in runs], [folder for _, folder in runs], epoch, device, callback)
    return busy


def _claim(configs: Sequence[Config], out: Path, claims: ExitStack) -> tuple[list[Run], list[RunFolder]]:
    """Claim those runs of a group that are not finished. Returns them, and the folders that others have claimed."""
    mine, busy = [], []
    left = [(config, folder) for config in configs if not (folder := RunFolder.of(config, out)).finished]
    with ExitStack() as turn:
        if len(left) > 1:
            # One process at a time. Two that claimed runs of a group at the same instant would divide it between them.
            with contextlib.suppress(BusyRunError):
                turn.enter_context(RunFolder.of(configs[0], out).claimed(CLAIMING, ".group"))
        for config, folder in left:
            try:
                claims.enter_context(folder.claimed())
            except BusyRunError:
                busy.append(folder)
                continue
            if not folder.finished:  # It may have become so before it was claimed.
                folder.write_config(config)
                mine.append((config, folder))
    return mine, busy


def _starts(runs: Sequence[Run]) -> list[tuple[int, list[Run]]]:
    """Each epoch or episode that some runs go on from, with these runs: one for all, if all have a checkpoint of it."""
    if not runs:
        return []
    # A run that has finished no epoch loses nothing when it begins anew.
    epochs = [
        {NEW, *folder.checkpoints()} if max(folder.checkpoints(), default=NEW) <= 0 else set(folder.checkpoints())
        for _, folder in runs
    ]
    common = set.intersection(*epochs)
    if common:
        return [(max(common), list(runs))]
    latest: dict[int, list[Run]] = {}
    for run, found in zip(runs, epochs, strict=True):
        latest.setdefault(max(found), []).append(run)
    return sorted(latest.items())
