"""`rebalancer report`: the discovery, eviction and effectiveness rates, with the reasons behind them."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import PAGE_TABLES, PageOutput, Since, Until, parse_moment, write_file
from rebalancer.cli.invocation import LEDGER, Invocation, options
from rebalancer.model.errors import ConfigError
from rebalancer.model.notation.document import DIMENSIONS, Dimension

if TYPE_CHECKING:
    from rebalancer.effect.report import Report


@options(*LEDGER, "utc")
def report(
    invocation: Invocation,
    since: Since = "7d",
    until: Until = None,
    by: Annotated[
        str, typer.Option("--by", help=f"Comma-separated dimensions of the rates: {', '.join(DIMENSIONS)}.")
    ] = "pool",
    all_clusters: Annotated[
        bool, typer.Option("--all-clusters", help="Include all clusters that share the database.")
    ] = False,
    output: Annotated[
        PageOutput, typer.Option("--output", "-o", help="Output format; csv contains only the rates.")
    ] = PageOutput.TABLE,
    file: Annotated[
        Path | None, typer.Option("--file", help="File to write instead of stdout; with -o json, yaml, csv or html.")
    ] = None,
) -> None:
    """Show whether evictions helped: which hot nodes were discovered, had pods evicted, and cooled (the discovery,
    eviction and effectiveness rates), the reasons for the others, and other changes of the cluster. Rates are of whole
    UTC days. Reads only the database, also while the daemon runs."""
    now = time.time()
    dimensions = _dimensions(by)
    start = parse_moment("--since", since, now)
    end = min(now if until is None else parse_moment("--until", until, now), now)
    if start >= end:
        raise ConfigError(f"--since {since}: expected a time before {'now' if end == now else f'--until {until}'}")
    if file is not None and output in PAGE_TABLES:
        raise ConfigError("--file: expected with -o json, yaml, csv or html")
    from rebalancer.bootstrap.wiring.database import database_shown, kept_records
    from rebalancer.evaluation.reporting import gather, sources_of

    with kept_records(invocation.policy, invocation.settings) as records:
        if records is None:
            shown = database_shown(invocation.settings)
            raise ConfigError(f"{shown}: no such database; expected the database of a daemon that has run")
        sources = sources_of(records, invocation.policy, all_clusters=all_clusters)
        made = gather(sources, since=start, until=end, by=dimensions, now=now)
    clusters = [each.cluster for each in sources]
    if output in PAGE_TABLES:
        from rebalancer.cli.output.report_tables import print_report
        from rebalancer.cli.output.tables import Screen

        print_report(Screen(wide=output is PageOutput.WIDE), made, clusters=clusters)
        return
    text = _text(made, output, clusters, now)
    if file is None:
        sys.stdout.write(text)
    else:
        write_file(file, text, option="--file")


def _text(report: "Report", output: PageOutput, clusters: list[str], now: float) -> str:
    if output is PageOutput.HTML:
        from rebalancer.web.pages.report_page import render_report

        return render_report(report, cluster=", ".join(clusters), now=now)
    from rebalancer.cli.output.formats import yaml_text
    from rebalancer.cli.output.report_document import csv_text, json_text, report_document

    if output is PageOutput.CSV:
        return csv_text(report)
    if output is PageOutput.YAML:
        return yaml_text(report_document(report, clusters))
    return json_text(report, clusters)


def _dimensions(text: str) -> list[Dimension]:
    """Raises ConfigError."""
    wanted = [name.strip() for name in text.split(",")]
    known = [name for name in DIMENSIONS if name in wanted]
    if unknown := [name for name in wanted if name not in DIMENSIONS]:
        raise ConfigError(f"--by: expected any of {', '.join(DIMENSIONS)}, separated by commas, got {unknown[0]!r}")
    return sorted(known, key=wanted.index)
