"""Why nothing was evicted from a discovered node: the group with most of its candidates' refusals.

Pods that no plan would ever move (of a DaemonSet, terminating, finished) or whose eviction would relieve the node too
little count only where there is nothing else on the node.

**Poor selection** is what the planner itself left there, and no rule: planning time used up, or a pod left for others
that did not go in the end. Whether such a pod would have passed all other checks is not recorded. Pods that are each
too small to be worth an eviction bring less than `MIN_RELIEF` of the excess each: only where they could together have
made up the whole excess do they count as poor selection.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rebalancer.model.decisions.plan import MIN_RELIEF
from rebalancer.model.notation.figures import counted
from rebalancer.model.reason import BlockedReason, Reason
from rebalancer.model.records.effect import NodeObservation

EXAMPLES: Final = 3

BACKGROUND: Final = frozenset(
    {Reason.MIRROR_POD, Reason.STATIC_POD, Reason.DAEMONSET_POD, Reason.TERMINATING, Reason.FINISHED}
)
"""Pods that no plan would ever move."""

_FURTHEST = (
    BlockedReason.SERVER,
    BlockedReason.INTERRUPTED,
    BlockedReason.NO_TARGET_NODE,
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
"""Of groups of the same size the one whose pods had passed most checks."""


def why_blocked(
    discoveries: Sequence[NodeObservation], *, paused: bool
) -> tuple[BlockedReason, dict[Reason, int], str]:
    """(group, candidates' refusals by code, sentence) of a node that nothing was evicted from.

    `discoveries`: the observations of cycles that found the node, at least one; dry runs count only where there was
    nothing else. `paused`: evictions from it were paused for the whole episode, whatever else kept its pods.
    """
    real = [each for each in discoveries if not each.dry_run]
    observations = real or discoveries
    codes: Counter[Reason] = Counter()
    for observation in observations:
        refusals = observation.refusals.items()
        codes.update({code: count for code, count in refusals if isinstance(code.group, BlockedReason)})
    if paused:
        blocked = BlockedReason.PAUSED
    else:
        blocked = _group(observations, codes) if real else _group_of_dry_run(observations, codes)
    return blocked, dict(codes), _sentence(blocked, observations, codes)


def _group_of_dry_run(observations: Sequence[NodeObservation], codes: Mapping[Reason, int]) -> BlockedReason:
    """The dry run itself only where it planned an eviction: elsewhere a real run would have evicted nothing either."""
    planned = not codes or Reason.GOAL_REACHED in codes or any(each.evictions for each in observations)
    return BlockedReason.DRY_RUN if planned else _group(observations, codes)


def _group(observations: Sequence[NodeObservation], codes: Mapping[Reason, int]) -> BlockedReason:
    groups: Counter[BlockedReason] = Counter()
    for code, count in codes.items():
        if code not in BACKGROUND and code is not Reason.NO_RELIEF and isinstance(code.group, BlockedReason):
            groups[code.group] += count
    small = [each.refusals.get(Reason.NO_RELIEF, 0) for each in observations]
    groups[BlockedReason.POOR_SELECTION] += sum(count for count in small if count * MIN_RELIEF >= 1)
    if groups.total():
        return max(groups, key=lambda group: (groups[group], -_FURTHEST.index(group)))
    if Reason.NO_RELIEF in codes or not codes:
        return BlockedReason.NO_CANDIDATES
    return BlockedReason.GUARDS


def _sentence(blocked: BlockedReason, observations: Sequence[NodeObservation], codes: Mapping[Reason, int]) -> str:
    text = blocked.sentence
    if codes:
        text += f": {by_count(codes)} in {counted(len(observations), 'cycle')}"
    examples = next((pods for each in reversed(observations) if (pods := _of_pods(each.examples))), ())
    if examples:
        text += f"; would have helped most: {'; '.join(examples[:EXAMPLES])}"
    return text


def _of_pods(examples: Iterable[str]) -> tuple[str, ...]:
    """Without the examples about the node itself."""
    return tuple(each for each in examples if "/" in each.partition(": ")[0] and " " not in each.partition(": ")[0])


def by_count(codes: Mapping[Reason, int]) -> str:
    """`NoTargetNode 12, DaemonSetPod 4`."""
    return ", ".join(f"{code} {count}" for code, count in sorted(codes.items(), key=lambda each: (-each[1], each[0])))
