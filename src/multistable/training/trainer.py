"""The run loop: which runs are trained together, and what runs of every kind do from first weights to results."""

import contextlib
import json
import math
import re
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import multistable
from multistable.arguments import positive_integer
from multistable.tasks import Task
from multistable.training.callbacks import Callback, Callbacks
from multistable.training.group import AnyConfig, Group
from multistable.training.kinds import group_class
from multistable.training.settings import Config
from multistable.training.store import BusyRunError, Checkpoint, DamagedRunError, RunFolder

CLAIMING = 10.0
"""How many seconds a process waits while another claims runs of the same group."""

NEW = -1
"""The epoch or episode that a run without checkpoints goes on from."""


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
    :meth:`Config.goes_with`); each ends as it would alone. A finished run is not run again. A run that is stopped at
    any moment, by Ctrl-C, ``kill -9``, a power cut or a full disk, continues after its last whole epoch, an agent after
    its last evaluation, and ends with the same numbers.

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

Start = tuple[int, list[Run], list[Checkpoint]]
"""The epoch or episode that runs go on from, these runs, and the checkpoint of each; ``NEW`` has none."""


def _train_unfinished(
    configs: Sequence[Config], out: Path, device: torch.device, callback: Callback
) -> list[RunFolder]:
    """Train those runs of a group that are not finished. Returns the folders that another process works on."""
    with ExitStack() as claims:
        mine, busy = _claim(configs, out, claims)
        for epoch, runs, checkpoints in _starts(mine):
            configs, folders = [config for config, _ in runs], [folder for _, folder in runs]
            _train_together(configs, folders, epoch, checkpoints, device, callback)
    return busy


def _claim(configs: Sequence[Config], out: Path, claims: ExitStack) -> tuple[list[Run], list[RunFolder]]:
    """Claim those runs of a group that are not finished. Returns them, and the folders that others have claimed."""
    mine, busy = [], []
    left = []
    for config in configs:
        folder = RunFolder.of(config, out)
        if folder.finished:
            folder.tidy()
        else:
            left.append((config, folder))
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
                folder.tidy()
                folder.write_config(config)
                mine.append((config, folder))
    return mine, busy


def _starts(runs: Sequence[Run]) -> list[Start]:
    """Where runs go on: all at one epoch or episode, if all have a checkpoint of it that is as it must be."""
    usable = [set(folder.checkpoints()) for _, folder in runs]
    while True:
        starts: list[Start] = []
        refused = False
        for number, members in _divided(usable).items():
            checkpoints = []
            for member in members if number != NEW else ():
                config, folder = runs[member]
                try:
                    checkpoints.append(folder.resumable(config, number))
                except DamagedRunError as error:
                    usable[member].discard(number)
                    refused = True
                    told = f"{error}. The run goes on from the last {config.unit} before for which everything is there"
                    warnings.warn(told, RuntimeWarning, stacklevel=2)
            starts.append((number, [runs[member] for member in members], checkpoints))
        if not refused:
            return starts


def _divided(usable: Sequence[set[int]]) -> dict[int, list[int]]:
    """The runs that go on from each epoch or episode, by their places: all from one, if it is usable for all."""
    # A run that has finished no epoch loses nothing when it begins anew.
    epochs = [{NEW, *found} if max(found, default=NEW) <= 0 else found for found in usable]
    common = set.intersection(*epochs) if epochs else set()
    if common:
        return {max(common): list(range(len(epochs)))}
    latest: dict[int, list[int]] = {}
    for member, found in enumerate(epochs):
        latest.setdefault(max(found), []).append(member)
    return dict(sorted(latest.items()))


def _train_together(
    configs: Sequence[Config],
    folders: Sequence[RunFolder],
    start: int,
    checkpoints: Sequence[Checkpoint],
    device: torch.device,
    callback: Callback,
) -> None:
    """Train runs as one group, from the checkpoints of the epoch or episode ``start`` on."""
    shared = configs[0]
    group: Group[Any] = group_class(shared)(configs, device)
    metrics = [list(checkpoint.rows or ()) for checkpoint in checkpoints] or [[] for _ in folders]
    for folder, rows in zip(folders, metrics, strict=True):
        folder.write_metrics(rows)
    callback.on_start(configs, max(start, 0), group.steps)
    if start == NEW:
        began = time.perf_counter()
        for folder, course in zip(folders, group.initialise(callback.on_warmup_step), strict=True):
            if course is not None:
                folder.write_json("warmup.json", course)
        _record(group, folders, metrics, began, callback)
    else:
        group.restore(checkpoints)
        for run, folder in enumerate(folders):
            folder.write_attractors(group.records(run))
    while group.done < shared.duration:
        began = time.perf_counter()
        group.advance(lambda number, step: callback.on_step(configs, number, step))
        _record(group, folders, metrics, began, callback)
    callback.on_end(configs, _finish(group, folders, metrics))


def _record(
    group: Group[Any], folders: Sequence[RunFolder], metrics: Sequence[list[Any]], began: float, callback: Callback
) -> None:
    """Measure the runs, add a row to the ``metrics`` of each, and write down how far they are.

    ``began`` is when they last went on.
    """
    columns = dict(group.measure(time.perf_counter() - began))
    passed_over = columns.pop("passed_over") or [0] * len(folders)
    seconds = round(time.perf_counter() - began, 3)
    rows = [
        {group.shared.unit: group.done}
        | {name: finite(column[run]) for name, column in columns.items() if column is not None}
        | {"seconds": seconds}
        | ({"passed_over": passed_over[run]} if passed_over[run] else {})
        for run in range(len(folders))
    ]
    for run, folder in enumerate(folders):
        metrics[run].append(rows[run])
        folder.add_metrics(rows[run])
        folder.write_attractors(group.records(run))
        folder.write_checkpoint(group.done, replace(group.checkpoint(run), rows=metrics[run]))
    group.warn(passed_over)  # Where warnings are errors, what has been written is not lost.
    callback.on_epoch(group.configs, rows)


def _finish(group: Group[Any], folders: Sequence[RunFolder], metrics: Sequence[list[Any]]) -> list[dict[str, Any]]:
    """Write the metrics, the weights that are kept and the results. Returns the summaries."""
    began = time.perf_counter()
    results = group.results(metrics)
    seconds = time.perf_counter() - began
    summaries = []
    for run, folder in enumerate(folders):
        course = folder.warmup()
        outcome = {"warmup": None if course is None else course["outcome"]}
        record = _record_of(metrics[run], len(folders), group.device, seconds) | group.cost(metrics[run])
        folder.write_metrics(metrics[run])
        folder.write_weights(group.weights(run))
        own = {name: finite(value) for name, value in results[run].items()}
        summaries.append({"results": own | outcome, "record": record})
    for folder, summary in zip(folders, summaries, strict=True):
        folder.finish(summary)
    return summaries


def _record_of(
    metrics: Sequence[Mapping[str, Any]], together: int, device: torch.device, seconds: float
) -> dict[str, Any]:
    """How results came about; ``seconds`` are added to those of the metrics."""
    passed_over = sum(row.get("passed_over", 0) for row in metrics)
    return {
        "seconds": round(sum(row["seconds"] for row in metrics) + seconds, 3),
        "together": together,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "torch": torch.__version__,
        "multistable": multistable.__version__,
        **({"passed_over": passed_over} if passed_over else {}),
    }


def finite(value: Any) -> Any:
    """A value as JSON can have it: ``None`` for a number that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
