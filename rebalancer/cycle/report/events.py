"""Kubernetes Events about what a cycle did."""

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.decisions.plan import CycleReport, Goal
from rebalancer.model.decisions.ports import EventSink


def publish_events(events: EventSink, report: CycleReport) -> None:
    """Publish evictions and cordons as Events on services and nodes; a dry run publishes nothing."""
    if report.dry_run:
        return
    cooled = {(finding.strategy, node) for finding, node in report.findings if finding.goal is Goal.COOL}
    by_node: dict[str, list[Eviction]] = {}
    for each in report.evictions:
        if each.answered.outcome in (Outcome.EVICTED, Outcome.UNKNOWN):
            by_node.setdefault(each.node, []).append(each)
            service = each.service
            events.about_service(
                Owner(kind=service.kind, namespace=service.namespace, name=service.name, uid=each.owner_uid),
                reason="Evicted",
                eviction=each,
                note=f"pod {each.pod} on {each.node}: {each.reason}; {_expected(each)}",
            )
    for node, evictions in by_node.items():
        pods = ", ".join(f"{each.namespace}/{each.pod}" for each in evictions)
        if any((each.strategy, node) in cooled for each in evictions):
            events.about_node(node, reason="Relieved", note=f"{len(evictions)} evicted to cool it: {pods}")
        else:
            strategies = ", ".join(sorted({each.strategy for each in evictions}))
            events.about_node(node, reason="Evicted", note=f"{len(evictions)} evicted by {strategies}: {pods}")
    for node in sorted(report.cordons.keys() | report.cordons_before.keys()):
        was, now = report.cordons_before.get(node), report.cordons.get(node)
        if was != now:
            note = f"cordoned: {now}" if now else f"uncordoned: {was} ended"
            events.about_node(node, reason="Cordoned" if now else "Uncordoned", note=note)


def _expected(eviction: Eviction) -> str:
    if not eviction.target_nodes:
        return "it had finished and is not replaced"
    return f"its replacement is expected on {eviction.target_node}"
