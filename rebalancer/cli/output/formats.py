"""The values of `--output`: a table, or the same document as JSON, YAML or CSV."""

import csv
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from rebalancer.cli.common import Output
from rebalancer.cli.output.json import SCHEMA_VERSION, as_text, encode
from rebalancer.cli.output.tables import Screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a command prints: a document, and how it is drawn as tables."""

    document: Mapping[str, Any]
    draw: Callable[[Screen], None]
    rows: str = ""
    """Name of the document's list whose objects are the rows of CSV; empty = the document itself is the only row."""
    version: str = SCHEMA_VERSION

    def text(self, output: Output) -> str:
        """The document; CSV has only its main list."""
        document = {"schemaVersion": self.version, **self.document}
        if output is Output.CSV:
            return csv_text(encode(document[self.rows] if self.rows else [self.document]))
        return yaml_text(document) if output is Output.YAML else as_text(document)

    def print(self, output: Output) -> None:
        """Writes it to stdout."""
        if output in (Output.TABLE, Output.WIDE):
            self.draw(Screen(wide=output is Output.WIDE))
        else:
            sys.stdout.write(self.text(output))


def yaml_text(document: Mapping[str, Any]) -> str:
    """The document as YAML."""
    return str(yaml.safe_dump(encode(document), sort_keys=False, allow_unicode=True, width=120))


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A head and a row for each object; nothing without rows. An unknown value is empty, a list or object is JSON."""
    if not rows:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, Mapping | list):
        return msgspec.json.encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else value
