"""Why a node is hot, who could leave it and why the others can't, and why pods keep coming to it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.model.plan import PEAK, Loads
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.usage import Usage
from rebalancer.planner.explain.pods import ExplainContext, hot_enough
from rebalancer.planner.explain.skew import PlacementSkew, placement_skew_of

MAX_PLACEMENT_SKEWS = 10
"""Services of a node that are told of."""
LOOKED_AT = 4 * MAX_PLACEMENT_SKEWS
"""Services of a node that are looked at: the scheduler is asked for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLoad:
    """A node's load in one resource, as one strategy judges it. Shares are 0..1; None = not known or not judged."""

    resource: str
    measured: float | None
    """Real CPU as it is measured, before moves that it doesn't show yet are counted in; None for other loads."""
    load: float | None
    high: float | None
    target: float | None
    low: float | None
    hot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyAssessment:
    """What one strategy says of the node."""

    strategy: str
    marks: tuple[ResourceLoad, ...]
    reason: str
    """Why it is to be relieved; empty when it isn't."""
    skipped: Refusal | None
    """Why it is not judged, or not found although it looks hot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLine:
    """A pod of the node, and whether it would leave."""

    namespace: str
    name: str
    service: str
    cpu_millicores: float | None
    cpu_share: float | None
    """Of the node's capacity."""
    cpu_request_millicores: float
    landing: tuple[str, float] | None
    """(node, chance) of a planned move; None also where nothing comes in its place."""
    code: Reason | None
    """Why it stays."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation:
    """See `explain_node`."""

    name: str
    pool: str
    judgements: tuple[StrategyAssessment, ...]
    stopped: Refusal | None
    """Why nothing is decided at all."""
    pods: tuple[PodLine, ...]
    """Most CPU first."""
    attractions: tuple[PlacementSkew, ...]
    """Why pods of its services come here: heaps first."""
    unknown: tuple[str, ...]

    @property
    def hot(self) -> bool:
        return any(mark.hot for each in self.judgements for mark in each.marks)


def explain_node(scene: ExplainContext, node: int, *, strategies: Sequence[str]) -> NodeExplanation:
    """`strategies` are the names behind `scene.found`."""
    snapshot, report = scene.snapshot, scene.report
    return NodeExplanation(
        name=snapshot.nodes.names[node],
        pool=scene.pools[node],
        judgements=tuple(
            StrategyAssessment(
                strategy=name,
                marks=() if findings.loads is None else _thresholds(findings.loads, node, scene.usage, snapshot),
                reason=next((each.reason for each in findings.findings if each.node == node), ""),
                skipped=findings.skipped.get(node),
            )
            for name, findings in zip(strategies, scene.found, strict=True)
        ),
        stopped=report.stopped,
        pods=tuple(_pod_lines(scene, node)),
        attractions=tuple(_attractions(scene, node)),
        unknown=scene.config.unknown,
    )


def _thresholds(loads: Loads, node: int, usage: Usage, snapshot: ClusterSnapshot) -> tuple[ResourceLoad, ...]:
    room = loads.room[node]
    measured = _share(usage.node_cpu_millicores[node], snapshot.nodes.cpu_capacity_millicores[node])
    by_cpu = set(loads.resources) <= {"cpu", PEAK}
    return tuple(
        ResourceLoad(
            resource=resource,
            measured=measured if by_cpu and resource != PEAK else None,
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
    landings = {each.pod_index: next(iter(each.target_nodes), None) for each in report.evictions}
    refused = {(each.namespace, each.name): each for each in report.refusals if each.name}
    hot = hot_enough(scene, node)
    lines = []
    for index in snapshot.pods_on(node).tolist():
        if not snapshot.active[index]:
            continue
        pod = snapshot.pod(index)
        landing, refusal = landings.get(index), refused.get((pod.namespace, pod.name))
        code, message = (refusal.code, refusal.message) if refusal is not None else (None, "")
        if index not in landings and refusal is None:
            stays = scene.admission.stays(pod, pool=scene.pools[node])
            # of a node that was found: the others of its pods
            why = (None, "no strategy asks for it") if hot.ok else (hot.code, hot.detail)
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
                landing=landing,
                code=None if landing is not None else code,
                message="" if landing is not None else message,
            )
        )
    return sorted(lines, key=lambda each: (-(each.cpu_millicores or 0.0), each.namespace, each.name))


def _attractions(scene: ExplainContext, node: int) -> list[PlacementSkew]:
    """Of the node's services with the most pods here: of equal ones, those whose pods came last."""
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
    return sorted(known, key=lambda each: (not each.heaped, -each.here, str(each.service)))[:MAX_PLACEMENT_SKEWS]


def _youngest(snapshot: ClusterSnapshot, pods: list[int]) -> float:
    return float(snapshot.pods.created[pods].max())


def _share(value: float, room: float) -> float | None:
    return float(value / room) if np.isfinite(value) and room > 0 else None
