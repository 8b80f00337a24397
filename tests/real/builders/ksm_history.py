"""A cluster's history as kube-state-metrics v2 exports it, for a real Prometheus: what was there, from when to when."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rebalancer.model.cluster.steering import SOFT_TAINT
from rebalancer.model.notation.arrays import Floats
from tests.real.builders.prometheus_days import LongSeries, hourly_rate

JOB = {"job": "kube-state-metrics", "instance": "10.42.0.9:8080"}
INF = float("inf")


@dataclass(frozen=True, kw_only=True)
class KsmPod:
    """A pod; times in seconds since the epoch."""

    namespace: str = "shop"
    name: str
    uid: str
    node: str
    owner: tuple[str, str] = ("", "")
    """Kind and name."""
    created: float
    bound: float | None = None
    """None: when it was created."""
    ready: float | None = None
    """None: when it was bound; inf: never."""
    ready_again: float = INF
    """It wasn't Ready for ten minutes before that time."""
    gone: float = INF
    finished: float = INF
    """It has succeeded; kube-state-metrics shows it until it is gone."""
    failed: bool = False
    """It has failed instead, and none of its containers says when."""
    cpu_cores: float = 0.5
    memory_bytes: float = 2.0**30
    priority_class: str = ""


@dataclass(frozen=True, kw_only=True)
class KsmNode:
    """A node."""

    name: str
    address: str
    created: float = 0.0
    gone: float = INF
    cpu_cores: float = 4.0
    memory_bytes: float = 16 * 2.0**30
    pods: float = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    """Exported ones, as kube-state-metrics spells them."""
    taints: Sequence[tuple[str, str, str]] = ()
    not_ready: Sequence[tuple[float, float]] = ()
    """Spans of time."""
    cordoned: Sequence[tuple[float, float]] = ()
    soft_tainted: Sequence[tuple[float, float]] = ()
    """Spans of time in which it had rebalancer's soft taint."""
    drained: Sequence[tuple[float, float]] = ()
    """Spans of time in which rebalancer had cordoned it."""


@dataclass(frozen=True, kw_only=True)
class KsmBudget:
    """A PodDisruptionBudget."""

    namespace: str = "shop"
    name: str
    healthy: Sequence[tuple[float, float]]
    """`desiredHealthy` from each time on."""
    gone: float = INF


def ksm_history(
    *,
    pods: Sequence[KsmPod] = (),
    nodes: Sequence[KsmNode] = (),
    budgets: Sequence[KsmBudget] = (),
    parents: Mapping[tuple[str, str, str], tuple[str, str]] | None = None,
    cluster: str = "",
) -> list[LongSeries]:
    """All series. `parents` = {(ReplicaSet or Job, namespace, name): (kind, name) of its controller}. `cluster`: a
    label that all get."""
    out = [series for pod in pods for series in _of_pod(pod)]
    out += [series for node in nodes for series in _of_node(node)]
    for budget in budgets:
        labels = {**JOB, "namespace": budget.namespace, "poddisruptionbudget": budget.name}
        since = np.array([at for at, _ in budget.healthy])
        healthy = np.array([value for _, value in budget.healthy])
        out.append(
            _during(
                "kube_poddisruptionbudget_status_desired_healthy",
                labels,
                (float(since[0]), budget.gone),
                lambda times, since=since, healthy=healthy: healthy[np.searchsorted(since, times, side="right") - 1],
            )
        )
    for (kind, namespace, name), (above, owner) in (parents or {}).items():
        metric, label = {"ReplicaSet": ("kube_replicaset_owner", "replicaset"), "Job": ("kube_job_owner", "job_name")}[
            kind
        ]
        labels = {**JOB, "namespace": namespace, label: name, "owner_kind": above, "owner_name": owner}
        there = [pod for pod in pods if (pod.namespace, *pod.owner) == (namespace, kind, name)]
        begin = min((pod.created for pod in there), default=0.0)
        out.append(_during(metric, labels, (begin, max((pod.gone for pod in there), default=INF))))
    return [replace(each, labels={**each.labels, "cluster": cluster}) for each in out] if cluster else out


def firing(labels: Mapping[str, str], spans: Sequence[tuple[float, float]]) -> LongSeries:
    """The series of an alert that fires."""
    return _flag("ALERTS", {**labels, "alertstate": "firing"}, (0.0, INF), spans, inside=1.0, outside=np.nan)


def rising(metric: str, labels: Mapping[str, str], rises: Sequence[float], *, since: float) -> LongSeries:
    """A counter that rises by one at each of these times; it is there from `since` on."""
    at = np.array(sorted(rises))
    return _during(metric, labels, (since, INF), lambda times: np.searchsorted(at, times, side="right").astype(float))


def _of_pod(pod: KsmPod) -> Iterator[LongSeries]:
    one = {**JOB, "namespace": pod.namespace, "pod": pod.name, "uid": pod.uid}
    bound = pod.created if pod.bound is None else pod.bound
    ready = bound if pod.ready is None else pod.ready
    info = {
        **one,
        "created_by_kind": pod.owner[0],
        "created_by_name": pod.owner[1],
        "priority_class": pod.priority_class,
        "host_ip": "",
    }
    if bound > pod.created:
        yield _during("kube_pod_info", {**info, "node": ""}, (pod.created, min(bound, pod.gone)))
    if bound < pod.gone:
        yield _during("kube_pod_info", {**info, "node": pod.node}, (bound, pod.gone))
        yield _during("kube_pod_status_scheduled_time", one, (bound, pod.gone), bound)
        yield _during("kube_pod_start_time", one, (bound, pod.gone), bound)
    yield _during("kube_pod_created", one, (pod.created, pod.gone), pod.created)
    if ready < pod.gone:
        first, again = min(pod.ready_again - 600.0, pod.gone), pod.ready_again
        yield _during("kube_pod_status_ready_time", one, (ready, min(pod.finished, first)), ready)
        if again < pod.gone:
            yield _during("kube_pod_status_ready_time", one, (again, pod.gone), again)
    for phase in ("Running", "Succeeded", "Failed"):
        final = "Failed" if pod.failed else "Succeeded"
        spans = {"Running": [(bound, pod.finished)], final: [(pod.finished, pod.gone)]}.get(phase, [])
        yield _flag("kube_pod_status_phase", {**one, "phase": phase}, (pod.created, pod.gone), spans)
    if pod.finished < pod.gone and not pod.failed:
        yield _during("kube_pod_completion_time", one, (pod.finished, pod.gone), pod.finished)
    for container, share in (("app", 0.8), ("sidecar", 0.2)):
        for resource, unit, amount in (("cpu", "core", pod.cpu_cores), ("memory", "byte", pod.memory_bytes)):
            labels = {**one, "container": container, "node": pod.node, "resource": resource, "unit": unit}
            metric = "kube_pod_container_resource_requests"
            yield _during(metric, labels, (pod.created, pod.gone), amount * share)


def _of_node(node: KsmNode) -> Iterator[LongSeries]:
    there, one = (node.created, node.gone), {**JOB, "node": node.name}
    yield _during("kube_node_info", {**one, "internal_ip": node.address, "kernel_version": "6.12"}, there)
    yield _during("kube_node_created", one, there, node.created)
    yield _during("kube_node_labels", {**one, **node.labels}, there)
    for kind in ("capacity", "allocatable"):
        for resource, unit, amount in (
            ("cpu", "core", node.cpu_cores),
            ("memory", "byte", node.memory_bytes),
            ("pods", "integer", node.pods),
        ):
            yield _during(f"kube_node_status_{kind}", {**one, "resource": resource, "unit": unit}, there, amount)
    condition = {**one, "condition": "Ready"}
    yield _flag(
        "kube_node_status_condition", {**condition, "status": "true"}, there, node.not_ready, inside=0.0, outside=1.0
    )
    yield _flag("kube_node_status_condition", {**condition, "status": "false"}, there, node.not_ready)
    yield _flag("kube_node_spec_unschedulable", one, there, [*node.cordoned, *node.drained])
    for value, spans in (("hot", node.soft_tainted), ("draining", node.drained)):
        for begin, end in spans:
            labels = {**one, "key": SOFT_TAINT, "value": value, "effect": "PreferNoSchedule"}
            yield _during("kube_node_spec_taint", labels, (begin, end))
    for key, value, effect in node.taints:
        yield _during("kube_node_spec_taint", {**one, "key": key, "value": value, "effect": effect}, there)


def _during(
    metric: str, labels: Mapping[str, str], there: tuple[float, float], value: float | Callable[[Floats], Floats] = 1.0
) -> LongSeries:
    begin, end = there

    def values(times: Floats) -> Floats:
        found = value(times) if callable(value) else value
        return np.where((begin <= times) & (times < end), found, np.nan)

    return LongSeries(metric=metric, labels=labels, values=values)


def _flag(
    metric: str,
    labels: Mapping[str, str],
    there: tuple[float, float],
    spans: Sequence[tuple[float, float]],
    *,
    inside: float = 1.0,
    outside: float = 0.0,
) -> LongSeries:
    def values(times: Floats) -> Floats:
        hit = np.zeros(len(times), dtype=bool)
        for begin, end in spans:
            hit |= (begin <= times) & (times < end)
        return np.where(hit, inside, outside)

    return _during(metric, labels, there, values)


def there(one: KsmPod | KsmNode) -> tuple[float, float]:
    return one.created, min(one.gone, one.finished) if isinstance(one, KsmPod) else one.gone


def series(metric: str, labels: Mapping[str, str], used: object, one: KsmPod | KsmNode, since: float) -> LongSeries:
    count, (begin, end) = hourly_rate(used, since), there(one)  # type: ignore[arg-type]
    return LongSeries(
        metric=metric,
        labels=labels,
        values=lambda times: np.where((begin <= times) & (times < end), count(times), np.nan),
    )


def gauge(metric: str, labels: Mapping[str, str], value: float, span: tuple[float, float]) -> LongSeries:
    return LongSeries(
        metric=metric,
        labels=labels,
        values=lambda times: np.where((span[0] <= times) & (times < span[1]), value, np.nan),
    )
