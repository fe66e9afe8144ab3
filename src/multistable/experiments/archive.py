"""Results of many runs in one file that people can read, small enough to be kept beside the code."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from multistable.experiments.experiment import Result
from multistable.training.store import config_of, write_atomically

DIGITS = 6
"""Significant digits that are kept of each number."""


def write_results(results: Iterable[Result], path: Path | str) -> None:
    """Write results as JSON, one line for each run."""
    lines = [json.dumps(_rounded(_as_json(result)), separators=(",", ":")) for result in results]
    write_atomically(Path(path), ("[\n" + ",\n".join(lines) + "\n]\n").encode())


def read_results(path: Path | str) -> list[Result]:
    """The results that :func:`write_results` wrote."""
    try:
        return [_from_json(entry) for entry in json.loads(Path(path).read_text())]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} must hold the results of runs, a JSON list with an entry for each run") from error


def by_name(paths: Iterable[Path | str]) -> dict[str, Result]:
    """The results of several files by the names that their runs have in float32, whatever they were trained in.

    A run that is in several files, in one precision or another, counts as the last has it.
    """
    found = [result for path in paths for result in read_results(path)]
    return {replace(result.config, precision="ieee").name: result for result in found}


def _as_json(result: Result) -> dict[str, Any]:
    names = dict.fromkeys(name for row in result.metrics for name in row)
    columns = {name: [row.get(name) for row in result.metrics] for name in names}
    return {
        "config": result.config.to_dict(),
        "results": result.results,
        "record": result.record,
        "warmup": result.warmup,
        "metrics": columns,
    }


def _from_json(entry: dict[str, Any]) -> Result:
    columns = entry["metrics"]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    metrics = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return Result(config_of(entry["config"]), metrics, entry["results"], entry["record"], entry["warmup"])


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(entry) for entry in value]
    return value
