"""Days of CPU, or of another resource, at 5-minute steps, in queries of bounded size.

The value of slot s is the query's at the slot's end: with a rate over five minutes, the mean of the slot. Two queries
run at a time, and at most as many an hour as the policy allows. A query that exceeds Prometheus' limits is repeated in
halves, down to an hour's points.
"""

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock, Progress
from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.measured.history import (
    DAY_SECONDS,
    HOUR_SECONDS,
    SLOTS,
    STEP_SECONDS,
    DayBlock,
    Grid,
    block_units,
    date_of,
)
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.prometheus.connection.client import PrometheusClient, TooMuchError
from rebalancer.prometheus.connection.pool import AT_ONCE, ClientPool
from rebalancer.prometheus.history.days import DayOfSeries, Units
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.chunks import (
    ChunkedQuery,
    Matchers,
    QueryChunk,
    chunked_queries,
    chunked_resource_queries,
    query_chunks,
)
from rebalancer.prometheus.promql.queries import NODE_BY_FIELD, Query, ResourceQuerySet, queries
from rebalancer.prometheus.promql.units import MOST_PLAUSIBLE_SHARE, capacities, millicores_per_unit
from rebalancer.prometheus.readings.nodes import NodeMap

_FEWEST_SLOTS = 12

Labels = Mapping[str, str]


class _LaterError(Exception):
    """The queries of the hour are used up, or the program is stopping."""


class QueryBudget:
    """A limit on queries in any hour, for all resources together. Not kept over a restart."""

    def __init__(self, per_hour: int, clock: Clock) -> None:
        self.per_hour = per_hour
        self._clock = clock
        self._sent: deque[float] = deque()

    def take(self, *, spare: int = 0) -> bool:
        """Count one query; False when no more than `spare` are left."""
        now = self._clock.now()
        while self._sent and not now - HOUR_SECONDS < self._sent[0] <= now:  # also when the clock was set back
            self._sent.popleft()
        if len(self._sent) + spare >= self.per_hour:
            return False
        self._sent.append(now)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The response to a chunk."""

    lines: decode.Lines | decode.PodLines
    values: Grid
    """(series, slots)"""
    warnings: tuple[str, ...]


class PrometheusHistory:
    """Reads days from Prometheus; implements `model.measured.history.HistorySource`. Not thread-safe."""

    def __init__(
        self,
        usage: UsageSource,
        *,
        clock: Clock,
        progress: Progress,
        stopping: Callable[[], bool] = lambda: False,
        resource: ResourceQuerySet | None = None,
        budget: QueryBudget | None = None,
    ) -> None:
        """Raises ConfigError for credentials, a CA or label names that can't be used; no query is sent yet.

        `stopping` is evaluated before each query. `resource`: None for CPU. `budget` is shared by the sources of all
        resources; None: one of its own. Those besides CPU leave half of it.
        """
        self.queries = queries(usage)
        assert usage.prometheus is not None  # queries() has raised a ConfigError otherwise
        self.prometheus = usage.prometheus
        self.resource = resource
        self.budget = budget or QueryBudget(usage.prometheus.history.queries_per_hour, clock)
        self._spare = 0 if resource is None else self.budget.per_hour // 2
        self.progress = progress
        self.stopping = stopping
        window = max(usage.rate_window, float(STEP_SECONDS))
        if resource is None:
            self.nodes, self.pods = chunked_queries(self.queries, usage.prometheus, window_seconds=window)
        else:
            self.nodes, self.pods = chunked_resource_queries(resource, usage.prometheus)
        self.slots_at_most = SLOTS
        """Halved whenever Prometheus refused or failed to answer more."""
        pod = usage.prometheus.pod_cpu
        self.pod_decoder = decode.PodDecoder(namespace=pod.namespace_label, pod=pod.pod_label, node=pod.node_label)
        self._clock = clock
        self._pool = ClientPool(usage.prometheus)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    @property
    def label(self) -> str:
        """The resource, for messages."""
        return "CPU" if self.resource is None else self.resource.name

    @property
    def merge_target_on(self) -> str | None:
        """As for `DayOfSeries`."""
        default = self.queries.node_is_default if self.resource is None else self.resource.optional
        return self.prometheus.node_cpu.label if default else None

    def units(self, nodes: Nodes) -> Units:
        """Units of the queries."""
        most = capacities(nodes) * MOST_PLAUSIBLE_SHARE
        if self.resource is None:
            return Units(node=millicores_per_unit(nodes, self.queries.node_unit), pod=1000.0, most=most)
        unit = block_units(self.resource.name)
        is_share = self.resource.capacity is None
        most = np.full(len(nodes), MOST_PLAUSIBLE_SHARE * unit if is_share else np.inf)
        return Units(node=np.full(len(nodes), unit), pod=unit, most=most)

    @property
    def identity(self) -> str:
        """A digest of the server's URL and all queries."""
        settings = self.prometheus
        identifying = (
            settings.url,
            sorted(settings.headers.items()),
            self.nodes.promql(()),
            self.pods.promql(()),
            self.queries.node_unit,
            settings.node_cpu.label,
            settings.node_cpu.node_by,
            (settings.pod_cpu.namespace_label, settings.pod_cpu.pod_label, settings.pod_cpu.node_label),
        )
        return hashlib.blake2b(repr(identifying).encode(), digest_size=8).hexdigest()

    def seconds_ahead(self) -> float | None:
        """Prometheus' clock less ours; None while the queries of the hour are used up, and where the server answers
        nothing.

        Raises ConnectError, ConfigError.
        """
        self.renew()
        try:
            began = time.monotonic()
            at = self._first_at()
        except _LaterError:
            return None
        # the evaluation time lies between sending the query and now
        return at - self._clock.now() + (time.monotonic() - began) / 2 if math.isfinite(at) else None

    def pull(self, day: int, *, first: int, end: int, snapshot: ClusterSnapshot) -> "PrometheusDay":
        """Read the slots from `first` up to, not including, `end`. No query is sent yet."""
        return PrometheusDay(self, day, first=first, end=end, snapshot=snapshot)

    def renew(self) -> None:
        """Read the credentials again."""
        self._pool.renew()

    def spend(self) -> None:
        """Count a query. Raises _LaterError."""
        if self.stopping() or not self.budget.take(spare=self._spare):
            raise _LaterError

    def label_sets(self, metric: str) -> Sequence[Labels]:
        """Label sets that a metric has now. Raises _LaterError."""
        self.spend()
        return self._vector(Query(field=NODE_BY_FIELD, promql=metric)).labels

    def counts(
        self, query: ChunkedQuery, promql: str, matchers: Matchers, label: str, start: float, end: float
    ) -> Mapping[str, int]:
        """Number of series for each value of a label. Raises _LaterError."""
        counting = Query(field=query.field, promql=promql)
        return self._pool.counts(counting, query.promql(matchers), label, start=start, end=end, before=self.spend)

    def read(self, chunk: QueryChunk, day: int) -> _Read:
        """Read one chunk; called by several threads."""
        start = day * DAY_SECONDS + (chunk.first + 1) * STEP_SECONDS
        end = day * DAY_SECONDS + chunk.end * STEP_SECONDS

        def read(client: PrometheusClient) -> _Read:
            answer = client.query_range(chunk.query, start=start, end=end, step=STEP_SECONDS)
            lines = self.pod_decoder.lines(answer.result) if chunk.source.of_pods else decode.lines(answer.result)
            values = decode.grid(lines.values, start=start, step=STEP_SECONDS, count=chunk.end - chunk.first)
            return _Read(lines=lines, values=values, warnings=answer.warnings)

        return self._pool.run(chunk.query, read)

    def _first_at(self) -> float:
        """When Prometheus answers, by its clock."""
        label = self.nodes.labels[0] if self.nodes.labels else ""
        for promql in (self.nodes.count(label, ()), self.nodes.promql(())):
            self.spend()
            try:
                return self._vector(Query(field=self.nodes.field, promql=promql)).at
            except ConfigError:
                continue  # this server can't count
        return math.nan

    def _vector(self, query: Query) -> decode.Vector:
        return self._pool.run(query, lambda client: decode.vector(client.query(query).result))


class PrometheusDay:
    """A day while it is read; implements `model.measured.history.DayPull`."""

    def __init__(self, source: PrometheusHistory, day: int, *, first: int, end: int, snapshot: ClusterSnapshot) -> None:
        node = source.prometheus.node_cpu
        self._source = source
        self._day, self._first, self._end = day, first, end
        self._node_map = NodeMap(nodes=snapshot.nodes, label=node.label, by=node.node_by, label_sets=source.label_sets)
        self._answers = DayOfSeries(
            day,
            first=first,
            end=end,
            snapshot=snapshot,
            node_map=self._node_map,
            units=source.units(snapshot.nodes),
            merge_target_on=source.merge_target_on,
        )
        self._open: deque[QueryChunk] | None = None
        self._done = 0
        self._warnings: dict[str, None] = {}

    def advance(self) -> bool:
        """Continue; False when the hour's queries are used up or the program is stopping.

        Raises ConnectError, ConfigError.
        """
        self._source.renew()
        try:
            if self._open is None:
                self._open = deque(self._planned())
            self._read_all(self._open)
        except _LaterError:
            return False
        return True

    @property
    def warnings(self) -> Sequence[str]:
        """Not empty: the responses were partial, by Prometheus' warnings."""
        return tuple(self._warnings)

    def onto(self, old: DayBlock | None) -> DayBlock | None:
        """The day as read, completed by the previously known one; None without any sample."""
        return self._answers.onto(old)

    def _planned(self) -> list[QueryChunk]:
        source = self._source
        start = self._day * DAY_SECONDS + (self._first + 1) * STEP_SECONDS
        end = self._day * DAY_SECONDS + self._end * STEP_SECONDS
        out: list[QueryChunk] = []
        for each in (source.nodes, source.pods):

            def count(label: str, promql: str, matchers: Matchers, query: ChunkedQuery = each) -> Mapping[str, int]:
                return source.counts(query, promql, matchers, label, start=start, end=end)

            def known(value: str, query: ChunkedQuery = each) -> bool:
                return not query.of_pods or not value or self._node_map.named(value) >= 0

            out += query_chunks(
                each,
                first=self._first,
                end=self._end,
                count=count,
                known=known,
                slots_at_most=source.slots_at_most,
            )
        return out

    def _read_all(self, open_chunks: deque[QueryChunk]) -> None:
        """Raises _LaterError with the rest still open, and the first error."""
        running: dict[Future[_Read], QueryChunk] = {}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            stop: Exception | None = None
            while running or (open_chunks and stop is None):
                while stop is None and open_chunks and self._may_join(open_chunks[0], running):
                    try:
                        self._source.spend()
                    except _LaterError as error:
                        stop = error
                        break
                    chunk = open_chunks.popleft()
                    running[pool.submit(self._source.read, chunk, self._day)] = chunk
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    chunk = running.pop(future)
                    try:
                        self._add(chunk, future.result())
                    except TooMuchError as error:
                        stop = stop or self._halved(chunk, open_chunks, error)
                    except (ConnectError, ConfigError, _LaterError) as error:
                        open_chunks.appendleft(chunk)
                        stop = stop or error
                step = f"{self._source.label} of {date_of(self._day)}"
                self._source.progress.step(step, self._done, self._done + len(open_chunks) + len(running))
        if stop is not None:
            raise stop

    def _may_join(self, chunk: QueryChunk, running: Mapping[Future[_Read], QueryChunk]) -> bool:
        return len(running) < AT_ONCE and (not chunk.late or all(each.late for each in running.values()))

    def _halved(self, chunk: QueryChunk, open_chunks: deque[QueryChunk], error: TooMuchError) -> TooMuchError | None:
        """Replace a chunk by smaller ones; returns the error when they would be too small."""
        slots = chunk.end - chunk.first
        if slots <= _FEWEST_SLOTS:
            open_chunks.appendleft(chunk)
            return error
        self._source.slots_at_most = min(self._source.slots_at_most, max(-(-slots // 2), _FEWEST_SLOTS))
        smaller = [each for one in (chunk, *open_chunks) for each in one.over(self._source.slots_at_most)]
        open_chunks.clear()
        open_chunks.extend(smaller)
        return None

    def _add(self, chunk: QueryChunk, read: _Read) -> None:
        if isinstance(read.lines, decode.PodLines):
            self._answers.add_pods(read.lines, read.values, chunk.first)
        else:
            self._answers.add_nodes(read.lines, read.values, chunk.first)
        self._warnings |= dict.fromkeys(read.warnings)
        self._done += 1
