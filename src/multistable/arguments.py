"""Checks of arguments that all parts of the library share."""

import operator
from typing import Any


def positive_integer(name: str, value: Any) -> int:
    """``value`` as an ``int``, or an error that names the argument."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return number
