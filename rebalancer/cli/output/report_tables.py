"""A report as tables."""

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from rebalancer.cli.output.json import date
from rebalancer.cli.output.tables import plain_table, print_notes
from rebalancer.cli.output.times import dated
from rebalancer.effect.cluster import PoolSummary
from rebalancer.effect.messages import OF_REPORT, shown, worth_of_plans
from rebalancer.effect.rates import RateLine
from rebalancer.effect.report import NodeRow, Report
from rebalancer.model.decisions.eviction import COUNTED
from rebalancer.model.notation.figures import NOTHING, counted, millicores, percent
from rebalancer.model.notation.heat import heat_sentence
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.effect import ChangeBreakdown

ALL = "(all)"
NONE = "(none)"
MISSED = "(not discovered)"
RATES = ("HOT", "DISCOVERY", "EVICTION", "EFFECTIVENESS", "EVICTED", "PLANNED", "MEASURED", "HOT MINUTES")
LEFT = frozenset(
    {
        *("CLUSTER", "POOL", "STRATEGY", "TRIGGER", "NODE", "SERVICE", "TRIGGERS", "DAY", "WEEK FROM"),
        *("DISCOVERY", "EVICTION", "EFFECTIVENESS", "EFFECTIVE", "NEW PODS OVER TARGET"),
        *("RATE", "REASON", "SHARE", "MEANING", "NEWEST", "RESOURCE", "COOLED"),
    }
)
"""Columns that are not numbers alone."""


def print_report(console: Console, report: Report, *, clusters: list[str]) -> None:
    """All tables of a report; one line when nothing is recorded."""
    time = f"{dated(report.since)} to {dated(report.until)}"
    of = f"{'cluster' if len(clusters) == 1 else 'clusters'} {', '.join(clusters)}"
    if not (report.total or report.pools or report.services or report.hottest or report.accuracy):
        console.print(f"No records of {of}, {time}.", highlight=False, markup=False)
        return
    evictions = f", {counted(report.evictions, 'eviction')}"
    console.print(Text.assemble(("Effect of evictions:", "bold"), f" {of}, {time}{evictions}"))
    if report.pools:
        console.print(f"{heat_sentence(report.hot_node_hours, of=OF_REPORT)}.", highlight=False)
    if report.plans is not None:
        console.print(f"{worth_of_plans(report.plans)}.", highlight=False)
    _print_rates(console, report)
    _print_reasons(console, report)
    _print_resources(console, report)
    _print_proactive(console, report)
    _print_drains(console, report)
    _print_trend(console, report)
    _print_pools(console, report.pools)
    _print_nodes(console, "Hottest nodes", report.hottest)
    _print_nodes(console, "Nodes with ineffective evictions", report.ineffective)
    _print_services(console, report)
    if report.breakdown is not None:
        _print_breakdown(console, report.breakdown)
    _print_accuracy(console, report)
    console.print()
    compared = (
        "not compared, no eviction of this time is assessed" if report.comparison is None else report.comparison.verdict
    )
    console.print(Text.assemble(("Compared with the time before:", "bold"), f" {compared}"))
    print_notes(console, report.notes)


def _print_rates(console: Console, report: Report) -> None:
    if report.total is None:
        return
    rows = [(*_names(line, report), *_rates(line)) for line in report.lines]
    if len(rows) != 1:
        rows.append((ALL, *("" for _ in report.by[1:]), *_rates(report.total)))
    _table(console, "Rates", (*map(str.upper, report.by), *RATES), rows, keys=len(report.by))


def _names(line: RateLine, report: Report) -> list[str]:
    missed = {"strategy": MISSED, "trigger": MISSED} if line.missed else {}
    return [line.key(name) or missed.get(name, NONE) for name in report.by]


def _rates(line: RateLine) -> list[str]:
    counts = line.counts
    return [
        str(counts.hot),
        shown(line.discovery),
        shown(line.eviction),
        shown(line.effectiveness),
        str(counts.evictions),
        millicores(counts.relief_planned * 1000),
        millicores(counts.relief_measured * 1000),
        f"{counts.hot_node_minutes:.0f}",
    ]


def _print_reasons(console: Console, report: Report) -> None:
    rows = [(*each.key.partition("/")[::2], shown(each.rate), each.sentence, each.example) for each in report.reasons]
    _table(console, "Reasons", ("RATE", "REASON", "SHARE", "MEANING", "NEWEST"), rows)


def _print_resources(console: Console, report: Report) -> None:
    """Where nodes were relieved of more than CPU."""
    if all(each.resource == CPU for each in report.resources):
        return
    rows = [
        (
            each.resource,
            shown(each.cooled),
            percent(each.share_before),
            percent(each.share_planned),
            percent(each.share_after),
        )
        for each in report.resources
    ]
    _table(console, "Relieved nodes by resource", ("RESOURCE", "COOLED", "BEFORE", "PLANNED", "AFTER"), rows)


def _print_proactive(console: Console, report: Report) -> None:
    counts = None if report.total is None else report.total.counts
    if counts is None or not (counts.prevented or counts.false_alarms or counts.too_late):
        return
    row = [str(count) for count in (counts.prevented, counts.false_alarms, counts.too_late)]
    _table(console, "Nodes relieved before a peak", ("PREVENTED", "FALSE ALARM", "TOO LATE"), [row])


def _print_drains(console: Console, report: Report) -> None:
    counts = None if report.total is None else report.total.counts
    if counts is None or not (counts.nodes_emptied or counts.nodes_removed or counts.core_hours_saved):
        return
    row = [str(counts.nodes_emptied), str(counts.nodes_removed), str(counts.nodes_in_vain)]
    row.append(f"{counts.core_hours_saved:.0f}")
    _table(console, "Drained nodes", ("EMPTIED", "REMOVED", "IN VAIN", "CORE-HOURS SAVED"), [row])


def _print_trend(console: Console, report: Report) -> None:
    if len(report.trend) < 2:
        return
    weekly = report.trend[0].days > 1
    rows = [(date(each.day), *_rates(each.line)) for each in report.trend]
    _table(console, "By week, UTC" if weekly else "By day, UTC", ("WEEK FROM" if weekly else "DAY", *RATES), rows)


def _print_pools(console: Console, pools: Iterable[PoolSummary]) -> None:
    columns = (
        *("POOL", "NODES", "HOT AT ONCE", "MINUTES OVER", "STDDEV", "HIGHEST", "CPU", "LAST WEEK", "FREE"),
        *("FREE TO REQUEST", "NEW PODS OVER TARGET"),
    )
    rows = [
        (
            ALL if each.pool is None else each.pool or NONE,
            _number(each.nodes),
            _number(each.hot_nodes),
            f"{each.hot_node_minutes:.0f}",
            percent(each.share_stddev),
            percent(each.highest_share),
            percent(each.cpu_share),
            NOTHING if each.cpu_change is None else f"{'+' if each.cpu_change > 0 else ''}{percent(each.cpu_change)}",
            percent(each.free_by_usage),
            percent(each.free_by_requests),
            shown(each.new_pods_over_target),
        )
        for each in pools
    ]
    _table(
        console, "Hourly means of the pools; LAST WEEK: change of CPU from the same hours a week before", columns, rows
    )


def _print_nodes(console: Console, title: str, nodes: Iterable[NodeRow]) -> None:
    rows = [
        (
            each.node,
            each.pool or NONE,
            str(each.episodes),
            f"{each.hot_minutes:.0f}",
            str(each.evictions),
            str(each.ineffective_evictions),
        )
        for each in nodes
    ]
    _table(console, title, ("NODE", "POOL", "EPISODES", "HOT MINUTES", "EVICTED", "INEFFECTIVE"), rows)


def _print_services(console: Console, report: Report) -> None:
    rows = [
        (
            each.service,
            str(each.evictions),
            str(each.nodes),
            *(", ".join(f"{value} {count}" for value, count in getattr(each.counts, name).items()) for name in COUNTED),
            shown(each.effective),
        )
        for each in report.services
    ]
    counts = (name.upper() for name in COUNTED)
    _table(console, "Services with the most evictions", ("SERVICE", "EVICTED", "NODES", *counts, "EFFECTIVE"), rows)


def _print_breakdown(console: Console, breakdown: ChangeBreakdown) -> None:
    parts = (
        ("BEFORE", breakdown.before),
        ("EVICTED", -breakdown.evicted),
        ("DEPARTED", -breakdown.departed),
        ("ARRIVED", breakdown.arrived),
        ("RETURNED", breakdown.returned),
        ("REMAINING", breakdown.remaining_change),
        ("POOL", breakdown.pool_growth),
        ("SURPLUS", breakdown.surplus),
        ("RESIDUAL", breakdown.residual),
        ("AFTER", breakdown.after),
    )
    title = "CPU change of the relieved nodes"
    names = tuple(name for name, _ in parts)
    _table(console, title, names, [tuple(millicores(value) for _, value in parts)], keys=0)


def _print_accuracy(console: Console, report: Report) -> None:
    rows = [
        (
            ALL if each.pool is None else each.pool or NONE,
            str(each.forecasts),
            percent(each.mae),
            percent(each.coverage),
            percent(each.hot_recall),
            percent(each.hot_precision),
            _number(each.peak_hour_error),
        )
        for each in report.accuracy
    ]
    columns = ("POOL", "FORECASTS", "ERROR", "COVERAGE", "HOT RECALL", "HOT PRECISION", "HOURS OFF")
    _table(console, "Forecasts of the daily P95; errors are shares of a node's capacity", columns, rows)


def _table(
    console: Console, title: str, columns: tuple[str, ...], rows: Iterable[Iterable[str]], *, keys: int = 1
) -> None:
    """Prints nothing without rows."""
    rows = list(rows)
    if not rows:
        return
    table = plain_table(title, *columns, right=set(columns) - LEFT, keys=keys)
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}".removesuffix(".0")
