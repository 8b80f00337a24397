"""Charts as inline SVG without library or script; colours come from the page's style sheet.

Each has a title and a description for screen readers; the numbers are in a table beside it too.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction
from rebalancer.model.notation.figures import clock_time, cores, counted, millicores, percent
from rebalancer.model.records.effect import Assessment, ChangeBreakdown
from rebalancer.web.pages.overview import PoolHeat
from rebalancer.web.pages.plot import (
    BOTTOM,
    HOUR,
    MARK_WIDTH,
    RIGHT,
    TOP,
    WIDTH,
    Mark,
    Point,
    path_of,
    plot,
    runs,
    tick_hours,
    time_label,
)
from rebalancer.web.pages.svg import picture, tag, titles
from rebalancer.web.pages.views import Curve, NodeLine, TimelinePage

HEAT_SIZE = (560.0, 200.0)
TIMELINE_ROWS = 25
"""Nodes of the timeline, those with most evictions; the table has all."""


def curve(of: Curve, line: NodeLine, events: Sequence[Mark], *, name: str = "curve") -> Markup:
    """A node's CPU, measured and forecast, its thresholds and its evictions. `name` is unique on its page."""
    now, peak = f"{percent(line.share)} of {cores(line.capacity_millicores)} cores", ""
    if line.peak_share is not None and line.peak_at is not None:
        peak = f"A peak of {percent(line.peak_share)} is forecast for {clock_time(line.peak_at)}."
    text = _curve_text(of, now, peak, line.high, events)
    title, thresholds = f"CPU of {line.name}", (line.high, line.target)
    return plot(of, thresholds, events, title=title, text=text, name=name, peak=line.peak_share)


def heat(of: PoolHeat, *, name: str) -> Markup:
    """The hottest node of a pool over the last hours, with its forecast, the pool's thresholds and its evictions."""
    events = [Mark(at=at, text=text) for at, text in of.evictions]
    curve = Curve(past=of.past, source="cycles", ahead=of.ahead, now=of.now, since=of.since, until=of.until)
    now = of.past[-1][1] if of.past else None
    text = _curve_text(curve, percent(now), "", of.high, events)
    return plot(
        curve,
        (of.high, of.target),
        events,
        title=f"CPU of the hottest node of {of.pool}",
        text=text,
        name=name,
        css="chart heat",
        size=HEAT_SIZE,
    )


def timeline(page: TimelinePage) -> Markup:
    """Evictions of all nodes over time, a row for each node, with its share before and after each cycle's evictions.
    Empty without evictions."""
    moves = [each for each in page.evictions if each.answered.outcome in MAY_HAVE_HAPPENED]
    by_node = Counter(each.node for each in moves)
    nodes = [name for name, _ in by_node.most_common(TIMELINE_ROWS)]
    if not nodes:
        return Markup()
    left, row = 190.0, 34.0
    height = TOP + row * len(nodes) + BOTTOM

    def x(at: float) -> float:
        return left + (at - page.since) / (page.until - page.since) * (WIDTH - left - RIGHT)

    made = [each for each in moves if each.happened]
    totals = f"{counted(len(made), 'eviction')} from {counted(len({each.node for each in made}), 'node')}"
    totals += f", {len(moves) - len(made)} in dry run" if len(made) < len(moves) else ""
    most = f", {len(nodes)} of them shown" if len(nodes) < len(by_node) else ""
    description = f"{totals}{most}; the table below has the figures."
    parts = [*titles("timeline", "Evictions by node", description)]
    hours = tick_hours(page.until - page.since)
    first = math.ceil(page.since / HOUR / hours)
    for number in range(first, math.floor(page.until / HOUR / hours) + 1):
        at = number * hours * HOUR
        parts.append(tag("line", class_="grid", x1=x(at), x2=x(at), y1=TOP, y2=height - BOTTOM))
        form = "date" if at % (24 * HOUR) == 0 else "minute"
        parts.append(time_label(at, form, x=x(at), y=height - BOTTOM + 17, text_anchor="middle"))
    for index, name in enumerate(nodes):
        top = TOP + index * row
        parts += [
            tag("line", class_="grid", x1=0.0, x2=WIDTH - RIGHT, y1=top + row, y2=top + row),
            tag("text", name if len(name) <= 28 else f"{name[:27]}…", class_="tick", x=0.0, y=top + row / 2 + 4),
        ]
        parts += [_relief(each, x, top + 3, row - 6) for each in page.reliefs if each.node == name]
        for at, group in _close([each for each in moves if each.node == name], x):
            title = "; ".join(f"{clock_time(each.reserved.planned_at)} {each.full_name}" for each in group)
            mark = [tag("title", title), tag("path", d=f"M{x(at) - 6:.1f} {top + 6:.1f}h12l-6 9z")]
            if len(group) > 1:
                mark.append(tag("text", str(len(group)), x=x(at) + 8, y=top + 14))
            dry = all(each.reserved.dry_run for each in group)
            parts.append(tag("g", *mark, class_="mark dry" if dry else "mark"))
    return picture("timeline", WIDTH, height, "chart curve timeline", parts)


def _close(moves: Sequence[Eviction], x: Callable[[float], float]) -> list[tuple[float, list[Eviction]]]:
    """(time of the first, evictions) of each symbol: symbols of their own would overlap."""
    groups: list[tuple[float, list[Eviction]]] = []
    for each in sorted(moves, key=lambda move: move.reserved.planned_at):
        if groups and x(each.reserved.planned_at) - x(groups[-1][0]) < MARK_WIDTH * 2:
            groups[-1][1].append(each)
        else:
            groups.append((each.reserved.planned_at, [each]))
    return groups


def _relief(relief: Assessment, x: Callable[[float], float], top: float, tall: float) -> Markup:
    """From the share before to the share after, or as planned while it isn't assessed."""

    def y(share: float) -> float:
        return top + tall * (1 - min(max(share, 0.0), 1.0))

    assessed = relief.after_share is not None
    after = relief.planned_share if relief.after_share is None else relief.after_share
    until = relief.last_eviction_at if relief.assessed_at is None else relief.assessed_at
    moment = "after" if assessed else "planned"
    end = min(max(x(until), x(relief.last_eviction_at) + 14), WIDTH - RIGHT)
    begin = min(x(relief.last_eviction_at), end - 14)
    text = f"{relief.node}: {relief.resource} {percent(relief.before_share)} before, {percent(after)} {moment}"
    label = f"{relief.node} {percent(relief.before_share)} → {percent(after)}"
    side = "end" if end > WIDTH - 130 else "start"
    parts = [
        tag("title", text),
        tag("line", x1=begin, y1=y(relief.before_share), x2=end, y2=y(after)),
        tag("circle", class_="before", cx=begin, cy=y(relief.before_share), r=3.0),
        tag("circle", class_="after", cx=end, cy=y(after), r=3.0),
        tag("text", label, x=(begin - 10 if side == "end" else end + 8), y=top + tall - 1, text_anchor=side),
    ]
    return tag("g", *parts, class_="relief" if assessed else "relief planned")


def account_bars(account: ChangeBreakdown, *, name: str, target: float | None = None, whole: float = 0.0) -> Markup:
    """How a node came from what it used before to what it uses now, one bar a step: in millicores, or as shares of the
    `whole` of another resource. `target` in the unit of the account."""

    def text(value: float) -> str:
        return percent(value / whole) if whole else millicores(value)

    steps = [
        ("evicted", -account.evicted),
        ("left by themselves", -account.departed),
        ("landed", account.arrived),
        ("came back", account.returned),
        ("grew", account.remaining_change),
        ("grew with pool", account.pool_growth),
        ("surplus", account.surplus),
        ("unexplained", account.residual),
    ]
    label, width, row = 112.0, 400.0, 20.0
    height = row * (len(steps) + 2) + 6
    highest = max(account.before, account.after, target or 0.0, whole / 100 or 1.0)
    at, bars = account.before, []
    for what, asked in steps:
        change = asked if math.isfinite(asked) else 0.0
        bars.append((what, at, at + change, change))
        at += change
        highest = max(highest, at)
    lowest = min(0.0, *(min(first, last) for _, first, last, _ in bars))
    scale = (width - label - 52) / (highest - lowest)

    def x(value: float) -> float:
        return label + (value - lowest) * scale

    ends = [("before", account.before, 0), ("after", account.after, len(steps) + 1)]
    lines = [*titles(name, "Breakdown of the change", _breakdown_text(account, text))]
    for what, value, index in ends:
        lines += _bar(what, x(0.0), x(value), index * row, text(value), "whole", width)
    for index, (what, first, last, change) in enumerate(bars, start=1):
        css = "less" if change < 0 else "more"
        shown = text(change) if change <= 0 else f"+{text(change)}"
        lines += _bar(what, x(min(first, last)), x(max(first, last)), index * row, shown, css, width)
    if target is not None:
        mark = x(target)
        lines.append(tag("line", tag("title", "target"), class_="target", x1=mark, x2=mark, y1=0.0, y2=height))
    return picture(name, width, height, "chart account", lines)


def meter(share: float | None, high: float | None = None) -> Markup:
    """A share as a bar with a notch at `high`, for a cell that also has the number."""
    if share is None or not math.isfinite(share):
        return Markup()
    css = "fill over" if high is not None and share > high else "fill"
    parts = [
        tag("rect", class_="track", width=80.0, height=10.0),
        tag("rect", class_=css, width=min(max(share, 0.0), 1.0) * 80, height=10.0),
    ]
    if high is not None and 0 < high < 1:
        parts.append(tag("line", class_="notch", x1=high * 80, x2=high * 80, y1=0.0, y2=10.0))
    return tag("svg", *parts, class_="meter", viewBox="0 0 80 10", preserveAspectRatio="none", aria_hidden="true")


def sparkline(values: Sequence[float | None], text: str, *, name: str) -> Markup:
    """A small line without axes; `text` describes it."""
    width, height = 220.0, 36.0
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) < 2:
        return Markup()
    top = max(known) or 1.0
    step = (width - 6) / max(len(values) - 1, 1)
    points: list[tuple[float, Point | None]] = []
    for index, value in enumerate(values):
        there = value is not None and math.isfinite(value)
        at = (3 + index * step, height - 3 - (value or 0.0) / top * (height - 8)) if there else None
        points.append((float(index), at))
    parts = [*titles(name, text, text)]
    parts += [tag("path", class_="line past", d=path_of(run)) for run in runs(points, gap=1.5)]
    return picture(name, width, height, "chart spark", parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One upright bar."""

    label: str
    value: float | None
    """None: there is none."""
    text: str
    """The value in words."""


def columns(of: Sequence[Column], *, title: str, name: str, top: float, scale: str) -> Markup:
    """Upright bars in a row; `top` is the value of the full height, `scale` its label."""
    width, height, left, above, bottom = 340.0, 150.0, 4.0, 16.0, 20.0
    step = (width - 2 * left) / max(len(of), 1)
    every = math.ceil(len(of) / 6)
    parts = titles(name, title, "; ".join(f"{each.label}: {each.text}" for each in of) or "nothing is known")
    base = height - bottom
    for y in (above, base):
        parts.append(tag("line", class_="grid", x1=left, x2=width - left, y1=y, y2=y))
    parts.append(tag("text", scale, class_="tick", x=left, y=above - 4))
    for index, each in enumerate(of):
        x = left + index * step
        tooltip = tag("title", f"{each.label}: {each.text}")
        if each.value is None:
            parts.append(
                tag("rect", tooltip, class_="none", x=x + step * 0.15, y=base - 3, width=step * 0.7, height=3.0)
            )
        else:
            tall = min(each.value / top, 1.0) * (base - above)
            parts.append(
                tag("rect", tooltip, class_="column", x=x + step * 0.15, y=base - tall, width=step * 0.7, height=tall)
            )
        if index % every == 0:
            parts.append(tag("text", each.label, class_="tick", x=x + step * 0.15, y=height - 5))
    return picture(name, width, height, "chart upright", parts)


# ---- inside


def _bar(what: str, first: float, last: float, top: float, shown: str, css: str, width: float) -> list[Markup]:
    return [
        tag("text", what, class_="tick", x=0.0, y=top + 16),
        tag("rect", class_=css, x=first, y=top + 4, width=max(last - first, 1.0), height=14.0, rx=1.5),
        tag("text", shown, class_="value", x=width - 2, y=top + 16, text_anchor="end"),
    ]


def _curve_text(of: Curve, now: str, peak: str, high: float | None, events: Sequence[Mark]) -> str:
    known = [share for _, share in of.past if share is not None]
    inside = sum(of.since <= mark.at <= of.until for mark in events)
    said = [
        f"Now {now}.",
        f"Measured between {percent(min(known))} and {percent(max(known))}." if known else "",
        peak,
        f"Hot above {percent(high)}." if high is not None else "",
        f"{inside} evictions are marked." if inside else "No evictions in this time.",
    ]
    return " ".join(each for each in said if each)


def _breakdown_text(account: ChangeBreakdown, text: Callable[[float], str]) -> str:
    return (
        f"From {text(account.before)} to {text(account.after)}: "
        f"evicted {text(account.evicted)}, left {text(account.departed)}, landed {text(account.arrived)}, "
        f"came back {text(account.returned)}, grew {text(account.remaining_change)}, "
        f"grew with the pool {text(account.pool_growth)}, surplus {text(account.surplus)}, "
        f"unexplained {text(account.residual)}."
    )
