"""What assessments change in later plans: eviction backoff, circuit breakers and measured relief.

Only assessments made in time after the settling time count; later ones say less about the eviction.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rebalancer.effect.account import planned_relief
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.figures import percent
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.effect import Assessment, Outcome, Step
from rebalancer.policy.schema.safety import EffectivenessBreaker

TWICE_WITHIN_SECONDS: Final = DAY_SECONDS
BREAKER_OPEN_SECONDS: Final = 3600.0
RELIEF_LAST: Final = 50
RELIEF_ENOUGH: Final = 5
"""With fewer assessments the planned relief is used as it is."""
RELIEF_LEAST, RELIEF_MOST = 0.5, 1.5

INEFFECTIVE_OUTCOMES: Final = frozenset({Outcome.NEW_PODS_ARRIVED, Outcome.REMAINING_PODS_GREW, Outcome.UNEXPLAINED})
"""Not `tooFewEvicted`: those evictions did help. Returned replacements start a backoff by themselves."""
NO_FAULT_OUTCOMES: Final = frozenset({Outcome.POOL_GREW, Outcome.REMAINING_PODS_GREW, Outcome.TOO_FEW_EVICTED})
"""Loads grew by themselves, or the evictions did help: no failure, and no success either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IneffectiveMove:
    """A service to be backed off from a node."""

    service_identity: str
    node: str
    resource: str
    """The resource that its evictions did not relieve the node of."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaker:
    """A pool whose circuit breaker is open."""

    pool: str
    until: float
    """Seconds since the epoch."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What later plans use."""

    ineffective: tuple[IneffectiveMove, ...] = ()
    """New ones, each to be recorded once."""
    open_breakers: Mapping[str, OpenBreaker]
    """By pool; those still open."""
    relief_factor: Mapping[str, float]
    """Pool -> factor of the planned relief; 1 for a pool that isn't there."""


def feedback(
    new: Sequence[Assessment],
    earlier: Sequence[Assessment],
    *,
    moved: Sequence[Eviction],
    breaker: EffectivenessBreaker,
    now: float,
) -> Feedback:
    """From `new` assessments and `earlier` ones; `moved` are their evictions."""
    known = _by_key((*earlier, *new))
    return Feedback(
        ineffective=tuple(ineffective_moves(new, known, moved)),
        open_breakers=open_breakers(known, breaker, now=now),
        relief_factor=relief_factors(known),
    )


def ineffective_moves(
    new: Sequence[Assessment], known: Sequence[Assessment], moved: Sequence[Eviction]
) -> list[IneffectiveMove]:
    """(service, node, resource) where the node did not cool twice in a row within a day, the second time in `new`."""
    services: dict[tuple[str, str], set[str]] = {}
    for one in moved:
        services.setdefault((one.reserved.cycle, one.node), set()).add(one.service_identity)
    just_now = {_key(each) for each in new}
    history: dict[tuple[str, str, str], list[Assessment]] = {}
    for each in sorted(_counted(known), key=lambda one: (one.last_eviction_at, one.cycle)):
        if _was_hot(each) and (each.outcome in INEFFECTIVE_OUTCOMES or each.outcome is Outcome.COOLED):
            for service in services.get((each.cycle, each.node), ()):
                history.setdefault((service, each.node, each.resource), []).append(each)
    found = []
    for (service, node, resource), times in sorted(history.items()):
        last = times[-2:]
        if (
            len(last) == 2
            and all(each.outcome in INEFFECTIVE_OUTCOMES for each in last)
            and _key(last[1]) in just_now
            and last[1].last_eviction_at - last[0].last_eviction_at <= TWICE_WITHIN_SECONDS
        ):
            why = " and ".join(dict.fromkeys(str(each.outcome) for each in last))
            what = "cool" if resource == CPU else f"cool by {resource}"
            reason = f"its node did not {what} twice within a day after its eviction: {why}"
            found.append(IneffectiveMove(service_identity=service, node=node, resource=resource, reason=reason))
    return found


def open_breakers(known: Sequence[Assessment], breaker: EffectivenessBreaker, *, now: float) -> dict[str, OpenBreaker]:
    """Pools of whose last relieved nodes too few have cooled; open for an hour from the newest assessment."""
    found = {}
    counted = [each for each in known if _was_hot(each) and each.outcome not in NO_FAULT_OUTCOMES]
    for pool, made in _by_pool(counted).items():
        last = made[-breaker.sample_size :]
        cooled = sum(each.outcome is Outcome.COOLED for each in last)
        until = (last[-1].assessed_at or 0.0) + BREAKER_OPEN_SECONDS
        if len(last) == breaker.sample_size and cooled * 100 < breaker.min_effectiveness * len(last) and now < until:
            reason = (
                f"{cooled} of the last {len(last)} relieved nodes of pool {pool} have cooled, "
                f"at least {percent(breaker.min_effectiveness / 100)} must; not cooled: {_causes(last)}"
            )
            found[pool] = OpenBreaker(pool=pool, until=until, reason=reason)
    return found


def _causes(made: Sequence[Assessment]) -> str:
    """`other pods arrived and took the headroom (3), replacements returned to the node (1)`"""
    causes = Counter(each.outcome for each in made if each.outcome is not None and each.outcome is not Outcome.COOLED)
    return ", ".join(f"{outcome.sentence} ({count})" for outcome, count in causes.most_common())


def relief_factors(known: Sequence[Assessment]) -> dict[str, float]:
    """Pool -> the median of measured relief / planned relief of CPU of its last assessments, kept within bounds."""
    out = {}
    for pool, made in _by_pool([each for each in known if each.resource == CPU]).items():
        ratios = [ratio for each in made[-RELIEF_LAST:] if (ratio := relief_ratio(each)) is not None]
        if len(ratios) >= RELIEF_ENOUGH:
            out[pool] = min(max(median(ratios), RELIEF_LEAST), RELIEF_MOST)
    return out


def relief_ratio(made: Assessment) -> float | None:
    """Measured relief of the evicted pods as a part of the planned relief; None where either isn't known.

    Other arrivals and departures, and growth of the whole pool, are left out: they are independent of the pods that
    were chosen. Where that growth isn't known nothing is learned: a morning would count as failed relief.
    """
    planned, account = planned_relief(made), made.breakdown
    if account is None or account.growth_unknown or not planned > 0:
        return None
    measured = account.evicted - account.returned - account.remaining_change - account.residual
    return measured / planned if math.isfinite(measured) else None


def _by_pool(known: Sequence[Assessment]) -> dict[str, list[Assessment]]:
    """Those that count, oldest first."""
    out: dict[str, list[Assessment]] = {}
    for each in sorted(_counted(known), key=lambda one: (one.assessed_at or 0.0, one.last_eviction_at, one.node)):
        out.setdefault(each.pool, []).append(each)
    return out


def _counted(known: Sequence[Assessment]) -> list[Assessment]:
    return [
        each
        for each in known
        if each.step is Step.SETTLED
        and each.assessed_at is not None
        and not each.late
        # with replacements that aren't Ready the node is not what the evictions make of it
        and each.outcome not in (None, Outcome.UNKNOWN, Outcome.REPLACEMENTS_NOT_READY)
    ]


def _was_hot(made: Assessment) -> bool:
    """A node relieved ahead of its peak is cool afterwards with any eviction."""
    return made.before_share > made.target


def _by_key(made: Sequence[Assessment]) -> list[Assessment]:
    """Each once, the last one wins."""
    return list({_key(each): each for each in made}.values())


def _key(each: Assessment) -> tuple[str, str, Step]:
    return each.cycle, each.node, each.step
