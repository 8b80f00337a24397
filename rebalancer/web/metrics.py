"""What the daemon tells Prometheus. Names follow Prometheus' naming rules; no label holds a pod, node or service."""

import platform
from collections.abc import Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from rebalancer import __version__
from rebalancer.web.alerts import Ignored
from rebalancer.web.auth import Denial

_CYCLE_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_STAGE_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


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
        self.steered_nodes = self._gauge("steered_nodes", "Nodes that carry our taint.")

        self.cache_age = self._gauge("cache_age_seconds", "Time since the cache last heard of a kind.", "kind")
        self.watch_events = self._counter("watch_events", "Events that watches delivered.", "kind")
        self.watch_relists = self._counter("watch_relists", "Lists that were read anew.", "kind")
        self.watch_restarts = self._counter("watch_restarts", "Watches that were opened again.", "kind")

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

        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

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
