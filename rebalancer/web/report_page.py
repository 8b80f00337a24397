"""A report as people see it: on the dashboard's page, and as one file that needs nothing else."""

from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from rebalancer.effect.messages import counted, percent
from rebalancer.effect.rates import TrendPoint
from rebalancer.effect.report import Report
from rebalancer.model.effect import Rate
from rebalancer.model.history import DAY_SECONDS
from rebalancer.web import charts
from rebalancer.web.charts import Column
from rebalancer.web.render import render, static

RATES = (
    ("discovery", "Discovery", "hot nodes that were found, of those hot by the standard"),
    ("eviction", "Eviction", "found nodes that pods were moved from, of the found"),
    ("effectiveness", "Effectiveness", "nodes at or under target after settling, of those that could be assessed"),
)
GROUPS = (
    ("discovery", "Why hot nodes were not found"),
    ("eviction", "Why nothing left nodes that were found"),
    ("effect", "Why nodes did not cool"),
)


def render_report(report: Report, *, cluster: str, now: float) -> str:
    """The report as one HTML file: style and pictures are in it, and it asks for nothing else."""
    style = Markup(static("style.css").decode())
    return render("report.html", cluster=cluster, now=now, style=style, **body(report, links=False))


def body(report: Report, *, links: bool) -> dict[str, Any]:
    """What `_report.html` needs. With `links` names lead to the dashboard's pages."""
    return {
        "report": report,
        "links": links,
        "rates": [(name, title, told, getattr(report.total, name, None)) for name, title, told in RATES],
        "reasons": [
            (title, [line for line in report.reasons if line.key.partition("/")[0] == group]) for group, title in GROUPS
        ],
        "trends": _trends(report),
        "account": _account(report),
        "by_day": _by_day(report),
    }


def _trends(report: Report) -> list[Markup]:
    if len(report.trend) < 2:
        return []
    pictures = [
        charts.columns(
            [_rate_column(point, getattr(point.line, name)) for point in report.trend],
            title=f"{title} by {'week' if report.trend[0].days > 1 else 'day'}",
            name=f"trend-{name}",
            top=1.0,
            scale="100 %",
        )
        for name, title, _ in RATES
    ]
    hot = [
        Column(
            label=_date(point.day),
            value=point.line.counts.hot_node_minutes,
            text=f"{point.line.counts.hot_node_minutes:.0f} minutes, {counted(point.line.counts.hot, 'episode')}",
        )
        for point in report.trend
    ]
    most = max((column.value or 0.0 for column in hot), default=0.0) or 1.0
    return [*pictures, charts.columns(hot, title="Hot node-minutes", name="trend-hot", top=most, scale=f"{most:.0f}")]


def _by_day(report: Report) -> dict[str | None, Markup]:
    """Pool -> its hot minutes day by day, as a small line."""
    days: dict[str | None, list[tuple[int, float]]] = {}
    for each in report.over_days:
        days.setdefault(each.summary.pool, []).append((each.day, each.summary.hot_node_minutes))
    out = {}
    for number, (pool, minutes) in enumerate(days.items()):
        told = "; ".join(f"{_date(day)}: {value:.0f}" for day, value in minutes)
        out[pool] = charts.sparkline([value for _, value in minutes], f"by day: {told}", name=f"by-day-{number}")
    return out


def _rate_column(point: TrendPoint, rate: Rate) -> Column:
    return Column(label=_date(point.day), value=rate.share, text=f"{rate.part} of {rate.whole}, {percent(rate.share)}")


def _account(report: Report) -> Markup:
    if report.account is None:
        return Markup()
    return charts.account_bars(report.account, name="account-all")


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * DAY_SECONDS, UTC):%d %b}"
