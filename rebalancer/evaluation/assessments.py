"""Runs outcome assessments when they are due, and derives feedback from them.

An assessment whose pods were not evicted after all is withdrawn and counts nothing. No cycle depends on this module: a
database error becomes a note, and the next call continues.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.constraints.backoff import backoff_seconds
from rebalancer.cycle.scheduled_assessments import pod_name, withdrawn
from rebalancer.effect.account import PodNow, account, outcome_of
from rebalancer.effect.feedback import Feedback, feedback
from rebalancer.model.effect import Assessment, EffectRecords
from rebalancer.model.errors import RebalancerError
from rebalancer.model.history import DAY_SECONDS
from rebalancer.model.ports import Ledger
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.usage import Usage
from rebalancer.policy import RebalancerPolicy

LATE_SECONDS = 600.0
"""After it was due, or the settle time, if that is longer: then it says less."""
RETRY_FOR_SECONDS = 3600.0
"""So long a node that isn't known is looked for."""
FEEDBACK_WINDOW_SECONDS = 3 * DAY_SECONDS
"""What is older teaches nothing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessmentBatch:
    """What was made now."""

    made: tuple[Assessment, ...] = ()
    notes: tuple[str, ...] = ()
    """Why not all that is due was, in sentences."""


# ---- when it is due


def run_due_assessments(
    records: EffectRecords,
    snapshot: ClusterSnapshot,
    usage: Usage,
    *,
    replacements: Callable[[float], Mapping[str, str]],
    policy: RebalancerPolicy,
    now: float,
) -> AssessmentBatch:
    """Make the assessments that are due, as far as their nodes are known; the others are tried again for an hour.

    `usage` is of `snapshot`. `replacements` (of the ledger): since when -> uid of a pod that took an evicted one's
    place -> the node that that one had left. One small query when nothing is due.
    """
    try:
        due = records.due(now)
        if not due:
            return AssessmentBatch()
        since = min(each.last_eviction_at for each in due)
        look = _NodeMeasurement(snapshot, usage, replacements(since), _evicted(records.assessments(since, now)))
        nothing = [withdrawn(each, now) for each in due if look.stayed(each)]
        made = [done for each in due if not look.stayed(each) and (done := look.made(each, policy, now)) is not None]
        records.expect(nothing)
        records.made(made)
    except RebalancerError as error:
        return AssessmentBatch(notes=(f"what became of evictions is not assessed: {error}",))
    waiting = sorted({each.node for each in due} - {each.node for each in (*nothing, *made)})
    notes = (f"not assessed yet, their CPU isn't known: {', '.join(waiting)}",) if waiting else ()
    return AssessmentBatch(made=tuple(made), notes=notes)


def _evicted(assessments: Sequence[Assessment]) -> dict[str, set[str]]:
    """Node -> uids of the pods that we evicted from it, or meant to."""
    out: dict[str, set[str]] = {}
    for each in assessments:
        out.setdefault(each.node, set()).update(pod.uid for pod in each.pods if pod.evicted)
    return out


class _NodeMeasurement:
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
        late = now - due.due_at > max(policy.effect.settling_time, LATE_SECONDS)
        node = self._snapshot.node_index.get(due.node)
        after = None if node is None else self._share(node)
        pods = [] if node is None else self._pods(node)
        # a later cycle's evictions are ours too: their pods did not leave by themselves
        ours = self._evicted.get(due.node, set())
        counted = replace(due, pods=tuple(replace(pod, evicted=pod.evicted or pod.uid in ours) for pod in due.pods))
        known = after is not None and (not pods or any(np.isfinite(each.cpu_millicores) for each in pods))
        if not known and now < due.due_at + RETRY_FOR_SECONDS:
            return None
        accounted = None
        if known and after is not None:
            capacity = due.capacity_millicores
            accounted = account(counted, pods, due.before_share * capacity, after * capacity)
        outcome, detail = outcome_of(counted, accounted, after)
        return replace(
            due, assessed_at=now, late=late, after_share=after, breakdown=accounted, outcome=outcome, detail=detail
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
                name=pod_name(snapshot, pod),
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


# ---- what is learned


def derive_feedback(
    effect: EffectRecords, policy: RebalancerPolicy, *, made: Sequence[Assessment] = (), now: float
) -> Feedback:
    """What the assessments of the last days teach, those that were just `made` among them. Raises ConnectError.

    To be asked at the start, whenever something was made, and now and then: a brake lets go with time.
    """
    since = now - FEEDBACK_WINDOW_SECONDS
    return feedback(
        made,
        effect.assessments(since, now),
        moved=effect.moved(since, now) if made else (),
        brake=policy.safety.circuit_breaker.effect,
        now=now,
    )


def remember(ledger: Ledger, learned: Feedback, policy: RebalancerPolicy) -> None:
    """Write down what is given up. Raises ConnectError."""
    for each in learned.give_up:
        ledger.give_up(
            service_identity=each.service_identity,
            node=each.node,
            reason=each.reason,
            seconds=lambda count: backoff_seconds(policy.safety.cooldowns.backoff, count),
        )
