"""The mutants of both matrices: breaks of what its rows promise, which the rows' own tests must find."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.faults.actors import ACTORS
from tests.faults.matrix import MATRIX

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).parent / "data" / "mutants.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One break of one file."""

    row: str
    file: str
    """Of the product, from the root of the repository."""
    text: str
    """Occurs once in the file."""
    becomes: str
    breaks: str
    """What breaks, in one phrase."""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.breaks}"

    def applied(self, source: str) -> str:
        """The file's content with the break. Raises ValueError where the text doesn't occur exactly once."""
        if (count := source.count(self.text)) != 1:
            raise ValueError(f"{self.file} has {count} times {self.text!r}")
        return source.replace(self.text, self.becomes)


def rows() -> dict[str, tuple[str, ...]]:
    """Row of either matrix -> its tests, `file::test`. Rows by actor begin with the actor."""
    by_fault = {row.name: row.tests for faults in MATRIX.values() for row in faults}
    return by_fault | {f"{actor}: {row.name}": row.tests for actor, powers in ACTORS.items() for row in powers}


def read_mutants() -> list[Mutant]:
    """In the order of the file."""
    found = tomllib.loads(FILE.read_text())
    return [Mutant(row=row, **fields) for row, mutants in found.items() for fields in mutants]
