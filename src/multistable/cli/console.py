"""Where and how the commands write."""

import os
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 160
"""Of a file or a pipe: wide enough for the tables."""


def console(file: IO[str] | None = None) -> Console:
    """Standard output as it is now, or ``file``."""
    here = Console(file=file, highlight=False, markup=False)
    if not (here.is_terminal or "COLUMNS" in os.environ):
        here.width = WIDTH
    return here


def table(*columns: str, numbers: bool = False, title: str | None = None) -> Table:
    """An empty table; ``numbers`` puts all columns but the first to the right."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if numbers and index else "left", overflow="fold")
    return made
