"""Checks of arguments, and words of messages, that all parts of the library share."""

import math
import operator
from numbers import Integral, Real
from typing import Any

LONGEST_SHOWN = 80
"""Characters of a value up to which an error shows it."""
LARGEST_SIZE, LARGEST_COUNT = 2**31 - 1, 2**63 - 1
"""What sizes and counts may be: larger ones overflow in PyTorch, or would not end within a lifetime."""

LEAST, MOST = 1e-37, 1e38
"""Positive numbers between these are neither zero nor infinite in float32, nor are their quotients with 1."""


def positive_integer(name: str, value: Any) -> int:
    """``value`` as an ``int``, or an error that names the argument."""
    return _integer(name, value, 1, LARGEST_SIZE, "a positive integer")


def positive_integers(**values: Any) -> tuple[int, ...]:
    """The values as ``int``, or an error that names the first argument that is none."""
    return tuple(positive_integer(name, value) for name, value in values.items())


def count(name: str, value: Any) -> int:
    """``value`` as an ``int`` of at least 0, or an error that names the argument."""
    return _integer(name, value, 0, LARGEST_COUNT, "0 or a positive integer")


def share(name: str, value: Any) -> float:
    """``value`` as a number in [0, 1], or an error that names the argument."""
    number = _number(value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {shown(value)}")
    return number


def positive_number(name: str, value: Any) -> float:
    """``value`` as a ``float`` that float32 has too, or an error that names the argument."""
    number = _number(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be a positive number, got {shown(value)}")
    if not LEAST <= number <= MOST:
        raise ValueError(f"{name} must be a positive number from {LEAST:g} to {MOST:g}, got {shown(value)}")
    return number


def check_callable(name: str, value: Any, accepted: str) -> None:
    """The argument ``name`` can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be {accepted}, got {shown(value)}")


def plain(value: Any) -> Any:
    """Numbers of NumPy and tensors of one number as Python's own, which JSON can write, also inside dicts and lists.

    Everything else stays as it is.
    """
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(entry) for entry in value)
    if getattr(value, "ndim", None) == 0:  # of NumPy, or a tensor
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def truth_value(name: str, value: Any) -> bool:
    """``value`` as a ``bool``, from Python's own or NumPy's; words are refused, since Python takes "no" for true."""
    given = plain(value)
    if not isinstance(given, bool):
        raise ValueError(f"{name} must be true or false, got {shown(value)}")
    return given


def shown(value: Any) -> str:
    """A value as an error shows it: itself if it is short, else its type, so that no tensor fills the screen."""
    shape = getattr(value, "shape", ())
    if isinstance(shape, tuple) and shape:  # not of a class, where it is a descriptor
        return f"{type(value).__name__} of shape {tuple(shape)}"
    try:
        text = repr(value)
    except ValueError:  # of an integer of thousands of digits
        return f"{type(value).__name__} with very many digits"
    return text if len(text) <= LONGEST_SHOWN else type(value).__name__


def counted(number: int, word: str) -> str:
    """A number of things in words: "1 step", "1,000 steps"."""
    return f"{number:,} {word}{'s' * (number != 1)}"


def _number(value: Any) -> float:
    """``value`` as a ``float``, NaN for what is no number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _integer(name: str, value: Any, least: int, largest: int, accepted: str) -> int:
    try:
        # An instance of a subclass of int is returned as it is: AtMost marks a default that nobody asked for.
        given = value if isinstance(value, int) else plain(value)
        number = least - 1 if isinstance(given, bool) else given if isinstance(given, int) else operator.index(given)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} must be {accepted}, got {shown(value)}")
    if number > largest:
        raise ValueError(f"{name} must be {accepted} up to {largest}, got {shown(value)}")
    return number
