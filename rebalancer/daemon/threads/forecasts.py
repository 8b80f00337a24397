"""The forecast thread: renews the forecasts and requests a cycle ahead of each peak, on the leader only."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.cycle.isolation import isolated
from rebalancer.daemon import telemetry
from rebalancer.daemon.memory import release_free_memory
from rebalancer.daemon.triggers import TriggerQueue
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import RebalancerError
from rebalancer.web import Metrics

LOG = structlog.get_logger("rebalancer")

POLL_SECONDS = 1.0
"""Interval of the check whether a forecast run is due."""

RETRY_SECONDS = 10.0
"""Wait after a failed forecast run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastThread:
    """Runs the forecast loop of the active policy when it is due."""

    active: Callable[[], Active]
    leads: Callable[[], bool]
    clock: Clock
    queue: TriggerQueue
    metrics: Metrics

    def run(self, stopping: threading.Event) -> None:
        """Run until `stopping`."""
        while not stopping.wait(POLL_SECONDS):
            try:
                self._turn()
            except RebalancerError as error:
                LOG.warning("forecast run failed", error=str(error))
                stopping.wait(RETRY_SECONDS)

    def _turn(self) -> None:
        active, leads, now = self.active(), self.leads(), self.clock.now()
        forecast_loop = active.forecast_loop
        if forecast_loop is None or not leads or forecast_loop.stale(now):
            telemetry.clear_memory_leaks(self.metrics)
        if forecast_loop is None or not leads or now < forecast_loop.next_at():
            return
        began = time.monotonic()
        seen = forecast_loop.look(active.context.cluster.snapshot())
        if (request := seen.request()) is not None:
            self.queue.put(request)
        seconds = time.monotonic() - began
        isolated("forecast run not exported", partial(telemetry.record_forecast_run, self.metrics, seen, seconds))
        release_free_memory()
