"""Tables for people: cells for figures, `-` where one is unknown. A name is never cut and a row never wrapped."""

import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from rebalancer.cli.output.times import localised
from rebalancer.model.reason import Refusal

UNKNOWN: Final = "-"
PIPE_WIDTH: Final = 240
GAP: Final = 2
INDENT: Final = "  "
TITLES: Final = "bold"
HEADS: Final = "dim"
FIGURES: Final = frozenset(
    {
        *("CPU", "COUNT", "USED", "LEFT", "TIMES", "PODS", "ROWS", "DAYS", "TOTAL", "CONFIDENCE"),
        *("BEFORE", "PLANNED", "MEASURED", "PEAK", "HIGH", "LOAD", "LOW", "TARGET", "OF NODE", "REQUEST", "FAIR"),
    }
)
"""Columns that are aligned to the right."""
SENTENCES: Final = frozenset(
    {"REASON", "DETAIL", "WAITS FOR", "WOULD HELP MOST", "OBSERVATION", "RECOMMENDATION", "MEANING"}
)
"""Columns of sentences, which stand below the rows where a terminal is too narrow for them."""


class Screen(Console):
    """Standard output. As wide as the terminal or COLUMNS; in a pipe wide enough for the sentences of tables."""

    def __init__(self, *, wide: bool = False, markup: bool = True, stderr: bool = False, **options: Any) -> None:
        known = (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ
        super().__init__(markup=markup, stderr=stderr, width=None if known else PIPE_WIDTH, **options)
        self.wide = wide
        """Whether tables have all their columns."""

    def print(self, *objects: Any, **options: Any) -> None:
        """A name that is longer than a line is not cut."""
        options.setdefault("crop", False)
        super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError (`plan | head -1`), which `main` turns into a silent exit."""
        raise BrokenPipeError


class Table:
    """A table without lines. Its cells are never read as markup: names from a cluster are not trusted.

    Where a row is longer than a line, the sentences stand below: in a legend of the column `legend`, once for each of
    its values, or else below their row. With `keys`, columns that are still too many stand in further blocks, each
    beginning with that many columns. The columns `wide` are shown with `-o wide` only, empty columns never.
    """

    def __init__(
        self,
        title: str,
        columns: Sequence[str],
        *,
        right: Iterable[str],
        wide: Iterable[str],
        legend: str,
        keys: int | None,
    ) -> None:
        self._title, self._columns, self._legend, self._keys = title, columns, legend, keys
        self._right, self._wide = frozenset(right), frozenset(wide)
        self._rows: list[list[Text]] = []

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def add_row(self, *cells: str | Text) -> None:
        """One cell for each column."""
        self._rows.append([Text(localised(cell)) if isinstance(cell, str) else cell for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        wide = isinstance(console, Screen) and console.wide
        shown = [
            at
            for at, name in enumerate(self._columns)
            if (wide or name not in self._wide) and (not self._rows or any(row[at] for row in self._rows))
        ]
        if self._title:
            yield Text(localised(self._title), style=TITLES)
        if self._width(shown) <= options.max_width or wide:
            yield from self._lines(shown)
            return
        cells = [at for at in shown if self._columns[at] not in SENTENCES]
        sentences = [at for at in shown if at not in cells]
        first_block, *further = self._blocks(cells, options.max_width)
        head, *rows = self._lines(first_block)
        yield head
        said: dict[str, None] = {}
        for at, (line, row) in enumerate(zip(rows, self._rows, strict=True)):
            yield line
            below = self._sentences(row, sentences)
            if self._legend:
                said |= dict.fromkeys(below)
            elif at + 1 == len(rows) or below != self._sentences(self._rows[at + 1], sentences):
                for each in below:
                    yield from _paragraph(each, options.max_width)
        for each in said:
            yield from _paragraph(each, options.max_width)
        for block in further:
            yield from self._lines(block)

    def _blocks(self, columns: Sequence[int], width: int) -> list[list[int]]:
        """The columns of each block."""
        if self._keys is None:
            return [[*columns]]
        keys, blocks = [at for at in columns if at < self._keys], []
        block = keys
        for at in columns[len(keys) :]:
            if len(block) > len(keys) and self._width([*block, at]) > width:
                blocks.append(block)
                block = keys
            block = [*block, at]
        return [*blocks, block]

    def _sentences(self, row: Sequence[Text], columns: Sequence[int]) -> list[str]:
        """The sentences of a row, each with what it belongs to."""
        found = [(self._columns[at], row[at].plain) for at in columns if row[at].plain not in ("", UNKNOWN)]
        if self._legend:
            key = row[self._columns.index(self._legend)].plain
            return [f"{key}: {text}" if key else text for _, text in found]
        named = len(columns) > 1
        return [
            f"{name.capitalize()}: {text}" if named and name not in ("REASON", "DETAIL") else text
            for name, text in found
        ]

    def _widths(self, columns: Iterable[int]) -> list[int]:
        return [max(cell_len(self._columns[at]), *(row[at].cell_len for row in self._rows), 0) for at in columns]

    def _width(self, columns: Sequence[int]) -> int:
        return sum(self._widths(columns)) + GAP * (len(columns) - 1)

    def _lines(self, columns: Sequence[int]) -> Iterator[Text]:
        """The head and the rows."""
        widths = self._widths(columns)
        heads = [Text(name, style=HEADS) for name in self._columns]
        for row in (heads, *self._rows):
            line = Text(no_wrap=True, overflow="ignore", end="\n")
            for place, (at, width) in enumerate(zip(columns, widths, strict=True)):
                room = " " * (width - row[at].cell_len)
                last = place + 1 == len(columns)
                line.append_text(Text(room) if self._columns[at] in self._right else Text())
                line.append_text(row[at])
                line.append("" if last else (" " * GAP if self._columns[at] in self._right else room + " " * GAP))
            line.rstrip()
            yield line


def print_paragraph(console: Console, begins: str | Text, text: str) -> None:
    """A sentence behind the words that it begins with. Its further lines are indented; no word is broken."""
    begins = Text(begins, style=TITLES) if isinstance(begins, str) else begins
    begins += " " if begins else ""
    used = begins.cell_len - len(INDENT)
    first, *rest = _paragraph(localised(text), console.width, used=used) or [Text()]
    begins = Text.assemble(begins, first.plain.strip(), no_wrap=True, overflow="ignore")
    begins.rstrip()
    console.print(begins)
    for line in rest:
        console.print(line)


def _paragraph(text: str, width: int, *, used: int = 0) -> list[Text]:
    """Lines of words, indented, the first of them shorter by `used`; no word is broken."""
    lines, left = [""], width - used
    for word in text.split():
        if lines[-1] and len(INDENT) + cell_len(lines[-1]) + 1 + cell_len(word) > left:
            lines, left = [*lines, INDENT + word], width
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return [Text(INDENT + line, no_wrap=True, overflow="ignore") for line in lines if line]


def plain_table(
    title: str,
    *columns: str,
    right: Iterable[str] = FIGURES,
    wide: Iterable[str] = (),
    legend: str = "",
    keys: int | None = None,
) -> Table:
    """A table; see Table."""
    return Table(title, columns, right=right, wide=wide, legend=legend, keys=keys)


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """A line for each."""
    for note in notes:
        console.print(Text.assemble(("Note:", "yellow"), f" {localised(note)}"))


def number(value: float | None, digits: int = 1) -> str:
    """With so many decimals."""
    return UNKNOWN if value is None or math.isnan(value) else f"{value:.{digits}f}"


def refusal_text(refusal: Refusal) -> str:
    """The sentence, with the code behind it."""
    return f"{localised(refusal.message)} ({refusal.code})"
