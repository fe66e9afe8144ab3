"""The console and the tables of all commands."""

import os

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 160
"""Characters of a line in a file or a pipe, enough for the tables."""


def console() -> Console:
    """A console that writes to what is standard output now."""
    here = Console(highlight=False, markup=False)
    if not (here.is_terminal or "COLUMNS" in os.environ):
        here.width = WIDTH
    return here


def table(*columns: str, numbers: bool = False, title: str | None = None) -> Table:
    """An empty table; with ``numbers`` all columns but the first are aligned to the right."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if numbers and index else "left", overflow="fold")
    return made
