"""Training runs: those that can go together in one launch, each in its own folder."""

import contextlib
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import torch

import multistable
from multistable.arguments import positive_integer
from multistable.tasks import Task
from multistable.training.adam import warn_of_passed_over
from multistable.training.callbacks import Callback, Callbacks
from multistable.training.config import RunConfig
from multistable.training.group import Group, Scores
from multistable.training.settings import Config
from multistable.training.store import BusyRunError, RunFolder

CLAIMING = 10.0
"""Seconds that another process has to claim the runs of a group, which takes it a moment."""

NEW = -1
"""The epoch that a run without checkpoints goes on from."""

AnyConfig = TypeVar("AnyConfig", bound=Config)
TrainTogether = Callable[[list[Any], list[RunFolder], int, torch.device, Callback], None]
TRAINERS: dict[type[Config], TrainTogether] = {}
"""How runs of each kind are trained as one ensemble, from an epoch or episode on."""


def train(
    configs: Config | Iterable[Config],
    out: Path | str = "runs",
    *,
    device: torch.device | str | int | None = None,
    callbacks: Iterable[Callback] | Callback = (),
    together: int = 32,
) -> list[RunFolder]:
    """Train runs, each in its own folder under ``out``.

    Runs that :meth:`Config.goes_with` says can be, those that differ in nothing but their seed, version, learning rate
    and k, are trained as one ensemble; each ends as it would alone. A finished run is not run again. A run that was
    interrupted, at whatever moment, goes on after its last whole epoch, or an agent after its last evaluation, with the
    same numbers as if it had not been.

    Args:
        configs: the runs.
        out: where their folders are.
        device: a GPU if there is one, when not given.
        callbacks: told of what happens.
        together: the most runs in one launch.

    Returns:
        The folders, in the order of ``configs``.

    Raises:
        BusyRunError: after all others are done, when another process is working on some of the runs.
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
    """The device that was asked for, if any; one that this machine has, unless it need not be ``here``."""
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
    """The configurations that are to be trained."""
    runs = [given] if isinstance(given, Config) or not isinstance(given, Iterable) else list(given)
    other = [run for run in runs if not isinstance(run, Config)]
    if other:
        raise TypeError(f"configs must be a RunConfig or an AgentConfig, or a list of them, got {other[0]!r}")
    return runs


def groups(configs: Iterable[AnyConfig], together: int) -> list[list[AnyConfig]]:
    """Runs that can be trained in one launch, at most ``together`` of them; each run once."""
    alike: dict[str, dict[str, AnyConfig]] = {}
    for config in configs:
        # Not by its name, which leaves out the settings of the warmup: one ensemble has one warmup.
        alike.setdefault(json.dumps(config.goes_with().to_dict()), {})[config.name] = config
    lists = [list(runs.values()) for runs in alike.values()]
    return [runs[start : start + together] for runs in lists for start in range(0, len(runs), together)]


def _check_files(configs: Sequence[Config], out: Path | str) -> None:
    """What the task of a group reads is there, if any of its runs has yet to be trained."""
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
            together = TRAINERS[type(configs[0])]
            together([config for config, _ in runs], [folder for _, folder in runs], epoch, device, callback)
    return busy


def _claim(configs: Sequence[Config], out: Path, claims: ExitStack) -> tuple[list[Run], list[RunFolder]]:
    """Claim those runs of a group that are not finished. Returns them, and the folders that others have claimed."""
    mine, busy = [], []
    left = [(config, folder) for config in configs if not (folder := RunFolder.of(config, out)).finished]
    with ExitStack() as turn:
        if len(left) > 1:
            # One process at a time: those that come to a group at the same instant would divide it between them.
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
    """The epoch that runs go on from, and which: all together from one that all have, if there is one."""
    if not runs:
        return []
    # A run that has made no epoch yet can as well begin anew.
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


def _train_together(
    configs: list[RunConfig], folders: list[RunFolder], start: int, device: torch.device, callback: Callback
) -> None:
    """Train runs as one ensemble, from the epoch ``start`` on."""
    group = Group(configs, device)
    for folder in folders:
        folder.keep_metrics(start)
    callback.on_start(configs, max(start, 0), group.steps)
    if start == NEW:
        began = time.perf_counter()
        for folder, course in zip(folders, group.initialise(callback.on_warmup_step), strict=True):
            if course is not None:
                folder.write_json("warmup.json", course)
        _record(group, folders, 0, began, {}, callback)
    else:
        group.restore([folder.checkpoint(start) for folder in folders])
    for epoch in range(max(start, 0) + 1, configs[0].duration + 1):
        began = time.perf_counter()
        losses = group.train(epoch, lambda step, epoch=epoch: callback.on_step(configs, epoch, step))  # type: ignore[misc]
        _record(group, folders, epoch, began, losses, callback)
    callback.on_end(configs, _finish(group, folders))


TRAINERS[RunConfig] = _train_together


def _record(
    group: Group,
    folders: Sequence[RunFolder],
    epoch: int,
    began: float,
    training: Mapping[str, list[float]],
    callback: Callback,
) -> None:
    """Validate, measure, and write down the end of an epoch."""
    shared = group.configs[0]
    ends = epoch in (shared.pretraining, shared.duration)
    stepping = time.perf_counter() - began
    columns: dict[str, Sequence[float | None] | None] = {**training, "reconstruction_loss": group.reconstruct()}
    if epoch >= shared.pretraining:
        losses, columns["validation_accuracy"] = group.validate()
        columns["validation_loss"] = losses
        group.keep_best(losses, epoch)
    columns["vaa"] = group.vaa(epoch) if shared.vaa_every and (epoch % shared.vaa_every == 0 or ends) else None
    if columns["vaa"] is not None and epoch in (0, shared.duration):
        settled = [(None, None) if shares is None else shares for shares in group.settled(epoch)]
        columns["fixed_points"], columns["cycles"] = zip(*settled, strict=True)
    # The cost of pretraining is that of its steps: measures at each epoch are for those who watch it.
    phase = {"phase": group.phase(epoch), "step_seconds": round(stepping, 3)} if shared.kind.auxiliary else {}
    seconds = time.perf_counter() - began
    rows = [
        {"epoch": epoch}
        | phase
        | {name: finite(column[run]) for name, column in columns.items() if column is not None}
        | {"seconds": round(seconds, 3)}
        for run in range(len(folders))
    ]
    passed_over = group.passed_over()
    for run, folder in enumerate(folders):
        rows[run] |= {"passed_over": passed_over[run]} if passed_over[run] else {}
        folder.add_metrics(rows[run])
        folder.write_checkpoint(epoch, group.checkpoint(run, epoch))
    warn_of_passed_over([config.name for config in group.configs], passed_over)
    callback.on_epoch(group.configs, rows)


def _finish(group: Group, folders: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """Test the best weights and write the results."""
    began = time.perf_counter()
    tested, selected = group.test()
    seconds = time.perf_counter() - began
    summaries = []
    for run, folder in enumerate(folders):
        metrics, course = folder.metrics(), folder.warmup()
        results: dict[str, Any] = {
            "best_epoch": group.best[run]["epoch"],
            "validation_loss": finite(group.best[run]["loss"]),
            **_scores("test", tested, run),
            **({} if selected is None else _scores("selection", selected, run)),
            **_ends("vaa", metrics),
            **_ends("fixed_points", metrics),
            **_ends("cycles", metrics),
            "warmup": None if course is None else course["outcome"],
        }
        record = record_of(metrics, len(folders), group.device, seconds)
        if group.configs[run].kind.auxiliary:
            pretrained = [row for row in metrics if 0 < row["epoch"] <= group.configs[run].pretraining]
            taken = round(sum(row["step_seconds"] for row in pretrained), 3)
            record["pretraining"] = {"seconds": taken, "steps": len(pretrained) * group.steps}
        folder.write_weights(group.best_weights(run))
        summaries.append({"results": results, "record": record})
    for folder, summary in zip(folders, summaries, strict=True):
        folder.finish(summary)
    return summaries


def _ends(name: str, metrics: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """What was measured first and last."""
    values = [row[name] for row in metrics if name in row] or [None]
    return {f"initial_{name}": values[0], f"final_{name}": values[-1]}


def record_of(
    metrics: Sequence[Mapping[str, Any]], together: int, device: torch.device, seconds: float = 0.0
) -> dict[str, Any]:
    """How results came about; ``seconds`` are those beside what the metrics have."""
    passed_over = sum(row.get("passed_over", 0) for row in metrics)
    return {
        "seconds": round(sum(row["seconds"] for row in metrics) + seconds, 3),
        "together": together,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "torch": torch.__version__,
        "multistable": multistable.__version__,
        **({"passed_over": passed_over} if passed_over else {}),
    }


def _scores(part: str, scores: Scores, run: int) -> dict[str, float | None]:
    """The scores of one run by name."""
    losses, accuracies = scores
    return {
        f"{part}_loss": finite(losses[run]),
        f"{part}_accuracy": None if accuracies is None else finite(accuracies[run]),
    }


def finite(value: float | None) -> float | None:
    """A number as JSON can have it: ``None`` for one that is not finite."""
    return value if value is not None and math.isfinite(value) else None
