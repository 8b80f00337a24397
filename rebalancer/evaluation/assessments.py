"""What is looked at again after evictions, the looking itself, and what is learned from it.

What will be due is written in the cycle that evicts, before each call: a restart misses none. Where nothing was evicted
after all, by the API server's answer or because the pods are still there, the row says so and counts nothing. Looking
decides no cycle by itself: a database that fails then is a note, and the next call goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.constraints.backoff import give_up_seconds
from rebalancer.cycle.observation import Observation
from rebalancer.effect.account import PodNow, account, outcome_of
from rebalancer.effect.feedback import Lessons, lessons
from rebalancer.model.effect import Assessment, EffectRecords, PodBefore, Step
from rebalancer.model.errors import RebalancerError
from rebalancer.model.plan import CycleReport, Eviction, Finding, Goal, Outcome
from rebalancer.model.ports import Ledger
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.usage import Usage
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings

MAY_HAVE_HAPPENED = (Outcome.PLANNED, Outcome.EVICTED, Outcome.UNKNOWN)
LATE_SECONDS = 600.0
"""After it was due, or the settle time, if that is longer: then it says less."""
TRY_FOR_SECONDS = 3600.0
"""So long a node that isn't known is looked for."""
LEARN_FROM_SECONDS = 3 * 86_400.0
"""What is older teaches nothing any more."""

STEP_SECONDS: Mapping[Step, float] = {Step.HOUR: 3600.0, Step.DAY: 86_400.0}
"""After the last eviction; the third comes after the policy's settle time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessed:
    """What was made now."""

    made: tuple[Assessment, ...] = ()
    notes: tuple[str, ...] = ()
    """Why not all that is due was, in sentences."""


# ---- in the cycle that evicts


def expected(
    report: CycleReport,
    seen: Observation,
    found: Sequence[Findings],
    policy: RebalancerPolicy,
    *,
    now: float,
    node: str | None = None,
) -> list[Assessment]:
    """What is to be looked at after the evictions so far, as if the last of them were made now.

    `found` is what the policy's strategies found, in their order; only nodes that were found by real CPU are assessed.
    With `node` only that one: asked before each eviction call, and for all nodes at the end, the last answer counts.
    """
    if report.dry_run:
        return []
    marks = _cooled(found, policy)
    by_node: dict[str, list[Eviction]] = {}
    for each in report.evictions:
        if node in (None, each.move.node_name):
            by_node.setdefault(each.move.node_name, []).append(each)
    out = []
    for name, evictions in by_node.items():
        finding = marks.get(seen.snapshot.node_index[name])
        if finding is None or all(each.move.strategy != finding.strategy for each in evictions):
            continue
        happened = [each for each in evictions if each.outcome in MAY_HAVE_HAPPENED]
        first = _of_node(report, seen, finding, happened, now)
        rows = [replace(first, step=step, due_at=now + _after(step, policy)) for step in Step]
        out += rows if happened else [_withdrawn(each, now) for each in rows]
    return out


def _withdrawn(assessment: Assessment, now: float) -> Assessment:
    """Over, with nothing to be counted."""
    return replace(
        assessment, pods=(), planned_share=assessment.before_share, made_at=now, detail="nothing was evicted after all"
    )


def _cooled(found: Sequence[Findings], policy: RebalancerPolicy) -> dict[int, Finding]:
    """Node -> why it is to be cooled. What pods request is no share of its CPU that could be measured again, and who
    removes pods for another reason promises nothing about it."""
    out: dict[int, Finding] = {}
    for strategy, findings in zip(policy.strategies, found, strict=bool(found)):
        if strategy.by_cpu:
            for finding in findings.findings:
                if finding.goal is Goal.COOL:
                    out.setdefault(finding.node, finding)
    return out


def _of_node(
    report: CycleReport, seen: Observation, finding: Finding, evictions: Sequence[Eviction], now: float
) -> Assessment:
    snapshot, usage, node = seen.snapshot, seen.usage, finding.node
    gone = {each.move.uid for each in evictions}
    pods = tuple(
        PodBefore(
            uid=snapshot.pods.uids[pod],
            pod=_name(snapshot, pod),
            cpu_millicores=float(usage.pod_cpu_millicores[pod]),
            evicted=snapshot.pods.uids[pod] in gone,
        )
        for pod in snapshot.pods_on(node).tolist()
        if snapshot.active[pod]
    )
    capacity = float(snapshot.nodes.cpu_capacity_millicores[node])
    before = float(usage.node_cpu_millicores[node])
    relief = sum(each.cpu_millicores for each in pods if each.evicted and np.isfinite(each.cpu_millicores))
    return Assessment(
        cycle=report.id,
        node=snapshot.nodes.names[node],
        pool=finding.pool,
        strategy=finding.strategy,
        trigger=str(report.trigger),
        step=Step.SETTLED,
        acted_at=now,
        due_at=now,
        before_share=before / capacity,
        planned_share=(before - relief) / capacity,
        target=finding.target,
        high=finding.high,
        capacity_millicores=capacity,
        pods=pods,
    )


def _after(step: Step, policy: RebalancerPolicy) -> float:
    return STEP_SECONDS.get(step, policy.effect.settle)


# ---- when it is due


def assess_due(
    records: EffectRecords,
    snapshot: ClusterSnapshot,
    usage: Usage,
    *,
    replacements: Callable[[float], Mapping[str, str]],
    policy: RebalancerPolicy,
    now: float,
) -> Assessed:
    """Make the assessments that are due, as far as their nodes are known; the others are tried again for an hour.

    `usage` is of `snapshot`. `replacements` (of the ledger): since when -> uid of a pod that took an evicted one's
    place -> the node that that one had left. One small query when nothing is due.
    """
    try:
        due = records.due(now)
        if not due:
            return Assessed()
        since = min(each.acted_at for each in due)
        look = _Look(snapshot, usage, replacements(since), _evicted(records.assessments(since, now)))
        nothing = [_withdrawn(each, now) for each in due if look.stayed(each)]
        made = [done for each in due if not look.stayed(each) and (done := look.made(each, policy, now)) is not None]
        records.expect(nothing)
        records.made(made)
    except RebalancerError as error:
        return Assessed(notes=(f"what became of evictions is not assessed: {error}",))
    waiting = sorted({each.node for each in due} - {each.node for each in (*nothing, *made)})
    notes = (f"not assessed yet, their CPU isn't known: {', '.join(waiting)}",) if waiting else ()
    return Assessed(made=tuple(made), notes=notes)


def _evicted(assessments: Sequence[Assessment]) -> dict[str, set[str]]:
    """Node -> uids of the pods that we evicted from it, or meant to."""
    out: dict[str, set[str]] = {}
    for each in assessments:
        out.setdefault(each.node, set()).update(pod.uid for pod in each.pods if pod.evicted)
    return out


class _Look:
    """At the cluster, now."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        usage: Usage,
        replacements: Mapping[str, str],
        evicted: Mapping[str, set[str]],
    ) -> None:
        self._snapshot = snapshot
        self._usage = usage
        self._replacements = replacements
        self._evicted = evicted

    def made(self, due: Assessment, policy: RebalancerPolicy, now: float) -> Assessment | None:
        """None: to be tried again."""
        late = now - due.due_at > max(policy.effect.settle, LATE_SECONDS)
        node = self._snapshot.node_index.get(due.node)
        after = None if node is None else self._share(node)
        pods = [] if node is None else self._pods(node)
        # a later cycle's evictions are ours too: their pods did not leave by themselves
        ours = self._evicted.get(due.node, set())
        counted = replace(due, pods=tuple(replace(pod, evicted=pod.evicted or pod.uid in ours) for pod in due.pods))
        known = after is not None and (not pods or any(np.isfinite(each.cpu_millicores) for each in pods))
        if not known and now < due.due_at + TRY_FOR_SECONDS:
            return None
        accounted = None
        if known and after is not None:
            capacity = due.capacity_millicores
            accounted = account(counted, pods, due.before_share * capacity, after * capacity)
        outcome, detail = outcome_of(counted, accounted, after)
        return replace(
            due, made_at=now, late=late, after_share=after, account=accounted, outcome=outcome, detail=detail
        )

    def _share(self, node: int) -> float | None:
        """Used cores / capacity; None where it isn't known, or may be only a part of it."""
        capacity = self._snapshot.nodes.cpu_capacity_millicores[node]
        share = float(self._usage.node_cpu_millicores[node] / capacity) if capacity > 0 else float("nan")
        return share if np.isfinite(share) and not self._usage.warnings else None

    def _pods(self, node: int) -> list[PodNow]:
        snapshot, name = self._snapshot, self._snapshot.nodes.names[node]
        return [
            PodNow(
                uid=snapshot.pods.uids[pod],
                name=_name(snapshot, pod),
                cpu_millicores=float(self._usage.pod_cpu_millicores[pod]),
                is_replacement=self._replacements.get(snapshot.pods.uids[pod]) == name,
            )
            for pod in snapshot.pods_on(node).tolist()
            if snapshot.active[pod]
        ]

    def stayed(self, due: Assessment) -> bool:
        """Whether all that was to be evicted is still there, and is to stay."""
        pods, node = self._snapshot.pods, self._snapshot.node_index.get(due.node)
        if node is None:
            return False
        there = {pods.uids[pod] for pod in self._snapshot.pods_on(node).tolist() if not pods.terminating[pod]}
        return all(pod.uid in there for pod in due.pods if pod.evicted)


def _name(snapshot: ClusterSnapshot, pod: int) -> str:
    return f"{snapshot.namespaces[int(snapshot.pods.namespace[pod])]}/{snapshot.pods.names[pod]}"


# ---- what is learned


def learn(effect: EffectRecords, policy: RebalancerPolicy, *, made: Sequence[Assessment] = (), now: float) -> Lessons:
    """What the assessments of the last days teach, those that were just `made` among them. Raises ConnectError.

    To be asked at the start, whenever something was made, and now and then: a brake lets go with time.
    """
    since = now - LEARN_FROM_SECONDS
    return lessons(
        made,
        effect.assessments(since, now),
        moved=effect.moved(since, now) if made else (),
        brake=policy.safety.brake.effect,
        now=now,
    )


def remember(ledger: Ledger, learned: Lessons, policy: RebalancerPolicy) -> None:
    """Write down what is given up. Raises ConnectError."""
    for each in learned.give_up:
        ledger.give_up(
            service_identity=each.service_identity,
            node=each.node,
            reason=each.reason,
            seconds=lambda count: give_up_seconds(policy.safety.cooldowns.give_up, count),
        )
