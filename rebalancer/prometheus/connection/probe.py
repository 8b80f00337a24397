"""The checks that `doctor` makes on Prometheus: reachable, metrics present, age of the newest sample."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rebalancer.model.errors import RebalancerError
from rebalancer.prometheus.connection.client import PrometheusClient
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.queries import NODE_CPU, NODE_INFO, POD_CPU, UNAME, Queries, Query, ResourceQuerySet

EXPORTERS = {
    NODE_CPU: "node_exporter",
    UNAME: "node_exporter",
    POD_CPU: "cAdvisor (the kubelet's /metrics/cadvisor)",
    NODE_INFO: "kube-state-metrics",
}

OWN_FIX = "check the query, and the rule that records it, in Prometheus' own page"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricProbe:
    """One metric, or one of the policy's own queries."""

    name: str
    """The metric's name, or the policy's field."""
    needed: bool
    """Without it there is no usage at all; the others are optional."""
    series: int | None
    """None when the query failed; `error` has the cause."""
    newest_age_seconds: float | None
    """None without a series, or when it can't be determined."""
    error: str = ""
    fix: str = ""
    """The fix when it is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Findings at one Prometheus."""

    url: str
    version: str
    """Empty when the server has no version endpoint."""
    metrics: tuple[MetricProbe, ...]

    @property
    def ok(self) -> bool:
        return all(each.series for each in self.metrics if each.needed)


def probe(
    client: PrometheusClient,
    queries: Queries,
    resources: Sequence[ResourceQuerySet] = (),
    *,
    needed: Collection[str] = (),
) -> Probe:
    """`needed`: names of the resources that a pool has thresholds of.

    Raises ConnectError when Prometheus can't be reached at all; any other failure is part of the result.
    """
    version = client.version()
    metrics = [
        _metric(client, NODE_CPU, needed=True)
        if queries.node_is_default
        else _own(client, queries.node, freshness=queries.freshness),
        _metric(client, POD_CPU, needed=True) if queries.pod_is_default else _own(client, queries.pod),
    ]
    if queries.node_is_default:
        metrics += [_metric(client, name, needed=False) for name in (NODE_INFO, UNAME)]
    metrics += [
        _own(
            client,
            query,
            needed=not each.optional or each.name in needed,
            fix=f"{each.name} has thresholds: scrape what its query reads, or set usage.prometheus.resources"
            if each.optional and each.name in needed
            else OWN_FIX,
        )
        for each in resources
        for query in (each.node, each.capacity, each.pod)
        if query is not None
    ]
    return Probe(url=client.url, version=version, metrics=tuple(metrics))


def missing_exporters(client: PrometheusClient) -> str:
    """A part of an error message: which of the two counters exist, and how to get the others."""
    found = [_metric(client, name, needed=True) for name in (NODE_CPU, POD_CPU)]
    return "; ".join(
        f"{each.name} has {each.series} series"
        if each.series
        else f"whether {each.name} exists is unknown"
        if each.series is None
        else f"{each.name} doesn't exist: {each.fix}"
        for each in found
    )


def _metric(client: PrometheusClient, name: str, *, needed: bool) -> MetricProbe:
    fix = f"install {EXPORTERS[name]} and let Prometheus scrape it"
    try:
        counted = client.query(Query(field="doctor", promql=f"count({name})"))
        newest = client.query(Query(field="doctor", promql=f"max(timestamp({name}))"))
        series, times = decode.vector(counted.result), decode.vector(newest.result)
    except (RebalancerError, decode.BadAnswerError) as error:
        return MetricProbe(name=name, needed=needed, series=None, newest_age_seconds=None, error=str(error), fix=fix)
    return MetricProbe(
        name=name,
        needed=needed,
        series=int(series.values[0]) if len(series.values) else 0,
        newest_age_seconds=times.at - float(times.values[0]) if len(times.values) else None,
        fix=fix,
    )


def _own(
    client: PrometheusClient,
    query: Query,
    *,
    freshness: Query | None = None,
    needed: bool = True,
    fix: str = OWN_FIX,
) -> MetricProbe:
    age = None
    try:
        series = decode.vector(client.query(query).result)
        if freshness is not None:
            times = decode.vector(client.query(freshness).result)
            age = times.at - float(times.values.max()) if len(times.values) else None
    except (RebalancerError, decode.BadAnswerError) as error:
        return MetricProbe(
            name=query.field, needed=needed, series=None, newest_age_seconds=None, error=str(error), fix=fix
        )
    return MetricProbe(name=query.field, needed=needed, series=len(series.values), newest_age_seconds=age, fix=fix)
