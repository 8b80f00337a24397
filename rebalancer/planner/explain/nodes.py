"""Explanation of a node: its thresholds, the pods that may be evicted, and the services that are placed on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Loads, is_predicted
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Reason, Refusal
from rebalancer.planner.explain.context import ExplainContext
from rebalancer.planner.explain.pods import hot_enough
from rebalancer.planner.explain.skew import PlacementSkew, placement_skew_of
from rebalancer.planner.explain.soon import due_on_node, soon_of_node

MAX_PLACEMENT_SKEWS = 10
"""Services of a node that are shown."""
LOOKED_AT = 4 * MAX_PLACEMENT_SKEWS
"""Services of a node that are scored; each costs a scheduling decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLoad:
    """A node's load in one resource for one strategy. Shares are 0..1; None = unknown or without threshold."""

    resource: str
    measured: float | None
    """As measured, without moves that it doesn't show yet; None for requests and predicted peaks."""
    load: float | None
    high: float | None
    target: float | None
    low: float | None
    hot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyEvaluation:
    """One strategy's evaluation of the node."""

    strategy: str
    thresholds: tuple[ResourceLoad, ...]
    reason: str
    """Reason of its finding; empty without one."""
    skipped: Refusal | None
    """Why it is not evaluated, or has no finding although it looks hot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLine:
    """A pod of the node, and whether it would be evicted."""

    namespace: str
    name: str
    service: str
    cpu_millicores: float | None
    cpu_share: float | None
    """Of the node's capacity."""
    cpu_request_millicores: float
    resource_shares: Mapping[str, float | None]
    """Resource besides CPU that a strategy balances -> share of the node's capacity; None = not known."""
    target_node: tuple[str, float] | None
    """(node, probability) of a planned move; None also for a pod without a replacement."""
    code: Reason | None
    """Why it stays."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation:
    """See `explain_node`."""

    name: str
    pool: str
    evaluations: tuple[StrategyEvaluation, ...]
    stopped: Refusal | None
    """Why the cycle was stopped."""
    soon: tuple[str, ...]
    """What differs in the next minutes, in sentences."""
    pods: tuple[PodLine, ...]
    """Most CPU first."""
    attractions: tuple[PlacementSkew, ...]
    """Placement of its services, skewed ones first."""
    unknown: tuple[str, ...]

    @property
    def hot(self) -> bool:
        return any(load.hot for each in self.evaluations for load in each.thresholds)


def explain_node(scene: ExplainContext, node: int, *, strategies: Sequence[str]) -> NodeExplanation:
    """`strategies` are the names of the strategies of `scene.found`."""
    snapshot, report = scene.snapshot, scene.report
    return NodeExplanation(
        name=snapshot.nodes.names[node],
        pool=scene.pools[node],
        evaluations=tuple(
            StrategyEvaluation(
                strategy=name,
                thresholds=() if findings.loads is None else _thresholds(findings.loads, node, scene.usage, snapshot),
                reason=next((each.reason for each in findings.findings if each.node == node), ""),
                skipped=findings.skipped.get(node),
            )
            for name, findings in zip(strategies, scene.found, strict=True)
        ),
        stopped=report.stopped,
        soon=(
            *soon_of_node(scene.admission.projection, node),
            *(due_on_node(scene.placement, scene.cpu, node) if scene.cpu is not None else ()),
        ),
        pods=tuple(_pod_lines(scene, node)),
        attractions=tuple(_attractions(scene, node)),
        unknown=scene.config.unknown,
    )


def _thresholds(loads: Loads, node: int, usage: Usage, snapshot: ClusterSnapshot) -> tuple[ResourceLoad, ...]:
    room = loads.room[node]
    measured = _share(usage.node_cpu_millicores[node], snapshot.nodes.cpu_capacity_millicores[node])
    real = all(name in (CPU, *usage.resources) or is_predicted(name) for name in loads.resources)

    def measured_in(resource: str) -> float | None:
        used = usage.resources.get(resource)
        if not real or used is None:
            return measured if real and resource == CPU else None
        return _share(used.node[node], used.capacity[node])

    return tuple(
        ResourceLoad(
            resource=resource,
            measured=measured_in(resource),
            load=_share(loads.node[node, at], room[at]),
            high=_share(loads.high[node, at], room[at]),
            target=_share(loads.target[node, at], room[at]),
            low=_share(loads.low[node, at], room[at]),
            hot=bool(loads.node[node, at] > loads.high[node, at]),
        )
        for at, resource in enumerate(loads.resources)
    )


def _pod_lines(scene: ExplainContext, node: int) -> list[PodLine]:
    snapshot, report = scene.snapshot, scene.report
    moved_to = {each.in_plan.pod_index: next(iter(each.target_nodes), None) for each in report.evictions}
    refused = {(each.namespace, each.name): each for each in report.refusals if each.name}
    hot = hot_enough(scene, node)
    balanced = {name for each in scene.found if each.loads is not None for name in each.loads.resources}
    resources = {name: used for name, used in scene.usage.resources.items() if name in balanced}
    lines = []
    for index in snapshot.pods_on(node).tolist():
        if not snapshot.active[index]:
            continue
        pod = snapshot.pod(index)
        target, refusal = moved_to.get(index), refused.get((pod.namespace, pod.name))
        code, message = (refusal.code, refusal.message) if refusal is not None else (None, "")
        if index not in moved_to and refusal is None:
            stays = scene.admission.stays(pod, pool=scene.pools[node])
            # the node has a finding, this pod is no candidate
            why = (None, "no strategy selects it") if hot.ok else (hot.code, hot.detail)
            code, message = (stays.code, stays.message) if stays is not None else why
        cpu = float(scene.usage.pod_cpu_millicores[index])
        lines.append(
            PodLine(
                namespace=pod.namespace,
                name=pod.name,
                service=str(pod.service) if pod.service is not None else "",
                cpu_millicores=cpu if np.isfinite(cpu) else None,
                cpu_share=_share(cpu, snapshot.nodes.cpu_capacity_millicores[node]),
                cpu_request_millicores=float(snapshot.pods.cpu_request_millicores[index]),
                resource_shares={
                    name: _share(used.pod[index], used.capacity[node]) for name, used in resources.items()
                },
                target_node=target,
                code=None if target is not None else code,
                message="" if target is not None else message,
            )
        )
    return sorted(lines, key=lambda each: (-(each.cpu_millicores or 0.0), each.namespace, each.name))


def _attractions(scene: ExplainContext, node: int) -> list[PlacementSkew]:
    """The services with most pods here; of equal ones, those with the youngest pods."""
    snapshot = scene.snapshot
    here = snapshot.pods_on(node)
    here = here[snapshot.active[here] & (snapshot.pods.owner[here] >= 0)]
    tops = snapshot.top_owner[snapshot.pods.owner[here]]
    members: dict[int, list[int]] = {}
    for pod, top in zip(here.tolist(), tops.tolist(), strict=True):
        members.setdefault(top, []).append(pod)
    ranked = sorted(members.items(), key=lambda each: (-len(each[1]), -_youngest(snapshot, each[1]), each[0]))
    engine = scene.placement.without_pending()
    found = (placement_skew_of(snapshot, engine, top, node, scene.now) for top, _ in ranked[:LOOKED_AT])
    known = [each for each in found if each is not None]
    return sorted(known, key=lambda each: (not each.skewed, -each.here, str(each.service)))[:MAX_PLACEMENT_SKEWS]


def _youngest(snapshot: ClusterSnapshot, pods: list[int]) -> float:
    return float(snapshot.pods.created[pods].max())


def _share(value: float, room: float) -> float | None:
    return float(value / room) if np.isfinite(value) and room > 0 else None
