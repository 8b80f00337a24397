"""Shares over time as SVG: lines, thresholds and events, with their axes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from rebalancer.model.notation.figures import clock_time, percent
from rebalancer.web.pages.svg import picture, tag, titles
from rebalancer.web.pages.views import Curve

Point = tuple[float, float]

WIDTH, HEIGHT = 1180.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 14.0, 30.0, 30.0
GAP_SECONDS = 1800.0
"""A line is interrupted where nothing is known for longer."""
HOUR = 3600.0
MOST_TICKS = 12
MARK_WIDTH = 9.0
"""Points that are closer to each other than this are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An event."""

    at: float
    text: str


def plot(
    of: Curve,
    thresholds: tuple[float | None, float | None],
    events: Sequence[Mark],
    *,
    title: str,
    text: str,
    name: str,
    css: str = "chart curve",
    size: tuple[float, float] = (WIDTH, HEIGHT),
    peak: float | None = None,
) -> Markup:
    """Shares over time. `thresholds` are high and target; a `peak` has room in it also where the curve has not."""
    high, target = thresholds
    frame = _Frame.of(of, size, [high, peak])
    parts = [
        *titles(name, title, text),
        *frame.axes(),
        *_level(frame, high, "high"),
        *_level(frame, target, "target"),
    ]
    now = frame.x(of.now)
    parts += [
        tag("line", class_="now", x1=now, x2=now, y1=TOP, y2=frame.base),
    ]
    parts += [tag("path", class_="line past", d=path) for path in _paths(frame, of.past)]
    parts += [tag("path", class_="line ahead", d=path) for path in _paths(frame, of.ahead)]
    # on top of the lines
    parts += [
        *_level_text(frame, high, "high", y=-5),
        *_level_text(frame, target, "target", y=15),
        tag("text", "now", class_="now-text", x=now + 5, y=frame.base - 7),
    ]
    known = [(at, share) for at, share in of.ahead if share is not None]
    if known:
        at, share = max(known, key=lambda each: each[1])
        x, y = frame.x(at), frame.y(share)
        side = "start" if x < frame.width - 110 else "middle" if x < frame.width - 60 else "end"
        time = tag("tspan", _clock(at), data_at=_utc(at), data_form="minute")
        parts += [
            tag("circle", class_="peak", cx=x, cy=y, r=4.5),
            tag(
                "text",
                f"{percent(share)} at ",
                time,
                class_="peak-text",
                x=x + {"start": 8, "middle": 0, "end": -8}[side],
                y=y - 8,
                text_anchor=side,
            ),
        ]
    parts += [_mark(frame, group) for group in _grouped(frame, events)]
    return picture(name, frame.width, frame.height, css, parts)


# ---- inside


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    since: float
    until: float
    top: float
    width: float
    height: float

    @classmethod
    def of(cls, curve: Curve, size: tuple[float, float], others: Sequence[float | None]) -> "_Frame":
        """With room for the curve and the `others`."""
        shares = [share for _, share in (*curve.past, *curve.ahead) if share is not None]
        highest = max([*shares, *(share or 0.0 for share in others), 0.5])
        top = math.ceil(highest * 4) / 4 if highest > 1 else 1.0
        return cls(since=curve.since, until=curve.until, top=top, width=size[0], height=size[1])

    @property
    def base(self) -> float:
        return self.height - BOTTOM

    def x(self, at: float) -> float:
        return LEFT + (at - self.since) / (self.until - self.since) * (self.width - LEFT - RIGHT)

    def y(self, share: float) -> float:
        return self.base - min(share, self.top) / self.top * (self.base - TOP)

    def axes(self) -> Iterator[Markup]:
        for quarter in range(round(self.top * 4) + 1):
            y = self.y(quarter / 4)
            yield tag("line", class_="grid", x1=LEFT, x2=self.width - RIGHT, y1=y, y2=y)
            yield tag("text", percent(quarter / 4), class_="tick", x=LEFT - 6, y=y + 4, text_anchor="end")
        hours = tick_hours(self.until - self.since, most=round(MOST_TICKS * self.width / WIDTH))
        first = math.ceil(self.since / HOUR / hours)
        for number in range(first, math.floor(self.until / HOUR / hours) + 1):
            at = number * hours * HOUR
            x, midnight = self.x(at), at % (24 * HOUR) == 0
            yield tag("line", class_="grid day" if midnight else "grid", x1=x, x2=x, y1=TOP, y2=self.base)
            side = "end" if x > self.width - 40 else "middle"
            yield time_label(at, "date" if midnight else "minute", x=x, y=self.base + 17, text_anchor=side)


def tick_hours(seconds: float, *, most: int = MOST_TICKS) -> float:
    """Hours between two labels of the time axis."""
    return next((each for each in (0.25, 1.0, 2.0, 6.0, 24.0) if seconds / HOUR / each <= most), 72.0)


def _level(frame: _Frame, share: float | None, css: str) -> list[Markup]:
    if share is None or not 0 < share <= frame.top:
        return []
    y = frame.y(share)
    return [tag("line", class_=css, x1=LEFT, x2=frame.width - RIGHT, y1=y, y2=y)]


def _level_text(frame: _Frame, share: float | None, text: str, *, y: float) -> list[Markup]:
    """The label of a level, `y` below its line."""
    if share is None or not 0 < share <= frame.top:
        return []
    return [tag("text", f"{text} {percent(share)}", class_=f"{text}-text", x=LEFT + 6, y=frame.y(share) + y)]


def _paths(frame: _Frame, points: Sequence[tuple[float, float | None]]) -> Iterator[str]:
    placed = [(at, None if share is None else (frame.x(at), frame.y(share))) for at, share in points]
    for run in runs(placed, gap=GAP_SECONDS):
        yield path_of(run)


def runs(points: Sequence[tuple[float, Point | None]], *, gap: float) -> Iterator[list[Point]]:
    """Stretches of at least two points, each at most `gap` behind the one before."""
    run: list[Point] = []
    last = -math.inf
    for at, point in points:
        if point is None:
            continue
        if run and at - last > gap:
            if len(run) > 1:
                yield run
            run = []
        run.append(point)
        last = at
    if len(run) > 1:
        yield run


def path_of(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _grouped(frame: _Frame, events: Sequence[Mark]) -> list[list[Mark]]:
    groups: list[list[Mark]] = []
    for mark in sorted(events, key=lambda each: each.at):
        if not frame.since <= mark.at <= frame.until:
            continue
        if groups and frame.x(mark.at) - frame.x(groups[-1][0].at) < MARK_WIDTH:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    return groups


def _mark(frame: _Frame, group: Sequence[Mark]) -> Markup:
    x = frame.x(group[0].at)
    parts = [
        tag("title", "; ".join(f"{clock_time(each.at)} {each.text}" for each in group)),
        tag("line", x1=x, x2=x, y1=TOP, y2=frame.base),
        tag("path", d=f"M{x - 6:.1f} {TOP - 9:.1f}h12l-6 9z"),
    ]
    if len(group) > 1:
        parts.append(tag("text", str(len(group)), x=x, y=TOP - 13, text_anchor="middle"))
    return tag("g", *parts, class_="mark")


def _when(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _clock(at: float) -> str:
    return f"{_when(at):%H:%M}"


def time_label(at: float, form: str, **attributes: str | float) -> Markup:
    """A label that the browser writes in its zone, as `render.moment`."""
    text = f"{_when(at):%d %b}" if form == "date" else _clock(at)
    return tag("text", text, class_="tick", data_at=_utc(at), data_form=form, **attributes)


def _utc(at: float) -> str:
    return f"{_when(at):%Y-%m-%dT%H:%M:%SZ}"
