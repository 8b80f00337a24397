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

from rebalancer.effect.messages import STUCK, counted
from rebalancer.model.effect import Sighting, Stuck
from rebalancer.model.reason import Reason

LEAST_RELIEF: Final = 0.02
"""The planner's own: a pod whose move takes away less of the excess is refused with NoRelief."""

EXAMPLES: Final = 3

STUCK_OF: Final[Mapping[Reason, Stuck]] = {
    Reason.MIRROR_POD: Stuck.GUARDS,
    Reason.STATIC_POD: Stuck.GUARDS,
    Reason.DAEMONSET_POD: Stuck.GUARDS,
    Reason.TERMINATING: Stuck.GUARDS,
    Reason.FINISHED: Stuck.GUARDS,
    Reason.NOT_READY: Stuck.GUARDS,
    Reason.BARE_POD: Stuck.GUARDS,
    Reason.UNKNOWN_OWNER_KIND: Stuck.GUARDS,
    Reason.JOB_POD: Stuck.GUARDS,
    Reason.OURSELVES: Stuck.GUARDS,
    Reason.OUR_PROMETHEUS: Stuck.GUARDS,
    Reason.OUR_DATABASE: Stuck.GUARDS,
    Reason.SYSTEM_CRITICAL: Stuck.GUARDS,
    Reason.PRIORITY_THRESHOLD: Stuck.GUARDS,
    Reason.HOST_PATH: Stuck.GUARDS,
    Reason.LOCAL_STORAGE: Stuck.GUARDS,
    Reason.LOCAL_VOLUME: Stuck.GUARDS,
    Reason.PERSISTENT_VOLUME: Stuck.GUARDS,
    Reason.TOO_YOUNG: Stuck.GUARDS,
    Reason.MIN_REPLICAS: Stuck.GUARDS,
    Reason.ROLLOUT_IN_PROGRESS: Stuck.GUARDS,
    Reason.OWNER_NOT_HEALTHY: Stuck.GUARDS,
    Reason.ANNOTATION_VETO: Stuck.GUARDS,
    Reason.OPTED_OUT: Stuck.GUARDS,
    Reason.NOT_OPTED_IN: Stuck.GUARDS,
    Reason.NAMESPACE_EXCLUDED: Stuck.GUARDS,
    Reason.LABEL_EXCLUDED: Stuck.GUARDS,
    Reason.CROSS_CLUSTER: Stuck.GUARDS,
    Reason.BUDGET_EXHAUSTED: Stuck.BUDGETS,
    Reason.BUDGET_OUTDATED: Stuck.BUDGETS,
    Reason.SEVERAL_BUDGETS: Stuck.BUDGETS,
    Reason.SERVER_BUDGET: Stuck.BUDGETS,
    Reason.SERVER_SEVERAL_BUDGETS: Stuck.BUDGETS,
    Reason.DENY_LISTED: Stuck.LISTS,
    Reason.NOT_ALLOW_LISTED: Stuck.LISTS,
    Reason.UNKNOWN_LEVEL: Stuck.LEVELS,
    Reason.LEVEL_FORBIDS: Stuck.LEVELS,
    Reason.WINDOW_CLOSED: Stuck.WINDOWS,
    Reason.WINDOW_BROKEN: Stuck.WINDOWS,
    Reason.COOLDOWN_NODE: Stuck.COOLDOWNS,
    Reason.COOLDOWN_SERVICE: Stuck.COOLDOWNS,
    Reason.COOLDOWN_SERVICE_NODE: Stuck.COOLDOWNS,
    Reason.COOLDOWN_POOL: Stuck.COOLDOWNS,
    Reason.GAVE_UP: Stuck.COOLDOWNS,
    Reason.BRAKED: Stuck.COOLDOWNS,
    Reason.SERVICE_LATE: Stuck.COOLDOWNS,
    Reason.MOVED_ELSEWHERE: Stuck.COOLDOWNS,
    Reason.PAUSED: Stuck.PAUSED,
    Reason.NO_LANDING: Stuck.NO_LANDING,
    Reason.NO_ROOM_IN_TARGETS: Stuck.NO_LANDING,
    Reason.WOULD_COME_BACK: Stuck.NO_LANDING,
    Reason.LANDING_TOO_WARM: Stuck.NO_LANDING,
    Reason.LANDING_NOT_MODELLED: Stuck.NO_LANDING,
    Reason.LANDING_CLOSED: Stuck.NO_LANDING,
    Reason.NEEDS_PREEMPTION: Stuck.NO_LANDING,
    Reason.PENDING_TAKES_ROOM: Stuck.NO_LANDING,
    Reason.LANDING_NOT_BETTER: Stuck.NO_LANDING,
    Reason.NOWHERE_BETTER: Stuck.NO_LANDING,
    Reason.POOL_FULL: Stuck.POOL_FULL,
    Reason.NO_RELIEF: Stuck.POOR_SELECTION,
    Reason.GOAL_REACHED: Stuck.POOR_SELECTION,
    Reason.OUT_OF_TIME: Stuck.POOR_SELECTION,
    Reason.NO_POD_USAGE: Stuck.NO_CANDIDATES,
    Reason.READY_SHARE: Stuck.LIMITS,
    Reason.LIMIT_CYCLE: Stuck.LIMITS,
    Reason.LIMIT_GLOBAL: Stuck.LIMITS,
    Reason.LIMIT_CLUSTER: Stuck.LIMITS,
    Reason.LIMIT_POOL: Stuck.LIMITS,
    Reason.LIMIT_NODE: Stuck.LIMITS,
    Reason.LIMIT_NAMESPACE: Stuck.LIMITS,
    Reason.LIMIT_LEVEL: Stuck.LIMITS,
    Reason.LIMIT_SERVICE: Stuck.LIMITS,
    Reason.LIMIT_LANDINGS: Stuck.LIMITS,
    Reason.LIMIT_PULLS: Stuck.LIMITS,
    Reason.LEASE_LOST: Stuck.INTERRUPTED,
    Reason.STOPPING: Stuck.INTERRUPTED,
    Reason.SERVER_THROTTLED: Stuck.SERVER,
    Reason.SERVER_GONE: Stuck.SERVER,
    Reason.SERVER_UID_CHANGED: Stuck.SERVER,
    Reason.SERVER_FORBIDDEN: Stuck.SERVER,
    Reason.SERVER_UNKNOWN: Stuck.SERVER,
    Reason.SERVER_ERROR: Stuck.SERVER,
}
"""Every code that a candidate on a node to be cooled can get; the others are of nodes, or of whole cycles."""

OF_OTHER_GOALS: Final = frozenset(
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
    Stuck.SERVER,
    Stuck.INTERRUPTED,
    Stuck.NO_LANDING,
    Stuck.LIMITS,
    Stuck.COOLDOWNS,
    Stuck.PAUSED,
    Stuck.BUDGETS,
    Stuck.POOL_FULL,
    Stuck.WINDOWS,
    Stuck.LEVELS,
    Stuck.LISTS,
    Stuck.GUARDS,
    Stuck.POOR_SELECTION,
    Stuck.NO_CANDIDATES,
)
"""Of groups of the same size the one whose pods had got furthest."""


def why_stuck(found: Sequence[Sighting], *, paused: bool) -> tuple[Stuck, dict[Reason, int], str]:
    """(group, refusals of candidates by code, sentence) of a node that nothing was evicted from.

    `found` are the cycles that found it, at least one; dry runs count only where there was nothing else. `paused`: for
    all of that time, whatever else kept its pods there.
    """
    real = [each for each in found if not each.dry_run]
    told = real or found
    codes: Counter[Reason] = Counter()
    for each in told:
        codes.update({code: count for code, count in each.refusals.items() if code in STUCK_OF})
    stuck = Stuck.PAUSED if paused else _group(told, codes) if real else _of_dry_run(told, codes)
    return stuck, dict(codes), _sentence(stuck, told, codes)


def _of_dry_run(told: Sequence[Sighting], codes: Mapping[Reason, int]) -> Stuck:
    """What a real run would have done is what a dry run did: only where it would have moved something is it the dry
    run that kept it."""
    would = not codes or Reason.GOAL_REACHED in codes or any(each.evictions for each in told)
    return Stuck.DRY_RUN if would else _group(told, codes)


def _group(told: Sequence[Sighting], codes: Mapping[Reason, int]) -> Stuck:
    groups: Counter[Stuck] = Counter()
    for code, count in codes.items():
        if code not in BACKGROUND and code is not Reason.NO_RELIEF:
            groups[STUCK_OF[code]] += count
    small = [each.refusals.get(Reason.NO_RELIEF, 0) for each in told]
    groups[Stuck.POOR_SELECTION] += sum(count for count in small if count * LEAST_RELIEF >= 1)
    if groups.total():
        return max(groups, key=lambda group: (groups[group], -_FURTHEST.index(group)))
    if Reason.NO_RELIEF in codes or not codes:
        return Stuck.NO_CANDIDATES
    return Stuck.GUARDS


def _sentence(stuck: Stuck, told: Sequence[Sighting], codes: Mapping[Reason, int]) -> str:
    text = STUCK[stuck]
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
