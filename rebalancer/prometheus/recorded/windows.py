"""Long queries in windows of time that Prometheus can answer.

A window is halved when Prometheus refuses it, or fails to answer in time. Two queries run at a time. The queries of the
hour (`usage.prometheus.history.queriesPerHour`) don't limit these: a replay is a command that was typed, and reads only
what it needs.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np

from rebalancer.model.decisions.ports import Progress
from rebalancer.model.errors import ConnectError
from rebalancer.model.measured.history import Grid
from rebalancer.model.notation.arrays import Bools
from rebalancer.prometheus.connection.client import PrometheusClient, TooMuchError
from rebalancer.prometheus.connection.pool import AT_ONCE, ClientPool
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.queries import Query

FIELD = "history of kube-state-metrics"
"""Errors in these queries are reported under this name: they can't be configured."""
_SHORTEST_SECONDS = 600.0

P = TypeVar("P")
T = TypeVar("T")


class Window(NamedTuple):
    """The time after `start`, up to and including `end`, in seconds since the epoch."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start

    @property
    def promql(self) -> str:
        """Its length as PromQL writes it."""
        return f"{round(self.seconds)}s"


class WindowReader:
    """Reads windows of one span."""

    def __init__(
        self, pool: ClientPool, span: Window, *, progress: Progress, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self.span = span
        self._pool = pool
        self._progress = progress
        self._stopping = stopping

    def at(self, promql: str, at: float) -> decode.Vector:
        """One instant query."""
        return self._run(promql, lambda client, query: decode.vector(client.query(query, at=at).result))

    def changes(self, label: str, promql: Callable[[Window], str], *, seconds: float) -> list[decode.Vector]:
        """The vectors of a query at the end of each window, in their order; windows of at most `seconds`.

        `label` names the step of the progress.
        """

        def read(window: Window) -> decode.Vector:
            return self.at(promql(window), window.end)

        return self._all(label, read, seconds)

    def instants(self, label: str, queries: Sequence[tuple[str, float]]) -> list[decode.Vector]:
        """Instant queries, each with its time, in their order."""
        return self._each(label, queries, lambda each: [self.at(*each)])

    def lines(self, label: str, promql: str, *, step: float, seconds: float) -> list[tuple[decode.Lines, Grid, float]]:
        """Series in the middle of each `step`: their values (series, steps of the window), and the window's start."""

        def read(window: Window) -> tuple[decode.Lines, Grid, float]:
            def send(client: PrometheusClient, query: Query) -> tuple[decode.Lines, Grid, float]:
                count = max(round(window.seconds / step), 1)
                first = window.start + step / 2
                answer = client.query_range(query, start=first, end=first + (count - 1) * step, step=step)
                found = decode.lines(answer.result)
                return found, decode.grid(found.values, start=first, step=step, count=count), window.start

            return self._run(promql, send)

        return self._all(label, read, seconds, step=step)

    def _run(self, promql: str, send: Callable[[PrometheusClient, Query], T]) -> T:
        if self._stopping():
            raise ConnectError("stopped before the history was read")
        query = Query(field=FIELD, promql=promql)
        return self._pool.run(query, lambda client: send(client, query))

    def _all(self, label: str, read: Callable[[Window], T], seconds: float, *, step: float = 1.0) -> list[T]:
        windows = _divided(self.span, seconds, step)
        fitting = [seconds]

        def whole(window: Window) -> list[T]:
            """The window, in as many parts as it takes."""
            out, left = [], deque(_divided(window, fitting[-1], step))
            while left:
                part = left.popleft()
                try:
                    out.append(read(part))
                except TooMuchError:
                    if part.seconds < 2 * max(_SHORTEST_SECONDS, step):
                        raise
                    fitting.append(min(fitting[-1], part.seconds / 2))
                    left.extendleft(reversed(_divided(part, fitting[-1], step)))
            return out

        return self._each(label, windows, whole)

    def _each(self, label: str, parts: Sequence[P], read: Callable[[P], list[T]]) -> list[T]:
        """What `read` gives for each part, two at a time."""
        out: list[T] = []
        with ThreadPoolExecutor(AT_ONCE) as threads:
            self._progress.step(label, 0, len(parts))
            for done, found in enumerate(threads.map(read, parts), 1):
                out += found
                self._progress.step(label, done, len(parts))
        return out


def _divided(span: Window, seconds: float, step: float) -> Sequence[Window]:
    """Windows of a whole number of steps, at most `seconds` each but at least one step."""
    length = max(int(seconds // step), 1) * step
    starts = np.arange(span.start, span.end, length).tolist()
    return [Window(start, min(start + length, span.end)) for start in starts]


def spans(there: Bools) -> list[tuple[int, int]]:
    """Beginning and end of each span in which it is true."""
    edges = np.flatnonzero(np.diff(there, prepend=False, append=False))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]
