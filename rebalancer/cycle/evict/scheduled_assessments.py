"""Schedules outcome assessments for the nodes that a cycle evicts from.

The rows are written before each eviction call, so a restart loses none of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.observe.observation import Observation
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import MAY_HAVE_HAPPENED, Eviction
from rebalancer.model.decisions.plan import CycleReport, Finding, Goal
from rebalancer.model.measured.history import DAY_SECONDS, HOUR_SECONDS
from rebalancer.model.measured.usage import ResourceUsage
from rebalancer.model.records.effect import Assessment, PodBefore, Step
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings

STEP_SECONDS: Mapping[Step, float] = {Step.HOUR: HOUR_SECONDS, Step.DAY: DAY_SECONDS}
"""After the last eviction; the step SETTLED comes after the policy's settling time."""


def schedule_assessments(
    context: CycleContext,
    report: CycleReport,
    seen: Observation,
    found: Sequence[Findings],
    policy: RebalancerPolicy,
    *,
    nodes: Collection[str] | None = None,
) -> None:
    """Write the assessments of the evictions so far, of these nodes or of all."""
    if context.effect is not None and not report.dry_run and report.evictions:
        context.effect.expect(assessments_of(report, seen, found, policy, now=context.clock.now(), nodes=nodes))


def assessments_of(
    report: CycleReport,
    seen: Observation,
    found: Sequence[Findings],
    policy: RebalancerPolicy,
    *,
    now: float,
    nodes: Collection[str] | None = None,
) -> list[Assessment]:
    """The assessments of the evictions so far, as if the last of them were made now; later rows replace earlier ones.

    `found` are the findings of the policy's strategies, in their order; only nodes found by real load are assessed.
    `nodes` None = all nodes.
    """
    if report.dry_run:
        return []
    finding_of = _cooled(found, policy)
    by_node: dict[str, list[Eviction]] = {}
    for each in report.evictions:
        if nodes is None or each.node in nodes:
            by_node.setdefault(each.node, []).append(each)
    out = []
    for name, evictions in by_node.items():
        finding = finding_of.get(seen.snapshot.node_index[name])
        used = None if finding is None else seen.usage.of(finding.resource, seen.snapshot.nodes)
        if finding is None or used is None or all(each.strategy != finding.strategy for each in evictions):
            continue
        happened = [each for each in evictions if each.answered.outcome in MAY_HAVE_HAPPENED]
        first = _of_node(report, seen, finding, used, happened, now)
        rows = [replace(first, step=step, due_at=now + _after(step, policy)) for step in Step]
        out += rows if happened else [withdrawn(each, now) for each in rows]
    return out


def withdrawn(assessment: Assessment, now: float) -> Assessment:
    """Closed without an outcome: nothing was evicted."""
    return replace(
        assessment,
        pods=(),
        planned_share=assessment.before_share,
        assessed_at=now,
        detail="nothing was evicted after all",
    )


def _cooled(found: Sequence[Findings], policy: RebalancerPolicy) -> dict[int, Finding]:
    """Node -> the finding by which it is to be cooled by real load. Other goals promise nothing about its load."""
    out: dict[int, Finding] = {}
    for strategy, findings in zip(policy.strategies, found, strict=bool(found)):
        if strategy.by_cpu:
            for finding in findings.findings:
                if finding.goal is Goal.COOL:
                    out.setdefault(finding.node, finding)
    return out


def _of_node(
    report: CycleReport,
    seen: Observation,
    finding: Finding,
    used: ResourceUsage,
    evictions: Sequence[Eviction],
    now: float,
) -> Assessment:
    """The first of them. `used`: amounts of the finding's resource."""
    snapshot, node = seen.snapshot, finding.node
    gone = {each.uid for each in evictions}
    pods = tuple(
        PodBefore(
            uid=snapshot.pods.uids[pod],
            pod=pod_name(snapshot, pod),
            amount=float(used.relieved[pod]),
            evicted=snapshot.pods.uids[pod] in gone,
        )
        for pod in snapshot.pods_on(node).tolist()
        if snapshot.active[pod]
    )
    capacity, before = float(used.capacity[node]), float(used.node[node])
    relief = sum(each.amount for each in pods if each.evicted and np.isfinite(each.amount))
    return Assessment(
        cycle=report.id,
        node=snapshot.nodes.names[node],
        pool=finding.pool,
        strategy=finding.strategy,
        trigger=str(report.trigger),
        step=Step.SETTLED,
        last_eviction_at=now,
        due_at=now,
        before_share=before / capacity,
        planned_share=(before - relief) / capacity,
        target=finding.target,
        high=finding.high,
        capacity=capacity,
        resource=finding.resource,
        pods=pods,
    )


def _after(step: Step, policy: RebalancerPolicy) -> float:
    return STEP_SECONDS.get(step, policy.effect.settling_time)


def pod_name(snapshot: ClusterSnapshot, pod: int) -> str:
    """Namespace and name of a pod, `namespace/name`."""
    return f"{snapshot.namespaces[int(snapshot.pods.namespace[pod])]}/{snapshot.pods.names[pod]}"
