"""Runs outcome assessments when they are due, and derives feedback from them.

An assessment whose pods were not evicted after all is withdrawn and counts nothing. No cycle depends on this module: a
database error becomes a note, and the next call continues.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.constraints.pauses.backoff import backoff_seconds
from rebalancer.cycle.evict.scheduled_assessments import pod_name, withdrawn
from rebalancer.effect.account import PodNow, account, outcome_of
from rebalancer.effect.feedback import Feedback, feedback
from rebalancer.evaluation.pool_growth import LONGEST_CYCLE_SECONDS, pool_growth
from rebalancer.forecast.series.pod_cpu import MissingReplica, pod_cpu
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Ledger
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.usage import ResourceUsage, Usage
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.effect import Assessment, EffectRecords, Step
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools

LATE_SECONDS = 600.0
"""Time after the due time, or the settling time if that is longer, from which an assessment is late."""
RETRY_FOR_SECONDS = 3600.0
"""For how long an assessment without the node's load is retried."""
FEEDBACK_WINDOW_SECONDS = 3 * DAY_SECONDS
"""Older assessments don't count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessmentBatch:
    """The assessments made by one call."""

    made: tuple[Assessment, ...] = ()
    notes: tuple[str, ...] = ()
    """Why due assessments were not made, in sentences."""


# ---- due assessments


def _none_missing(_window_seconds: float) -> Sequence[MissingReplica]:
    return ()


def run_due_assessments(
    records: EffectRecords,
    snapshot: ClusterSnapshot,
    usage: Usage,
    *,
    replacements: Callable[[float], Mapping[str, str]],
    missing: Callable[[float], Sequence[MissingReplica]] = _none_missing,
    policy: RebalancerPolicy,
    now: float,
) -> AssessmentBatch:
    """Make the due assessments of nodes whose load is known; the others are retried for an hour.

    `usage` is of `snapshot`. `replacements` (of the ledger): since when -> uid of a replacement -> the node that its
    predecessor was evicted from. `missing`: length of the rate window -> replicas whose load their siblings carry or
    carried within it. One small query when nothing is due.
    """
    try:
        due = records.due(now)
        if not due:
            return AssessmentBatch()
        since = min(each.last_eviction_at for each in due)
        cpu = pod_cpu(
            snapshot,
            usage,
            now=now,
            missing=missing(usage.window_seconds),
            generation=policy.forecast.generation,
        )
        evicted = _evicted(records.assessments(since, now))
        replacing = replacements(since)
        growth = pool_growth(
            records,
            snapshot,
            usage,
            NodePools.of(policy.pools, snapshot.nodes).names,
            due=[each for each in due if each.resource == CPU],
            touched={each.node for each in records.moved(since - LONGEST_CYCLE_SECONDS, now)}
            | set(evicted)
            | _nodes_of(snapshot, replacing),
            replacing=replacing,
        )
        look = _NodeMeasurement(snapshot, usage, replacing, evicted, cpu.surplus, growth)
        nothing = [withdrawn(each, now) for each in due if look.stayed(each)]
        made = [done for each in due if not look.stayed(each) and (done := look.made(each, policy, now)) is not None]
        records.expect(nothing)
        records.made(made)
    except RebalancerError as error:
        return AssessmentBatch(notes=(f"evictions are not assessed: {error}",))
    waiting = sorted({each.node for each in due} - {each.node for each in (*nothing, *made)})
    notes = (f"not assessed yet, their load isn't known: {', '.join(waiting)}",) if waiting else ()
    return AssessmentBatch(made=tuple(made), notes=notes)


def _evicted(assessments: Sequence[Assessment]) -> dict[str, set[str]]:
    """Node -> uids of the pods evicted from it, or planned to be."""
    out: dict[str, set[str]] = {}
    for each in assessments:
        out.setdefault(each.node, set()).update(pod.uid for pod in each.pods if pod.evicted)
    return out


def _nodes_of(snapshot: ClusterSnapshot, replacements: Mapping[str, str]) -> set[str]:
    """Nodes with one of these pods, by uid."""
    if not replacements:
        return set()
    pods, names = snapshot.pods, snapshot.nodes.names
    there = zip(pods.uids, pods.node.tolist(), strict=True)
    return {names[node] for uid, node in there if node >= 0 and uid in replacements}


@dataclass(slots=True)
class _NodeMeasurement:
    """Measures nodes in the current snapshot."""

    snapshot: ClusterSnapshot
    usage: Usage
    replacements: Mapping[str, str]
    evicted: Mapping[str, set[str]]
    surplus: Floats
    growth: Mapping[tuple[str, str], float]

    def made(self, due: Assessment, policy: RebalancerPolicy, now: float) -> Assessment | None:
        """The assessment with its outcome; None: retry later."""
        late = now - due.due_at > max(policy.effect.settling_time, LATE_SECONDS)
        node = self.snapshot.node_index.get(due.node)
        used = self.usage.of(due.resource, self.snapshot.nodes)
        after = None if node is None or used is None else self._share(node, used)
        pods = [] if node is None or used is None else self._pods(node, used, by_cpu=due.resource == CPU)
        # pods evicted by a later cycle did not depart by themselves
        ours = self.evicted.get(due.node, set())
        counted = replace(due, pods=tuple(replace(pod, evicted=pod.evicted or pod.uid in ours) for pod in due.pods))
        known = after is not None and (not pods or any(np.isfinite(each.amount) for each in pods))
        if not known and now < due.due_at + RETRY_FOR_SECONDS:
            return None
        accounted = None
        if known and after is not None:
            capacity = due.capacity
            # of other resources the growth of a pool is not recorded
            growth = self.growth.get((due.cycle, due.pool)) if due.resource == CPU else 1.0
            accounted = account(counted, pods, due.before_share * capacity, after * capacity, growth=growth)
        outcome, detail = outcome_of(counted, accounted, after)
        return replace(
            due, assessed_at=now, late=late, after_share=after, breakdown=accounted, outcome=outcome, detail=detail
        )

    def _share(self, node: int, used: ResourceUsage) -> float | None:
        """Amount / capacity; None where it isn't known or incomplete."""
        capacity = used.capacity[node]
        share = float(used.node[node] / capacity) if capacity > 0 else float("nan")
        return share if np.isfinite(share) and not self.usage.warnings else None

    def _pods(self, node: int, used: ResourceUsage, *, by_cpu: bool) -> list[PodNow]:
        snapshot, name = self.snapshot, self.snapshot.nodes.names[node]
        return [
            PodNow(
                uid=snapshot.pods.uids[pod],
                name=pod_name(snapshot, pod),
                amount=float(used.relieved[pod]),
                is_replacement=self.replacements.get(snapshot.pods.uids[pod]) == name,
                surplus=float(self.surplus[pod]) if by_cpu else 0.0,
            )
            for pod in snapshot.pods_on(node).tolist()
            if snapshot.active[pod]
        ]

    def stayed(self, due: Assessment) -> bool:
        """Whether all pods to be evicted are still there, not terminating."""
        pods, node = self.snapshot.pods, self.snapshot.node_index.get(due.node)
        if node is None:
            return False
        there = {pods.uids[pod] for pod in self.snapshot.pods_on(node).tolist() if not pods.terminating[pod]}
        return all(pod.uid in there for pod in due.pods if pod.evicted)


# ---- feedback


def derive_feedback(
    effect: EffectRecords, policy: RebalancerPolicy, *, made: Sequence[Assessment] = (), now: float
) -> Feedback:
    """Feedback from the last days' assessments, with those just `made` among them. Raises ConnectError.

    To be derived at the start, after new assessments, and at intervals: a circuit breaker closes with time.
    """
    since = now - FEEDBACK_WINDOW_SECONDS
    return feedback(
        made,
        effect.assessments(since, now, step=Step.SETTLED),
        moved=effect.moved(since, now) if made else (),
        breaker=policy.safety.circuit_breaker.effect,
        now=now,
    )


def remember(ledger: Ledger, learned: Feedback, policy: RebalancerPolicy) -> None:
    """Record the new backoffs. Raises ConnectError."""
    for each in learned.ineffective:
        ledger.back_off(
            service_identity=each.service_identity,
            node=each.node,
            resource=each.resource,
            reason=each.reason,
            seconds=lambda count: backoff_seconds(policy.safety.cooldowns.backoff, count),
        )
