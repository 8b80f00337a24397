"""The queries: the default PromQL for kube-prometheus-stack, or the policy's own.

Node CPU is queried in cores, not as a share. Cores need no count of CPUs, so a Prometheus that keeps one series for all
CPUs of a node (`cpu` dropped or summed to save memory) still gives the right figure; the share follows from the node's
capacity.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rebalancer.model.errors import ConfigError
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.policy.schema.types import format_duration
from rebalancer.policy.schema.usage import Prometheus, UsageSource
from rebalancer.prometheus.promql.decode import CONTAINER_LABEL

NODE_CPU = "node_cpu_seconds_total"
POD_CPU = "container_cpu_usage_seconds_total"
NODE_WAITING = "node_pressure_cpu_waiting_seconds_total"
"""node_exporter's, from /proc/pressure/cpu: seconds in which some task waited for a CPU."""
POD_WAITING = "container_pressure_cpu_waiting_seconds_total"
"""The kubelet's, from Kubernetes 1.34 on by default (KubeletPSI), on nodes with cgroup v2."""
PERIODS, THROTTLED_PERIODS = "container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total"
"""cAdvisor's, of containers with a CPU limit."""
NODE_MEMORY, NODE_MEMORY_AVAILABLE = "node_memory_MemTotal_bytes", "node_memory_MemAvailable_bytes"
"""node_exporter's. Available memory includes what the kernel would take back from its caches."""
POD_MEMORY = "container_memory_working_set_bytes"
"""cAdvisor's: without caches that can be dropped at once, as the kubelet counts before it evicts."""
POD_RSS = "container_memory_rss"
"""cAdvisor's: anonymous memory. File cache of a working set is available memory of the node already."""
NODE_SWAP_IN = "node_vmstat_pswpin"
"""node_exporter's, from /proc/vmstat: pages read back from swap. Pages that are only written there were not in use."""
NODE_INFO = "kube_node_info"
UNAME = "node_uname_info"

CLUSTER_LABEL = "cluster"
"""Kept apart in the default node queries: with several clusters in one Prometheus two nodes may share an address, and
summed or merged they would look like one."""

NODE_FIELD = "usage.prometheus.nodeCPU.query"
FRESHNESS_FIELD = "usage.prometheus.nodeCPU.freshness"
POD_FIELD = "usage.prometheus.podCPU.query"
NODE_BY_FIELD = "usage.prometheus.nodeCPU.nodeBy"

NAMED_CONTAINERS = ('container!=""', 'container!="POD"')
"""Matchers that exclude cAdvisor's series of the whole pod, and its pause container."""

_SMALLEST_STEP_SECONDS = 5.0
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """PromQL, and the policy field that an error in it is reported under."""

    field: str
    promql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """All queries of one cycle."""

    node: Query
    node_is_default: bool
    node_unit: Literal["share", "cores"]
    freshness: Query
    pod: Query
    pod_is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuerySet:
    """The queries of one resource besides CPU, in one unit."""

    name: str
    node: Query
    capacity: Query | None
    """None: `node` is a share, 0..1."""
    pod: Query
    relief: Query | None = None
    """The amount that is free once a pod has left, if different. Pods without a series count with `pod`."""
    optional: bool = False
    """Default queries: a source that doesn't have their series lacks the resource, which is no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionQueries:
    """The queries for Interference. They can't be configured: errors are reported under the strategy's name."""

    node: Query
    pod: Query
    throttled: Query


def contention_queries(usage: UsageSource) -> ContentionQueries:
    """Shares of time over the rate window: some task waits; of a pod and its throttling, the worst container."""
    assert usage.prometheus is not None
    node, pod = usage.prometheus.node_cpu, usage.prometheus.pod_cpu
    window = format_duration(usage.rate_window)
    by_node = _by(node.label, "node", CLUSTER_LABEL)
    by_pod = _by(pod.namespace_label, pod.pod_label, pod.node_label)

    def of_containers(name: str) -> str:
        return f"rate({_selector(name, *NAMED_CONTAINERS)}[{window}])"

    throttled = f"{of_containers(THROTTLED_PERIODS)} / {of_containers(PERIODS)}"
    return ContentionQueries(
        node=Query(field="Interference, node pressure", promql=f"max by ({by_node}) (rate({NODE_WAITING}[{window}]))"),
        pod=Query(field="Interference, pod pressure", promql=f"max by ({by_pod}) ({of_containers(POD_WAITING)})"),
        throttled=Query(field="Interference, throttling", promql=f"max by ({by_pod}) ({throttled})"),
    )


def resource_queries(usage: UsageSource) -> tuple[ResourceQuerySet, ...]:
    """The queries of all resources besides CPU: memory, and those of the policy."""
    assert usage.prometheus is not None
    prometheus = usage.prometheus
    found = [
        ResourceQuerySet(
            name=each.name,
            node=Query(field=f"usage.prometheus.resources[{index}].node", promql=each.node),
            capacity=None
            if each.capacity is None
            else Query(field=f"usage.prometheus.resources[{index}].capacity", promql=each.capacity),
            pod=Query(field=f"usage.prometheus.resources[{index}].pod", promql=each.pod),
        )
        for index, each in enumerate(prometheus.resources)
    ]
    if all(each.name != MEMORY for each in found):
        found.insert(0, default_memory_queries(prometheus))
    return tuple(found)


def default_memory_queries(prometheus: Prometheus, matchers: Sequence[str] = ()) -> ResourceQuerySet:
    """Bytes of memory: what node_exporter counts as not available, and cAdvisor's working sets. `matchers` (PromQL)
    restrict the series."""
    node, pod = prometheus.node_cpu, prometheus.pod_cpu
    by_node = _by(node.label, "node", CLUSTER_LABEL)
    by_pod = _by(pod.namespace_label, pod.pod_label, pod.node_label)
    inner = _by(by_pod, CONTAINER_LABEL)

    def of_pods(name: str) -> str:
        return f"sum by ({by_pod}) (max by ({inner}) ({_selector(name, *NAMED_CONTAINERS, *matchers)}))"

    whole, available = (_selector(name, *matchers) for name in (NODE_MEMORY, NODE_MEMORY_AVAILABLE))
    return ResourceQuerySet(
        name=MEMORY,
        node=Query(field="memory of nodes", promql=f"max by ({by_node}) ({whole} - {available})"),
        capacity=Query(field="capacity of nodes in memory", promql=f"max by ({by_node}) ({whole})"),
        pod=Query(field="memory of pods", promql=of_pods(POD_MEMORY)),
        relief=Query(field="anonymous memory of pods", promql=of_pods(POD_RSS)),
        optional=True,
    )


def swap_query(usage: UsageSource) -> Query:
    """Pages per second that each node reads back from swap."""
    assert usage.prometheus is not None
    by_node = _by(usage.prometheus.node_cpu.label, "node", CLUSTER_LABEL)
    window = format_duration(usage.rate_window)
    return Query(field="swap of nodes", promql=f"max by ({by_node}) (rate({NODE_SWAP_IN}[{window}]))")


def queries(usage: UsageSource) -> Queries:
    """The queries of a policy. Raises ConfigError for a label name that PromQL can't express."""
    prometheus = usage.prometheus
    if prometheus is None:
        raise ConfigError("usage.prometheus: expected a section with the url of Prometheus")
    node, pod = prometheus.node_cpu, prometheus.pod_cpu
    window = format_duration(usage.rate_window)
    named = {
        "usage.prometheus.nodeCPU.label": node.label,
        "usage.prometheus.podCPU.namespaceLabel": pod.namespace_label,
        "usage.prometheus.podCPU.podLabel": pod.pod_label,
        "usage.prometheus.podCPU.nodeLabel": pod.node_label,
    }
    for field, label in named.items():
        if not LABEL_NAME.fullmatch(label):
            raise ConfigError(f"{field}: expected a label name such as instance, got {label!r}")
    if len({pod.namespace_label, pod.pod_label, pod.node_label, CONTAINER_LABEL}) < 4:
        raise ConfigError(
            "usage.prometheus.podCPU: expected different labels for namespace, pod and node, none of them container"
        )
    return Queries(
        node=Query(field=NODE_FIELD, promql=node.query or default_node_query(label=node.label, window=window)),
        node_is_default=node.query is None,
        node_unit="cores" if node.query is None else node.unit,
        freshness=Query(field=FRESHNESS_FIELD, promql=node.freshness or default_freshness_query(label=node.label)),
        pod=Query(
            field=POD_FIELD,
            promql=pod.query
            or default_pod_query(namespace=pod.namespace_label, pod=pod.pod_label, node=pod.node_label, window=window),
        ),
        pod_is_default=pod.query is None,
    )


def default_node_query(*, label: str, window: str, matchers: Sequence[str] = ()) -> str:
    """Busy cores of each node from node_exporter's counters.

    Waiting for a disk and time stolen by the hypervisor are not used CPU; guest time (a mode of its own in some
    exporters) stands in user time already. `max` makes one series of those that two jobs scraped from one node.
    """
    by = _by(label, "node", CLUSTER_LABEL)
    inner = _by(label, "node", CLUSTER_LABEL, "cpu", "mode")
    counters = node_counters(matchers)
    return f"sum by ({by}) (max by ({inner}) (rate({counters}[{window}])))"


def node_counters(matchers: Sequence[str] = ()) -> str:
    """The busy counters of nodes, restricted by `matchers` (PromQL)."""
    return _selector(NODE_CPU, 'mode!~"idle|iowait|steal|guest.*"', *matchers)


def default_freshness_query(*, label: str) -> str:
    """Time of each node's last scrape: `timestamp()` of the raw counters, not of anything computed from them."""
    return f'max by ({_by(label, "node", CLUSTER_LABEL)}) (timestamp({NODE_CPU}{{mode="idle"}}))'


def default_pod_query(*, namespace: str, pod: str, node: str, window: str, matchers: Sequence[str] = ()) -> str:
    """Cores of each pod from cAdvisor's counters.

    cAdvisor also counts the whole pod (no container) and its pause container ("POD"); `max` makes one series of the
    duplicates of two kubelet scrape jobs.
    """
    counters = pod_counters(matchers)
    inner = _by(namespace, pod, node, CONTAINER_LABEL)
    return f"sum by ({_by(namespace, pod, node)}) (max by ({inner}) (rate({counters}[{window}])))"


def pod_counters(matchers: Sequence[str] = ()) -> str:
    """The counters of named containers, restricted by `matchers` (PromQL)."""
    return _selector(POD_CPU, *NAMED_CONTAINERS, *matchers)


def stabilization_offsets(usage: UsageSource) -> tuple[float, ...]:
    """Seconds before now at which samples are read, largest first; empty when now is enough.

    At least two readings for each needed sample, and no further apart than half a rate window, so that no sample in
    between is missed.
    """
    over, samples = usage.stabilization_window.duration, usage.stabilization_window.samples
    if over <= 0:
        return ()
    step = min(over / (max(samples, 2) * 2), usage.rate_window / 2)
    step = max(float(math.floor(step)), _SMALLEST_STEP_SECONDS)
    count = math.ceil(over / step)
    return tuple(step * back for back in range(count, 0, -1))


def _selector(name: str, *matchers: str) -> str:
    return f"{name}{{{','.join(matchers)}}}" if matchers else name


def _by(*labels: str) -> str:
    return ", ".join(dict.fromkeys(labels))
