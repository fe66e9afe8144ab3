"""Tables of many numbers, which stay readable on a narrow terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from multistable.cli.console import table

LEAST_NAME = 20
"""Names are folded down to so many characters a line before columns move to another table."""
SHORTEST_NAME = 8
"""Names keep so many characters a line, even beside a number as long as the line."""


@dataclass
class WideTable:
    """A table with a row of numbers for each name; the names are the first column.

    A number that fits in a line is never folded. If the room is too narrow, first the titles are folded, then the
    names, and then the columns are divided among several tables below each other, with the names in each.

    Attributes:
        columns: the titles of the columns.
        title: the line above the table.
        caption: the line below the table.
    """

    columns: Sequence[str]
    title: str | None = None
    caption: str | None = None
    _rows: list[tuple[tuple[str, ...], str | None]] = field(default_factory=list, init=False)
    _sections: set[int] = field(default_factory=set, init=False)

    def add_row(self, *cells: str, style: str | None = None) -> None:
        """Add a row, one cell for each column."""
        self._rows.append((cells, style))

    def add_section(self) -> None:
        """Draw a line after the last row so far."""
        self._sections.add(len(self._rows) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts, widths = self._arranged(options.max_width)
        for part in parts:
            made = self._table(part, widths)
            made.title = self.title if part is parts[0] else None
            made.caption = self.caption if part is parts[-1] else None
            yield made

    def _arranged(self, width: int) -> tuple[list[list[int]], list[int]]:
        """The columns of each table, without the names, and the width of every column."""
        room = width - _around(1)
        least = [self._widest(index, _longest_word) for index in range(len(self.columns))]
        # A cell that is longer than a line has to be folded.
        least = [max(1, min(each, room - SHORTEST_NAME - BETWEEN)) for each in least]
        longest = max(1, min(self._widest(0, cell_len), room - max((each + BETWEEN for each in least[1:]), default=0)))
        name = min(longest, LEAST_NAME)
        parts = _packed(least, room - name)
        while name < longest and len(_packed(least, room - name - 1)) == len(parts):
            name += 1
        parts = _packed(least, room - name)
        widths = [name, *least[1:]]
        for part in parts:
            left = room - name - sum(widths[index] + BETWEEN for index in part)
            for index in part:
                more = min(left, max(0, self._widest(index, cell_len) - widths[index]))
                widths[index], left = widths[index] + more, left - more
        return parts, widths

    def _widest(self, index: int, of_title: Callable[[str], int]) -> int:
        cells = [cell_len(cells[index]) for cells, _ in self._rows]
        return max([of_title(self.columns[index]), *cells])

    def _table(self, part: Sequence[int], widths: Sequence[int]) -> Table:
        shown = (0, *part)
        made = table(*(self.columns[index] for index in shown), numbers=True)
        made.collapse_padding = True
        for column, index in zip(made.columns, shown, strict=True):
            column.width = widths[index]
        for number, (cells, style) in enumerate(self._rows):
            made.add_row(*(cells[index] for index in shown), style=style, end_section=number in self._sections)
        return made


def _packed(least: Sequence[int], room: int) -> list[list[int]]:
    """The columns after the first, divided into tables: as many in each as there is room for, at least one."""
    parts: list[list[int]] = [[]]
    left = room
    for index, width in enumerate(least[1:], start=1):
        if parts[-1] and width + BETWEEN > left:
            parts.append([])
            left = room
        parts[-1].append(index)
        left -= width + BETWEEN
    return parts


def _longest_word(title: str) -> int:
    return max(map(cell_len, title.split()), default=0)


def _around(columns: int) -> int:
    """The characters that a table adds to the widths of its columns."""
    made = table(*[""] * columns, numbers=True)
    made.collapse_padding = True
    for column in made.columns:
        column.width = 1
    wide = Console(width=10 * columns + 10)
    return made.__rich_measure__(wide, wide.options).maximum - columns


BETWEEN = _around(2) - _around(1)
"""The characters between two columns."""
