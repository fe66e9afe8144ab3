"""How cells, versions and other series are named and drawn: alike in every picture and table."""

from dataclasses import dataclass

from multistable.experiments.experiment import Kind
from multistable.networks.cell_specs import JOINED, halves
from multistable.palette import BLUE, COLOURS, GREEN, INK, MARKERS, ORANGE, PURPLE, SKY, VERMILLION


@dataclass(frozen=True)
class Style:
    """How a series is drawn: its marker and its line tell it apart as well as its colour."""

    label: str
    colour: str
    marker: str
    line: str = "-"


STYLES = {
    "classic": Style("classic", VERMILLION, "o", "--"),
    "warmup": Style("warmed up", BLUE, "s"),
    "double": Style("double layer", GREEN, "^"),
    "double-classic": Style("double layer, no warmup", PURPLE, "v", "--"),
    "auxiliary": Style("auxiliary loss", ORANGE, "D", "-."),
    "random": Style("warmed up on random sequences", SKY, "x", ":"),
}
"""Styles by the names in ``multistable.training.VERSIONS``, and ``random`` for a warmup on random sequences."""

CELL_STYLES = {
    "lstm": Style("LSTM", BLUE, "o"),
    "chrono": Style("chrono LSTM", ORANGE, "s", "--"),
    "gru": Style("GRU", VERMILLION, "^"),
    "mgu": Style("MGU", GREEN, "v", "--"),
    "brc": Style("BRC", INK, "D", "-."),
    "nbrc": Style("NBRC", PURPLE, "x", ":"),
}
"""Styles by the names of the paper's cells."""

_LINES = ("-", "--", "-.", ":")


def style_of(series: str, index: int = 0) -> Style:
    """The style of a series: the paper's versions and cells have their own, ``index`` decides that of any other."""
    known = STYLES.get(series) or CELL_STYLES.get(series)
    look = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)], _LINES[index % len(_LINES)]
    return known or Style(short_name(series), *look)


def short_name(name: str) -> str:
    """``Mine`` for ``module:Mine``; any other name as it is."""
    return name.rpartition(":")[2]


def cell_name(cell: str) -> str:
    """A cell as axes and tables name it: ``GRU`` for ``gru``, ``Mine`` for ``module:Mine``."""
    return JOINED.join(short_name(half) if ":" in half else half.upper() for half in map(str, halves(cell)))


def kind_name(kind: Kind) -> str:
    """A cell and its version, for a reader."""
    cell, version = kind
    return f"{style_of(cell).label}, {style_of(version).label}"
