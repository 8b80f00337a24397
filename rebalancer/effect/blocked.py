"""Why nothing left a node that was found: the group that most of its candidates' refusals are in.

A node always carries pods that would not have helped or that nobody ever moves (a DaemonSet's, one that is already
leaving, one that uses next to nothing). They count only where there is nothing else on it.

**Poor selection** is what our own choice kept there, and no rule: the time for planning was over, or a pod was left
because others were to go and then did not. Whether such a pod would have passed all the rest is not recorded, so this
says "nobody but us was in the way", not "it would have worked". Pods that are each too small to be worth a move bring
less than `LEAST_RELIEF` of the excess each: only so many that they could have made up the whole excess count as our
choice; fewer could not have cooled the node in any selection.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rebalancer.effect.messages import BLOCKED_TEXTS, counted
from rebalancer.model.effect import BlockedReason, NodeObservation
from rebalancer.model.reason import Reason

LEAST_RELIEF: Final = 0.02
"""The planner's own: a pod whose move takes away less of the excess is refused with NoRelief."""

EXAMPLES: Final = 3

BLOCKED_REASON_OF: Final[Mapping[Reason, BlockedReason]] = {
    Reason.MIRROR_POD: BlockedReason.GUARDS,
    Reason.STATIC_POD: BlockedReason.GUARDS,
    Reason.DAEMONSET_POD: BlockedReason.GUARDS,
    Reason.TERMINATING: BlockedReason.GUARDS,
    Reason.FINISHED: BlockedReason.GUARDS,
    Reason.NOT_READY: BlockedReason.GUARDS,
    Reason.BARE_POD: BlockedReason.GUARDS,
    Reason.UNKNOWN_OWNER_KIND: BlockedReason.GUARDS,
    Reason.JOB_POD: BlockedReason.GUARDS,
    Reason.OURSELVES: BlockedReason.GUARDS,
    Reason.OUR_PROMETHEUS: BlockedReason.GUARDS,
    Reason.OUR_DATABASE: BlockedReason.GUARDS,
    Reason.SYSTEM_CRITICAL: BlockedReason.GUARDS,
    Reason.PRIORITY_THRESHOLD: BlockedReason.GUARDS,
    Reason.HOST_PATH: BlockedReason.GUARDS,
    Reason.LOCAL_STORAGE: BlockedReason.GUARDS,
    Reason.LOCAL_VOLUME: BlockedReason.GUARDS,
    Reason.PERSISTENT_VOLUME: BlockedReason.GUARDS,
    Reason.TOO_YOUNG: BlockedReason.GUARDS,
    Reason.MIN_REPLICAS: BlockedReason.GUARDS,
    Reason.ROLLOUT_IN_PROGRESS: BlockedReason.GUARDS,
    Reason.OWNER_NOT_HEALTHY: BlockedReason.GUARDS,
    Reason.ANNOTATION_VETO: BlockedReason.GUARDS,
    Reason.OPTED_OUT: BlockedReason.GUARDS,
    Reason.NOT_OPTED_IN: BlockedReason.GUARDS,
    Reason.NAMESPACE_EXCLUDED: BlockedReason.GUARDS,
    Reason.LABEL_EXCLUDED: BlockedReason.GUARDS,
    Reason.CROSS_CLUSTER: BlockedReason.GUARDS,
    Reason.BUDGET_EXHAUSTED: BlockedReason.BUDGETS,
    Reason.BUDGET_OUTDATED: BlockedReason.BUDGETS,
    Reason.SEVERAL_BUDGETS: BlockedReason.BUDGETS,
    Reason.SERVER_BUDGET: BlockedReason.BUDGETS,
    Reason.SERVER_SEVERAL_BUDGETS: BlockedReason.BUDGETS,
    Reason.DENY_LISTED: BlockedReason.LISTS,
    Reason.NOT_ALLOW_LISTED: BlockedReason.LISTS,
    Reason.UNKNOWN_LEVEL: BlockedReason.LEVELS,
    Reason.LEVEL_FORBIDS: BlockedReason.LEVELS,
    Reason.WINDOW_CLOSED: BlockedReason.WINDOWS,
    Reason.WINDOW_BROKEN: BlockedReason.WINDOWS,
    Reason.COOLDOWN_NODE: BlockedReason.COOLDOWNS,
    Reason.COOLDOWN_SERVICE: BlockedReason.COOLDOWNS,
    Reason.COOLDOWN_SERVICE_NODE: BlockedReason.COOLDOWNS,
    Reason.COOLDOWN_POOL: BlockedReason.COOLDOWNS,
    Reason.GAVE_UP: BlockedReason.COOLDOWNS,
    Reason.BRAKED: BlockedReason.COOLDOWNS,
    Reason.SERVICE_LATE: BlockedReason.COOLDOWNS,
    Reason.MOVED_ELSEWHERE: BlockedReason.COOLDOWNS,
    Reason.PAUSED: BlockedReason.PAUSED,
    Reason.NO_LANDING: BlockedReason.NO_LANDING,
    Reason.NO_ROOM_IN_TARGETS: BlockedReason.NO_LANDING,
    Reason.WOULD_COME_BACK: BlockedReason.NO_LANDING,
    Reason.LANDING_TOO_WARM: BlockedReason.NO_LANDING,
    Reason.LANDING_NOT_MODELLED: BlockedReason.NO_LANDING,
    Reason.LANDING_CLOSED: BlockedReason.NO_LANDING,
    Reason.NEEDS_PREEMPTION: BlockedReason.NO_LANDING,
    Reason.PENDING_TAKES_ROOM: BlockedReason.NO_LANDING,
    Reason.LANDING_NOT_BETTER: BlockedReason.NO_LANDING,
    Reason.NOWHERE_BETTER: BlockedReason.NO_LANDING,
    Reason.POOL_FULL: BlockedReason.POOL_FULL,
    Reason.NO_RELIEF: BlockedReason.POOR_SELECTION,
    Reason.GOAL_REACHED: BlockedReason.POOR_SELECTION,
    Reason.OUT_OF_TIME: BlockedReason.POOR_SELECTION,
    Reason.NO_POD_USAGE: BlockedReason.NO_CANDIDATES,
    Reason.READY_SHARE: BlockedReason.LIMITS,
    Reason.LIMIT_CYCLE: BlockedReason.LIMITS,
    Reason.LIMIT_GLOBAL: BlockedReason.LIMITS,
    Reason.LIMIT_CLUSTER: BlockedReason.LIMITS,
    Reason.LIMIT_POOL: BlockedReason.LIMITS,
    Reason.LIMIT_NODE: BlockedReason.LIMITS,
    Reason.LIMIT_NAMESPACE: BlockedReason.LIMITS,
    Reason.LIMIT_LEVEL: BlockedReason.LIMITS,
    Reason.LIMIT_SERVICE: BlockedReason.LIMITS,
    Reason.LIMIT_LANDINGS: BlockedReason.LIMITS,
    Reason.LIMIT_PULLS: BlockedReason.LIMITS,
    Reason.LEASE_LOST: BlockedReason.INTERRUPTED,
    Reason.STOPPING: BlockedReason.INTERRUPTED,
    Reason.SERVER_THROTTLED: BlockedReason.SERVER,
    Reason.SERVER_GONE: BlockedReason.SERVER,
    Reason.SERVER_UID_CHANGED: BlockedReason.SERVER,
    Reason.SERVER_FORBIDDEN: BlockedReason.SERVER,
    Reason.SERVER_UNKNOWN: BlockedReason.SERVER,
    Reason.SERVER_ERROR: BlockedReason.SERVER,
}
"""Every code that a candidate on a node to be cooled can get; the others are of nodes, or of whole cycles."""

REASONS_OF_OTHER_GOALS: Final = frozenset(
    {
        Reason.ENOUGH_GO,
        Reason.EVEN_ALREADY,
        Reason.CANT_EMPTY,
        Reason.NOT_ITS_TURN,
        Reason.NOT_CORDONED,
        Reason.NODE_KEPT,
        Reason.MOVED_BEFORE,
        Reason.NO_CONTENTION,
        Reason.NOBODY_NOISY,
    }
)
"""Why pods weren't removed, or a node not emptied: it says nothing of why a hot one stayed hot."""

BACKGROUND: Final = frozenset(
    {Reason.MIRROR_POD, Reason.STATIC_POD, Reason.DAEMONSET_POD, Reason.TERMINATING, Reason.FINISHED}
)
"""Pods that nobody would ever think of moving."""

_FURTHEST = (
    BlockedReason.SERVER,
    BlockedReason.INTERRUPTED,
    BlockedReason.NO_LANDING,
    BlockedReason.LIMITS,
    BlockedReason.COOLDOWNS,
    BlockedReason.PAUSED,
    BlockedReason.BUDGETS,
    BlockedReason.POOL_FULL,
    BlockedReason.WINDOWS,
    BlockedReason.LEVELS,
    BlockedReason.LISTS,
    BlockedReason.GUARDS,
    BlockedReason.POOR_SELECTION,
    BlockedReason.NO_CANDIDATES,
)
"""Of groups of the same size the one whose pods had got furthest."""


def why_blocked(found: Sequence[NodeObservation], *, paused: bool) -> tuple[BlockedReason, dict[Reason, int], str]:
    """(group, refusals of candidates by code, sentence) of a node that nothing was evicted from.

    `found` are the cycles that found it, at least one; dry runs count only where there was nothing else. `paused`: for
    all of that time, whatever else kept its pods there.
    """
    real = [each for each in found if not each.dry_run]
    told = real or found
    codes: Counter[Reason] = Counter()
    for each in told:
        codes.update({code: count for code, count in each.refusals.items() if code in BLOCKED_REASON_OF})
    stuck = BlockedReason.PAUSED if paused else _group(told, codes) if real else _of_dry_run(told, codes)
    return stuck, dict(codes), _sentence(stuck, told, codes)


def _of_dry_run(told: Sequence[NodeObservation], codes: Mapping[Reason, int]) -> BlockedReason:
    """What a real run would have done is what a dry run did: only where it would have moved something is it the dry
    run that kept it."""
    would = not codes or Reason.GOAL_REACHED in codes or any(each.evictions for each in told)
    return BlockedReason.DRY_RUN if would else _group(told, codes)


def _group(told: Sequence[NodeObservation], codes: Mapping[Reason, int]) -> BlockedReason:
    groups: Counter[BlockedReason] = Counter()
    for code, count in codes.items():
        if code not in BACKGROUND and code is not Reason.NO_RELIEF:
            groups[BLOCKED_REASON_OF[code]] += count
    small = [each.refusals.get(Reason.NO_RELIEF, 0) for each in told]
    groups[BlockedReason.POOR_SELECTION] += sum(count for count in small if count * LEAST_RELIEF >= 1)
    if groups.total():
        return max(groups, key=lambda group: (groups[group], -_FURTHEST.index(group)))
    if Reason.NO_RELIEF in codes or not codes:
        return BlockedReason.NO_CANDIDATES
    return BlockedReason.GUARDS


def _sentence(stuck: BlockedReason, told: Sequence[NodeObservation], codes: Mapping[Reason, int]) -> str:
    text = BLOCKED_TEXTS[stuck]
    if codes:
        text += f": {by_count(codes)} in {counted(len(told), 'cycle')}"
    examples = next((pods for each in reversed(told) if (pods := _of_pods(each.examples))), ())
    if examples:
        text += f"; would have helped most: {'; '.join(examples[:EXAMPLES])}"
    return text


def _of_pods(examples: Iterable[str]) -> tuple[str, ...]:
    """Without what is said of the node."""
    return tuple(each for each in examples if "/" in each.partition(": ")[0] and " " not in each.partition(": ")[0])


def by_count(codes: Mapping[Reason, int]) -> str:
    """`NoLanding 12, DaemonSetPod 4`."""
    return ", ".join(f"{code} {count}" for code, count in sorted(codes.items(), key=lambda each: (-each[1], each[0])))
