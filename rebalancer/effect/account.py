"""Breakdown of a node's change of a resource by cause, and the outcome of an assessment.

    after - before = - evicted - departed + arrived + returned + remaining_change + pool_growth + surplus + residual

All parts but the residual are sums over pods, by uid; the residual makes both sides equal. A part is as precise as its
pods' samples: a rate window still shows some CPU of a pod that has just left.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rebalancer.model.notation.figures import millicores, percent
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.effect import Assessment, ChangeBreakdown, Outcome

ROUNDING: Final = 1e-9
"""Relative tolerance: a node at exactly its target is not over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNow:
    """A pod of the node when it is assessed."""

    uid: str
    name: str
    """`namespace/name`"""
    amount: float
    """As in `PodBefore`."""
    is_replacement: bool
    """It replaces a pod evicted from this node."""
    surplus: float = 0.0
    """The part of its amount that it uses for replacements of its service that are not Ready yet."""


def account(
    assessment: Assessment,
    pods_now: Sequence[PodNow],
    node_before: float,
    node_after: float,
    *,
    growth: float | None = 1.0,
) -> ChangeBreakdown:
    """The breakdown of the change between two known measurements of the node, in the unit of the resource.

    `growth`: load of the pool's nodes without evictions, after / before; None = not known.

    A pod that was planned to go and is still there counts as one that stayed.
    """
    now = {each.uid: each for each in pods_now}
    before = {each.uid: each for each in assessment.pods}
    gone = [each for uid, each in before.items() if uid not in now]
    new = [each for uid, each in now.items() if uid not in before]
    stayed = [(before[uid].amount, each.amount) for uid, each in now.items() if uid in before]
    evicted = _sum(each.amount for each in gone if each.evicted)
    left = _sum(each.amount for each in gone if not each.evicted)
    landed = _sum(each.amount for each in new if not each.is_replacement)
    came_back = _sum(each.amount for each in new if each.is_replacement)
    surplus = _sum(each.surplus for uid, each in now.items() if uid in before)
    growth_unknown = growth is None
    growth = 1.0 if growth is None else growth
    usual = (growth - 1.0) * (node_before - evicted - left)
    usual_of_pods = (growth - 1.0) * _sum(earlier for earlier, later in stayed if math.isfinite(later))
    grew = _sum(later - earlier for earlier, later in stayed) - usual_of_pods - surplus
    return ChangeBreakdown(
        before=node_before,
        after=node_after,
        evicted=evicted,
        departed=left,
        arrived=landed,
        returned=came_back,
        remaining_change=grew,
        pool_growth=usual,
        growth_unknown=growth_unknown,
        surplus=surplus,
        residual=math.fsum((node_after, -node_before, evicted, left, -landed, -came_back, -grew, -usual, -surplus)),
    )


def outcome_of(
    assessment: Assessment, account: ChangeBreakdown | None, after_share: float | None
) -> tuple[Outcome, str]:
    """(outcome, sentence with the numbers). Unknown without a measurement of the node or without its breakdown.

    A node that did not cool had too few evictions, where these alone could not have been enough; otherwise the outcome
    is the largest adverse part.
    """
    if after_share is None or not math.isfinite(after_share):
        return Outcome.UNKNOWN, Outcome.UNKNOWN.sentence
    target = assessment.target
    of = "" if assessment.resource == CPU else f"{assessment.resource} "
    change = f"{of}{percent(assessment.before_share)} to {percent(after_share)}, target {percent(target)}"
    if after_share <= target * (1 + ROUNDING):
        return Outcome.COOLED, f"{change}{_parts(assessment, account)}"
    if account is None:
        return Outcome.UNKNOWN, f"{change}; what its pods used isn't known"
    outcome = _to_blame(assessment, account)
    return outcome, f"{change}: {outcome.sentence}{_parts(assessment, account)}"


def _to_blame(assessment: Assessment, account: ChangeBreakdown) -> Outcome:
    enough = assessment.target * assessment.capacity * (1 + ROUNDING)
    known = all(math.isfinite(each.amount) for each in assessment.pods if each.evicted)
    if known and account.before - account.evicted > enough:
        return Outcome.TOO_FEW_EVICTED
    adverse = {
        Outcome.REPLACEMENTS_RETURNED: account.returned,
        Outcome.NEW_PODS_ARRIVED: account.arrived,
        Outcome.REMAINING_PODS_GREW: account.remaining_change,
        Outcome.POOL_GREW: account.pool_growth,
        Outcome.REPLACEMENTS_NOT_READY: account.surplus,
        Outcome.UNEXPLAINED: account.residual,
    }
    largest = max(adverse, key=lambda each: adverse[each])  # the first of equal parts
    return largest if adverse[largest] > 0 else Outcome.UNEXPLAINED


def planned_relief(assessment: Assessment) -> float:
    """Planned relief in the unit of the resource, expected arrivals included; NaN = not known."""
    return (assessment.before_share - assessment.planned_share) * assessment.capacity


def measured_relief(assessment: Assessment) -> float:
    """Measured relief in the unit of the resource; NaN = not known."""
    if assessment.after_share is None:
        return math.nan
    return (assessment.before_share - assessment.after_share) * assessment.capacity


def _parts(assessment: Assessment, account: ChangeBreakdown | None) -> str:
    """The parts that are not rounded to zero: CPU as such, other resources as shares of the node."""
    if account is None:
        return ""
    named = (
        ("evicted", -account.evicted),
        ("left", -account.departed),
        ("landed", account.arrived),
        ("came back", account.returned),
        ("the rest grew", account.remaining_change),
        ("the pool grew", account.pool_growth),
        ("surplus", account.surplus),
        ("unexplained", account.residual),
    )
    by_cpu = assessment.resource == CPU

    def text(value: float) -> str:
        return millicores(value) if by_cpu else percent(value / assessment.capacity)

    parts = [
        f"{name} {'+' if value > 0 else ''}{text(value)}"
        for name, value in named
        if percent(value / assessment.capacity) != "0%"
    ]
    return f" ({', '.join(parts)}{'' if by_cpu else ' of the node'})" if parts else ""


def _sum(values: Iterable[float]) -> float:
    """Sum of the known values."""
    return math.fsum(value for value in values if math.isfinite(value))
