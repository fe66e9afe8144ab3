"""Results of many runs in one file that people can read, small enough to be kept beside the code."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from multistable.experiments.experiment import Result
from multistable.files import write_atomically
from multistable.networks.cell_specs import halves
from multistable.training import Config
from multistable.training.store import config_of
from multistable.training.summary import (
    LIST,
    MEASURED,
    OBJECT,
    TEXT,
    WHEN,
    Kind,
    check_entries,
    check_kind,
    check_summary,
)

DIGITS, CURVE_DIGITS, VAA_STAR_DIGITS = 6, 5, 3
"""Significant digits that are kept of a number in the results, in a curve, and in VAA* at each step of a warmup."""

NOT_DRAWN = {"seconds", "step_seconds", "training_loss", "training_reconstruction_loss", "fixed_points", "cycles"}
"""Curves of training that nothing shows. The record has the total seconds, the results have the shares of states."""

NOT_TOLD = {"loss", "stabilisation"}
"""Curves of a warmup that nothing shows."""

BESIDE_SUMMARY = {"config": OBJECT, "warmup": OBJECT.or_null(), "metrics": OBJECT}


def write_results(results: Iterable[Result], path: Path | str) -> None:
    """Write results as JSON, one line for each run."""
    lines = [json.dumps(_as_json(result), separators=(",", ":")) for result in results]
    write_atomically(Path(path), ("[\n" + ",\n".join(lines) + "\n]\n").encode())


def read_results(path: Path | str) -> list[Result]:
    """The results that :func:`write_results` wrote."""
    try:
        entries = json.loads(Path(path).read_text())
        check_kind("it", entries, LIST)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must hold the results of runs, a JSON list with an entry for each run") from error
    return [_read(entry, f"{path}, entry {index}") for index, entry in enumerate(entries)]


def by_name(paths: Iterable[Path | str]) -> dict[str, Result]:
    """The results of several files. Each has the name that its run has in float32, whatever it was trained in.

    If several files have the same run, in whatever precision, the last of them counts.
    """
    found = [result for path in paths for result in read_results(path)]
    return {replace(result.config, precision="ieee").name: result for result in found}


def _as_json(result: Result) -> dict[str, Any]:
    names = dict.fromkeys(name for row in result.metrics for name in row if name not in NOT_DRAWN)
    columns = {name: [row.get(name) for row in result.metrics] for name in names}
    return {
        "config": _settings(result.config),
        "results": rounded(result.results, DIGITS),
        "record": rounded(result.record, DIGITS),
        "warmup": _by_layer(result.warmup),
        "metrics": rounded(columns, CURVE_DIGITS),
    }


def _by_layer(warmup: dict[str, Any] | None) -> dict[str, Any] | None:
    """The course of a warmup, with VAA* of each layer as a list: that is shorter than a list for each step."""
    if warmup is None:
        return None
    course = {name: rounded(value, CURVE_DIGITS) for name, value in warmup.items() if name not in NOT_TOLD}
    if "vaa_star" in warmup:
        layers = enumerate(zip(*warmup["vaa_star"], strict=True), start=1)
        course["vaa_star"] = {f"layer {layer}": rounded(values, VAA_STAR_DIGITS) for layer, values in layers}
    return course


def _by_step(course: dict[str, Any] | None) -> dict[str, Any] | None:
    """The inverse of :func:`_by_layer`. The course in an older file, with a list for each step, stays as it is."""
    if course is None or not isinstance(course.get("vaa_star"), dict):
        return course
    return course | {"vaa_star": [list(step) for step in zip(*course["vaa_star"].values(), strict=True)]}


def _settings(config: Config) -> dict[str, Any]:
    """The task, the cell, and the settings that differ from their defaults; reading fills in the rest."""
    # Of one half of a pair: a pair is not for every version.
    default = type(config)(config.task, str(halves(config.cell)[0])).to_dict()
    settings = {name: value for name, value in config.stored().items() if value != default.get(name)}
    return {"task": default["task"], "cell": config.cell} | settings


def _read(entry: Any, where: str) -> Result:
    """The result of an entry, or an error that says where it is and what is wrong with it."""
    try:
        return _from_json(entry)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from error


def _from_json(entry: Any) -> Result:
    check_summary(entry)
    check_entries("", entry, BESIDE_SUMMARY)
    config = config_of(entry["config"])
    metrics = _rows(entry["metrics"], config.unit)
    return Result(config, metrics, entry["results"], entry["record"], _by_step(entry["warmup"]))


def _rows(columns: dict[str, Any], unit: str) -> list[dict[str, Any]]:
    """A row for each epoch or episode (the ``unit``), from a column with the values of each quantity."""
    check_entries("metrics", columns, {unit: LIST} | dict.fromkeys(columns, LIST))
    as_many = Kind(f"as many values as {unit}", lambda values: len(values) == len(columns[unit]))
    kinds = {unit: WHEN, "phase": TEXT.or_null()}
    for name, values in columns.items():
        check_kind(f"metrics.{name}", values, as_many)
        for value in values:
            check_kind(f"a value of metrics.{name}", value, kinds.get(name, MEASURED))
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def rounded(value: Any, digits: int) -> Any:
    """``value`` with its numbers rounded to ``digits``; whole numbers become integers, which are shorter in JSON."""
    if isinstance(value, float):
        kept = float(f"{value:.{digits}g}")
        return int(kept) if kept.is_integer() else kept
    if isinstance(value, dict):
        return {name: rounded(entry, digits) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [rounded(entry, digits) for entry in value]
    return value
