"""The ledger at the start of a cycle, reconciled with the snapshot."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from rebalancer.constraints.admission import LedgerState, identity_of
from rebalancer.constraints.moves.in_flight import CLOCK_SLACK_SECONDS, EvictionProgress, follow
from rebalancer.constraints.pauses.backoff import backoff_seconds
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.ports import ClusterReader, Ledger
from rebalancer.model.errors import RebalancerError
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.safety import BackoffPolicy, Safety

OURSELVES = "rebalancer"
"""Who closes evictions that are late for too long."""


def load_ledger_state(
    ledger: Ledger | None,
    policy: RebalancerPolicy,
    snapshot: ClusterSnapshot,
    *,
    writes: bool,
    cluster: ClusterReader | None = None,
) -> LedgerState:
    """Input of limits, cooldowns and circuit breakers; empty without a ledger.

    With `writes`, landed and late evictions are recorded, the readiness of our services is published to other clusters,
    and rows outside every window are pruned now and then. A dry run gets the same state and writes nothing.
    `cluster`: for the times at which replacements became Ready; without it they are recorded as Ready now.
    """
    if ledger is None:
        return LedgerState()
    now = ledger.now()
    cross = policy.safety.cross_cluster
    entries = tuple(ledger.entries(longest_window(policy)))
    surging = ledger.surging()  # before what has landed is recorded: the snapshot may be older than its end
    progress = _follow(
        ledger, ledger.open_evictions(), snapshot, now, max_late_seconds=policy.safety.in_flight.max_late
    )
    if writes:
        _record(ledger, policy.safety.cooldowns.backoff, progress, now, cluster)
        _publish_readiness(ledger, policy, snapshot)
        ledger.prune_at_times(keep_details=policy.effect.detail_retention)
    ready = None
    if cross.min_ready_share is not None:
        services = _replicas(policy, snapshot)
        ready = ledger.remote_readiness(sorted(services), max_age_seconds=cross.report_max_age)
    return LedgerState(
        entries=entries,
        open_evictions=_open(progress),
        landed=tuple(_with_replacement(each) for each in progress if not each.open),
        closed=tuple(
            replace(
                each.eviction,
                replaced=replace(each.eviction.replaced, closed_at=now, closed_by=OURSELVES, closed_reason=each.closed),
            )
            for each in progress
            if each.closed
        ),
        surging=surging,
        pauses=tuple(ledger.pauses()),
        backoffs=tuple(ledger.backoffs()),
        lineages=ledger.lineages(now - policy.safety.cooldowns.backoff.max),
        elsewhere=ledger.services_evicted_remotely(cross.separation) if cross.separation else None,
        remote_readiness=ready,
        nodes_elsewhere=ledger.nodes_elsewhere(),
    )


def evictions_in_flight(ledger: Ledger, safety: Safety, snapshot: ClusterSnapshot) -> tuple[Eviction, ...]:
    """Evictions in flight by the snapshot, as a cycle would count them. Records nothing.

    The ledger itself still has those whose replacements have become Ready since the last cycle.
    """
    in_flight, now = ledger.open_evictions(), ledger.now()
    return _open(_follow(ledger, in_flight, snapshot, now, max_late_seconds=safety.in_flight.max_late))


def _open(progress: list[EvictionProgress]) -> tuple[Eviction, ...]:
    found = [(each, _with_replacement(each)) for each in progress if each.open]
    return tuple(replace(eviction, replaced=replace(eviction.replaced, late=each.late)) for each, eviction in found)


def _with_replacement(progress: EvictionProgress) -> Eviction:
    """The eviction with its replacement, also while that is not Ready: it is recorded later."""
    eviction, pod = progress.eviction, progress.replacement
    if pod is None:
        return eviction
    found = replace(eviction.replaced, replacement_pod=pod.name, replacement_uid=pod.uid, replacement_node=pod.node)
    return replace(eviction, replaced=found)


def landed_since(ledger: Ledger, safety: Safety, cluster: ClusterReader) -> dict[str, str]:
    """UID of each evicted pod whose eviction is in flight no more -> empty where its replacement has become Ready, else
    why it is no longer waited for. Recorded. Reads the namespaces of what is in flight, and raises as `services` of
    the reader does."""
    in_flight = ledger.open_evictions()
    if not in_flight:
        return {}
    snapshot = cluster.services({each.namespace for each in in_flight})
    now = ledger.now()
    progress = _follow(ledger, in_flight, snapshot, now, max_late_seconds=safety.in_flight.max_late)
    _record(ledger, safety.cooldowns.backoff, progress, now, cluster)
    return {each.eviction.uid: each.closed for each in progress if not each.open}


def longest_window(policy: RebalancerPolicy) -> float:
    """Seconds for which an eviction counts in any limit or cooldown."""
    cooldowns, cross = policy.safety.cooldowns, policy.safety.cross_cluster
    return max(policy.longest_window, cooldowns.node, cooldowns.service, cooldowns.service_node, cross.separation)


def global_limits_text(policy: RebalancerPolicy) -> str:
    """The limits of all clusters that share the database as JSON; equal limits give equal text."""
    return json.dumps(policy.limits.global_.model_dump(mode="json", by_alias=True), sort_keys=True)


def _follow(
    ledger: Ledger, in_flight: Sequence[Eviction], snapshot: ClusterSnapshot, now: float, *, max_late_seconds: float
) -> list[EvictionProgress]:
    if not in_flight:
        return []
    # a pod that looks a little older than an eviction may have replaced a pod before it
    since = min(each.reserved.planned_at for each in in_flight) - 2 * CLOCK_SLACK_SECONDS
    return follow(
        snapshot,
        in_flight,
        now=now,
        max_late_seconds=max_late_seconds,
        replacements=ledger.replacements(since),
        surges=ledger.surges() if any(each.answered.in_background for each in in_flight) else None,
    )


def _record(
    ledger: Ledger,
    backoff: BackoffPolicy,
    progress: list[EvictionProgress],
    now: float,
    cluster: ClusterReader | None,
) -> None:
    ready_at = _ready_at(progress, now, cluster)
    for each in progress:
        eviction, record, replacement = each.eviction, each.eviction.reserved.record, each.replacement
        assert record is not None
        if each.landed and replacement is not None:
            at = ready_at.get(replacement.uid, now)
            ledger.landed(record, at=at, pod=replacement.name, uid=replacement.uid, node=replacement.node)
        elif each.landed:
            ledger.landed(record, at=now)
        elif each.closed:
            ledger.close(record, by=OURSELVES, reason=each.closed)
        elif each.late and not eviction.replaced.late:
            ledger.late(record)
        came_back = each.landed and each.came_back
        if came_back or (each.closed and eviction.answered.in_background and not each.no_fault):
            ledger.back_off(
                service_identity=eviction.service_identity,
                node=eviction.node,
                reason="its replacement came back to the same node" if came_back else each.closed,
                seconds=lambda count: backoff_seconds(backoff, count),
            )


def _ready_at(progress: list[EvictionProgress], now: float, cluster: ClusterReader | None) -> dict[str, float]:
    """UID of a Ready replacement -> since when, by the API server: a cycle sees it up to its interval later. Not before
    the eviction nor after `now`, as clocks differ."""
    landed = [(each.eviction, each.replacement) for each in progress if each.landed and each.replacement is not None]
    if cluster is None or not landed:
        return {}
    try:
        states = cluster.pod_states([(each.namespace, each.name) for _, each in landed])
    except RebalancerError:
        return {}
    return {
        replacement.uid: min(max(state.ready_since, eviction.reserved.planned_at), now)
        for eviction, replacement in landed
        if (state := states.get((replacement.namespace, replacement.name))) is not None
        and state.uid == replacement.uid
        and state.ready_since > 0
    }


def closed_note(eviction: Eviction) -> str:
    """An eviction that is no longer waited for, as a sentence."""
    return f"closed the eviction of {eviction.full_name} from {eviction.node}: {eviction.replaced.closed_reason}"


def _publish_readiness(ledger: Ledger, policy: RebalancerPolicy, snapshot: ClusterSnapshot) -> None:
    text = global_limits_text(policy)
    ledger.publish_global_limits(
        digest=hashlib.sha256(text.encode()).hexdigest(),
        text=text,
        longest_window_seconds=longest_window(policy),
        nodes=len(snapshot.nodes),
    )
    if policy.safety.cross_cluster.min_ready_share is not None:
        ledger.publish_readiness(_replicas(policy, snapshot))


def _replicas(policy: RebalancerPolicy, snapshot: ClusterSnapshot) -> dict[str, tuple[int, int]]:
    """Service identity -> (ready, desired) of every service with pods here; a service is named by its first pod."""
    out: dict[str, tuple[int, int]] = {}
    for index, owner in enumerate(snapshot.owners):
        members = snapshot.pods_of(index).tolist() if owner.parent < 0 else []
        if members and owner.kind != "DaemonSet":
            desired, ready = snapshot.replicas(index)
            identity = identity_of(snapshot.pod(members[0]), policy, snapshot)
            before = out.get(identity, (0, 0))
            out[identity] = (before[0] + ready, before[1] + desired)
    return out
