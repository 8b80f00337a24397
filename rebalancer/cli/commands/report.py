"""`rebalancer report`: how many hot nodes were found, how many of those lost pods, did it help, and why not."""

import csv
import io
import json
import sys
import time
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rebalancer.bootstrap.database import database_shown, kept_records
from rebalancer.cli.common import DatabaseOption, PolicyOption, read_policy, settings_for, stdout_console
from rebalancer.cli.output.report_tables import print_report
from rebalancer.effect.document import to_json
from rebalancer.effect.rates import DIMENSIONS, Dimension
from rebalancer.effect.report import Report
from rebalancer.evaluation.reporting import gather, sources_of
from rebalancer.model.errors import ConfigError
from rebalancer.policy.schema.types import parse_duration

CSV_COLUMNS = (
    *("hot", "found", "acted", "assessed", "cooled", "discovery", "eviction", "effectiveness", "evictions"),
    *("relief_planned_cores", "relief_measured_cores", "hot_node_minutes", "prevented", "false_alarms", "too_late"),
)
"""After those that the lines are split by."""


class ReportOutput(StrEnum):
    """`-o`"""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


def report(
    policy: PolicyOption,
    since: Annotated[
        str,
        typer.Option("--since", help="From when on: so long ago, such as 7d, or a date or time such as 2026-11-01."),
    ] = "7d",
    until: Annotated[
        str | None, typer.Option("--until", help="Up to, not including, when; as --since. [default: now]")
    ] = None,
    by: Annotated[
        str, typer.Option("--by", help=f"Split the rates by any of {', '.join(DIMENSIONS)}, with commas between.")
    ] = "pool",
    all_clusters: Annotated[
        bool, typer.Option("--all-clusters", help="Of all clusters that share the database.")
    ] = False,
    output: Annotated[
        ReportOutput, typer.Option("--output", "-o", help="How to print it; csv holds the rates alone.")
    ] = ReportOutput.TABLE,
    file: Annotated[
        Path | None, typer.Option("--file", help="Write it to this file instead; with -o json, csv or html.")
    ] = None,
    database: DatabaseOption = None,
) -> None:
    """Show whether evictions helped: how many hot nodes were found (discovery), lost pods (eviction) and cooled
    (effectiveness), why the others did not, and what else moved the cluster. Rates are of whole days in UTC. Asks only
    the database, also while the daemon runs."""
    now = time.time()
    dimensions = _dimensions(by)
    start = _moment("--since", since, now)
    end = min(now if until is None else _moment("--until", until, now), now)
    if start >= end:
        raise ConfigError(f"--since {since}: expected a time before {'now' if end == now else f'--until {until}'}")
    if file is not None and output is ReportOutput.TABLE:
        raise ConfigError("--file: expected with -o json, csv or html")
    loaded = read_policy(policy)
    settings = settings_for(database=database)
    with kept_records(loaded, settings) as records:
        if records is None:
            shown = database_shown(settings)
            raise ConfigError(f"{shown}: expected the database of a daemon that has run; there is none yet")
        sources = sources_of(records, loaded, all_clusters=all_clusters)
        made = gather(sources, since=start, until=end, by=dimensions, now=now)
    clusters = [each.cluster for each in sources]
    if output is ReportOutput.TABLE:
        print_report(stdout_console(), made, clusters=clusters)
        return
    text = _text(made, output, clusters, now)
    if file is None:
        sys.stdout.write(text)
    else:
        _write(file, text)


def document(report: Report, clusters: list[str]) -> dict[str, Any]:
    """The JSON document: that of `effect.document.to_json`, and which clusters it is of. Its schema is
    docs/reference/report.schema.json."""
    return {**to_json(report), "clusters": clusters}


def csv_text(report: Report) -> str:
    """A line for each group. Shares are 0..1, empty of nothing; an empty name is of nodes in no pool, or of episodes
    that were not found."""
    out = io.StringIO()
    writer = csv.DictWriter(out, (*report.by, *CSV_COLUMNS), lineterminator="\n")
    writer.writeheader()
    for line in report.lines:
        counts = line.counts
        writer.writerow(
            {
                **{name: line.key[name] for name in report.by},
                "hot": counts.hot,
                "found": counts.discovered,
                "acted": counts.evicted_from,
                "assessed": counts.assessed,
                "cooled": counts.cooled,
                "discovery": line.discovery.share,
                "eviction": line.eviction.share,
                "effectiveness": line.effectiveness.share,
                "evictions": counts.evictions,
                "relief_planned_cores": counts.relief_planned,
                "relief_measured_cores": counts.relief_measured,
                "hot_node_minutes": counts.hot_node_minutes,
                "prevented": counts.prevented,
                "false_alarms": counts.false_alarms,
                "too_late": counts.too_late,
            }
        )
    return out.getvalue()


def _text(report: Report, output: ReportOutput, clusters: list[str], now: float) -> str:
    if output is ReportOutput.HTML:
        from rebalancer.web.report_page import render_report  # with the web server's libraries: only who needs it waits

        return render_report(report, cluster=", ".join(clusters), now=now)
    if output is ReportOutput.CSV:
        return csv_text(report)
    return json.dumps(document(report, clusters), indent=2, allow_nan=False) + "\n"


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--file {file}: {error.strerror or error}: expected a file that can be written") from None


def _dimensions(text: str) -> list[Dimension]:
    """Raises ConfigError."""
    wanted = [name.strip() for name in text.split(",")]
    known = [name for name in DIMENSIONS if name in wanted]
    if unknown := [name for name in wanted if name not in DIMENSIONS]:
        raise ConfigError(f"--by: expected any of {', '.join(DIMENSIONS)}, with commas between, got {unknown[0]!r}")
    return sorted(known, key=wanted.index)


def _moment(option: str, text: str, now: float) -> float:
    """`7d` (ago) or `2026-11-01T08:00` (in UTC without a zone) in seconds since the epoch. Raises ConfigError."""
    try:
        return max(now - parse_duration(text), 0.0)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
        return max((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp(), 0.0)
    except (ValueError, OverflowError):
        hint = "so long ago, such as 7d, or a date or time such as 2026-11-01"
        raise ConfigError(f"{option}: expected {hint}, got {text!r}") from None
