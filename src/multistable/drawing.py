"""Figures, as all pictures of the library begin."""

from collections.abc import Sequence
from typing import Any

from multistable.extras import missing

try:
    import matplotlib
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise missing("a picture", "matplotlib") from error

Axes = Any

LOOK: dict[Any, Any] = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 10,
}


def figure(width: float, height: float, columns: int = 1, rows: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure of ``width`` x ``height`` inches in all, and its axes: one, or an array of them.

    Unlike ``pyplot``, it opens no window and changes nothing global.
    """
    with matplotlib.rc_context(LOOK):
        made = Figure(figsize=(width, height), layout="constrained")
        return made, made.subplots(rows, columns, **options)


def mosaic(width: float, height: float, layout: Sequence[Sequence[str]]) -> tuple[Figure, dict[str, Axes]]:
    """A figure with axes of several sizes: each covers the cells of the ``layout`` that have its name."""
    with matplotlib.rc_context(LOOK):
        made = Figure(figsize=(width, height), layout="constrained")
        return made, made.subplot_mosaic([list(row) for row in layout])


def name_axes(axes: Axes, x: str, y: str, title: str | None = None) -> None:
    """Name both axes, with their units where they have any."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if title is not None:
        axes.set_title(title)
