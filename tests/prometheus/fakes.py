"""A Prometheus of our own words that remembers days: plain selectors, `count by` of them, expressions it was told."""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rebalancer.lab.prometheus.promql import NotPlainError, Selector, parse
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS
from tests.prometheus.builders import Asked, Reply

DAY = 20_700
START = DAY * DAY_SECONDS
OWN: dict[str, Any] = {
    "nodeCPU": {"query": "node:cpu", "unit": "cores", "freshness": "node:time", "label": "node"},
    "podCPU": {"query": "pod:cpu"},
}
_COUNT = re.compile(r"count by \((\w+)\) \((.*)\)", re.DOTALL)


class Clock:
    """Ours: it stands until it is moved."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@dataclass(kw_only=True)
class Line:
    """One series: `values` = {slot of DAY: value}, at the end of each slot; slots of other days go on from there."""

    metric: str
    labels: Mapping[str, str]
    values: Mapping[int, object]


def line(metric: str, values: object = 1.0, *, first: int = 0, end: int = SLOTS, **labels: str) -> Line:
    """A series with one value, or a mapping of slots."""
    each = values if isinstance(values, Mapping) else dict.fromkeys(range(first, end), values)
    return Line(metric=metric, labels=labels, values=each)


@dataclass(kw_only=True)
class Past:
    """Answers as `tests.prometheus.builders.fake_prometheus` wants it."""

    lines: Sequence[Line]
    clock: Clock
    ahead: float = 0.0
    """Its clock less ours."""
    counts: bool = True
    """False: it answers selectors only, as the lab does."""
    expressions: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    most_points: int | None = None
    """Answers with more end in 422, as with `--query.max-samples`."""
    longest: float = float("inf")
    """Seconds: longer range queries are refused as by Mimir's frontend."""
    most_at_once: int = 0
    ranges: list[dict[str, str]] = field(default_factory=list)
    """What the range queries for samples were."""
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, asked: Asked) -> Reply:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            return self._answer(asked)
        finally:
            with self._lock:
                self._now -= 1

    def _answer(self, asked: Asked) -> Reply:
        query, ranged = asked.params["query"], asked.path.endswith("query_range")
        if ranged:
            start, end, step = (float(asked.params[name]) for name in ("start", "end", "step"))
            if end - start > self.longest:
                return too_long(end - start, self.longest)
            times = [start + step * index for index in range(int((end - start) / step + 1e-9) + 1)]
        else:
            times = [self.clock.now() + self.ahead]
        counted = _COUNT.fullmatch(query)
        try:
            if counted and not self.counts:
                raise NotPlainError(query)
            found = self._matching(counted[2] if counted else query)
        except NotPlainError as error:
            return 400, {"status": "error", "errorType": "bad_data", "error": str(error)}
        rows = [(labels, _points(each, times, ranged)) for labels, each in found]
        if counted:
            rows = _counted(rows, counted[1])
        elif ranged:
            self.ranges.append(asked.params)
        total = sum(len(points) for _, points in rows)
        if self.most_points is not None and not counted and total > self.most_points:
            message = "query processing would load too many samples into memory in query execution"
            return 422, {"status": "error", "errorType": "execution", "error": message}
        kind = "values" if ranged else "value"
        result = [
            {"metric": labels, kind: points if ranged else points[-1]}
            for labels, points in rows
            if points or not ranged
        ]
        data = {"resultType": "matrix" if ranged else "vector", "result": [each for each in result if each[kind]]}
        said_too = {"warnings": list(self.warnings)} if self.warnings and ranged and not counted else {}
        return 200, {"status": "success", "data": data, **said_too}

    def _matching(self, query: str) -> list[tuple[dict[str, str], Line]]:
        if query in self.expressions:
            return [(dict(each.labels), each) for each in self.expressions[query]]
        selector: Selector = parse(query)
        return [
            ({"__name__": each.metric, **each.labels}, each)
            for each in self.lines
            if each.metric == selector.name and selector.matches(each.labels)
        ]


def too_long(seconds: float, longest: float) -> Reply:
    """Mimir's answer to a range query over `seconds`."""
    limits = f"(query length: {seconds:.0f}s, limit: {longest:.0f}s)"
    return 400, {
        "status": "error",
        "errorType": "bad_data",
        "error": f"the total query time range exceeds the limit {limits} (err-mimir-max-total-query-length)",
    }


def _points(each: Line, times: Sequence[float], ranged: bool) -> list[list[object]]:
    if not ranged:
        return [[times[0], "1"]]
    out: list[list[object]] = []
    for at in times:
        slot = -(-(at - START) // STEP_SECONDS) - 1
        if slot in each.values:
            out.append([at, str(each.values[slot])])
    return out


def _counted(
    rows: Sequence[tuple[dict[str, str], list[list[object]]]], label: str
) -> list[tuple[dict[str, str], list[list[object]]]]:
    counts: dict[str, dict[object, int]] = {}
    for labels, points in rows:
        here = counts.setdefault(labels.get(label, ""), {})
        for at, _ in points:
            here[at] = here.get(at, 0) + 1
    return [
        ({label: value} if value else {}, [[at, str(count)] for at, count in each.items()])
        for value, each in counts.items()
        if each
    ]
