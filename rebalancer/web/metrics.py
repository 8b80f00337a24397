"""Metrics of the daemon. Names follow the Prometheus naming rules; no label holds a pod or node, and a capped number of
series holds services."""

import platform
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from rebalancer import __version__
from rebalancer.model.cluster.owners import Service
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import MissReason
from rebalancer.model.records.effect import Outcome
from rebalancer.model.records.forecasts import Verdict
from rebalancer.web.alerts import Ignored
from rebalancer.web.http.auth import Denial

_CYCLE_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_STAGE_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

DISCOVERED = "discovered"
"""Value of `result` for a hot episode that at least one cycle found."""


MAX_SERVICES = 200
"""Services with series of their own."""
OTHER = "other"
"""Value of the labels of all other services."""


class Described(NamedTuple):
    """One row of the metrics reference."""

    name: str
    """Name as scraped; for a histogram without `_bucket`."""
    type: str
    labels: tuple[str, ...]
    help: str


class Metrics:
    """All metrics, in their own registry. Thread-safe."""

    def __init__(self) -> None:
        self.registry, self.described = CollectorRegistry(), list[Described]()

        self.cycles, self.cycle_interval = (
            self._counter("cycles", "Cycles by trigger and result.", "trigger", "result"),
            self._gauge(
                "cycle_interval_seconds", "Shortest interval of the periodic strategies; +Inf where none is periodic."
            ),
        )
        self.cycle_duration = self._histogram("cycle_duration_seconds", "Duration of cycles.", _CYCLE_BUCKETS)
        self.stage_duration = self._histogram(
            "stage_duration_seconds", "Duration of each stage of a cycle.", _STAGE_BUCKETS, "stage"
        )
        self.findings = self._counter(
            "findings", "Nodes that strategies found, by the resource of hot ones.", "pool", "strategy", "resource"
        )
        self.hot_nodes, self.pool_spare = (
            self._gauge("hot_nodes", "Nodes over `high` in the last cycle, by resource.", "resource"),
            self._gauge(
                "pool_spare_cores",
                "CPU that the nodes of a pool have left under `high` in the last cycle, wherever its pods run. "
                "Negative: as much is lacking, and some stay hot whatever is evicted.",
                "pool",
            ),
        )
        self.evictions = self._counter(
            "evictions",
            "Evictions by outcome; code is the reason of a failed or refused call, else empty.",
            "pool",
            "outcome",
            "code",
        )
        # not `namespace` and `service`, which are labels of the scraped target
        self.evictions_by_service = self._counter(
            "evictions_by_service",
            f"Evictions that happened, by the service of the pod: the first {MAX_SERVICES} services since the start by "
            f"name, all others as `{OTHER}` in each label.",
            "service_namespace",
            "service_kind",
            "service_name",
        )
        self._services: set[Service] = set()
        self.relief = self._counter(
            "relief_hot_node_minutes",
            "Hot node-minutes that the evictions of a cycle remove in the hour after it, as if loads stayed; each "
            "weighs from 0.5 just over `high` to 1 at the full capacity.",
        )
        self.relief_price = self._counter("relief_price", "Price of these evictions, in ordinary ones.")
        self.refusals = self._counter("refusals", "Pods and nodes left alone, by reason code.", "code")
        self.limit_left = self._gauge(
            "limit_left_evictions",
            "Evictions left in the tightest limit of each kind of scope, after the last cycle.",
            "scope",
        )
        self.soft_tainted_nodes = self._gauge("soft_tainted_nodes", "Nodes that carry rebalancer's soft taint.")
        self.cordoned_nodes = self._gauge("cordoned_nodes", "Nodes cordoned by rebalancer.", "reason")
        self.maintenance_nodes = self._gauge(
            "maintenance_nodes",
            "Nodes selected for maintenance: drained, draining, or pending.",
            "state",
        )

        self.cache_age = self._gauge(
            "cache_age_seconds", "Time since the last event or list of a kind in the cache.", "kind"
        )
        self.watch_events = self._counter("watch_events", "Events delivered by watches.", "kind")
        self.watch_relists = self._counter("watch_relists", "Lists read again after a watch was lost.", "kind")
        self.watch_restarts = self._counter("watch_restarts", "Watches opened again.", "kind")

        self.unreadable_objects = self._gauge(
            "unreadable_objects", "Objects of the cluster that can't be read, at the last snapshot.", "kind"
        )

        self.notifications = self._counter(
            "notifications", "Notifications by receiver and result: sent, failed, dropped.", "receiver", "result"
        )

        self.forecast_duration = self._histogram(
            "forecast_duration_seconds", "Duration of a forecast run.", _CYCLE_BUCKETS
        )
        self.forecast_last = self._gauge(
            "forecast_last_timestamp_seconds", "Time of the last forecast run, since the epoch."
        )
        self.forecast_nodes = self._gauge(
            "forecast_nodes",
            "Nodes with a forecast (known), expected to become hot (hot), and of these, without a permitted eviction "
            "in time (blocked), at the last forecast run.",
            "state",
        )

        self.memory_leaks = self._gauge(
            "memory_leak_pods",
            "Pods with steadily growing memory that will be OOM-killed: within 24 hours (day), or later (later).",
            "state",
        )
        self.memory_leak_first = self._gauge(
            "memory_leak_first_kill_timestamp_seconds",
            "Expected time of the first OOM kill by a memory leak, since the epoch; 0 without any.",
        )

        week = "over the last 7 days; absent without episodes."
        self.discovery_rate = self._gauge(
            "discovery_rate", f"Discovered hot episodes / all hot episodes by the hot-node SLO, {week}", "pool"
        )
        self.eviction_rate = self._gauge(
            "eviction_rate", f"Discovered hot episodes with evictions / discovered hot episodes, {week}", "pool"
        )
        self.effectiveness_rate = self._gauge(
            "effectiveness_rate",
            f"Nodes at or under target after the settling time / assessable nodes with evictions, {week}",
            "pool",
        )
        self.hot_episodes = self._counter(
            "hot_episodes", "Hot episodes by the hot-node SLO: discovered, or the reason of the miss.", "result"
        )
        self.assessments = self._counter(
            "assessments", "Assessments after the settling time, by outcome and resource.", "outcome", "resource"
        )
        self.forecast_verdicts = self._counter(
            "forecast_verdicts", "Nodes relieved ahead of a predicted peak, by verdict.", "verdict"
        )

        self.part_failures = self._counter(
            "part_failures", "Unexpected errors of watches, readers, strategies, pages and threads.", "part"
        )
        self.failed_parts = self._gauge("failed_parts", "Parts that fail now, and are skipped or restarted.")

        self.lease_held = self._gauge("lease_held", "1 while this replica is leader, else 0.")
        self.lease_prevented = self._gauge(
            "lease_prevented", "1 while something other than another leader keeps this replica from leading, else 0."
        )
        self.lease_term = self._gauge("lease_term", "Term of the last leadership seen.")

        self.alert_episodes_open = self._gauge("alert_episodes_open", "Open alerts in the inbox.")
        self.alerts_received = self._counter("alerts_received", "Alerts of deliveries, by result.", "result")
        self.alerts_ignored = self._counter("alerts_ignored", "Alerts not stored in the inbox, by reason.", "reason")
        self.auth_failures = self._counter("auth_failures", "Requests without valid credentials.", "reason")
        self.http_requests = self._counter("http_requests", "Requests answered.", "route", "code")

        self.policy_reloads = self._counter("policy_reloads", "Reloads of a changed policy file.", "result")
        self.policy_last_success = self._gauge(
            "policy_last_success_timestamp_seconds", "Load time of the active policy, since the epoch."
        )
        self._gauge("build_info", "Always 1.", "version", "python_version").labels(
            version=__version__, python_version=platform.python_version()
        ).set(1)

        self._begin_at_zero()

        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def _begin_at_zero(self) -> None:
        """Exported from the start, so that the first increment is visible to increase()."""
        self._begin(self.alerts_received, "opened", "duplicate", "resolved", "deferred")
        self._begin(self.alerts_ignored, *Ignored)
        self._begin(self.auth_failures, *Denial)
        self._begin(self.policy_reloads, "success", "failure")
        self._begin(self.hot_episodes, DISCOVERED, *MissReason)
        for outcome in Outcome:
            self.assessments.labels(outcome=str(outcome), resource=CPU)
        self._begin(self.forecast_verdicts, Verdict.PREVENTED, Verdict.FALSE_ALARM, Verdict.TOO_LATE)

    def evicted(self, service: Service) -> None:
        """Count an eviction of a pod of this service."""
        if len(self._services) < MAX_SERVICES:
            self._services.add(service)
        known = service in self._services
        names = (service.namespace, service.kind, service.name) if known else (OTHER, OTHER, OTHER)
        self.evictions_by_service.labels(*names).inc()

    def hot_nodes_by_resource(self, counts: Mapping[str, int]) -> None:
        """Export the counts; resources that were exported before and have none are 0."""
        there = {sample.labels["resource"] for metric in self.hot_nodes.collect() for sample in metric.samples}
        for resource in sorted({CPU, *there, *counts}):
            self.hot_nodes.labels(resource=resource).set(counts.get(resource, 0))

    def clear_leaders(self) -> None:
        """Export nothing that only the leader's cycles know."""
        self.soft_tainted_nodes.set(0.0)
        for gauge in (self.hot_nodes, self.pool_spare, self.limit_left, self.cordoned_nodes, self.maintenance_nodes):
            gauge.clear()

    @staticmethod
    def by_pool(gauge: Gauge, shares: Mapping[str, float | None]) -> None:
        """Export the known shares and remove all other pools."""
        known = {pool: share for pool, share in shares.items() if share is not None}
        there = {sample.labels["pool"] for metric in gauge.collect() for sample in metric.samples}
        for pool in there - known.keys():
            gauge.remove(pool)
        for pool, share in known.items():
            gauge.labels(pool=pool).set(share)

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """(page, content type) in the format that the Accept header asks for."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no version
            encode, content_type = choose_encoder("")
        return encode(self.registry), content_type

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        full = f"rebalancer_{name}_total"
        self.described.append(Described(full, "counter", labels, text))
        return Counter(full, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        full = f"rebalancer_{name}"
        self.described.append(Described(full, "gauge", labels, text))
        return Gauge(full, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        full = f"rebalancer_{name}"
        self.described.append(Described(full, "histogram", labels, text))
        return Histogram(full, text, labels, registry=self.registry, buckets=buckets)

    @staticmethod
    def _begin(counter: Counter, *values: str) -> None:
        for value in values:
            counter.labels(str(value))


def described() -> list[Described]:
    """Every metric of ours, in the order of the reference."""
    return Metrics().described
