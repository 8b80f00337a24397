"""What a node's change was made of, and what an assessment comes to.

    after - before = - evicted - departed + arrived + returned + remaining_change + residual

All but the last part are sums over pods, by their uids; the last is what the two figures of the node leave over, so it
always closes. A part is as good as its pods' samples: a rate window still shows some of a pod that has just left.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rebalancer.effect.messages import cores, percent
from rebalancer.model.effect import Assessment, ChangeBreakdown, Outcome

ROUNDING: Final = 1e-9
"""Relative slack: a node at exactly its target is not over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNow:
    """A pod of the node when it is assessed."""

    uid: str
    name: str
    """`namespace/name`"""
    cpu_millicores: float
    """NaN = not known."""
    is_replacement: bool
    """Of a pod that we evicted from this node."""


def account(
    assessment: Assessment, pods_now: Sequence[PodNow], node_before: float, node_after: float
) -> ChangeBreakdown:
    """The parts of the change between two figures of the node, in millicores, both known.

    A pod that we meant to evict and that is still there counts as one that stayed.
    """
    now = {each.uid: each for each in pods_now}
    before = {each.uid: each for each in assessment.pods}
    gone = [each for uid, each in before.items() if uid not in now]
    new = [each for uid, each in now.items() if uid not in before]
    stayed = [(before[uid].cpu_millicores, each.cpu_millicores) for uid, each in now.items() if uid in before]
    evicted = _sum(each.cpu_millicores for each in gone if each.evicted)
    left = _sum(each.cpu_millicores for each in gone if not each.evicted)
    landed = _sum(each.cpu_millicores for each in new if not each.is_replacement)
    came_back = _sum(each.cpu_millicores for each in new if each.is_replacement)
    grew = _sum(later - earlier for earlier, later in stayed)
    return ChangeBreakdown(
        before_millicores=node_before,
        after_millicores=node_after,
        evicted=evicted,
        departed=left,
        arrived=landed,
        returned=came_back,
        remaining_change=grew,
        residual=math.fsum((node_after, -node_before, evicted, left, -landed, -came_back, -grew)),
    )


def outcome_of(
    assessment: Assessment, account: ChangeBreakdown | None, after_share: float | None
) -> tuple[Outcome, str]:
    """(outcome, sentence with the numbers). Without a figure of the node, or an account of it, nothing is known.

    Not cooled is blamed on what was moved, where that could not have been enough by itself; else on the largest of what
    came on top.
    """
    if after_share is None or not math.isfinite(after_share):
        return Outcome.UNKNOWN, Outcome.UNKNOWN.sentence
    target = assessment.target
    change = f"{percent(assessment.before_share)} to {percent(after_share)}, target {percent(target)}"
    if after_share <= target * (1 + ROUNDING):
        return Outcome.COOLED, f"{change}{_parts(account)}"
    if account is None:
        return Outcome.UNKNOWN, f"{change}; what its pods used isn't known"
    outcome = _to_blame(assessment, account)
    return outcome, f"{change}: {outcome.sentence}{_parts(account)}"


def _to_blame(assessment: Assessment, account: ChangeBreakdown) -> Outcome:
    enough = assessment.target * assessment.capacity_millicores * (1 + ROUNDING)
    known = all(math.isfinite(each.cpu_millicores) for each in assessment.pods if each.evicted)
    if known and account.before_millicores - account.evicted > enough:
        return Outcome.TOO_FEW_EVICTED
    adverse = {
        Outcome.REPLACEMENTS_RETURNED: account.returned,
        Outcome.NEW_PODS_ARRIVED: account.arrived,
        Outcome.REMAINING_PODS_GREW: account.remaining_change,
        Outcome.UNEXPLAINED: account.residual,
    }
    largest = max(adverse, key=lambda each: adverse[each])  # of equal ones the first
    return largest if adverse[largest] > 0 else Outcome.UNEXPLAINED


def planned_relief(assessment: Assessment) -> float:
    """Millicores that the plan was to take away, what it expected to land there counted in; NaN = not known."""
    return (assessment.before_share - assessment.planned_share) * assessment.capacity_millicores


def measured_relief(assessment: Assessment) -> float:
    """Millicores that the node uses less; NaN = not known."""
    if assessment.after_share is None:
        return math.nan
    return (assessment.before_share - assessment.after_share) * assessment.capacity_millicores


def _parts(account: ChangeBreakdown | None) -> str:
    """The parts that show in two digits, in cores."""
    if account is None:
        return ""
    named = (
        ("evicted", -account.evicted),
        ("left", -account.departed),
        ("landed", account.arrived),
        ("came back", account.returned),
        ("the rest grew", account.remaining_change),
        ("unexplained", account.residual),
    )
    told = [f"{name} {'+' if value > 0 else ''}{text}" for name, value in named if (text := cores(value)) != "0"]
    return f" ({', '.join(told)} cores)" if told else ""


def _sum(values: Iterable[float]) -> float:
    """Of those that are known."""
    return math.fsum(value for value in values if math.isfinite(value))
