"""A report as HTML: on the page of the dashboard, and as one self-contained file."""

from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from rebalancer.effect.messages import OF_REPORT, worth_of_plans
from rebalancer.effect.rates import TrendPoint
from rebalancer.effect.report import Report
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.figures import counted, percent
from rebalancer.model.notation.heat import heat_sentence
from rebalancer.model.records.effect import Rate
from rebalancer.web.pages import charts
from rebalancer.web.pages.charts import Column
from rebalancer.web.pages.render import render, static

RATES = (
    ("discovery", "Discovery", "discovered hot episodes / all hot episodes by the hot-node SLO"),
    ("eviction", "Eviction", "episodes with at least one eviction / discovered episodes"),
    (
        "effectiveness",
        "Effectiveness",
        "episodes at or under target after settling / assessable episodes with evictions",
    ),
)
GROUPS = (
    ("discovery", "Why hot nodes were not discovered"),
    ("eviction", "Why nothing was evicted from discovered nodes"),
    ("effect", "Why nodes did not cool"),
)


def render_report(report: Report, *, cluster: str, now: float) -> str:
    """The report as one HTML file, with style and pictures inside; it requests nothing."""
    style = Markup(static("style.css").decode())
    return render("report.html", cluster=cluster, now=now, style=style, **body(report, links=False))


def body(report: Report, *, links: bool) -> dict[str, Any]:
    """The variables of `_report.html`. With `links` names link to pages of the dashboard."""
    return {
        "report": report,
        "worth": "" if report.plans is None else worth_of_plans(report.plans),
        "heat": heat_sentence(report.hot_node_hours, of=OF_REPORT) if report.pools else "",
        "links": links,
        "rates": [(name, title, text, getattr(report.total, name, None)) for name, title, text in RATES],
        "reasons": [
            (title, [line for line in report.reasons if line.key.partition("/")[0] == group]) for group, title in GROUPS
        ],
        "trends": _trends(report),
        "breakdown": _breakdown(report),
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
            scale="100%",
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
    """Pool -> its hot minutes by day, as a sparkline."""
    days: dict[str | None, list[tuple[int, float]]] = {}
    for each in report.daily:
        days.setdefault(each.summary.pool, []).append((each.day, each.summary.hot_node_minutes))
    out = {}
    for number, (pool, minutes) in enumerate(days.items()):
        text = "; ".join(f"{_date(day)}: {value:.0f}" for day, value in minutes)
        out[pool] = charts.sparkline([value for _, value in minutes], f"by day: {text}", name=f"by-day-{number}")
    return out


def _rate_column(point: TrendPoint, rate: Rate) -> Column:
    return Column(label=_date(point.day), value=rate.share, text=f"{rate.part} of {rate.whole}, {percent(rate.share)}")


def _breakdown(report: Report) -> Markup:
    if report.breakdown is None:
        return Markup()
    return charts.account_bars(report.breakdown, name="breakdown-all")


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * DAY_SECONDS, UTC):%d %b}"
