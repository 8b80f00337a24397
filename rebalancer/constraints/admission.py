"""Eviction admission: every rule that can reject a pod or a move, for every strategy and trigger.

Rules about the pod (`stays`): guards, lists, service level, multi-cluster placement, change windows. Rules about one
move at a time (`refuses`): pauses, backoff, cooldowns, circuit breakers and limits at every scope, with this plan's own
moves counted in. The ledger repeats the counting in its own transaction and has the last word.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.moves.in_flight import LateEvictions
from rebalancer.constraints.moves.limits import LimitUsage, refusal_for
from rebalancer.constraints.moves.quotas import QuotaRoom
from rebalancer.constraints.moves.replacement_first import ReplacementFirst
from rebalancer.constraints.moves.scopes import LimitRules
from rebalancer.constraints.moves.windows import ChangeWindows, annotation_of
from rebalancer.constraints.pauses.backoff import EvictionCooldowns
from rebalancer.constraints.pauses.scale_up import scale_ups
from rebalancer.constraints.pods import lists as list_rules
from rebalancer.constraints.pods.guards import GuardView, guarded, shielded
from rebalancer.constraints.pods.levels import cost_of, level_of, names_level
from rebalancer.constraints.pods.price import Price, price_of
from rebalancer.constraints.pods.trust import Lifted, Trust
from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.objects import LabelSelector
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.limits import (
    Check,
    Denied,
    EvictionBackoff,
    LedgerEntry,
    Pause,
    RemoteReadiness,
    ReplacementLineage,
    Scope,
)
from rebalancer.model.notation.figures import clock_time
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.policy import Worth
from rebalancer.policy.schema.trust import Shield
from rebalancer.projection.projection import Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """The ledger's records, reconciled with the snapshot, at the start of a cycle."""

    entries: tuple[LedgerEntry, ...] = ()
    open_evictions: tuple[Eviction, ...] = ()
    """Still in flight, by the snapshot."""
    landed: tuple[Eviction, ...] = ()
    """In flight by `entries`, landed or closed by the snapshot."""
    closed: tuple[Eviction, ...] = ()
    """Those of `landed` whose replacement was not seen Ready, with the reason."""
    surging: frozenset[str] = frozenset()
    """UIDs of Deployments of which the snapshot may show one pod more than stays, by replacement first."""
    pauses: tuple[Pause, ...] = ()
    backoffs: tuple[EvictionBackoff, ...] = ()
    lineages: Mapping[str, ReplacementLineage] = field(default_factory=dict)
    """UID of a replacement -> its evicted predecessors."""
    elsewhere: Mapping[str, float] | None = None
    """Service identity -> time of the last eviction by another cluster."""
    remote_readiness: Mapping[str, RemoteReadiness] | None = None
    nodes_elsewhere: int = 0
    """Nodes of the other clusters that share the database, as they published them."""
    useless: Mapping[str, Refusal] = field(default_factory=dict)
    """Pool -> the refusal of its open circuit breaker: evictions there are ineffective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Attributes of a pod that limits depend on."""

    identity: str
    """Service identity, the same in every cluster."""
    level: str


KnownStays = dict[tuple[int, str, str, bool], Refusal | None]
"""(index of a pod, pool, strategy, broken) -> the answer of `EvictionAdmission.stays`."""


class EvictionAdmission:
    """See the module. One for each cycle; it counts the plan's moves."""

    def __init__(
        self,
        *,
        policy: RebalancerPolicy,
        snapshot: ClusterSnapshot,
        pool_of: NDArray[np.int32],
        ledger_state: LedgerState,
        now: float,
        own_pod: tuple[str, str] | None = None,
        known: KnownStays | None = None,
        projection: Projection | None = None,
    ) -> None:
        """`pool_of` (nodes,) index into the policy's pools, -1 for none; `now` is the cycle's start. `known`: shared by
        admissions with the same arguments; what one has found the others need not. `projection`: that of the cycle;
        None = made here, without usage."""
        self._policy = policy
        self._snapshot = snapshot
        self._ledger_state = ledger_state
        self._now = now
        names = [*(pool.name for pool in policy.pools), ""]
        pools = [names[at] for at in pool_of.tolist()]
        if projection is None:
            projection = Projection.of(snapshot, policy.safety, now=now, pools=pools)
        self.projection = projection
        self.first = ReplacementFirst(policy, projection, pools)
        self._guards = GuardView.of(projection=projection, guards=policy.guards, now=now, own_pod=own_pod)
        self._guards_of: dict[tuple[str, str, Lifted, bool], GuardView] = {}
        """(strategy, pool, shields that don't count, replacement first) -> the guards, where they are others than the
        policy's."""
        self._trust = Trust(policy.trust, snapshot, now=now, own_namespace=None if own_pod is None else own_pod[0])
        self.windows = ChangeWindows.of_policy(policy)
        placed_by = policy.safety.cross_cluster.placed_by
        self._placed_by: LabelSelector | None = placed_by.compiled() if placed_by is not None else None
        self.rules = LimitRules(
            policy=policy, snapshot=snapshot, pool_of=pool_of, nodes_elsewhere=ledger_state.nodes_elsewhere
        )
        self.view = LimitUsage(ledger_state.entries, now=now, max_wait=policy.safety.max_wait)
        for landed in ledger_state.landed:
            self.view.release(landed)
        self._cooldown_checks = EvictionCooldowns(
            cooldowns=policy.safety.cooldowns,
            view=self.view,
            backoffs=ledger_state.backoffs,
            lineages=ledger_state.lineages,
            pauses=ledger_state.pauses,
            scale_ups=scale_ups(policy, snapshot, pool_of, now),
            now=now,
        )
        late = [each for each in ledger_state.open_evictions if each.replaced.late]
        self._late = LateEvictions(late, policy.safety.circuit_breaker)
        self._known: KnownStays = {} if known is None else known
        self._quotas = QuotaRoom(snapshot)
        self._in_progress = {each.uid for each in ledger_state.open_evictions if each.answered.in_background}
        self._taken = 0
        self._traits: dict[int, Traits] = {}
        self._prices: dict[int, Price] = {}
        self._evicted_before = Counter(entry.scope for entry in ledger_state.entries)
        self._gone: dict[str, int] = {}
        self._counted_at: dict[str, float] = {}

    # ---- the pod itself

    def stays(self, pod: Pod, *, pool: str, strategy: str = "", broken: bool = False) -> Refusal | None:
        """Why the pod may not be evicted, whatever else is planned; `strategy` is the one that wants it, empty for any
        without guards of its own. `broken` as in `guarded`."""
        key = pod.index, pool, strategy, broken
        if key not in self._known:
            self._known[key] = self._stays(pod, pool=pool, strategy=strategy, broken=broken)
        return self._known[key]

    def _stays(self, pod: Pod, *, pool: str, strategy: str, broken: bool) -> Refusal | None:
        level = self._level(pod, pool=pool, strategy=strategy, broken=broken)
        if isinstance(level, Refusal):
            return level
        return self.windows.refuses(
            pool=pool,
            level=level,
            annotation=self.own_windows(pod, strategy=strategy),
            now=self._now,
            service=str(pod.service),
        )

    def own_windows(self, pod: Pod, *, strategy: str = "") -> str | None:
        """The change windows of the pod's service that count, unparsed."""
        return None if self.lifts(pod, "ChangeWindow", strategy=strategy) else annotation_of(pod)

    def lifts(self, pod: Pod, shield: Shield, *, strategy: str = "") -> bool:
        """Whether a shield of the pod doesn't count."""
        return shield in self._lifted(pod, strategy)

    def _lifted(self, pod: Pod, strategy: str) -> Lifted:
        return self._trust.lifted(pod, strategy=strategy, shielded=self._shielded)

    def _shielded(self, pod: Pod, lifted: Lifted) -> bool:
        """Whether anything refuses the pod by what its creator wrote."""
        if shielded(pod, self._view(strategy="", pool="", lifted=lifted)):
            return True
        levels, windows = self._policy.service_levels, annotation_of(pod)
        return (
            ("Level" not in lifted and names_level(pod, levels) and isinstance(level_of(pod, levels), Refusal))
            or ("Label" not in lifted and self._labelled(pod))
            or (
                "ChangeWindow" not in lifted
                and windows is not None
                and not self.windows.state_of_service(windows, now=self._now).open
            )
        )

    def _labelled(self, pod: Pod) -> bool:
        """Whether its labels alone put it on a deny list, or say that another cluster's controller placed it."""
        by_label = [each.selector.compiled() for each in self._policy.lists.deny if each.selector is not None]
        placed = self._policy.safety.cross_cluster.mode == "Deny" and selector_matches(
            self._placed_by, pod.template.labels
        )
        return placed or any(selector_matches(each, pod.template.labels) for each in by_label)

    def moves_needed_pods(self, *, strategy: str, pool: str) -> bool:
        """Whether pods that others need by required affinity may be evicted."""
        return self._policy.guards.of(strategy=strategy, pool=pool).needed_pods

    def protected(self, pod: Pod, *, pool: str) -> Refusal | None:
        """The same without change windows."""
        level = self._level(pod, pool=pool)
        return level if isinstance(level, Refusal) else None

    def _view(self, *, strategy: str, pool: str, lifted: Lifted, first: bool = False) -> GuardView:
        """`first`: of a pod that is moved by replacement first, so its service is never without it."""
        if not (self._policy.guards.overrides or lifted or first):
            return self._guards
        key = strategy, pool, lifted, first
        view = self._guards_of.get(key)
        if view is None:
            guards = self._policy.guards.of(strategy=strategy, pool=pool)
            guards = guards.model_copy(update={"min_replicas": 0}) if first else guards
            view = self._guards_of[key] = replace(self._guards, guards=guards).without(lifted)
        return view

    def _level(self, pod: Pod, *, pool: str, strategy: str = "", broken: bool = False) -> str | Refusal:
        """The pod's service level, or the rule that rejects it, change windows apart."""
        lifted = self._lifted(pod, strategy)
        first = self.first.applies(pod)
        view = self._view(strategy=strategy, pool=pool, lifted=lifted, first=first)
        refusal = guarded(pod, view, broken=broken) or (self.first.refuses(pod) if first else None)
        refusal = refusal or list_rules.refuses(
            pod, cluster=self._policy.cluster, pool=pool, lists=self._policy.lists, lifted=lifted
        )
        if refusal is not None:
            return refusal
        level = level_of(pod, self._policy.service_levels, lifted)
        if isinstance(level, Refusal):
            return level
        cross = self._policy.safety.cross_cluster
        if cross.mode == "Deny" and "Label" not in lifted and selector_matches(self._placed_by, pod.template.labels):
            return Refusal.of(Reason.CROSS_CLUSTER)
        return level

    def traits(self, pod: Pod) -> Traits:
        """Traits of a pod that `stays` does not reject."""
        found = self._traits.get(pod.index)
        if found is None:
            level = level_of(pod, self._policy.service_levels, self._lifted(pod, ""))
            name = "" if isinstance(level, Refusal) else level
            found = Traits(identity=identity_of(pod, self._policy, self._snapshot), level=name)
            self._traits[pod.index] = found
        return found

    @property
    def worth(self) -> Worth:
        """What an eviction must be worth."""
        return self._policy.planner.worth

    def price(self, pod: Pod) -> Price:
        """The price of its eviction, with the evictions before this plan."""
        found = self._prices.get(pod.index)
        if found is None:
            traits, owner = self.traits(pod), int(self._snapshot.pods.owner[pod.index])
            scope = Scope.of("service", name=traits.identity)
            found = self._prices[pod.index] = price_of(
                pod,
                level=cost_of(traits.level, self._policy.service_levels),
                replicas=self._snapshot.replicas(owner)[0] if owner >= 0 else 1,
                extended=self._snapshot.nodes.extended[pod.node],
                of_service=self._evicted_before.get(scope, 0),
                of_pod=self._cooldown_checks.predecessors(pod.uid),
            )
        return found

    # ---- one move

    def scope(self, move: Eviction) -> Eviction:
        """Fill in the scopes of limits that count the move; returns it."""
        move.scopes = self.rules.scopes(move)
        return move

    def refuses(self, move: Eviction) -> Refusal | None:
        """Why the move may not be made now."""
        due = self.due(move)
        return due if isinstance(due, Refusal) else None

    def due(self, move: Eviction) -> float | Refusal:
        """When the move may be made (seconds since the epoch; spacing may delay it), or why not."""
        if move.uid in self._in_progress:
            return Refusal.of(Reason.EVICTION_IN_PROGRESS)
        if self._taken >= self._policy.limits.per_cycle:
            return Refusal.of(Reason.LIMIT_CYCLE, f"{self._taken} of {self._policy.limits.per_cycle}")
        refusal = (
            self._quotas.refuses(move.in_plan.pod_index)
            or self._cooldown_checks.refuses(move)
            or self._surge_refusal(move)
            or self._late.refuses(pool=move.pool, service=move.service_identity)
            or self.projection.disturbed(move.in_plan.node_index)
            or self._breaker_refusal(move)
            or self._cross_cluster_refusal(move)
        )
        if refusal is not None:
            return refusal
        due = self.view.due(self.checks(move))
        return refusal_for(due) if isinstance(due, Denied) else due

    def passes(self, move: Eviction, *, within: float) -> bool:
        """Whether nothing refuses the move once all replacements in flight are Ready and `within` seconds have gone."""
        if self._taken >= self._policy.limits.per_cycle or self._breaker_refusal(move) is not None:
            return False
        if self._late.refuses(pool=move.pool, service=move.service_identity) is not None:
            return False
        if self.projection.disturbed(move.in_plan.node_index) is not None:
            return False
        # a pod whose eviction is in progress isn't asked for again, and what this plan has taken of a quota stays taken
        if move.uid in self._in_progress or self._quotas.refuses(move.in_plan.pod_index) is not None:
            return False
        if self._surge_refusal(move) is not None:
            return False
        for refusal in (self._cooldown_checks.refuses(move), self._cross_cluster_refusal(move)):
            if refusal is None or refusal.code is Reason.READY_SHARE_TOO_LOW:
                continue
            if refusal.next_at is None or refusal.next_at > self._now + within:
                return False
        # a share that is too low by more than this plan's moves stays so
        if self._cross_cluster_refusal(move) is not None and not self._gone.get(move.service_identity):
            return False
        return self.view.passes(self.checks(move), within=within)

    def landed(self, moves: Collection[Eviction], *, now: float) -> None:
        """Count moves of this plan as replaced: they are no longer in flight. `now` as seen then."""
        for move in moves:
            self.view.release(move)
            if self._snapshot.pods.ready[move.in_plan.pod_index]:
                self._gone[move.service_identity] -= 1
        self.view.advance(now)
        self._cooldown_checks.advance(now)

    def landed_earlier(self, evictions: Collection[Eviction]) -> None:
        """Count open evictions of earlier cycles as replaced."""
        for each in evictions:
            self.view.release(each)

    @property
    def open_evictions(self) -> tuple[Eviction, ...]:
        """Evictions of earlier cycles that are in flight and not late."""
        return tuple(each for each in self._ledger_state.open_evictions if not each.replaced.late)

    def checks(self, move: Eviction) -> list[Check]:
        """Checks that the ledger makes for the move."""
        checks = self.rules.checks(move)
        separation = self._policy.safety.cross_cluster.separation
        if separation:
            scope = Scope.of("service", name=move.service_identity)
            checks.append(Check(scope=scope, kind="separation", at_most=1, per_seconds=separation))
        return checks

    def reserve(self, move: Eviction) -> Refusal | None:
        """Count the move in this plan, or why it may not be made."""
        due = self.due(move)
        if isinstance(due, Refusal):
            return due
        self._count(move, 1, at=due)
        return None

    def count_made(self, moves: Sequence[Eviction]) -> None:
        """Count moves that an earlier plan of the cycle has made."""
        for move in moves:
            self._count(move, 1, at=self._now)

    def cancel_reservation(self, move: Eviction) -> None:
        """Refund a move that did not happen."""
        self._count(move, -1, at=self._counted_at.pop(move.uid))

    def back_off(self, backoff: EvictionBackoff) -> None:
        """Refuse the service's other pods too: an admission webhook refused one of them in this cycle."""
        self._cooldown_checks.add(backoff)

    # ---- inside

    def _count(self, move: Eviction, by: int, *, at: float) -> None:
        self._taken += by
        self._quotas.count(move.in_plan.pod_index, by)
        if self._snapshot.pods.ready[move.in_plan.pod_index]:
            self._gone[move.service_identity] = self._gone.get(move.service_identity, 0) + by
        if by > 0:
            self._counted_at[move.uid] = at
            self.view.count(move, at=at)
        else:
            self.view.uncount(move, at=at)

    def _surge_refusal(self, move: Eviction) -> Refusal | None:
        """Why a pod stays for the whole cycle, also when its service's surge is over meanwhile."""
        if move.owner_uid not in self._ledger_state.surging:
            return None
        # the newcomer looks like one of two replicas, and is the only one once the old pod has gone
        return Refusal.of(Reason.EVICTION_IN_PROGRESS, f"a pod of {move.service} is moved by replacement first")

    def _breaker_refusal(self, move: Eviction) -> Refusal | None:
        return self._ledger_state.useless.get(move.pool)

    def _cross_cluster_refusal(self, move: Eviction) -> Refusal | None:
        cross, ledger_state = self._policy.safety.cross_cluster, self._ledger_state
        last = (ledger_state.elsewhere or {}).get(move.service_identity)
        if last is not None and self._now - last < cross.separation:
            due = last + cross.separation
            return Refusal.of(
                Reason.MOVED_IN_OTHER_CLUSTER, f"{move.service_identity}, next at {clock_time(due)}", next_at=due
            )
        others = (ledger_state.remote_readiness or {}).get(move.service_identity)
        if cross.min_ready_share is None or others is None:
            return None
        here_desired, here_ready = self.projection.replicas(move.in_plan.pod_index)
        desired = here_desired + others.desired
        loses = int(self._snapshot.pods.ready[move.in_plan.pod_index])
        left = here_ready + others.ready - self._gone.get(move.service_identity, 0) - loses
        if loses and desired and left * 100 < cross.min_ready_share * desired:
            text = f"{move.service_identity}: {left} of {desired} would stay ready, {cross.min_ready_share:g}% must"
            return Refusal.of(Reason.READY_SHARE_TOO_LOW, text)
        return None


def identity_of(pod: Pod, policy: RebalancerPolicy, snapshot: ClusterSnapshot) -> str:
    """The pod's service identity, the same in every cluster: the value of the label, or its service. A label that the
    policy doesn't trust its namespace with doesn't count."""
    label = policy.safety.service_identity.label
    name = "" if label is None else pod.template.labels.get(label, "")
    if name and policy.trust and "Name" in Trust(policy.trust, snapshot, now=snapshot.taken).lifted_in(pod.namespace):
        name = ""
    return name or str(pod.service)
