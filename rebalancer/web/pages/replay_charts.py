"""Pictures of a replay: nodes over time as a heat map, hot nodes and evictions over time, runs against each other."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.figures import counted
from rebalancer.model.notation.heat import hours
from rebalancer.model.recordings.replay import HOUR_MINUTES, Grid32, Replay, ReplayRun
from rebalancer.replay.comparison.lines import RunLine
from rebalancer.web.pages.svg import picture, tag, titles

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1180.0, 150.0, 14.0, 10.0, 24.0
MOST_COLUMNS = 336
BUCKET_STEPS = (1, 2, 3, 6, 12, 24, 36, 48, 72, 144, 288)
"""Widths of a column in steps: 5 minutes to a day."""
MOST_ROWS = 200
"""Nodes of a heat map, those with most hot time."""
NAMED_ROWS = 60
"""With more nodes a heat map names only the pools."""
LEAST_NAMED = 14.0
"""Height of a row with a name, so that no name covers the next one."""
HEAT = 10
HOT_LEVELS = ((0.25, "hot1"), (0.75, "hot2"), (math.inf, "hot3"))
"""Share of a column's time in which the node was hot, at most, and the class of its colour."""
HOUR, DAY = 3600.0, 86_400.0
LABEL = 20
"""Characters of a name beside a row."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Time as columns of `steps` steps each."""

    since: float
    until: float
    steps: int

    @classmethod
    def of(cls, replay: Replay) -> "Columns":
        """As many as fit."""
        whole = (replay.end - replay.start) / STEP_SECONDS
        steps = next((each for each in BUCKET_STEPS if whole / each <= MOST_COLUMNS), BUCKET_STEPS[-1])
        return cls(replay.start, replay.end, steps)

    @property
    def count(self) -> int:
        """Number of columns; the last may be shorter."""
        return max(math.ceil((self.until - self.since) / self.seconds), 1)

    @property
    def seconds(self) -> float:
        """Of one column."""
        return self.steps * STEP_SECONDS

    @property
    def name(self) -> str:
        """`5 minutes`, `1 hour`"""
        minutes = round(self.seconds / 60)
        return f"{minutes} minutes" if minutes < 60 else counted(minutes // 60, "hour")

    def x(self, at: float) -> float:
        """Place of a time in a picture."""
        return LEFT + (at - self.since) / (self.count * self.seconds) * (WIDTH - LEFT - RIGHT)

    def sums(self, grid: Grid32) -> Grid32:
        """(nodes, columns) sums of (nodes, steps); NaN counts as zero."""
        if not grid.shape[1]:
            return np.zeros((grid.shape[0], 1), dtype=np.float32)
        return np.add.reduceat(np.nan_to_num(grid), np.arange(0, grid.shape[1], self.steps), axis=1)

    def axis(self, top: float, bottom: float) -> Iterator[Markup]:
        """Lines and labels of times, in UTC."""
        hourly = self.until - self.since <= 2 * DAY
        days = max(math.ceil((self.until - self.since) / DAY / 14), 1)
        every = (3 * HOUR if self.until - self.since <= DAY else 6 * HOUR) if hourly else days * DAY
        for number in range(math.ceil(self.since / every), math.floor(self.until / every) + 1):
            at, x = number * every, self.x(number * every)
            yield tag("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom)
            midnight = at % DAY == 0
            text = f"{_when(at):%a %d %b}" if midnight else f"{_when(at):%H:%M}"
            if x <= WIDTH - RIGHT - 40:
                yield tag("text", text, class_="tick", x=x + (3.0 if midnight else 0.0), y=bottom + 16)


def hottest(replay: Replay, runs: Sequence[ReplayRun]) -> list[int]:
    """Rows of heat maps: the nodes with most hot time in any run, by pool, hottest first."""
    minutes = np.max([np.nansum(run.hot_minutes, axis=1) for run in runs], axis=0)
    most = np.argsort(-minutes, kind="stable")[:MOST_ROWS]
    return sorted((int(node) for node in most), key=lambda node: (replay.pools[node], -minutes[node], node))


def heat_map(replay: Replay, run: ReplayRun, rows: Sequence[int], *, name: str) -> Markup:
    """CPU of nodes over time, hot time in the colour of alarms. Each colour is one path of horizontal lines."""
    columns = Columns.of(replay)
    tall = max(min(560.0 / max(len(rows), 1), 16.0), LEAST_NAMED if len(rows) <= NAMED_ROWS else 3.0)
    height = TOP + tall * len(rows) + BOTTOM
    classes = _classes(columns, run, rows)
    wide = (WIDTH - LEFT - RIGHT) / columns.count
    total = hours(float(np.nansum(run.hot_minutes[list(rows)])) / HOUR_MINUTES)
    text = f"{counted(len(rows), 'node')}, {total} hot node-hours. The table of nodes has the figures."
    parts = [*titles(name, f"CPU of the nodes over time, {run.label}", text)]
    paths: dict[str, list[str]] = {}
    for row, cells in enumerate(classes):
        at = 0
        for css, group in groupby(cells):
            width = len(list(group))
            if css:
                paths.setdefault(css, []).append(f"M{at} {row}h{width}")
            at += width
    stretched = f"translate({LEFT:g} {TOP + tall / 2:g}) scale({wide:.4f} {tall:.4f})"
    lines = [tag("path", class_=css, d="".join(paths[css])) for css in sorted(paths)]
    parts.append(tag("g", *lines, class_="cells", transform=stretched))
    parts += columns.axis(TOP, height - BOTTOM)
    parts += _row_labels(replay, rows, tall)
    for row, node in enumerate(rows):
        hot = hours(float(np.nansum(run.hot_minutes[node])) / HOUR_MINUTES)
        title = tag("title", f"{replay.nodes[node]} {replay.pools[node]}: {hot} hot hours")
        parts.append(
            tag("rect", title, class_="row", x=LEFT, y=TOP + row * tall, width=WIDTH - LEFT - RIGHT, height=tall)
        )
    return picture(name, WIDTH, height, "chart curve map", parts)


def _classes(columns: Columns, run: ReplayRun, rows: Sequence[int]) -> list[list[str]]:
    """CSS class of each cell; empty where the node was not there."""
    chosen = list(rows)
    share, minutes = run.share[chosen], run.hot_minutes[chosen]
    there = columns.sums(np.isfinite(share).astype(np.float32))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = columns.sums(share) / there
        hot = columns.sums(minutes) / (there * STEP_SECONDS / 60.0)
    heat = np.clip(np.nan_to_num(mean) * HEAT, 0, HEAT - 1).astype(int)
    out: NDArray[np.object_] = np.array([f"h{step}" for step in range(HEAT)], dtype=object)[heat]
    for most, css in reversed(HOT_LEVELS):
        out[(hot > 0) & (hot <= most)] = css
    out[there == 0] = ""
    cells: list[list[str]] = out.tolist()
    return cells


def _row_labels(replay: Replay, rows: Sequence[int], tall: float) -> Iterator[Markup]:
    if len(rows) <= NAMED_ROWS:
        for row, node in enumerate(rows):
            y = TOP + (row + 0.5) * tall + 4
            yield tag("text", _short(replay.nodes[node]), class_="tick", x=LEFT - 8, y=y, text_anchor="end")
        return
    top = TOP
    for pool, group in groupby(rows, key=lambda node: replay.pools[node]):
        count = len(list(group))
        y = max(top + count * tall / 2 + 4, top + 10)
        yield tag("text", _short(pool or "in no pool"), class_="tick", x=LEFT - 8, y=y, text_anchor="end")
        yield tag("line", class_="grid day", x1=0.0, x2=WIDTH - RIGHT, y1=top, y2=top)
        top += count * tall


def over_time(replay: Replay, before: ReplayRun, after: ReplayRun, *, name: str) -> Markup:
    """Hot nodes at a time before and after, and below them the evictions of `after`."""
    columns = Columns.of(replay)
    upper, lower, gap = 150.0, 60.0, 24.0
    bottom = TOP + upper + gap + lower
    curves = {css: _hot_nodes(columns, run) for css, run in (("before", before), ("after", after))}
    most = max(1.0, *(float(curve.max()) for curve in curves.values()))
    at = np.array([each.at for each in after.evictions])
    evicted = np.bincount(((at - columns.since) // columns.seconds).astype(int), minlength=columns.count)
    top = max(int(evicted.max()), 1)
    text = (
        f"Hot nodes at a time, at most {curves['before'].max():.1f} {before.label} and {curves['after'].max():.1f} "
        f"with {after.label}. {counted(len(after.evictions), 'eviction')}, at most {top} in {columns.name}."
    )
    parts = [*titles(name, "Hot nodes and evictions over time", text), *columns.axis(TOP, bottom)]
    for y, label in ((TOP + 10, f"{most:.0f} hot nodes"), (TOP + upper + gap + 10, f"{top} in {columns.name}")):
        parts.append(tag("text", label, class_="tick", x=LEFT - 8, y=y, text_anchor="end"))
    for y in (TOP + upper, bottom):
        parts.append(tag("line", class_="grid day", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        parts.append(tag("text", "0", class_="tick", x=LEFT - 8, y=y, text_anchor="end"))
    base = TOP + upper
    for css, curve in curves.items():
        parts.append(tag("path", class_=f"step {css}", d=_steps(columns, curve / most * upper, base)))
    parts.append(tag("path", class_="bars", d=_bars(columns, evicted / top * lower, bottom)))
    return picture(name, WIDTH, bottom + BOTTOM, "chart curve over", parts)


def _hot_nodes(columns: Columns, run: ReplayRun) -> Grid32:
    """(columns,) mean number of hot nodes."""
    return np.asarray(columns.sums(run.hot_minutes).sum(axis=0) / (columns.seconds / 60.0), dtype=np.float32)


def _steps(columns: Columns, tall: NDArray[np.floating], base: float) -> str:
    """An area of steps above `base`."""
    points = [f"M{columns.x(columns.since):.1f} {base:.1f}"]
    for number, value in enumerate(tall):
        points.append(f"V{base - value:.1f}H{columns.x(columns.since + (number + 1) * columns.seconds):.1f}")
    return "".join(points) + f"V{base:.1f}"


def _bars(columns: Columns, tall: NDArray[np.floating], base: float) -> str:
    width = max(columns.x(columns.since + columns.seconds) - columns.x(columns.since) - 1.0, 1.0)
    return "".join(
        f"M{columns.x(columns.since + number * columns.seconds):.1f} {base:.1f}v{-value:.1f}h{width:.1f}V{base:.1f}z"
        for number, value in enumerate(tall)
        if value
    )


def frontier(lines: Sequence[RunLine], *, name: str) -> Markup:
    """Hot node-hours against evictions, a point for each run. A line joins those that no other run is better than."""
    width, height, left, right, top, bottom = 620.0, 300.0, 60.0, 130.0, 16.0, 40.0
    most_evictions = max(1, *(line.evictions for line in lines))
    most_hours = max(0.1, *(line.hot_node_hours for line in lines))

    def x(line: RunLine) -> float:
        return left + line.evictions / most_evictions * (width - left - right)

    def y(line: RunLine) -> float:
        return height - bottom - line.hot_node_hours / most_hours * (height - top - bottom)

    points = "; ".join(
        f"{line.label}: {counted(line.evictions, 'eviction')}, {hours(line.hot_node_hours)} hot node-hours"
        for line in lines
    )
    base = height - bottom
    parts = [
        *titles(name, "Hot node-hours against evictions", points),
        tag("line", class_="grid day", x1=left, x2=width - right, y1=base, y2=base),
        tag("line", class_="grid day", x1=left, x2=left, y1=top, y2=base),
        tag("text", "0", class_="tick", x=left, y=base + 16, text_anchor="middle"),
        tag("text", str(most_evictions), class_="tick", x=width - right, y=base + 16, text_anchor="middle"),
        tag("text", "evictions", class_="tick", x=(left + width - right) / 2, y=base + 32, text_anchor="middle"),
        tag("text", hours(most_hours), class_="tick", x=left - 6, y=top + 4, text_anchor="end"),
        tag("text", "hours", class_="tick", x=left - 6, y=(top + base) / 2, text_anchor="end"),
    ]
    best = sorted((line for line in lines if line.on_frontier), key=lambda line: (line.evictions, line.hot_node_hours))
    if len(best) > 1:
        parts.append(tag("path", class_="line past", d="M" + "L".join(f"{x(each):.1f} {y(each):.1f}" for each in best)))
    taken: list[float] = []
    for line in sorted(lines, key=y):
        at = y(line) + 4
        while any(abs(at - other) < 13 for other in taken):
            at += 13
        taken.append(at)
        css = "point best" if line.on_frontier else "point"
        title = tag("title", f"{line.label}: {line.evictions} evictions, {hours(line.hot_node_hours)} hot node-hours")
        parts.append(tag("circle", title, class_=css, cx=x(line), cy=y(line), r=4.5))
        if at <= base:
            parts.append(tag("text", _short(line.label), x=x(line) + 9, y=at))
    return picture(name, width, height, "chart frontier", parts)


def _short(name: str) -> str:
    return name if len(name) <= LABEL else f"{name[: LABEL - 1]}…"


def _when(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
