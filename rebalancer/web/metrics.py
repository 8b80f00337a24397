"""What the daemon tells Prometheus. Names follow Prometheus' naming rules; no label holds a pod, node or service."""

import platform
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from rebalancer import __version__
from rebalancer.model.effect import Outcome
from rebalancer.model.forecasts import Verdict
from rebalancer.model.reason import MissReason
from rebalancer.web.alerts import Ignored
from rebalancer.web.auth import Denial

_CYCLE_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_STAGE_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

DISCOVERED = "discovered"
"""The result of a hot episode that was not missed."""


class Described(NamedTuple):
    """One metric, as the reference lists it."""

    name: str
    """As it is scraped; of a histogram without `_bucket`."""
    type: str
    labels: tuple[str, ...]
    help: str


class Metrics:
    """All metrics, in a registry of their own. Safe to use from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.described: list[Described] = []

        self.cycles = self._counter("cycles", "Cycles, by what set them off and how they ended.", "trigger", "result")
        self.cycle_duration = self._histogram("cycle_duration_seconds", "How long cycles took.", _CYCLE_BUCKETS)
        self.stage_duration = self._histogram(
            "stage_duration_seconds", "How long each stage of a cycle took.", _STAGE_BUCKETS, "stage"
        )
        self.findings = self._counter("findings", "Nodes that strategies found.", "pool", "strategy")
        self.evictions = self._counter(
            "evictions",
            "Evictions by outcome; code is the reason of what the API server did not do, else empty.",
            "pool",
            "outcome",
            "code",
        )
        self.refusals = self._counter("refusals", "Pods that stayed and nodes that were not judged, by reason.", "code")
        self.limit_left = self._gauge(
            "limit_left_evictions", "Evictions left in the tightest limit of each kind of scope.", "scope"
        )
        self.steered_nodes = self._gauge("steered_nodes", "Nodes that carry our soft taint.")
        self.cordoned_nodes = self._gauge("cordoned_nodes", "Nodes that we have cordoned.", "reason")
        self.maintenance_nodes = self._gauge(
            "maintenance_nodes",
            "Nodes chosen for maintenance: empty (empty), being emptied (working), not begun with (waiting).",
            "state",
        )

        self.cache_age = self._gauge("cache_age_seconds", "Time since the cache last heard of a kind.", "kind")
        self.watch_events = self._counter("watch_events", "Events that watches delivered.", "kind")
        self.watch_relists = self._counter("watch_relists", "Lists that were read anew.", "kind")
        self.watch_restarts = self._counter("watch_restarts", "Watches that were opened again.", "kind")

        self.forecast_duration = self._histogram(
            "forecast_duration_seconds", "How long it took to make the forecasts anew.", _CYCLE_BUCKETS
        )
        self.forecast_last = self._gauge(
            "forecast_last_timestamp_seconds", "When the forecasts were last made, since the epoch."
        )
        self.forecast_nodes = self._gauge(
            "forecast_nodes",
            "Nodes whose next hours are known, that are expected to become hot (hot), and of these, those that "
            "nothing may be moved from in time (closed).",
            "state",
        )

        week = "over the last 7 days; absent where there were none."
        self.discovery_rate = self._gauge(
            "discovery_rate", f"Hot nodes that were found, of those hot by the standard, {week}", "pool"
        )
        self.eviction_rate = self._gauge(
            "eviction_rate", f"Found nodes that pods were evicted from, of the found, {week}", "pool"
        )
        self.effectiveness_rate = self._gauge(
            "effectiveness_rate",
            f"Nodes at or under target after settling, of those evicted from that could be assessed, {week}",
            "pool",
        )
        self.hot_episodes = self._counter(
            "hot_episodes", "Nodes that became hot by the standard: found, or why not.", "result"
        )
        self.assessments = self._counter("assessments", "Nodes assessed after settling, by what came of it.", "outcome")
        self.forecast_verdicts = self._counter(
            "forecast_verdicts", "Nodes relieved ahead of a peak, by what came.", "verdict"
        )

        self.lease_held = self._gauge("lease_held", "1 while this replica leads, else 0.")
        self.lease_term = self._gauge("lease_term", "Number of the leadership that was last seen.")

        self.alert_episodes_open = self._gauge("alert_episodes_open", "Alerts in the inbox that are not over.")
        self.alerts_received = self._counter("alerts_received", "Alerts that went into the inbox.", "result")
        self.alerts_ignored = self._counter("alerts_ignored", "Alerts that were counted and forgotten.", "reason")
        self.auth_failures = self._counter("auth_failures", "Requests without the right credentials.", "reason")
        self.http_requests = self._counter("http_requests", "Requests that were answered.", "route", "code")

        self.policy_reloads = self._counter("policy_reloads", "Times that a changed policy file was read.", "result")
        self.policy_last_success = self._gauge(
            "policy_last_success_timestamp_seconds", "When the policy in force was read, since the epoch."
        )
        build = self._gauge("build_info", "Always 1.", "version", "python_version")
        build.labels(version=__version__, python_version=platform.python_version()).set(1)

        # there from the start, so that the first one is an increase
        self._begin(self.alerts_received, "opened", "known", "resolved")
        self._begin(self.alerts_ignored, *Ignored)
        self._begin(self.auth_failures, *Denial)
        self._begin(self.policy_reloads, "success", "failure")
        self._begin(self.hot_episodes, DISCOVERED, *MissReason)
        self._begin(self.assessments, *Outcome)
        self._begin(self.forecast_verdicts, Verdict.PREVENTED, Verdict.FALSE_ALARM, Verdict.TOO_LATE)

        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    @staticmethod
    def by_pool(gauge: Gauge, shares: Mapping[str, float | None]) -> None:
        """Show those that are known, and no others."""
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
