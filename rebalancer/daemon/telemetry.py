"""Telemetry of the daemon: metrics and Kubernetes Events after each cycle, forecast run and evaluation."""

from collections import Counter
from collections.abc import Iterator, Sequence

import structlog

from rebalancer.effect.rates import rates
from rebalancer.forecasting.loop import ForecastRun
from rebalancer.model.cluster.steering import CORDONS
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.effect import DayRow
from rebalancer.model.records.forecasts import Verdict
from rebalancer.web.metrics import DISCOVERED, Metrics

LOG = structlog.get_logger("rebalancer")
MAX_EVENTS = 20
_MAINTENANCE_STATES = ("drained", "draining", "pending")
_RESULT_STOPPED, _RESULT_INTERRUPTED, _RESULT_DONE, _RESULT_FAILED = "stopped", "interrupted", "done", "failed"


def count(metrics: Metrics, report: CycleReport, seconds: float) -> None:
    """Update the metrics from a finished cycle of this duration in seconds."""
    metrics.cycles.labels(trigger=str(report.trigger), result=_result(report)).inc()
    metrics.cycle_duration.observe(seconds)
    metrics.soft_tainted_nodes.set(len(report.soft_tainted))
    for value in CORDONS:
        metrics.cordoned_nodes.labels(reason=value).set(sum(each == value for each in report.cordons.values()))
    for state in _MAINTENANCE_STATES:
        metrics.maintenance_nodes.labels(state=state).set(report.progress.get(state, 0))
    for stage, took in report.stages.items():
        metrics.stage_duration.labels(stage=stage).observe(took)
    for scope, left in report.limits_left.items():
        metrics.limit_left.labels(scope=scope).set(left)
    for finding, _ in report.findings:
        metrics.findings.labels(pool=finding.pool, strategy=finding.strategy, resource=finding.resource).inc()
    if not report.stopped:
        by_resource = Counter(name for line in report.nodes for name in line.hot_by)
        metrics.hot_nodes_by_resource(by_resource)
        metrics.by_pool(metrics.pool_spare, {pool: left / 1000 for pool, left in report.spare_cpu.items()})
    for each in report.evictions:
        code = str(each.answered.code) if each.answered.code else ""
        metrics.evictions.labels(pool=each.pool, outcome=str(each.answered.outcome), code=code).inc()
        if each.answered.outcome is Outcome.EVICTED:
            metrics.evicted(each.service)
    if report.score is not None and any(each.answered.outcome is Outcome.EVICTED for each in report.evictions):
        metrics.relief.inc(report.score.hot_node_minutes)
        metrics.relief_price.inc(report.score.price)
    for refusal in report.refusals:
        metrics.refusals.labels(code=str(refusal.code)).inc()


def _result(report: CycleReport) -> str:
    if report.finished_at is None:
        return _RESULT_FAILED
    return _RESULT_STOPPED if report.stopped else _RESULT_INTERRUPTED if report.interrupted else _RESULT_DONE


def record_forecast_run(metrics: Metrics, seen: ForecastRun, seconds: float) -> None:
    """Update the metrics and write log lines from a forecast run of this duration in seconds."""
    forecasts = seen.node_forecasts.forecasts
    metrics.forecast_duration.observe(seconds)
    metrics.forecast_last.set(seen.at)
    metrics.forecast_nodes.labels(state="known").set(sum(each.days_used > 0 for each in forecasts.nodes))
    metrics.forecast_nodes.labels(state="hot").set(len(seen.coming))
    metrics.forecast_nodes.labels(state="blocked").set(sum(each.start_by is None for each in seen.coming))
    soon = sum(each.kill_at < seen.at + DAY_SECONDS for each in seen.leaks)
    metrics.memory_leaks.labels(state="day").set(soon)
    metrics.memory_leaks.labels(state="later").set(len(seen.leaks) - soon)
    metrics.memory_leak_first.set(min((each.kill_at for each in seen.leaks), default=0.0))
    LOG.info(
        "forecast run",
        seconds=round(seconds, 3),
        nodes=len(forecasts.nodes),
        hot=len(seen.coming),
        due=sorted({each.node_name for each in seen.due}),
        leaks=len(seen.leaks),
        notes=[*forecasts.notes, *seen.notes],
    )
    for each in seen.coming[:MAX_EVENTS]:
        LOG.info("peak expected", node=each.node_name, pool=each.pool, why=each.why)
    for leak in seen.leaks[:MAX_EVENTS]:
        LOG.warning("memory leak", pod=leak.pod, node=leak.node, why=leak.sentence)


def clear_memory_leaks(metrics: Metrics) -> None:
    """Export no leak: this replica is not the leader, or has no current forecast."""
    metrics.memory_leaks.clear()
    metrics.memory_leak_first.set(0.0)


class EffectTelemetry:
    """Exports rates and outcome counters from the daily counts. Used on the leader only, or replicas would count twice.

    Counters grow by the increase of the daily counts, so rows that are evaluated again are not counted again.
    """

    DAYS = 7
    """Days of rows to pass to `update`, including today."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before: dict[_Counted, int] | None = None

    def update(self, rows: Sequence[DayRow]) -> None:
        """Export the current rows. The first call after `reset` sets the rates and no counter."""
        lines = [(line.pool or "", line) for line in rates(rows, ("pool",))]
        for gauge, shares in (
            (self._metrics.discovery_rate, {pool: line.discovery.share for pool, line in lines}),
            (self._metrics.eviction_rate, {pool: line.eviction.share for pool, line in lines}),
            (self._metrics.effectiveness_rate, {pool: line.effectiveness.share for pool, line in lines}),
        ):
            self._metrics.by_pool(gauge, shares)
        now = {key: count for row in rows for key, count in _counted(row)}
        if self._before is not None:
            for key, count in now.items():
                self._count(*key[-2:], max(count - self._before.get(key, 0), 0))
        self._before = now

    def reset(self) -> None:
        """Stop exporting rates: this replica is not the leader."""
        self._before = None
        for gauge in (self._metrics.discovery_rate, self._metrics.eviction_rate, self._metrics.effectiveness_rate):
            self._metrics.by_pool(gauge, {})

    def _count(self, group: str, name: str, more: int) -> None:
        if group == "discovery":
            self._metrics.hot_episodes.labels(result=name).inc(more)
        elif group == "effect":
            outcome, _, resource = name.partition("/")
            self._metrics.assessments.labels(outcome=outcome, resource=resource or CPU).inc(more)
        elif group == "forecast":
            self._metrics.forecast_verdicts.labels(verdict=name).inc(more)


_Counted = tuple[int, str, str, str, str, str]
"""(day, pool, strategy, trigger, group, name)"""


def _counted(row: DayRow) -> Iterator[tuple[_Counted, int]]:
    counts = {
        **(row.reasons or {}),
        f"discovery/{DISCOVERED}": row.discovered,
        f"forecast/{Verdict.PREVENTED}": row.prevented,
        f"forecast/{Verdict.FALSE_ALARM}": row.false_alarms,
        f"forecast/{Verdict.TOO_LATE}": row.too_late,
    }
    for key, count in counts.items():
        group, _, name = key.partition("/")
        yield (row.day, row.pool, row.strategy, row.trigger, group, name), count


def count_failure(metrics: Metrics, trigger: str) -> None:
    """Count a cycle that failed before it began."""
    metrics.cycles.labels(trigger=trigger, result=_RESULT_FAILED).inc()
