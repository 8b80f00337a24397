"""`rebalancer forecast`: what each node is expected to need in the next 24 hours, and what that is made of."""

import math
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rebalancer.bootstrap.contexts import planning_context
from rebalancer.bootstrap.history import history_keeper
from rebalancer.cli.common import (
    ContextOption,
    DatabaseOption,
    KubeconfigOption,
    Output,
    OutputOption,
    PolicyOption,
    print_json,
    read_policy,
    settings_for,
    stdout_console,
)
from rebalancer.cli.output.accuracy import show_accuracy
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cli.output.tables import plain_table
from rebalancer.forecast import Forecasts
from rebalancer.forecasting.node_forecasts import Outlook, pooled_forecasts
from rebalancer.model.errors import ConfigError

SCHEMA_VERSION = "1"
SINCE = "30d"


def forecast(
    policy: PolicyOption,
    node: Annotated[
        list[str] | None, typer.Option("--node", help="Only this node; may be given several times.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show each number of the sum behind a peak.")] = False,
    accuracy: Annotated[
        bool,
        typer.Option("--accuracy", help="Show how good the daemon's forecasts were instead; asks only the database."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", help="With --accuracy: of forecasts made since then. They are kept for 90d. [default: 30d]"
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    database: DatabaseOption = None,
) -> None:
    """Show each node's expected peak: CPU of the pods that are on it now over the last days, summed in time, with a
    margin. The first call fills a folder of day blocks (REBALANCER_HISTORY_DIR); changes nothing in the cluster."""
    loaded = read_policy(policy)
    settings = settings_for(database=database, kubeconfig=kubeconfig, context=context)
    if accuracy:
        if node or explain:
            raise ConfigError("--node and --explain: expected without --accuracy")
        show_accuracy(loaded, settings, since=SINCE if since is None else since, output=output)
        return
    if since is not None:
        raise ConfigError("--since: expected with --accuracy")
    with (
        TerminalProgress() as progress,
        planning_context(loaded, settings, progress=progress) as cycle_context,
        history_keeper(loaded, settings, progress=progress) as keeper,
    ):
        found, forecasts = pooled_forecasts(cycle_context.cluster, keeper, loaded, clock=cycle_context.clock)
    if node:
        unknown = sorted(set(node) - {each.forecast.node for each in found})
        if unknown:
            raise ConfigError(f"--node {', '.join(unknown)}: expected a node of the cluster")
        found = [each for each in found if each.forecast.node in node]
    if output is Output.JSON:
        print_json(document(found, forecasts))
        return
    console = stdout_console()
    _print(console, found)
    if explain:
        for each in found:
            _explain(console, each)
    for note in forecasts.notes:
        console.print(Text.assemble(("Note:", "yellow"), f" {note}"))


def document(found: list[Outlook], forecasts: Forecasts) -> dict[str, Any]:
    """The JSON document. Shares are 0..1, times UTC; null = not known."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "nodes": [_node(each) for each in found],
        "pools": [
            {"pool": each.pool, "shortLivedPeakMillicores": _number(each.crowd_peak_millicores)}
            for each in forecasts.pools
        ],
        "notes": list(forecasts.notes),
    }


def _node(each: Outlook) -> dict[str, Any]:
    one, parts = each.forecast, each.forecast.parts
    return {
        "node": one.node,
        "pool": each.pool or None,
        "high": each.high,
        "hot": each.hot,
        "peakShare": _number(one.peak_share, 6),
        "peakMillicores": _number(one.peak_millicores),
        "peakAt": _time(one.peak_at),
        "shortPeakMillicores": _number(one.short_peak_millicores),
        "marginMillicores": _number(one.margin),
        "confidence": _number(one.confidence, 3),
        "daysUsed": one.days_used,
        "curveMillicores": [_number(float(value)) for value in one.curve],
        "parts": {
            "days": [
                {"from": _time(start), "p95Millicores": _number(p95), "weight": _number(weight, 6)}
                for start, p95, weight in zip(
                    parts.day_starts, parts.daily_p95.tolist(), parts.weights.tolist(), strict=True
                )
            ],
            "weightedP95Millicores": _number(parts.weighted_p95),
            "levelMillicores": _number(parts.level),
            "eventFactor": _number(parts.event_factor, 6),
            "events": list(parts.events),
            "ownShare": _number(parts.own_share, 3),
        },
    }


def _print(console: Console, found: list[Outlook]) -> None:
    table = plain_table("The next 24 hours", "NODE", "POOL", "PEAK", "HIGH", "AT (UTC)", "DAYS", "CONFIDENCE", "")
    for each in found:
        one = each.forecast
        table.add_row(
            one.node,
            each.pool or "-",
            _share(one.peak_share),
            "-" if each.high is None else f"{each.high:.0%}",
            _shown_time(one.peak_at),
            str(one.days_used),
            "-" if math.isnan(one.confidence) else f"{one.confidence:.0%}",
            Text("will be hot", style="bold red") if each.hot else "",
        )
    console.print(table)


def _explain(console: Console, each: Outlook) -> None:
    one, parts = each.forecast, each.forecast.parts
    table = plain_table(f"{one.node}: P95 of each day, weighted", "24 HOURS FROM", "P95", "WEIGHT", "P95 x WEIGHT")
    for start, p95, weight, product in zip(
        parts.day_starts, parts.daily_p95.tolist(), parts.weights.tolist(), parts.products.tolist(), strict=True
    ):
        table.add_row(
            _shown_time(start), _millicores(p95), "-" if math.isnan(weight) else f"{weight:.3f}", _millicores(product)
        )
    console.print(table)
    events = f" x {parts.event_factor:g} for {', '.join(parts.events)}" if parts.events else ""
    console.print(
        f"sum {_millicores(parts.weighted_p95)}; level {_millicores(parts.level)}{events}; "
        f"margin {_millicores(one.margin)}; peak {_millicores(one.peak_millicores)}, "
        f"{parts.own_share:.0%} of it measured on these very pods\n",
        highlight=False,
    )


def _millicores(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0f}m"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def _number(value: float, digits: int = 1) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def _time(seconds: float) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if math.isfinite(seconds) else None


def _shown_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%a %H:%M}" if math.isfinite(seconds) else "-"
