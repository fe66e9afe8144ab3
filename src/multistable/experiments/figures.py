"""The pieces that pictures are made of: colours, curves with their spread, state spaces; as PNG and as inline SVG."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike

from multistable.drawing import LOOK, Axes, Figure, figure, matplotlib, mosaic, name_axes
from multistable.experiments.settling import Settling
from multistable.experiments.styles import Style
from multistable.palette import BLUE, GREY, INK, ORANGE, SKY, VERMILLION

__all__ = ["curve", "figure", "legend", "mosaic", "name_axes", "png", "rule", "state_space", "svg"]

MAP = matplotlib.colors.LinearSegmentedColormap.from_list("blue to vermillion", [BLUE, SKY, GREY, ORANGE, VERMILLION])
"""Colours from low to high that can be seen on white and on black."""

DPI = 120
"""The resolution of pictures in files."""

RULE = {"color": INK, "linestyle": ":", "linewidth": 1, "alpha": 0.7, "zorder": 0}
"""The look of a line that marks a value."""


def curve(axes: Axes, x: ArrayLike, runs: ArrayLike, style: Style, *, markers: bool = True) -> None:
    """Draw the mean over runs and, for more than one run, one standard deviation to either side.

    Args:
        axes: where to draw.
        x: ``(k,)``.
        runs: ``(runs, k)``; NaN where a run has no value.
        style: of the curve.
        markers: whether to mark the points.
    """
    values = np.ma.masked_invalid(np.atleast_2d(np.asarray(runs, dtype=float)))
    mean = values.mean(axis=0).filled(np.nan)
    look = {"marker": style.marker, "markersize": 4.5} if markers else {}
    axes.plot(x, mean, color=style.colour, linestyle=style.line, linewidth=1.8, label=style.label, **look)
    if len(values) > 1:
        spread = values.std(axis=0, ddof=1).filled(np.nan)
        axes.fill_between(x, mean - spread, mean + spread, color=style.colour, alpha=0.2, linewidth=0)


def rule(axes: Axes, y: float, about: str) -> None:
    """Mark a value of the y axis and say what it means."""
    axes.axhline(y, **RULE)
    place = {"xy": (1, y), "xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    axes.annotate(about, **place, xytext=(0, 4), ha="right", va="bottom", fontsize=9)


def legend(axes: Axes, columns: int = 3) -> None:
    """Name the curves above the picture, where the names hide none of them."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False, columnspacing=1.2, handlelength=1.8
    )


def state_space(axes: Axes, shown: Settling, values: Sequence[float]) -> Any:
    """Draw paths of states from where they begin (rings) to where they settle (dots), on the plane of largest spread.

    Args:
        axes: where to draw.
        shown: the states.
        values: a number for each state, which decides its colour, from -2 to 2.

    Returns:
        What a colour bar is made from.
    """
    plane = shown.projected().numpy()
    scale = matplotlib.colors.Normalize(-2.0, 2.0)
    for path, value in zip(plane.swapaxes(0, 1), values, strict=True):
        axes.plot(*path.T, color=MAP(scale(value)), linewidth=0.8, alpha=0.55, zorder=1)
    faint = matplotlib.colors.to_rgba(INK, 0.5)
    axes.scatter(*plane[0].T, s=9, facecolors="none", edgecolors=[faint], linewidths=0.6, zorder=2)
    axes.margins(0.08)
    # A fixed number of ticks: Matplotlib would add ticks with longer labels after it has divided the room.
    axes.locator_params(nbins=6)
    look = {"cmap": MAP, "norm": scale, "linewidths": 0.5, "edgecolors": [faint]}
    return axes.scatter(*plane[-1].T, s=28, c=list(values), zorder=3, **look)


def png(drawn: Figure, path: Path | str) -> None:
    """Write a figure as a PNG, dark on white, in its best 64 colours, which takes a quarter of the space."""
    from PIL import Image  # Installed with Matplotlib.

    buffer = io.BytesIO()
    with matplotlib.rc_context(LOOK):
        drawn.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    with Image.open(buffer) as picture:
        picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True)


def svg(drawn: Figure, name: str, about: str) -> str:
    """A figure as an SVG element to be put into a page: it takes the colour of the text around it.

    Args:
        drawn: the figure.
        name: other figures of the page have other names, so that no two elements share an id.
        about: what it shows, for those who do not see it.
    """
    buffer = io.BytesIO()
    with matplotlib.rc_context(LOOK | {"svg.fonttype": "none", "svg.hashsalt": name}):
        drawn.savefig(buffer, format="svg", dpi=DPI, transparent=True, metadata={"Date": None})
    for prefix, space in _SPACES.items():
        ElementTree.register_namespace(prefix, space)
    root = ElementTree.fromstring(buffer.getvalue())
    # Black parts have no colour of their own, or have INK, which is replaced at the end.
    root.set("fill", "currentColor")
    root.set("role", "img")
    root.set("aria-label", about)
    # The width is the page's to decide; the proportions are those of the viewBox.
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    _rename_ids(root, name)
    for metadata in root.findall(f"{{{_SPACES['']}}}metadata"):
        root.remove(metadata)
    return ElementTree.tostring(root, encoding="unicode").replace(INK, "currentColor")


def _rename_ids(root: ElementTree.Element, name: str) -> None:
    """Keep the ids that something refers to, under names of this figure alone."""
    text = ElementTree.tostring(root, encoding="unicode")
    referred = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text))
    for element in root.iter():
        identity = element.attrib.pop("id", None)
        if identity in referred:
            element.set("id", f"{name}-{identity}")
        for attribute, value in element.attrib.items():
            value = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", value)
            element.set(attribute, re.sub(r"^#", f"#{name}-", value) if attribute.endswith("href") else value)


_SPACES = {"": "http://www.w3.org/2000/svg", "xlink": "http://www.w3.org/1999/xlink"}
