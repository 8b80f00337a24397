"""The hot-node SLO, evaluated afterwards: a query of its own, or the CPU query of the decisions, without the
stabilization window and without corrections for moves.

The range query is split by nodes or by time as days are, two queries at once; a query that exceeds Prometheus' limits
is repeated in halves.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.measured.slo import SloSamples
from rebalancer.model.notation.arrays import Floats
from rebalancer.policy.schema.policy import HotNodeSlo
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.prometheus.connection.client import PrometheusClient
from rebalancer.prometheus.connection.pool import AT_ONCE, ClientPool
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.chunks import Matchers, QueryChunk, chunked_queries, query_chunks
from rebalancer.prometheus.promql.queries import LABEL_NAME, NODE_BY_FIELD, Query, queries
from rebalancer.prometheus.promql.units import MOST_PLAUSIBLE_SHARE, capacities, check_unit, millicores_per_unit
from rebalancer.prometheus.readings.nodes import Labels, NodeMap, same_target, shown

FIELD = "effect.hotNodeSLO.query"
LABEL_FIELD = "effect.hotNodeSLO.label"
POINTS_AT_MOST = 288
"""Points of one series in one query, as for days."""
_FEWEST_POINTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """One series: values at the times of the span, NaN where it has none."""

    labels: Labels
    values: Floats


class PrometheusSlo:
    """Reads the SLO from Prometheus; implements `model.measured.slo.SloReader`. Not for several threads at once.

    There is none without `usage.prometheus`: metrics-server keeps no history.
    """

    def __init__(self, usage: UsageSource, slo: HotNodeSlo, *, stopping: Callable[[], bool] = lambda: False) -> None:
        """Raises ConfigError for credentials, a CA or label names that can't be used; no query is sent yet.

        `stopping` is evaluated before each query.
        """
        used, own = queries(usage), slo.query
        assert usage.prometheus is not None  # queries() has raised a ConfigError otherwise
        node = usage.prometheus.node_cpu
        self._label, self._node_by = node.label, node.node_by
        if own is not None:
            if not LABEL_NAME.fullmatch(slo.label):
                raise ConfigError(f"{LABEL_FIELD}: expected a label name such as node, got {slo.label!r}")
            query = Query(field=FIELD, promql=own)
            used = replace(used, node=query, node_is_default=False, node_unit="share")
            self._label, self._node_by = slo.label, "Auto"
        named = node.model_copy(update={"label": self._label})
        prometheus = usage.prometheus.model_copy(update={"node_cpu": named})
        self._query, _ = chunked_queries(used, prometheus, window_seconds=usage.rate_window)
        self._unit = used.node_unit
        self._merge_on = self._label if used.node_is_default else None
        self._stopping = stopping
        self._pool = ClientPool(usage.prometheus)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def read(self, nodes: Nodes, *, start: float, end: float, step: float) -> SloSamples:
        """At start, start + step, … up to and including end (seconds since the epoch).

        Raises ConnectError; ConfigError when the query is refused or doesn't answer shares.
        """
        self._pool.renew()
        times: Floats = start + step * np.arange(int((end - start) / step + 1e-6) + 1, dtype=np.float64)
        warnings: dict[str, None] = {}
        with ThreadPoolExecutor(AT_ONCE) as threads:
            # the first failure cancels the queries that have not begun
            parts = threads.map(lambda chunk: self._series(chunk, times, warnings), self._chunks(times))
            series = [each for part in parts for each in part]
        shares = self._shares(series, nodes, times, warnings)
        return SloSamples(nodes=nodes.names, times=times, shares=shares, partial=tuple(warnings))

    # ---- queries

    def _chunks(self, times: Floats) -> list[QueryChunk]:
        query = self._query

        def count(label: str, promql: str, matchers: Matchers) -> Mapping[str, int]:
            return self._pool.counts(
                Query(field=query.field, promql=promql),
                query.promql(matchers),
                label,
                start=float(times[0]),
                end=float(times[-1]),
                before=self._check_stopping,
            )

        return list(
            query_chunks(
                query, first=0, end=len(times), count=count, known=lambda _: True, slots_at_most=POINTS_AT_MOST
            )
        )

    def _series(self, chunk: QueryChunk, times: Floats, warnings: dict[str, None]) -> list[_Series]:
        here = times[chunk.first : chunk.end]
        step = float(times[1] - times[0]) if len(times) > 1 else 1.0

        def read(part: Floats) -> tuple[decode.Matrix, tuple[str, ...]]:
            return self._matrix(chunk.query, start=float(part[0]), end=float(part[-1]), step=step)

        out = []
        for matrix, partial in self._pool.in_halves(here, read, fewest=_FEWEST_POINTS):
            warnings |= dict.fromkeys(f"{chunk.query.field}: {each}" for each in partial)
            for labels, at, values in zip(matrix.labels, matrix.times, matrix.values, strict=True):
                row = np.full(len(times), np.nan)
                slots = np.rint((at - times[0]) / step).astype(np.int64)
                inside = (slots >= 0) & (slots < len(times))
                row[slots[inside]] = values[inside]
                out.append(_Series(labels=labels, values=row))
        return out

    def _matrix(self, query: Query, *, start: float, end: float, step: float) -> tuple[decode.Matrix, tuple[str, ...]]:
        """The response, and why it is partial."""
        self._check_stopping()

        def read(client: PrometheusClient) -> tuple[decode.Matrix, tuple[str, ...]]:
            answer = client.query_range(query, start=start, end=end, step=step)
            return decode.matrix(answer.result), answer.warnings

        return self._pool.run(query, read)

    def _check_stopping(self) -> None:
        if self._stopping():
            raise ConnectError(
                f"Prometheus at {self._pool.url}: {self._query.field} is not read: the program is stopping"
            )

    # ---- mapping to nodes

    def _shares(self, series: Sequence[_Series], nodes: Nodes, times: Floats, warnings: dict[str, None]) -> Floats:
        """(times, nodes) shares. NaN where two series contradict each other."""

        def label_sets(metric: str) -> Sequence[Labels]:
            at = float(times[-1])
            return self._matrix(Query(field=NODE_BY_FIELD, promql=metric), start=at, end=at, step=1.0)[0].labels

        node_map = NodeMap(nodes=nodes, label=self._label, by=self._node_by, label_sets=label_sets)
        scale = millicores_per_unit(nodes, self._unit) / capacities(nodes)
        out = np.full((len(nodes), len(times)), np.nan)
        doubtful = np.zeros(out.shape, dtype=np.bool_)
        first: dict[int, Labels] = {}
        for each in series:
            found = node_map.find(each.labels)
            for index in found:
                row, into = each.values * scale[index], out[index]
                other = first.setdefault(index, each.labels)
                if len(found) > 1:
                    doubtful[index] |= np.isfinite(row)
                elif self._merge_on is None or not same_target(other, each.labels, self._merge_on):
                    both = np.isfinite(row) & np.isfinite(into)
                    doubtful[index] |= both & ~np.isclose(row, into, rtol=1e-9, atol=0.0)
                np.fmax(into, row, out=into)
        if series and not first and len(nodes):
            # not an error: all nodes of that time may be gone
            text = f"none of {len(series)} series names a node of this cluster by its label {self._label}"
            warnings[f"{self._query.field}: {text}, for example {shown(series[0].labels)}"] = None
        finite = np.isfinite(out)
        check_unit(
            np.where(finite, out, -np.inf).max(axis=1, initial=-np.inf),
            nodes,
            known=int(np.count_nonzero(finite.any(axis=1))),
            field=self._query.field,
            unit=self._unit,
        )
        # before it joined, its address (or its name) was another machine's
        born = np.nan_to_num(nodes.created)[:, None] > times[None, :]
        with np.errstate(invalid="ignore"):
            wrong = ~((out >= 0) & (out <= MOST_PLAUSIBLE_SHARE))
        out[doubtful | born | wrong] = np.nan
        return out.T
