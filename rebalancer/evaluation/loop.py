"""Evaluation loop of the leader: due assessments, feedback and the hot-node SLO.

It runs beside the cycles. An error is logged and retried; it never stops a cycle.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from rebalancer.effect.feedback import Feedback
from rebalancer.effect.rates import day_of
from rebalancer.evaluation.assessments import derive_feedback, remember, run_due_assessments
from rebalancer.evaluation.hot_nodes import evaluate_slo
from rebalancer.forecast.series.pod_cpu import missing_replicas
from rebalancer.model.decisions.ports import Clock, ClusterReader, Ledger, UsageReader
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.slo import SloReader
from rebalancer.model.records.effect import Assessment, DayRow, EffectRecords
from rebalancer.model.records.forecasts import ForecastRecords
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools

LOG = structlog.get_logger("rebalancer")

SLO_EVERY_SECONDS = 300.0
FEEDBACK_EVERY_SECONDS = 300.0
"""A circuit breaker closes with time."""
ASSESSMENTS, SLO = "assessments", "slo"
"""Parts whose notes are kept apart."""


@dataclass(slots=True, kw_only=True)
class EvaluationLoop:
    """The loop under one policy. `turn` runs in one thread; any may read `feedback`."""

    policy: RebalancerPolicy
    cluster: ClusterReader
    usage: UsageReader
    effect: EffectRecords
    forecasts: ForecastRecords
    ledger: Ledger
    standard: SloReader | None
    """None without Prometheus."""
    clock: Clock
    stopping: Callable[[], bool] = lambda: False
    quiet: bool = False
    """Whether nothing is logged."""
    slo: bool = True
    """Whether the hot-node SLO is evaluated. No cycle depends on it."""
    feedback: Feedback | None = None
    """The latest feedback; None before the first."""
    _learned_at: float = float("-inf")
    _read_at: float = float("-inf")
    _notes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def turn(self) -> Sequence[Assessment]:
        """One pass over everything that is due; the assessments made. Never raises for an unavailable cluster, database
        or Prometheus."""
        now, made = self.clock.now(), tuple[Assessment, ...]()
        try:
            made = self._assess(now)
            if made or now - self._learned_at >= FEEDBACK_EVERY_SECONDS:
                self.feedback = learned = derive_feedback(self.effect, self.policy, made=made, now=now)
                remember(self.ledger, learned, self.policy)
                self._learned_at = now
            if self.slo and now - self._read_at >= SLO_EVERY_SECONDS:
                self._read_at = now
                self._evaluate_slo(now)
        except RebalancerError as error:
            self._log_new(ASSESSMENTS, [f"evictions are not assessed: {error}"])
        return made

    @property
    def behind(self) -> bool:
        """Whether more of the hot-node SLO can be read at once."""
        return self.slo and math.isinf(self._read_at)

    @property
    def notes(self) -> Sequence[str]:
        """Why evictions were not assessed in the last turn."""
        return self._notes.get(ASSESSMENTS, ())

    @property
    def slo_notes(self) -> Sequence[str]:
        """Errors and doubts of the last evaluation of the hot-node SLO."""
        return self._notes.get(SLO, ())

    def days(self, count: int) -> Sequence[DayRow]:
        """Counts of the last days, today included. Raises ConnectError."""
        today = day_of(self.clock.now())
        return self.effect.days(today - count + 1, today + 1)

    def _assess(self, now: float) -> tuple[Assessment, ...]:
        if not self.effect.due(now):
            self._log_new(ASSESSMENTS, ())
            return ()
        snapshot = self.cluster.snapshot()
        done = run_due_assessments(
            self.effect,
            snapshot,
            self.usage.read(snapshot),
            replacements=self.ledger.replacements,
            missing=lambda window: missing_replicas(
                self.ledger.open_evictions(), self.ledger.replaced(now - window), now=now, window_seconds=window
            ),
            policy=self.policy,
            now=now,
        )
        self._log_new(ASSESSMENTS, done.notes)
        for each in () if self.quiet else done.made:
            LOG.info(
                "assessed",
                node=each.node,
                step=str(each.step),
                outcome=str(each.outcome),
                late=each.late,
                detail=each.detail,
            )
        return done.made

    def _evaluate_slo(self, now: float) -> None:
        snapshot = self.cluster.snapshot()
        reading = evaluate_slo(
            self.standard,
            self.effect,
            snapshot,
            NodePools.of(self.policy.pools, snapshot.nodes),
            self.policy,
            now=now,
            pauses=self.ledger.pauses,
            judged=self.forecasts.judged,
            stopping=self.stopping,
        )
        if reading.behind:
            self._read_at = float("-inf")
        self._log_new(SLO, reading.notes)

    def _log_new(self, part: str, notes: Sequence[str]) -> None:
        """Log each note once, until it is gone."""
        for note in notes:
            if note not in self._notes.get(part, ()) and not self.quiet:
                LOG.warning("effect", note=note)
        self._notes[part] = tuple(notes)
