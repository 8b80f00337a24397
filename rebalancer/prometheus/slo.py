"""The hot-node SLO, evaluated afterwards: a query of its own, or the CPU query of the decisions, without the
stabilization window and without corrections for moves.

The range query is split by nodes or by time as days are, two queries at once; a query that exceeds Prometheus' limits
is repeated in halves.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.slo import SloSamples
from rebalancer.model.snapshot import Nodes
from rebalancer.policy.schema.policy import HotNodeSlo
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.prometheus import decode
from rebalancer.prometheus.chunks import Matchers, QueryChunk, chunked_queries, pieces
from rebalancer.prometheus.client import PrometheusClient, TooMuchError
from rebalancer.prometheus.nodes import Labels, NodeMap, same_target, shown
from rebalancer.prometheus.queries import LABEL_NAME, NODE_BY_FIELD, Query, queries
from rebalancer.prometheus.reader import MOST_PLAUSIBLE_SHARE

Floats = NDArray[np.float64]

FIELD = "effect.hotNodeSLO.query"
LABEL_FIELD = "effect.hotNodeSLO.label"
AT_ONCE = 2
POINTS_AT_MOST = 288
"""Points of one series in one query, as for days."""
_FEWEST_POINTS = 5
_LOOKS = 4
"""A span's series are counted this many times, and once at its end; a node's largest count is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One series: values at the times of the span, NaN where it has none."""

    labels: Labels
    values: Floats


class PrometheusSlo:
    """Reads the SLO from Prometheus; implements `model.slo.SloReader`. Not for several threads at once.

    There is none without `usage.prometheus`: metrics-server keeps no history.
    """

    def __init__(
        self, usage: UsageSource, standard: HotNodeSlo, *, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Raises ConfigError for credentials, a CA or label names that can't be used; no query is sent yet.

        `stopping` is evaluated before each query.
        """
        asked, own = queries(usage), standard.query
        assert usage.prometheus is not None  # queries() has raised a ConfigError otherwise
        node = usage.prometheus.node_cpu
        self._label, self._node_by = node.label, node.node_by
        if own is not None:
            if not LABEL_NAME.fullmatch(standard.label):
                raise ConfigError(f"{LABEL_FIELD}: expected a label name such as node, got {standard.label!r}")
            query = Query(field=FIELD, promql=own)
            asked = replace(asked, node=query, node_is_default=False, node_unit="share")
            self._label, self._node_by = standard.label, "Auto"
        named = node.model_copy(update={"label": self._label})
        prometheus = usage.prometheus.model_copy(update={"node_cpu": named})
        self._question, _ = chunked_queries(asked, prometheus, window_seconds=usage.rate_window)
        self._unit = asked.node_unit
        self._merge_on = self._label if asked.node_is_default else None
        self._stopping = stopping
        self._free: SimpleQueue[PrometheusClient] = SimpleQueue()
        self._clients = [PrometheusClient(usage.prometheus) for _ in range(AT_ONCE)]
        for client in self._clients:
            self._free.put(client)

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()

    def read(self, nodes: Nodes, *, start: float, end: float, step: float) -> SloSamples:
        """At start, start + step, … up to and including end (seconds since the epoch).

        Raises ConnectError; ConfigError when the query is refused or doesn't answer shares.
        """
        for client in self._clients:
            client.renew()
        times: Floats = start + step * np.arange(int((end - start) / step + 1e-6) + 1, dtype=np.float64)
        said: dict[str, None] = {}

        def ask(piece: QueryChunk) -> list[_Line]:
            return self._asked(piece, times, said)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            # the first failure cancels the queries that have not begun
            lines = [line for part in pool.map(ask, self._pieces(times)) for line in part]
        shares = self._laid(lines, nodes, times, said)
        return SloSamples(nodes=nodes.names, times=times, shares=shares, partial=tuple(said))

    # ---- queries

    def _pieces(self, times: Floats) -> list[QueryChunk]:
        question = self._question

        def count(label: str, promql: str, matchers: Matchers) -> Mapping[str, int]:
            return self._counted(promql, question.ask(matchers), label, times)

        return list(
            pieces(question, first=0, end=len(times), count=count, known=lambda _: True, slots_at_most=POINTS_AT_MOST)
        )

    def _counted(self, promql: str, plain: str, label: str, times: Floats) -> dict[str, int]:
        """Number of series for each value of a label: the largest at several times. Counted here where the server
        can't."""
        start, end = float(times[0]), float(times[-1])
        step = max((end - start) / _LOOKS, 1.0)

        def ask(promql: str) -> decode.Matrix:
            return self._matrix(self._question.field, promql, start=start, end=end, step=step)[0]

        try:
            found = ask(promql)
        except ConfigError:
            counts: dict[str, int] = {}
            for labels in ask(plain).labels:
                counts[labels.get(label, "")] = counts.get(labels.get(label, ""), 0) + 1
            return counts
        return {
            labels.get(label, ""): int(values.max()) for labels, values in zip(found.labels, found.values, strict=True)
        }

    def _asked(self, piece: QueryChunk, times: Floats, said: dict[str, None]) -> list[_Line]:
        here = times[piece.first : piece.end]
        step = float(times[1] - times[0]) if len(times) > 1 else 1.0
        try:
            matrix, warnings = self._matrix(
                piece.question.field, piece.promql, start=float(here[0]), end=float(here[-1]), step=step
            )
        except TooMuchError:
            if len(here) <= _FEWEST_POINTS:
                raise
            halves = piece.over(-(-len(here) // 2))
            return [line for half in halves for line in self._asked(half, times, said)]
        said |= dict.fromkeys(f"{piece.question.field}: {each}" for each in warnings)
        out = []
        for labels, at, values in zip(matrix.labels, matrix.times, matrix.values, strict=True):
            row = np.full(len(times), np.nan)
            slots = np.rint((at - times[0]) / step).astype(np.int64)
            inside = (slots >= 0) & (slots < len(times))
            row[slots[inside]] = values[inside]
            out.append(_Line(labels=labels, values=row))
        return out

    def _matrix(
        self, field: str, promql: str, *, start: float, end: float, step: float
    ) -> tuple[decode.Matrix, tuple[str, ...]]:
        """The response, and why it is partial."""
        query = Query(field=field, promql=promql)
        client = self._free.get()
        try:
            if self._stopping():
                raise ConnectError(f"Prometheus at {client.url}: {query.field} is not read: the program is to end")
            answer = client.query_range(query, start=start, end=end, step=step)
            return decode.matrix(answer.result), answer.warnings
        except decode.NoSeriesError as error:
            raise ConfigError(f"{query.field}: {error}") from None
        except decode.BadAnswerError as error:
            raise ConnectError(f"Prometheus at {client.url}: broken answer to {query.field}: {error}") from None
        finally:
            self._free.put(client)

    # ---- mapping to nodes

    def _laid(self, lines: Sequence[_Line], nodes: Nodes, times: Floats, said: dict[str, None]) -> Floats:
        """(times, nodes) shares. NaN where two series contradict each other."""

        def ask(metric: str) -> Sequence[Labels]:
            at = float(times[-1])
            return self._matrix(NODE_BY_FIELD, metric, start=at, end=at, step=1.0)[0].labels

        node_map = NodeMap(nodes=nodes, label=self._label, by=self._node_by, ask=ask)
        scale = self._scale(nodes)
        out = np.full((len(nodes), len(times)), np.nan)
        doubtful = np.zeros(out.shape, dtype=np.bool_)
        first: dict[int, Labels] = {}
        for line in lines:
            found = node_map.find(line.labels)
            for index in found:
                row, into = line.values * scale[index], out[index]
                other = first.setdefault(index, line.labels)
                if len(found) > 1:
                    doubtful[index] |= np.isfinite(row)
                elif self._merge_on is None or not same_target(other, line.labels, self._merge_on):
                    both = np.isfinite(row) & np.isfinite(into)
                    doubtful[index] |= both & ~np.isclose(row, into, rtol=1e-9, atol=0.0)
                np.fmax(into, row, out=into)
        if lines and not first and len(nodes):
            # not an error: all nodes of that time may be gone
            text = f"none of {len(lines)} series names a node of this cluster by its label {self._label}"
            said[f"{self._question.field}: {text}, for example {shown(lines[0].labels)}"] = None
        self._check_unit(out, nodes)
        # before it joined, its address (or its name) was another machine's
        born = np.nan_to_num(nodes.created)[:, None] > times[None, :]
        with np.errstate(invalid="ignore"):
            wrong = ~((out >= 0) & (out <= MOST_PLAUSIBLE_SHARE))
        out[doubtful | born | wrong] = np.nan
        return out.T

    def _scale(self, nodes: Nodes) -> Floats:
        """(nodes,) shares for one unit of the query; NaN where the capacity isn't known."""
        capacity = nodes.cpu_capacity_millicores
        known = np.where(capacity > 0, capacity, np.nan)
        return 1000.0 / known if self._unit == "cores" else np.where(np.isfinite(known), 1.0, np.nan)

    def _check_unit(self, shares: Floats, nodes: Nodes) -> None:
        """A query in the wrong unit would make every node hot: ConfigError when half of the nodes' values are
        impossible."""
        known = np.isfinite(shares).any(axis=1)
        highest = np.where(np.isfinite(shares), shares, -np.inf).max(axis=1, initial=-np.inf)
        wrong = known & (highest > MOST_PLAUSIBLE_SHARE)
        if wrong.any() and np.count_nonzero(wrong) * 2 >= np.count_nonzero(known):
            example = int(np.flatnonzero(wrong)[0])
            raise ConfigError(
                f"{self._question.field}: answers {highest[example]:.4g} times the capacity of {nodes.names[example]}: "
                + ("expected a share between 0 and 1, not percent" if self._unit == "share" else "expected cores")
            )
