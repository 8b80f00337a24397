"""A day's range query in chunks that Prometheus can answer: few series and at most 288 points each.

Prometheus refuses more than 11,000 points a series and fails under too many series at once. So a query is split by the
values of a label (nodes first, then namespaces), where matchers can be added to it: to the default queries, and to a
plain selector such as a recording rule. Any other query is split by time instead.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.model.measured.history import SLOTS
from rebalancer.policy.schema.types import format_duration
from rebalancer.policy.schema.usage import Prometheus
from rebalancer.prometheus.promql.queries import (
    Queries,
    Query,
    ResourceQuerySet,
    default_memory_queries,
    default_node_query,
    default_pod_query,
    node_counters,
    pod_counters,
)

SERIES_AT_MOST = 2_000
"""Series in the response to one query over a whole day; more where a query spans less of it."""
COUNTERS_AT_MOST = 8_000
"""Series behind one node of the default node query: a node has one counter for each CPU and mode."""
SPREAD_AT_MOST = 10
"""Upper bound on the series, as a multiple, however few points are queried."""

_SELECTOR = re.compile(
    r"""\s*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*
        (?:\{(?P<matchers>(?:\s*[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*
            (?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)\s*(?:,|(?=\s*\})))*)\s*\})?\s*""",
    re.VERBOSE | re.DOTALL,
)
_REGEX_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")

Matchers = tuple[str, ...]
Count = Callable[[str, str, Matchers], Mapping[str, int]]
"""(label, PromQL that counts by it, matchers) -> number of series for each value of the label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedQuery:
    """The query of nodes, or of pods."""

    field: str
    """The policy field, for messages."""
    of_pods: bool
    promql: Callable[[Matchers], str]
    count: Callable[[str, Matchers], str]
    """PromQL that counts, by a label, the series behind a response."""
    labels: tuple[str, ...]
    """Labels that it may be split by; none: only by time."""
    series_at_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryChunk:
    """One range query."""

    source: ChunkedQuery
    promql: str
    first: int
    end: int
    """Slots from `first` up to, not including, `end`."""
    late: bool = False
    """Read last: its pods are on nodes that this cluster doesn't have (any more)."""

    @property
    def query(self) -> Query:
        """As the client's `Query`."""
        return Query(field=self.source.field, promql=self.promql)

    def over(self, slots: int) -> "list[QueryChunk]":
        """The same in chunks of at most so many slots."""
        return [
            QueryChunk(
                source=self.source,
                promql=self.promql,
                first=first,
                end=min(first + slots, self.end),
                late=self.late,
            )
            for first in range(self.first, self.end, slots)
        ]


def chunked_queries(
    queries: Queries, prometheus: Prometheus, *, window_seconds: float
) -> tuple[ChunkedQuery, ChunkedQuery]:
    """The queries of nodes and of pods. The default queries get a rate window of at least one step."""
    window = format_duration(window_seconds)
    node, pod = prometheus.node_cpu, prometheus.pod_cpu
    if queries.node_is_default:
        nodes = ChunkedQuery(
            field=queries.node.field,
            of_pods=False,
            promql=lambda matchers: default_node_query(label=node.label, window=window, matchers=matchers),
            count=lambda label, matchers: f"count by ({label}) ({node_counters(matchers)})",
            labels=(node.label,),
            series_at_most=COUNTERS_AT_MOST,
        )
    else:
        nodes = _own(queries.node, labels=(node.label,), of_pods=False)
    labels = (pod.node_label, pod.namespace_label)
    if not queries.pod_is_default:
        return nodes, _own(queries.pod, labels=labels, of_pods=True)
    one = f"{pod.namespace_label}, {pod.pod_label}, {pod.node_label}"
    pods = ChunkedQuery(
        field=queries.pod.field,
        of_pods=True,
        promql=lambda matchers: default_pod_query(
            namespace=pod.namespace_label, pod=pod.pod_label, node=pod.node_label, window=window, matchers=matchers
        ),
        count=lambda label, matchers: f"count by ({label}) (count by ({one}) ({pod_counters(matchers)}))",
        labels=labels,
        series_at_most=SERIES_AT_MOST,
    )
    return nodes, pods


def chunked_resource_queries(wanted: ResourceQuerySet, prometheus: Prometheus) -> tuple[ChunkedQuery, ChunkedQuery]:
    """The queries of nodes and of pods of a resource besides CPU."""
    node, pod = prometheus.node_cpu, prometheus.pod_cpu
    of_nodes, of_pods = (node.label,), (pod.node_label, pod.namespace_label)
    if not wanted.optional:
        return _own(wanted.node, labels=of_nodes, of_pods=False), _own(wanted.pod, labels=of_pods, of_pods=True)

    def default(*, pods: bool) -> ChunkedQuery:
        def promql(matchers: Matchers) -> str:
            found = default_memory_queries(prometheus, matchers)
            return (found.pod if pods else found.node).promql

        return ChunkedQuery(
            field=(wanted.pod if pods else wanted.node).field,
            of_pods=pods,
            promql=promql,
            count=lambda label, matchers: f"count by ({label}) ({promql(matchers)})",
            labels=of_pods if pods else of_nodes,
            series_at_most=SERIES_AT_MOST,
        )

    return default(pods=False), default(pods=True)


def _own(query: Query, *, labels: tuple[str, ...], of_pods: bool) -> ChunkedQuery:
    plain = _SELECTOR.fullmatch(query.promql)
    if plain is None:
        return ChunkedQuery(
            field=query.field,
            of_pods=of_pods,
            promql=lambda _: query.promql,
            count=lambda _, __: f"count(\n{query.promql}\n)",  # on a line of its own: it may end in a comment
            labels=(),
            series_at_most=SERIES_AT_MOST,
        )
    name, own = plain["name"], (plain["matchers"] or "").strip().rstrip(",")

    def promql(matchers: Matchers) -> str:
        inside = ",".join((own, *matchers) if own else matchers)
        return f"{name}{{{inside}}}" if inside else name

    return ChunkedQuery(
        field=query.field,
        of_pods=of_pods,
        promql=promql,
        count=lambda label, matchers: f"count by ({label}) ({promql(matchers)})",
        labels=labels,
        series_at_most=SERIES_AT_MOST,
    )


def query_chunks(
    query: ChunkedQuery, *, first: int, end: int, count: Count, known: Callable[[str], bool], slots_at_most: int
) -> Iterator[QueryChunk]:
    """All chunks for these slots.

    `known` is whether a value of the first label is a node of this cluster, and `slots_at_most` the number of points
    that has proved small enough.
    """
    slots = end - first
    most = min(query.series_at_most * SLOTS // slots, query.series_at_most * SPREAD_AT_MOST)
    for matchers, series, late in _divided(query, query.labels, (), count, known, most):
        whole = QueryChunk(source=query, promql=query.promql(matchers), first=first, end=end, late=late)
        fitting = slots if series <= most else max(query.series_at_most * SLOTS // series, 1)
        yield from whole.over(min(fitting, slots_at_most))


def _divided(
    query: ChunkedQuery,
    labels: tuple[str, ...],
    matchers: Matchers,
    count: Count,
    known: Callable[[str], bool],
    most: int,
) -> Iterator[tuple[Matchers, int, bool]]:
    """(matchers, series, late); the last are for values that no count has returned."""
    if not labels:
        yield matchers, sum(count("", query.count("", matchers), matchers).values()), False
        return
    label, *deeper = labels
    counts = count(label, query.count(label, matchers), matchers)
    for late in (False, True):
        here = {value: series for value, series in counts.items() if known(value) is not late}
        for values in packed(here, most):
            chosen = (*matchers, any_of(label, values))
            series = sum(here[value] for value in values)
            if series > most and deeper:
                for inner, inner_series, _ in _divided(query, tuple(deeper), chosen, count, lambda _: True, most):
                    yield inner, inner_series, late
            else:
                yield chosen, series, late
    yield (*matchers, none_of(label, sorted(counts))) if counts else matchers, 0, True


def packed(counts: Mapping[str, int], most: int) -> list[list[str]]:
    """Values in order, grouped so that their counts stay at or under `most`; a larger one stands alone."""
    out: list[list[str]] = []
    room = 0
    for value, size in sorted(counts.items()):
        if size > room or not out:
            out.append([])
            room = most
        out[-1].append(value)
        room -= size
    return out


def any_of(label: str, values: Sequence[str]) -> str:
    """A matcher for all series whose label has one of the values; an empty value is a missing label."""
    if len(values) == 1:
        return f'{label}="{_in_quotes(values[0])}"'
    return f'{label}=~"{_in_quotes("|".join(map(_literal, values)))}"'


def none_of(label: str, values: Sequence[str]) -> str:
    """The matcher for all other values."""
    return f'{label}!~"{_in_quotes("|".join(map(_literal, values)))}"'


def _literal(value: str) -> str:
    """As Go's regexp.QuoteMeta, so that Prometheus recognises a plain set and looks it up in its index."""
    return _REGEX_SPECIAL.sub(lambda found: "\\" + found[0], value)


def _in_quotes(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
