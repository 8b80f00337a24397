"""Evictions that a restored ledger lacks, as far as the cluster still shows them."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from rebalancer.constraints.admission import identity_of
from rebalancer.constraints.moves.in_flight import CLOCK_SLACK_SECONDS
from rebalancer.constraints.moves.scopes import eviction_scopes
from rebalancer.constraints.pods.levels import level_of
from rebalancer.model.cluster.owners import Service
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Answered, Eviction, InPlan, Outcome, Reserved, TargetNode
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools


def counted_again(eviction: Eviction, policy: RebalancerPolicy, snapshot: ClusterSnapshot, *, now: float) -> Eviction:
    """An eviction of one of our Events, as the ledger counts it; `now` in seconds since the epoch."""
    planned_at, deadline_at = eviction.reserved.planned_at, eviction.reserved.deadline_at
    known = replace(
        eviction,
        reason=f"counted again after a restore, from its Event: {eviction.reason}",
        in_plan=InPlan(node_index=snapshot.node_index.get(eviction.node, -1)),
        reserved=replace(
            eviction.reserved,
            # later than now it would count for longer than its windows
            planned_at=min(planned_at, now),
            deadline_at=now if math.isnan(deadline_at) else max(deadline_at, now),
        ),
    )
    known.scopes = eviction_scopes(known, policy, snapshot)
    return known


def evictions_by_replacement(
    policy: RebalancerPolicy,
    snapshot: ClusterSnapshot,
    *,
    since: float,
    most: int,
    replacements: Collection[str],
    in_flight: Sequence[Eviction],
) -> list[Eviction]:
    """An eviction for each pod that was created after `since` (seconds since the epoch) in a service that wants no more
    pods than before: of more than `most` such pods none, as it isn't known which of them are replacements.

    `replacements` are UIDs of pods that replace others already; each of the evictions `in_flight` has one such pod more
    in its service. Which pod was evicted, and from which node, is not known.
    """
    pools, pods = NodePools.of(policy.pools, snapshot.nodes).by_node, snapshot.pods
    expected = Counter((each.namespace, each.service.kind, each.service.name) for each in in_flight)
    deadline = policy.safety.in_flight.start_up + policy.safety.in_flight.margin
    out: list[Eviction] = []
    for owner, record in enumerate(snapshot.owners):
        if record.parent >= 0 or record.kind == "DaemonSet" or record.desired is None:
            continue
        young = sorted(
            (float(pods.created[index]), int(index))
            for index in snapshot.pods_of(owner)
            if pods.created[index] > since + CLOCK_SLACK_SECONDS
            and pods.uids[index] not in replacements
            and not pods.terminating[index]
            and pods.phase[index] not in (SUCCEEDED, FAILED)
        )
        for created, index in young[expected[(record.namespace, record.kind, record.name)] :]:
            pod, node = snapshot.pod(index), int(pods.node[index])
            level, landed_on = level_of(pod, policy.service_levels), snapshot.nodes.names[node] if node >= 0 else ""
            desired, _ = snapshot.replicas(owner)
            eviction = Eviction(
                namespace=record.namespace,
                pod="",
                uid="",
                node="",
                pool=pools.get(landed_on, ""),
                service=Service(kind=record.kind, namespace=record.namespace, name=record.name),
                strategy="",
                reason=f"counted again after a restore: {pod.name} is younger than the database",
                service_identity=identity_of(pod, policy, snapshot),
                level=level if isinstance(level, str) else "",
                owner_uid=record.uid,
                target_nodes=(TargetNode(landed_on, 1.0),) if landed_on else (),
                target_pool=pools.get(landed_on, ""),
                in_plan=InPlan(node_index=node),
                reserved=Reserved(
                    planned_at=created, deadline_at=created + deadline, ready_before=desired, desired_before=desired
                ),
                answered=Answered(outcome=Outcome.EVICTED),
            )
            eviction.scopes = eviction_scopes(eviction, policy, snapshot)
            out.append(eviction)
    return out if len(out) <= most else []
