"""Explanation of a pod: kube-scheduler's filters and scores of each node, and whether a run would evict it now.

Computed from the result of one dry cycle.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rebalancer.constraints.moves.budgets import BudgetRoom
from rebalancer.forecast.series.pod_cpu import SOURCES, CpuSource, PodCpu
from rebalancer.model.cluster.autoscaling import HorizontalAutoscaler
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.decisions.eviction import Eviction, TargetNode
from rebalancer.model.decisions.plan import Finding, Goal, PodRefusal
from rebalancer.model.notation.figures import counted, millicores
from rebalancer.model.reason import BlockedReason, Code, Reason, Refusal
from rebalancer.placement.draws.sampling import winners
from rebalancer.placement.landing.model import NO_PODS
from rebalancer.placement.landing.pending import ENOUGH
from rebalancer.placement.scheduler.engine import Verdict
from rebalancer.planner.explain.context import ExplainContext
from rebalancer.planner.explain.soon import soon_of_pod
from rebalancer.planner.plan.moves import needed_by, new_eviction

SOURCE_TEXTS = {
    CpuSource.UNKNOWN: "not measured: what it requests counts",
    CpuSource.MEASURED: "as measured",
    CpuSource.SIBLINGS: "as its siblings use on other nodes",
    CpuSource.PREDECESSOR: "as the evicted pod used that it replaces: it is not measured over a whole rate window yet",
    CpuSource.REQUEST: "as it requests: its node is saturated, or it is new, and no sibling shows what it uses",
}


REPLACEMENT_FIRST = "its Deployment runs one pod more until that one is Ready, then it goes: no disruption"

GUARDS, BUDGET, LIMITS, LANDING = "guards, lists, levels, windows", "budget", "limits, pauses, cooldowns", "landing"
CHECK_OF: Mapping[Code | None, str] = {
    **dict.fromkeys((BlockedReason.GUARDS, BlockedReason.LISTS, BlockedReason.LEVELS, BlockedReason.WINDOWS), GUARDS),
    BlockedReason.BUDGETS: BUDGET,
    **dict.fromkeys((BlockedReason.LIMITS, BlockedReason.COOLDOWNS, BlockedReason.PAUSED), LIMITS),
    **dict.fromkeys((BlockedReason.NO_TARGET_NODE, BlockedReason.POOL_FULL), LANDING),
}
"""Group of a refusal's code -> the check that a refusal by the plan fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredNode:
    """A feasible node."""

    name: str
    scores: Mapping[str, float]
    """Plugin -> normalised score times its weight; empty where the scheduler isn't known."""
    raw: Mapping[str, float]
    """Plugin -> raw score."""
    total: float
    probability: float
    """Probability that the pod lands here, 0..1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedNode:
    """A node that is not feasible: its first filter, with the scheduler's message."""

    name: str
    filter: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition of an eviction."""

    name: str
    ok: bool
    detail: str
    code: Reason | None = None

    @classmethod
    def of(cls, name: str, refusal: Refusal | None, *, fine: str) -> "Check":
        if refusal is None:
            return cls(name=name, ok=True, detail=fine)
        return cls(name=name, ok=False, detail=refusal.message, code=refusal.code)

    @property
    def lifted_by(self) -> str:
        """What would lift it; empty where it holds."""
        return "" if self.code is None else self.code.lifted_by


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExplanation:
    """See `explain_pod`."""

    pod: Pod
    pool: str
    scored: tuple[ScoredNode, ...]
    """Best first."""
    failed: tuple[FailedNode, ...]
    """By filter and name."""
    target_nodes: tuple[tuple[str, float], ...]
    """(node, probability), likeliest first."""
    no_target_node: Refusal | None
    """Why its target node is none or unknown."""
    checks: tuple[Check, ...]
    """Conditions of an eviction, in the order of their evaluation; empty for a pod that is on no node."""
    eviction: Eviction | None
    """Its planned eviction; None where a run wouldn't evict it."""
    room: str
    """How room is made for a pending pod, or why it is not; empty where no strategy makes room for it."""
    soon: tuple[str, ...]
    """What differs in the next minutes, in sentences."""
    planned: int
    """Evictions of the plan. Nodes, scores and target nodes are those without them."""
    unknown: tuple[str, ...]
    """Parts of the scheduler's configuration that are not modelled."""

    @property
    def failures(self) -> dict[str, int]:
        """Filter -> nodes, most first."""
        counts: dict[str, int] = {}
        for each in self.failed:
            counts[each.filter] = counts.get(each.filter, 0) + 1
        return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def find_pod(snapshot: ClusterSnapshot, namespace: str, name: str) -> Pod | None:
    """The pod of that name."""
    for index, each in enumerate(snapshot.pods.names):
        if each == name and snapshot.namespaces[int(snapshot.pods.namespace[index])] == namespace:
            return snapshot.pod(index)
    return None


def explain_pod(scene: ExplainContext, pod: Pod) -> PodExplanation:
    """Explain the placement of the pod's replacement (of the pod itself while it is pending), and whether a run would
    evict it now."""
    snapshot = scene.snapshot
    scene.placement.start_over()
    verdict = scene.placement.explain(pod)
    targets, refusal = _targets(scene, pod, verdict)
    probability = dict(targets)
    names = snapshot.nodes.names
    # scores depend on the scheduler's profile, filters don't
    known = pod.template.scheduler_name in scene.config.profiles
    weighted, raw = (verdict.weighted, verdict.raw) if known else ({}, {})
    scored = [
        ScoredNode(
            name=names[node],
            scores={plugin: float(points[node]) for plugin, points in weighted.items()},
            raw={plugin: float(points[node]) for plugin, points in raw.items()},
            total=float(verdict.total[node]) if known else 0.0,
            probability=probability.get(names[node], 0.0),
        )
        for node in np.flatnonzero(verdict.feasible).tolist()
    ]
    failed = [
        FailedNode(name=names[node], filter=failed[0], message=failed[1])
        for node, failed in enumerate(verdict.filtered)
        if failed is not None
    ]
    return PodExplanation(
        pod=pod,
        pool=scene.pools[pod.node] if pod.node >= 0 else "",
        scored=tuple(sorted(scored, key=lambda each: (-each.total, each.name))),
        failed=tuple(sorted(failed, key=lambda each: (each.filter, each.name))),
        target_nodes=targets,
        no_target_node=refusal,
        checks=_checks(scene, pod, targets, refusal) if pod.node >= 0 else (),
        eviction=_planned(scene, pod),
        room=_room(scene, pod) if pod.node < 0 else "",
        soon=tuple(soon_of_pod(scene.admission.projection, pod)),
        planned=len(scene.report.evictions),
        unknown=scene.config.unknown,
    )


def _room(scene: ExplainContext, pod: Pod) -> str:
    names = scene.snapshot.nodes.names
    for findings in scene.found:
        if (node := findings.rooms.get(pod.index)) is not None:
            return f"held on {names[node]}"
        for finding in findings.findings:
            moves = [each for each in scene.report.evictions if each.in_plan.pod_index in finding.candidates]
            if finding.room_for == pod.index and moves and _refused(scene, pod) is None:
                which = ", ".join(each.full_name for each in moves)
                return f"made on {names[finding.node]} by {counted(len(moves), 'move')}: {which}"
    refusal = _refused(scene, pod)
    return "" if refusal is None else refusal.message


def _targets(scene: ExplainContext, pod: Pod, verdict: Verdict) -> tuple[tuple[tuple[str, float], ...], Refusal | None]:
    """The target nodes, or why they are none or unknown. A finished or gated pod has none."""
    if pod.phase in (SUCCEEDED, FAILED):
        return (), Refusal.of(Reason.FINISHED)
    names = scene.snapshot.nodes.names
    if pod.node >= 0:
        found = scene.placement.landings(pod)
        if isinstance(found, Refusal):
            return (), found
        nodes, probabilities = found.nodes, found.shares
    else:
        engine = scene.placement.without_pending()
        kind, feasible = engine.board.kinds.of(pod.index), int(np.count_nonzero(verdict.feasible))
        if (unknown := engine.knows(kind)) is not None:
            return (), unknown
        if not feasible:
            return (), Refusal.of(Reason.NO_TARGET_NODE)
        nodes, probabilities = winners(verdict.total, engine.sample_size(kind, feasible), enough=ENOUGH)
    pairs = [(names[node], share) for node, share in zip(nodes.tolist(), probabilities.tolist(), strict=True)]
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0]))), None


def _checks(
    scene: ExplainContext, pod: Pod, targets: tuple[tuple[str, float], ...], no_target_node: Refusal | None
) -> tuple[Check, ...]:
    pool = scene.pools[pod.node]
    finding = _wanted(scene, pod)
    checks = [_not_found(scene, pod) if finding is None else _found(finding)]
    stays = scene.admission.stays(
        pod,
        pool=pool,
        strategy="" if finding is None else finding.strategy,
        broken=finding is not None and finding.broken,
    )
    if stays is None:
        stays = _needed(scene, pod, targets, finding)
    checks.append(Check.of(GUARDS, stays, fine="not protected, windows open"))
    first = scene.admission.first
    budget = BudgetRoom(scene.admission.projection, apart=first.applies).refuses(pod)
    checks.append(Check.of(BUDGET, budget, fine="no budget, or it allows one"))
    if first.applies(pod) and first.refuses(pod) is None:
        checks.append(Check(name="replacement first", ok=True, detail=REPLACEMENT_FIRST))
    if pod.service is not None:
        due = scene.admission.due(_move(scene, pod, targets, finding))
        wait = "" if isinstance(due, Refusal) or due <= scene.now else f", in {due - scene.now:.0f}s"
        refusal = due if isinstance(due, Refusal) else None
        checks.append(Check.of(LIMITS, refusal, fine=f"within limits{wait}"))
        checks.append(Check(name="price", ok=True, detail=str(scene.admission.price(pod))))
    coming_back = dict(targets).get(pod.node_name, 0.0)
    fine = "kube-scheduler puts the replacement elsewhere"
    if finding is not None and pod.phase in (SUCCEEDED, FAILED):
        no_target_node, fine = None, "it has no replacement"
    elif no_target_node is None and coming_back:
        if finding is not None and not finding.landing.elsewhere:
            fine = f"its replacement may come back to its node, with a probability of {coming_back:.0%}"
        else:
            no_target_node = Refusal.of(Reason.WOULD_RETURN_TO_NODE, f"with a probability of {coming_back:.0%}")
    checks.append(Check.of(LANDING, no_target_node, fine=fine))
    checks = [_as_planned(each, scene, pod) for each in checks]
    if scene.cpu is not None:
        checks.append(_cpu_elsewhere(scene.cpu, pod.index))
    leaks = [each for each in scene.leaks if each.pod == str(pod)]
    checks += [Check(name="memory leak", ok=True, detail=f"it {each.sentence}") for each in leaks]
    if (scaler := scene.snapshot.autoscaler_of(pod.service)) is not None:
        checks.append(_mean_of_the_others(scaler))
    checks.append(_by_the_plan(scene, pod))
    return tuple(checks)


def _needed(
    scene: ExplainContext, pod: Pod, targets: tuple[tuple[str, float], ...], finding: Finding | None
) -> Refusal | None:
    """Why it stays for the pods that need it, or None."""
    emptied = finding is not None and finding.goal is Goal.EMPTY
    leaving = finding.candidates[scene.snapshot.active[finding.candidates]] if finding and emptied else NO_PODS
    nodes = np.array([scene.snapshot.node_index[name] for name, _ in targets], dtype=np.int64)
    model = scene.placement
    left = model.followers(pod, leaving=leaving) or model.followers(pod, nodes, leaving=leaving)
    strategy = "" if finding is None else finding.strategy
    return needed_by(left, scene.admission, strategy=strategy, pool=scene.pools[pod.node])


def _cpu_elsewhere(cpu: PodCpu, pod: int) -> Check:
    """The figure that its landings are checked with, and its source; never a reason against an eviction."""
    figure, surplus = float(cpu.elsewhere[pod]), float(cpu.surplus[pod])
    detail = SOURCE_TEXTS[SOURCES[int(cpu.source[pod])]]
    if np.isfinite(figure):
        of = "" if (cpu.speed == 1.0).all() else " of the reference machine"
        detail = f"{millicores(figure)}{of}, {detail}"
    if surplus >= 1.0:
        detail += f"; {millicores(surplus)} of its CPU here pass when a replacement of its service is Ready"
    return Check(name="CPU elsewhere", ok=True, detail=detail)


def _mean_of_the_others(scaler: HorizontalAutoscaler) -> Check:
    """What the mean of a HorizontalPodAutoscaler becomes while one of its pods is replaced, where they share one load;
    never a reason against an eviction. It rises by n / (n - 1)."""
    name, pods = "autoscaler", scaler.current
    if pods < 2 or not scaler.metrics:
        return Check(name=name, ok=True, detail=f"{scaler.name}: no mean over several pods is known")
    parts = []
    for metric in scaler.metrics:
        rises, most = metric.current * pods / (pods - 1), metric.target * (1.0 + scaler.tolerance)
        over = "over" if rises > most else "within"
        parts.append(
            f"while one of {pods} pods starts, the mean {metric.name} of the others rises from {metric.current:g} to "
            f"{rises:.3g}, {over} the target of {metric.target:g} with its tolerance of {scaler.tolerance:.0%}"
        )
    return Check(name=name, ok=True, detail=f"{scaler.name}: {'; '.join(parts)}")


def hot_enough(scene: ExplainContext, node: int) -> Check:
    """Whether a strategy would cool the node."""
    name = "finding"
    if not scene.pools[node]:
        return Check(name=name, ok=False, detail="its node is in no pool of the policy")
    if (stopped := scene.report.stopped) is not None:
        return Check(name=name, ok=False, detail=stopped.message, code=stopped.code)
    for findings in scene.found:
        for finding in findings.findings:
            if finding.node == node and finding.goal is Goal.COOL:
                return _found(finding)
    for findings in scene.found:
        if (skipped := findings.skipped.get(node)) is not None:
            return Check(name=name, ok=False, detail=skipped.message, code=skipped.code)
    return Check(name=name, ok=False, detail="its node is not hot")


def _wanted(scene: ExplainContext, pod: Pod) -> Finding | None:
    """The first finding that the pod is a candidate of."""
    for findings in scene.found:
        for finding in findings.findings:
            if finding.node == pod.node and pod.index in finding.candidates:
                return finding
    return None


def _not_found(scene: ExplainContext, pod: Pod) -> Check:
    """Whether its node is to be cooled; if not, why a strategy that selects single pods doesn't find it now."""
    node = hot_enough(scene, pod.node)
    stays = next((each.stays[pod.index] for each in scene.found if pod.index in each.stays), None)
    return node if node.ok or stays is None else Check.of(node.name, stays, fine="")


def _found(finding: Finding) -> Check:
    return Check(name="finding", ok=True, detail=finding.reason)


def _planned(scene: ExplainContext, pod: Pod) -> Eviction | None:
    return next((each for each in scene.report.evictions if each.in_plan.pod_index == pod.index), None)


def _refused(scene: ExplainContext, pod: Pod) -> PodRefusal | None:
    own = (pod.namespace, pod.name)
    return next((each for each in scene.report.refusals if (each.namespace, each.name) == own), None)


def _as_planned(check: Check, scene: ExplainContext, pod: Pod) -> Check:
    """The check with the plan's other evictions counted, so that none contradicts what the plan decided."""
    eviction, refusal = _planned(scene, pod), _refused(scene, pod)
    if eviction is not None and check.name == LANDING and not check.ok:
        lands = f"{_lands(eviction)}, with the plan's earlier evictions counted"
        return Check(name=check.name, ok=True, detail=f"kube-scheduler puts the replacement on {lands}")
    if refusal is None or not check.ok or CHECK_OF.get(refusal.code.group) != check.name:
        return check
    others = f"; without the plan's {counted(len(scene.report.evictions), 'eviction')}: {check.detail}"
    detail = refusal.message + (others if scene.report.evictions else "")
    return Check(name=check.name, ok=False, detail=detail, code=refusal.code)


def _lands(eviction: Eviction) -> str:
    return ", ".join(f"{node} ({share:.0%})" for node, share in eviction.target_nodes[:1])


def _by_the_plan(scene: ExplainContext, pod: Pod) -> Check:
    name, eviction, refusal = "plan", _planned(scene, pod), _refused(scene, pod)
    if eviction is not None:
        lands = f", target node {_lands(eviction)}" if eviction.target_nodes else ""
        return Check(name=name, ok=True, detail=f"a run would evict it now{lands}")
    if refusal is not None:
        return Check(name=name, ok=False, detail=refusal.message, code=refusal.code)
    return Check(name=name, ok=False, detail="no strategy selects it")


def _move(scene: ExplainContext, pod: Pod, targets: tuple[tuple[str, float], ...], finding: Finding | None) -> Eviction:
    """Its eviction, as limits count it."""
    move = new_eviction(
        pod,
        scene.snapshot,
        scene.admission,
        node=pod.node,
        pool=scene.pools[pod.node],
        cpu_millicores=float(scene.usage.pod_cpu_millicores[pod.index]),
        cools=finding is None or finding.goal is Goal.COOL,
    )
    move.target_nodes = tuple(TargetNode(*each) for each in targets)
    if targets:
        move.target_pool = scene.pools[scene.snapshot.node_index[targets[0][0]]]
    return scene.admission.scope(move)
