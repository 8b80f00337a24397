"""What the daemon tells after each cycle: metrics, and Events where people look for them."""

from rebalancer.model.plan import CycleReport, Eviction, Outcome
from rebalancer.model.ports import EventSink
from rebalancer.model.snapshot import Owner
from rebalancer.web.metrics import Metrics

_RESULT_STOPPED, _RESULT_INTERRUPTED, _RESULT_DONE, _RESULT_FAILED = "stopped", "interrupted", "done", "failed"


def count(metrics: Metrics, report: CycleReport, seconds: float) -> None:
    """A cycle as figures. No name of a pod or node becomes a label."""
    metrics.cycles.labels(trigger=str(report.trigger), result=_result(report)).inc()
    metrics.cycle_duration.observe(seconds)
    metrics.steered_nodes.set(len(report.steered))
    for stage, took in report.stages.items():
        metrics.stage_duration.labels(stage=stage).observe(took)
    for scope, left in report.limits_left.items():
        metrics.limit_left.labels(scope=scope).set(left)
    for finding, _ in report.findings:
        metrics.findings.labels(pool=finding.pool, strategy=finding.strategy).inc()
    for each in report.evictions:
        code = str(each.code) if each.code else ""
        metrics.evictions.labels(pool=each.move.pool, outcome=str(each.outcome), code=code).inc()
    for refusal in report.refusals:
        metrics.refusals.labels(code=str(refusal.code)).inc()


def _result(report: CycleReport) -> str:
    if report.finished_at is None:
        return _RESULT_FAILED
    return _RESULT_STOPPED if report.stopped else _RESULT_INTERRUPTED if report.interrupted else _RESULT_DONE


def count_failure(metrics: Metrics, trigger: str) -> None:
    """A cycle that could not even begin."""
    metrics.cycles.labels(trigger=trigger, result=_RESULT_FAILED).inc()


def announce(events: EventSink, report: CycleReport) -> None:
    """Evictions as Events on the service and the node; a dry run announces nothing."""
    if report.dry_run:
        return
    by_node: dict[str, list[Eviction]] = {}
    for each in report.evictions:
        if each.outcome in (Outcome.EVICTED, Outcome.UNKNOWN):
            by_node.setdefault(each.move.node_name, []).append(each)
            service = each.move.service
            events.about_service(
                Owner(kind=service.kind, namespace=service.namespace, name=service.name, uid=each.move.owner_uid),
                reason="Evicted",
                note=f"pod {each.move.name} on {each.move.node_name}: {each.move.reason}; "
                f"its replacement is expected on {each.move.landing_name}",
            )
    for node, evictions in by_node.items():
        pods = ", ".join(f"{each.move.namespace}/{each.move.name}" for each in evictions)
        events.about_node(node, reason="Relieved", note=f"{len(evictions)} evicted to cool it: {pods}")
