"""A report as JSON, its JSON Schema, and as CSV: all of them from the fields of `effect.report.Report`."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rebalancer.cli.output.json import SCHEMA_VERSION, as_text, document_fields, encode
from rebalancer.cli.output.json_schema import schema_of
from rebalancer.effect.rates import RateLine
from rebalancer.effect.report import Report
from rebalancer.model.notation.document import INLINE
from rebalancer.model.records.effect import Counts, Rate

SCHEMA_ID = f"https://rebalancer.dev/schemas/report/v{SCHEMA_VERSION}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """The document of `rebalancer report -o json`."""

    report: Annotated[Report, INLINE]
    clusters: tuple[str, ...]
    """Clusters of the report."""


def json_text(report: Report, clusters: Sequence[str]) -> str:
    """The document as JSON."""
    return as_text(report_document(report, clusters))


def report_document(report: Report, clusters: Sequence[str]) -> dict[str, Any]:
    """The document of JSON and YAML. Its schema is docs/reference/report.schema.json."""
    document = ReportDocument(report=report, clusters=tuple(clusters))
    return {"schemaVersion": SCHEMA_VERSION, **encode(document)}


def report_schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    return schema_of(ReportDocument, version=SCHEMA_VERSION, schema_id=SCHEMA_ID)


def csv_text(report: Report) -> str:
    """A row for each line of rates: its dimensions, counts and rates.

    Rates are 0..1, empty without episodes. An empty name stands for nodes in no pool, or episodes not discovered.
    """
    rates = [each.name for each in document_fields(RateLine) if each.type is Rate]
    counts = {each.name: each.attribute for each in document_fields(Counts) if each.attribute != "reasons"}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*report.by, *rates, *counts])
    for line in report.lines:
        shares = [getattr(line, name).share for name in rates]
        writer.writerow(
            [*map(line.key, report.by), *shares, *(getattr(line.counts, attribute) for attribute in counts.values())]
        )
    return out.getvalue()
