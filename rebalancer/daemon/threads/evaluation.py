"""The evaluation thread: runs due assessments and the hot-node SLO and exports their results, on the leader only."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from rebalancer.bootstrap.daemon import DaemonResources
from rebalancer.bootstrap.wiring.active import Active
from rebalancer.daemon.memory import release_free_memory
from rebalancer.daemon.notifying import Notifier
from rebalancer.daemon.telemetry import EffectTelemetry
from rebalancer.model.errors import RebalancerError
from rebalancer.web import Metrics

LOG = structlog.get_logger("rebalancer")

EVALUATION_SECONDS = 15.0
"""Interval of the check whether an assessment is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationThread:
    """Runs the evaluation loop of the active policy."""

    active: Callable[[], Active]
    resources: DaemonResources
    notifier: Notifier
    metrics: Metrics

    def run(self, stopping: threading.Event) -> None:
        """Run until `stopping`."""
        exported = EffectTelemetry(self.metrics)
        while not stopping.wait(EVALUATION_SECONDS):
            evaluation = self.active().evaluation
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
                exported.update(evaluation.days(EffectTelemetry.DAYS))
            except RebalancerError as error:
                LOG.warning("effect not exported", error=str(error))
