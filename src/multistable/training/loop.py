"""The run loop: it takes runs of every kind from their first weights to their results."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

import multistable
from multistable.training.callbacks import Callback
from multistable.training.group import Group
from multistable.training.kinds import group_class
from multistable.training.settings import Config
from multistable.training.store import RunFolder

NEW = -1
"""The epoch or episode that a run without checkpoints goes on from."""


def train_together(
    configs: Sequence[Config], folders: Sequence[RunFolder], start: int, device: torch.device, callback: Callback
) -> None:
    """Train runs as one group, from the epoch or episode ``start`` on."""
    shared = configs[0]
    group: Group[Any] = group_class(shared)(configs, device)
    for folder in folders:
        folder.keep_metrics(start, shared.unit)
    callback.on_start(configs, max(start, 0), group.steps)
    if start == NEW:
        began = time.perf_counter()
        for folder, course in zip(folders, group.initialise(callback.on_warmup_step), strict=True):
            if course is not None:
                folder.write_json("warmup.json", course)
        _record(group, folders, began, callback)
    else:
        group.restore([folder.checkpoint(start) for folder in folders])
    while group.done < shared.duration:
        began = time.perf_counter()
        group.advance(lambda number, step: callback.on_step(configs, number, step))
        _record(group, folders, began, callback)
    callback.on_end(configs, _finish(group, folders))


def _record(group: Group[Any], folders: Sequence[RunFolder], began: float, callback: Callback) -> None:
    """Measure the runs and write down how far they are; ``began`` is when they last went on."""
    columns = dict(group.measure(time.perf_counter() - began))
    passed_over = columns.pop("passed_over") or []
    seconds = round(time.perf_counter() - began, 3)
    rows = [
        {group.shared.unit: group.done}
        | {name: finite(column[run]) for name, column in columns.items() if column is not None}
        | {"seconds": seconds}
        | ({"passed_over": passed_over[run]} if passed_over[run] else {})
        for run in range(len(folders))
    ]
    for run, folder in enumerate(folders):
        folder.add_metrics(rows[run])
        folder.write_checkpoint(group.done, group.checkpoint(run))
    callback.on_epoch(group.configs, rows)


def _finish(group: Group[Any], folders: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """Write the weights that are kept and the results. Returns the summaries."""
    metrics = [folder.metrics() for folder in folders]
    began = time.perf_counter()
    results = group.results(metrics)
    seconds = time.perf_counter() - began
    summaries = []
    for run, folder in enumerate(folders):
        course = folder.warmup()
        outcome = {"warmup": None if course is None else course["outcome"]}
        record = _record_of(metrics[run], len(folders), group.device, seconds) | group.cost(metrics[run])
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
