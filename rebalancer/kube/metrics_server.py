"""CPU and memory from metrics-server (`metrics.k8s.io`), for clusters without Prometheus.

It keeps one sample for each node and pod and no history, so the stabilization window is waited for: nodes are read
repeatedly until there are enough distinct samples, or twice the window's duration has passed.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rebalancer.kube.client.client import ApiClient, Resource, StatusError
from rebalancer.kube.snapshot.lists import Gathered, read_list
from rebalancer.kube.snapshot.records import Wire
from rebalancer.kube.snapshot.times import epoch_seconds
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock, Progress
from rebalancer.model.errors import ConnectError
from rebalancer.model.measured.usage import ResourceUsage, Usage
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.quantity import cpu_millicores, memory_bytes
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.usage import UsageSource

NODE_METRICS = Resource(group="metrics.k8s.io", version="v1beta1", plural="nodes")
POD_METRICS = Resource(group="metrics.k8s.io", version="v1beta1", plural="pods")
POLL_SECONDS = 5.0
PATIENCE = 2.0
DURATION_UNITS: Mapping[str, float] = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
DURATION_PART = re.compile(r"([0-9.]+)(h|ms|m|us|µs|ns|s)")
MISSING = (
    "the metrics API (metrics.k8s.io) is not served: install metrics-server, or look why its APIService is not "
    "Available (kubectl get apiservice v1beta1.metrics.k8s.io), or set usage.source to Prometheus"
)
EMPTY = "metrics-server has metrics of no node: look into its log whether it reaches the kubelets"


class MetricMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""


class ContainerMetrics(Wire, frozen=True):
    usage: dict[str, str] | None = None


class NodeMetrics(Wire, frozen=True):
    metadata: MetricMeta
    timestamp: str = ""
    window: str = ""
    usage: dict[str, str] | None = None


class PodMetrics(Wire, frozen=True):
    metadata: MetricMeta
    timestamp: str = ""
    window: str = ""
    containers: list[ContainerMetrics] | None = None


@dataclass(slots=True, kw_only=True)
class _Rows:
    """The samples of one reading: each row is (nodes,)."""

    cpu: list[Floats] = field(default_factory=list)
    memory: list[Floats] = field(default_factory=list)
    """Bytes."""
    times: list[Floats] = field(default_factory=list)
    broken: dict[int, str] = field(default_factory=dict)
    window_seconds: float = 0.0


class MetricsServerUsage:
    """Implements `model.decisions.ports.UsageReader`."""

    def __init__(
        self, *, client: ApiClient, policy: UsageSource, clock: Clock, progress: Progress | None = None
    ) -> None:
        self._client = client
        self._policy = policy
        self._clock = clock
        self._progress = progress

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        """Usage of the snapshot's nodes and pods.

        May take up to twice the stabilization window. Raises ConnectError when the metrics API is missing or can't be
        reached, UnsafeDataError when its responses can't be read.
        """
        rows = self._poll(snapshot)
        pods, pod_memory = self._pods(snapshot)
        now = self._clock.now()
        cpu, times = rows.cpu[-1].copy(), rows.times[-1]
        problems = dict(self._problems(cpu, times, rows.broken, now))
        cpu[list(problems)] = np.nan
        memory = np.stack(rows.memory)
        memory[:, list(problems)] = np.nan
        fresh = np.isfinite(cpu)
        lag = float(np.max(now - times[fresh])) if fresh.any() else 0.0
        return Usage(
            source="metrics-server",
            at=now,
            # A figure is a mean over its window, which ended when the sample was taken, not when it was read.
            window_seconds=rows.window_seconds + max(0.0, lag),
            node_cpu_millicores=cpu,
            pod_cpu_millicores=pods,
            sample_times=np.stack(rows.times),
            samples=np.stack(rows.cpu),
            # the kubelet's working set, which counts against allocatable before it evicts
            resources={
                MEMORY: ResourceUsage(
                    node=memory[-1].copy(),
                    capacity=snapshot.nodes.memory_allocatable_bytes,
                    pod=pod_memory,
                    samples=memory,
                )
            },
            problems=problems,
        )

    def _poll(self, snapshot: ClusterSnapshot) -> _Rows:
        wanted = self._policy.stabilization_window
        rows = _Rows()
        began = self._clock.now()
        give_up = began + PATIENCE * wanted.duration
        while True:
            self._add_row(rows, snapshot)
            now = self._clock.now()
            if self._progress is not None:
                passed = int(min(now - began, wanted.duration))
                self._progress.step("distinct samples of node CPU (seconds)", passed, int(wanted.duration))
            if now >= give_up or self._stabilized(rows, now):
                return rows
            self._clock.sleep(min(POLL_SECONDS, max(0.1, give_up - now)))

    def _add_row(self, rows: _Rows, snapshot: ClusterSnapshot) -> None:
        cpu, times = _nothing(len(snapshot.nodes)), _nothing(len(snapshot.nodes))
        memory = _nothing(len(snapshot.nodes))
        rows.broken.clear()
        for metrics in self._list(NODE_METRICS, NodeMetrics):
            index = snapshot.node_index.get(metrics.metadata.name)
            if index is None:
                continue
            times[index] = epoch_seconds(metrics.timestamp)
            rows.window_seconds = max(rows.window_seconds, duration_seconds(metrics.window))
            cpu[index] = _total([metrics.usage], "cpu", cpu_millicores)
            memory[index] = _finite(_total([metrics.usage], MEMORY, memory_bytes))
            if not math.isfinite(cpu[index]):
                cpu[index] = np.nan
                rows.broken[index] = str((metrics.usage or {}).get("cpu", "no cpu"))
        # A poll without a newer sample of any node adds no distinct sample.
        if rows.times and np.array_equal(rows.times[-1], times, equal_nan=True):
            rows.cpu[-1], rows.memory[-1] = cpu, memory
            return
        rows.cpu.append(cpu)
        rows.memory.append(memory)
        rows.times.append(times)

    def _stabilized(self, rows: _Rows, now: float) -> bool:
        """Whether every node that has a fresh sample has enough distinct ones, spread over the stabilization window."""
        wanted = self._policy.stabilization_window
        times = np.stack(rows.times)
        for node in np.flatnonzero(now - times[-1] <= self._policy.max_sample_age):
            seen = np.unique(times[:, node][np.isfinite(times[:, node])])
            if len(seen) < wanted.samples or (wanted.samples > 1 and seen[-1] - seen[0] < wanted.duration):
                return False
        return True

    def _problems(
        self, cpu: Floats, times: Floats, broken: Mapping[int, str], now: float
    ) -> Iterable[tuple[int, Refusal]]:
        for node in range(len(cpu)):
            age = now - times[node]
            if node in broken:
                yield node, Refusal.of(Reason.NOT_FINITE, broken[node])
            elif not math.isfinite(cpu[node]) or not math.isfinite(age):
                yield node, Refusal.of(Reason.NO_SAMPLE, "metrics-server has none")
            elif age > self._policy.max_sample_age:
                detail = f"{age:.0f} s, allowed are {self._policy.max_sample_age:g} s"
                yield node, Refusal.of(Reason.STALE_SAMPLE, detail)

    def _pods(self, snapshot: ClusterSnapshot) -> tuple[Floats, Floats]:
        """(pods,) millicores and bytes."""
        cpu, memory = _nothing(len(snapshot.pods)), _nothing(len(snapshot.pods))
        now = self._clock.now()
        found = {
            (metrics.metadata.namespace, metrics.metadata.name): metrics
            for metrics in self._list(POD_METRICS, PodMetrics)
        }
        names, spaces = snapshot.pods.names, snapshot.namespaces
        for index, space in enumerate(snapshot.pods.namespace.tolist()):
            metrics = found.get((spaces[space], names[index]))
            if metrics is None or not now - epoch_seconds(metrics.timestamp) <= self._policy.max_sample_age:
                continue
            usages = [container.usage for container in metrics.containers or ()]
            cpu[index] = _finite(_total(usages, "cpu", cpu_millicores))
            memory[index] = _finite(_total(usages, MEMORY, memory_bytes))
        return cpu, memory

    def _list(self, resource: Resource, item: type[Any]) -> Gathered[Any]:
        return _list(self._client, resource, item, self._progress)


def probe_metrics_server(client: ApiClient, *, wall_time: Callable[[], float] = time.time) -> str:
    """A sentence: how many nodes have metrics, and how old those are.

    Raises ConnectError when the metrics API is missing, can't be reached or has no node's metrics, UnsafeDataError
    when its answers can't be read.
    """
    found = _list(client, NODE_METRICS, NodeMetrics, None)
    if not found:
        raise ConnectError(f"{client.server}: {EMPTY}")
    now = wall_time()
    ages = [age for metrics in found if math.isfinite(age := now - epoch_seconds(metrics.timestamp))]
    how_old = f"{min(ages):.0f} to {max(ages):.0f} s old" if ages else "of unknown age"
    return f"metrics of {len(found)} node{'' if len(found) == 1 else 's'}, {how_old}"


def _list(client: ApiClient, resource: Resource, item: type[Any], progress: Progress | None) -> Gathered[Any]:
    try:
        return read_list(client, resource, item=item, collector=Gathered[Any], progress=progress)[0]
    except StatusError as error:
        if error.status in (404, 503):
            raise ConnectError(f"{client.server}: {MISSING}") from None
        raise


def duration_seconds(text: str) -> float:
    """A Go duration (`"20.04s"`, `"1m30s"`) in seconds; 0 for nothing."""
    return sum(float(number) * DURATION_UNITS[unit] for number, unit in DURATION_PART.findall(text))


def _total(usages: Sequence[Mapping[str, str] | None], name: str, amount_of: Callable[[str], float]) -> float:
    """The sum; NaN without any usage, or with one that is no number or below zero."""
    total = math.nan if not usages else 0.0
    for usage in usages:
        try:
            amount = amount_of(usage[name]) if usage else math.nan
        except (KeyError, ValueError):
            return math.nan
        total += amount if amount >= 0 else math.nan
    return total


def _finite(amount: float) -> float:
    return amount if math.isfinite(amount) else math.nan


def _nothing(size: int) -> Floats:
    return np.full(size, np.nan)
