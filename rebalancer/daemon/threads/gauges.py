"""The gauges thread: exports what changes outside cycles, and tries the database again after a write that failed."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from rebalancer.bootstrap.daemon import DaemonResources
from rebalancer.daemon.threads.obstacles import ObstacleTelemetry
from rebalancer.model.errors import RebalancerError
from rebalancer.model.parts import VitalError
from rebalancer.policy import RebalancerPolicy
from rebalancer.web import Metrics

LOG = structlog.get_logger("rebalancer")

GAUGES_SECONDS = 5.0

LOG_SECONDS = 60.0
"""Interval of the log line while the cluster can't be read."""


@dataclass(slots=True, kw_only=True)
class GaugesThread:
    """Exports leadership, open alerts, and the ages and watches of the cache."""

    resources: DaemonResources
    metrics: Metrics
    policy: Callable[[], RebalancerPolicy]
    _watched: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Kind -> counts of its watch that were exported."""
    _obstacles: ObstacleTelemetry = field(init=False)
    _problem: str = ""
    _logged_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._obstacles = ObstacleTelemetry(metrics=self.metrics)

    def run(self, stopping: threading.Event) -> None:
        """Run until `stopping`. Raises VitalError when a watch has ended: it goes on after every error but that of a
        process without memory."""
        while not stopping.wait(GAUGES_SECONDS):
            self._check_cluster()
            self.resources.attempt_write()
            self._export()

    def _check_cluster(self) -> None:
        if dead := self.resources.cluster.dead():
            raise VitalError(f"watches ended unexpectedly: {', '.join(dead)}")
        problem, now = self.resources.cluster.problem(), time.monotonic()
        if problem and (problem != self._problem or now - self._logged_at >= LOG_SECONDS):
            self._logged_at = now
            LOG.warning("cluster not read", error=problem)
        self._problem = problem

    def _export(self) -> None:
        metrics, leadership, cluster = self.metrics, self.resources.leadership, self.resources.cluster
        metrics.lease_held.set(1.0 if leadership.holds() else 0.0)
        metrics.lease_prevented.set(1.0 if leadership.prevented else 0.0)
        metrics.alert_episodes_open.set(self._open_episodes())
        metrics.cycle_interval.set(self.policy().cycle_seconds)
        metrics.failed_parts.set(len(self.resources.parts.current()))
        if not leadership.holds():
            metrics.clear_leaders()
        if (term := leadership.term) is not None:
            metrics.lease_term.set(term)
        self._obstacles.update(cluster.obstacles())
        for kind, age in cluster.ages().items():
            metrics.cache_age.labels(kind=kind).set(age)
        counters = (metrics.watch_events, metrics.watch_relists, metrics.watch_restarts)
        for kind, stats in cluster.stats().items():
            before = self._watched.get(kind, (0, 0, 0))
            self._watched[kind] = now = (stats.events, stats.relists, stats.restarts)
            for counter, new, old in zip(counters, now, before, strict=True):
                counter.labels(kind=kind).inc(new - old)

    def _open_episodes(self) -> float:
        try:
            return self.resources.inbox.open_count()
        except RebalancerError:
            return float("nan")
