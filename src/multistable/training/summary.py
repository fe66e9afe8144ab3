"""Checks of the stored results of a run, whichever file they are read from."""

import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

LONGEST = 40
"""How many characters of a wrong value an error repeats."""


class Kind(NamedTuple):
    """A kind of JSON value: its description, and a test of whether a value is of this kind."""

    accepted: str
    fits: Callable[[Any], bool]

    def or_null(self) -> "Kind":
        """This kind, or null."""
        return Kind(f"{self.accepted} or null", lambda value: value is None or self.fits(value))


def _is_number(value: Any) -> bool:
    """Finite numbers only: what has diverged is stored as null, and a NaN would spoil every mean."""
    return _is_shown(value) and math.isfinite(value)


def _is_shown(value: Any) -> bool:
    """Numbers that can be written with so many digits: not an integer beyond all floating-point numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max


def _is_table(value: Any) -> bool:
    """Rows of numbers, all of one length."""
    rows = isinstance(value, list) and all(isinstance(row, list) and all(map(_is_shown, row)) for row in value)
    return rows and len(set(map(len, value))) <= 1


OBJECT = Kind("an object", lambda value: isinstance(value, dict))
LIST = Kind("a list", lambda value: isinstance(value, list))
# Texts are shown on terminals, which would obey control characters.
TEXT = Kind("a printable text", lambda value: isinstance(value, str) and value.isprintable())
NUMBER = Kind("a finite number", _is_number)
COUNT = Kind("a positive integer", lambda value: _is_number(value) and isinstance(value, int) and value > 0)
MEASURED = Kind(
    "a finite number, true, false or null", lambda value: isinstance(value, bool | None) or NUMBER.fits(value)
)
# Of what is only shown. A warmup that went wrong may have stored a NaN.
SHOWN = Kind("a number", _is_shown)
STEPS = Kind("a list of lists of numbers, as many in each", _is_table)
POINTS = Kind("a list of points, as many numbers in each", lambda value: _is_table(value) and bool(value))
TRUTH = Kind("true or false", lambda value: isinstance(value, bool))
WHEN = Kind("0 or a positive integer", lambda value: value == 0 or COUNT.fits(value))

UNITS = ("epoch", "episode")
"""What the rows of metrics count: each row has one of them."""

RECORD = {"seconds": NUMBER, "together": COUNT, "device": TEXT, "torch": TEXT, "multistable": TEXT}
PRETRAINING = {"seconds": NUMBER, "steps": NUMBER}


def check_summary(summary: Any) -> None:
    """Check that ``results`` and ``record`` are there, with all that is shown, compared and computed with."""
    check_entries("", summary, {"results": OBJECT, "record": OBJECT})
    results, record = summary["results"], summary["record"]
    check_entries("results", results, dict.fromkeys(results, NUMBER.or_null()) | {"warmup": TEXT.or_null()})
    check_entries("record", record, RECORD)
    if "pretraining" in record:
        check_entries("record.pretraining", record["pretraining"], PRETRAINING)


def check_row(row: Any, unit: str | None = None) -> dict[str, Any]:
    """Check what was recorded at an epoch or evaluation, the ``unit`` if it is known. Returns it."""
    check_kind("it", row, OBJECT)
    unit = unit or next((unit for unit in UNITS if unit in row), UNITS[0])
    kinds = {unit: WHEN, "phase": TEXT, "seconds": NUMBER}
    check_entries("", row, {name: kinds.get(name, MEASURED) for name in [unit, "seconds", *row]})
    return row


def check_course(course: Any) -> None:
    """Check what is shown of the course of a warmup."""
    curves = {"vaa_star": STEPS, "vaa": SHOWN} if "vaa_star" in course else {"reason": TEXT}
    check_entries("", course, {"outcome": TEXT} | curves)


def check_attractors(content: Any) -> None:
    """Check what is shown and drawn of the attractors in the course of a training."""
    check_entries("", content, {"records": LIST})
    for place, record in enumerate(content["records"]):
        name = f"records[{place}]"
        check_entries(name, record, {"epoch": WHEN, "moving": NUMBER.or_null(), "attractors": LIST, "changes": LIST})
        for one in record["attractors"]:
            points = {"points": POINTS} if "points" in one else {}
            check_entries(f"{name}.attractors", one, {"id": WHEN, "fraction": NUMBER, "period": COUNT} | points)
        for change in record["changes"]:
            check_entries(f"{name}.changes", change, {"id": WHEN, "appears": TRUTH, "other": WHEN.or_null()})


def check_entries(name: str, content: Any, entries: Mapping[str, Kind]) -> None:
    """Check that an object has these entries, each of its kind. The error names the first that it has not."""
    check_kind(name or "it", content, OBJECT)
    for entry, kind in entries.items():
        check_kind("a name" + (name and f" in {name}"), entry, TEXT)
        path = f"{name}.{entry}" if name else entry
        if entry not in content:
            raise ValueError(f"{path} must be {kind.accepted}, got nothing")
        check_kind(path, content[entry], kind)


def check_kind(name: str, value: Any, kind: Kind) -> None:
    """Check that a value is of a kind."""
    if not kind.fits(value):
        written = json.dumps(value)
        got = written if len(written) <= LONGEST else f"{written[:LONGEST]}..."
        raise ValueError(f"{name} must be {kind.accepted}, got {got}")
