"""The threads of the forecast loop and of the evaluation loop of the active policy. They act on the leader only."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from rebalancer.bootstrap.daemon import DaemonResources
from rebalancer.bootstrap.wiring.active import Active
from rebalancer.cycle.evict.surges import poll_seconds
from rebalancer.cycle.isolation import isolated
from rebalancer.daemon import telemetry
from rebalancer.daemon.memory import release_free_memory
from rebalancer.daemon.notifying import Notifier
from rebalancer.daemon.triggers import TriggerQueue
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import RebalancerError
from rebalancer.web import Metrics

LOG = structlog.get_logger("rebalancer")

POLL_SECONDS = 1.0
"""Interval of the check whether a forecast run is due."""

RETRY_SECONDS = 10.0
"""Wait after a failed forecast run."""

EVALUATION_SECONDS = 15.0
"""Interval of the check whether an assessment is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastThread:
    """Renews the forecasts and requests a cycle ahead of each peak."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SurgeThread:
    """Advances what is moved by replacement first. Not in a dry run: it changes nothing."""

    active: Callable[[], Active]
    leads: Callable[[], bool]

    def run(self, stopping: threading.Event) -> None:
        """Run until `stopping`."""
        pause = poll_seconds(0)
        while not stopping.wait(pause):
            surges, left = self.active().context.surges, 0
            try:
                if surges is not None and self.leads():
                    left = surges.turn()
                pause = poll_seconds(left)
            except RebalancerError as error:
                LOG.warning("replacement first waits", error=str(error))
                pause = RETRY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationThread:
    """Runs due assessments and the hot-node SLO, and exports their results."""

    active: Callable[[], Active]
    resources: DaemonResources
    notifier: Notifier
    metrics: Metrics

    def run(self, stopping: threading.Event) -> None:
        """Run until `stopping`."""
        exported = telemetry.EffectTelemetry(self.metrics)
        term = self.resources.leadership.term
        while not stopping.wait(EVALUATION_SECONDS):
            evaluation, before, term = self.active().evaluation, term, self.resources.leadership.term
            if term != before:
                # another replica may have counted meanwhile
                exported.reset()
                self.notifier.forget()
            if evaluation is None or not self.resources.leads():
                exported.reset()
                if not self.resources.leadership.holds():
                    self.notifier.forget()
                continue
            if made := evaluation.turn():
                self.notifier.assessed(made)
                release_free_memory()
            self.notifier.look(time.monotonic())
            try:
                exported.update(evaluation.days(telemetry.EffectTelemetry.DAYS))
            except RebalancerError as error:
                LOG.warning("effect not exported", error=str(error))
