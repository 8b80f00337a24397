"""Tables for people: cells for figures, `-` where one is unknown."""

import math
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rebalancer.model.reason import Refusal

UNKNOWN: Final = "-"


class _PlainTable(Table):
    """A table whose cells are never read as markup: names from a cluster are not trusted."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def plain_table(title: str, *columns: str, right: Iterable[str] = ("CPU", "COUNT", "USED", "LEFT", "TIMES")) -> Table:
    """A table without lines; the columns `right` are aligned to the right."""
    table = _PlainTable(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return table


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """A line for each."""
    for note in notes:
        console.print(Text.assemble(("Note:", "yellow"), f" {note}"))


def share(value: float | None, digits: int = 1) -> str:
    """0..1 in percent."""
    return UNKNOWN if value is None or math.isnan(value) else f"{value:.{digits}%}"


def number(value: float | None, digits: int = 1) -> str:
    """With so many decimals."""
    return UNKNOWN if value is None or math.isnan(value) else f"{value:.{digits}f}"


def millicores(value: float | None, unknown: str = UNKNOWN) -> str:
    """With its unit."""
    return unknown if value is None or math.isnan(value) else f"{value:.0f}m"


def size(bytes_: float | None) -> str:
    """Bytes in MiB or GiB."""
    if bytes_ is None or not math.isfinite(bytes_):
        return "unknown size"
    return f"{bytes_ / 2**30:.1f} GiB" if bytes_ >= 2**30 else f"{bytes_ / 2**20:.0f} MiB"


def refusal_text(refusal: Refusal) -> str:
    """The sentence, with the code behind it."""
    return f"{refusal.message} ({refusal.code})"
