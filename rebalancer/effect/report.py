"""The report of some days: what the command's table, JSON, CSV and HTML and the dashboard show.

Rates, reasons and trends come from daily counts, so they are of whole UTC days. Nodes, services and breakdowns come
from details, which are kept for a shorter time. Fields and docstrings are those of the JSON document and its schema.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Final

from rebalancer.effect.cluster import PoolDay, PoolSummary, heat_of_hours, over_days, summaries
from rebalancer.effect.comparison import Comparison
from rebalancer.effect.messages import sentence
from rebalancer.effect.rates import RateLine, TrendPoint, day_of, rates, trend
from rebalancer.model.decisions.eviction import Eviction, EvictionCounts
from rebalancer.model.decisions.plan import PlanScore
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.document import INLINE, Amount, Count, Dimension, Instant, Share, Shown
from rebalancer.model.notation.figures import counted, percent
from rebalancer.model.notation.heat import Heat
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.effect import (
    Assessment,
    ChangeBreakdown,
    DayRow,
    HotEpisode,
    Outcome,
    PoolHour,
    Rate,
    Step,
    effect_reason,
    resource_of_reason,
)

ENOUGH_EPISODES: Final = 20
"""Fewer episodes are too little data for a rate."""
CLOSES: Final = 0.05
"""A residual above this share of the change is noted."""
WEEKLY_FROM_DAYS: Final = 45
"""The trend of a longer time is weekly."""
OVERDUE_SECONDS: Final = 60.0
"""A daemon looks for due assessments several times in this time."""
SHOWN: Final = 10
"""Nodes, services."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyLine:
    """Accuracy of the forecasts of a pool; null = too few forecasts. Errors are shares of a node's capacity."""

    pool: str | None
    """null: all pools."""
    forecasts: Count
    mae: Amount | None
    """Mean absolute error."""
    coverage: Share | None
    """Share of forecasts whose prediction interval held the actual."""
    hot_recall: Share | None
    hot_precision: Share | None
    peak_hour_error: Amount | None
    """Median, in hours."""
    drift: str = ""
    """A sentence when the forecasts get worse, else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonLine:
    """Why hot episodes were not discovered, not acted on, or did not cool."""

    key: Annotated[str, Shown(schema={"pattern": "^(discovery|eviction|effect)/"})]
    """`discovery/<MissReason>`, `eviction/<BlockedReason>`, `effect/<Outcome>` or, by a resource besides CPU,
    `effect/<Outcome>/<resource>`."""
    resource: str
    rate: Rate
    """Of the missed episodes, of the discovered episodes without an eviction, or of the assessments by its resource."""
    sentence: str
    example: str
    """Details of the newest one; empty when they are no longer kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLine:
    """Assessments of nodes that were relieved of a resource, after the settling time."""

    resource: str
    cooled: Rate
    """Nodes at or under target / nodes with a known outcome."""
    share_before: Amount | None
    """Mean share of the resource in use when the evictions were planned, of the assessments that are kept."""
    share_planned: Amount | None
    share_after: Amount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node."""

    node: str
    pool: str
    episodes: Count
    hot_minutes: Amount
    """By the hot-node SLO, in the time of the report."""
    evictions: Count
    ineffective_evictions: Count
    """Evictions after which the node did not cool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRow:
    """A service with evicted pods."""

    service: str
    evictions: Count
    nodes: Count
    """Nodes that pods were evicted from."""
    counts: Annotated[EvictionCounts, INLINE]
    effective: Rate
    """Evictions after which the node had cooled / evictions that could be assessed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What happened in the reported time, and whether evictions helped."""

    since: Instant
    until: Instant
    """Not included."""
    by: tuple[Dimension, ...]
    evictions: Count
    """Of all services and nodes; the rates and their counts have those that are assessed."""
    hot_node_hours: Heat
    """Over the threshold of the hot-node SLO; `before`: in the same hours of the weeks before."""
    plans: PlanScore | None
    """What the plans of its evictions were worth, for the hour after each; null: nothing was evicted."""
    total: RateLine | None
    """null: nothing is recorded of these days."""
    lines: tuple[RateLine, ...]
    reasons: tuple[ReasonLine, ...]
    """The most frequent of each rate first."""
    trend: tuple[TrendPoint, ...]
    pools: tuple[PoolSummary, ...]
    daily: tuple[PoolDay, ...]
    hottest: tuple[NodeRow, ...]
    """Nodes with the most hot minutes."""
    ineffective: tuple[NodeRow, ...]
    """Nodes with the most evictions without effect."""
    services: tuple[ServiceRow, ...]
    """Most evictions first."""
    breakdown: ChangeBreakdown | None
    """CPU, summed over the assessments after the settling time."""
    resources: tuple[ResourceLine, ...]
    """Assessments by resource, CPU first."""
    accuracy: tuple[AccuracyLine, ...]
    comparison: Comparison | None
    """null: no hot node was relieved in this time."""
    notes: tuple[str, ...]
    """Reasons to doubt the figures, in sentences."""


def make_report(
    *,
    since: float,
    until: float,
    by: Sequence[Dimension],
    days: Sequence[DayRow],
    episodes: Sequence[HotEpisode] = (),
    assessments: Sequence[Assessment] = (),
    evicted: Mapping[str, int] | None = None,
    moved: Sequence[Eviction] = (),
    hours: Sequence[PoolHour] = (),
    plans: PlanScore | None = None,
    accuracy: Sequence[AccuracyLine] = (),
    comparison: Comparison | None = None,
    details_since: float | None = None,
    evaluated_until: float = math.inf,
    now: float = -math.inf,
) -> Report:
    """The report of the days that overlap [since, until).

    `evicted`: node -> evictions; None: as in `moved`, which has at least those of the services that are shown. `hours`
    begin a week before `since`, for the comparison. `details_since`: start of the episodes and assessments that are
    kept; None = all of the time. `evaluated_until`: open episodes are known to last so long. `now`: assessments that
    were due before it are overdue.
    """
    counted_days = [row for row in days if day_of(since) <= row.day < math.ceil(until / DAY_SECONDS)]
    episodes = [each for each in episodes if each.started_at < until and (each.ended_at or math.inf) >= since]
    settled = [each for each in assessments if each.step is Step.SETTLED and since <= each.last_eviction_at < until]
    in_time = [each for each in settled if not each.late]
    evicted = Counter(each.node for each in moved) if evicted is None else evicted
    evictions = sum(evicted.values())
    nodes = _nodes(episodes, settled, evicted, since=since, until=until, open_until=min(until, evaluated_until))
    total = next(iter(rates(counted_days, ())), None)
    breakdown = _breakdown(in_time)
    return Report(
        since=since,
        until=until,
        by=tuple(by),
        evictions=evictions,
        hot_node_hours=heat_of_hours(hours, since=since, until=until, evictions=evictions),
        plans=plans,
        total=total,
        lines=tuple(rates(counted_days, by)),
        reasons=() if total is None else tuple(_reasons(total, episodes, in_time)),
        trend=tuple(trend(counted_days, days=7 if until - since > WEEKLY_FROM_DAYS * DAY_SECONDS else 1)),
        pools=tuple(summaries(hours, since=since, until=until)),
        daily=tuple(over_days(hours, since=since, until=until)),
        hottest=tuple(sorted((each for each in nodes if each.hot_minutes), key=_by_heat)[:SHOWN]),
        ineffective=tuple(sorted((each for each in nodes if each.ineffective_evictions), key=_by_effect)[:SHOWN]),
        services=tuple(_services(moved, in_time)[:SHOWN]),
        breakdown=breakdown,
        resources=tuple(_resources(total, in_time)),
        accuracy=tuple(accuracy),
        comparison=comparison,
        notes=(
            *_pending(settled, now),
            *_notes(total, episodes, settled, breakdown, accuracy, since=since, details_since=details_since),
            *_not_assessed(settled, evictions),
        ),
    )


def _reasons(total: RateLine, episodes: Sequence[HotEpisode], settled: Sequence[Assessment]) -> Iterable[ReasonLine]:
    examples: dict[str, str] = {}  # oldest first: the newest stays
    for episode in sorted(episodes, key=lambda each: each.started_at):
        for key in (f"discovery/{episode.miss_reason}", f"eviction/{episode.blocked_reason}"):
            examples[key] = f"{episode.node}: {episode.detail}"
    for made in sorted(settled, key=lambda each: each.last_eviction_at):
        if made.outcome is not None:
            examples[effect_reason(made.outcome, made.resource)] = f"{made.node}: {made.detail}"
    reasons = total.counts.reasons or {}
    wholes: Counter[tuple[str, str]] = Counter()
    for key, count in reasons.items():
        wholes[_whole(key)] += count
    order = {"discovery": 0, "eviction": 1, "effect": 2}
    for key in sorted(reasons, key=lambda key: (order.get(key.partition("/")[0], 3), -reasons[key], key)):
        if key != effect_reason(Outcome.COOLED, resource_of_reason(key)):
            yield ReasonLine(
                key=key,
                resource=resource_of_reason(key),
                rate=Rate(part=reasons[key], whole=wholes[_whole(key)]),
                sentence=sentence(key),
                example=examples.get(key, ""),
            )


def _whole(key: str) -> tuple[str, str]:
    """What the shares of reasons are of: the group, and the resource."""
    return key.partition("/")[0], resource_of_reason(key)


def _resources(total: RateLine | None, settled: Sequence[Assessment]) -> Iterable[ResourceLine]:
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for key, count in ((total.counts.reasons if total is not None else None) or {}).items():
        if key.startswith("effect/"):
            outcomes[resource_of_reason(key)][key] += count
    for resource in sorted(outcomes, key=lambda name: (name != CPU, name)):
        counts = outcomes[resource]
        of_it = [each for each in settled if each.resource == resource and each.after_share is not None]
        yield ResourceLine(
            resource=resource,
            cooled=Rate(
                part=counts[effect_reason(Outcome.COOLED, resource)],
                whole=counts.total() - counts[effect_reason(Outcome.UNKNOWN, resource)],
            ),
            share_before=_mean(each.before_share for each in of_it),
            share_planned=_mean(each.planned_share for each in of_it),
            share_after=_mean(each.after_share for each in of_it if each.after_share is not None),
        )


def _mean(values: Iterable[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None


def _nodes(
    episodes: Sequence[HotEpisode],
    settled: Sequence[Assessment],
    evicted: Mapping[str, int],
    *,
    since: float,
    until: float,
    open_until: float,
) -> list[NodeRow]:
    minutes: Counter[str] = Counter()
    hot: dict[str, float] = defaultdict(float)
    pools: dict[str, str] = {}
    ineffective: Counter[str] = Counter()
    for episode in episodes:
        begin, end = max(episode.started_at, since), min(episode.ended_at or open_until, until)
        minutes[episode.node] += 1
        hot[episode.node] += max(end - begin, 0.0) / 60.0
        pools[episode.node] = episode.pool
    for made in settled:
        pools[made.node] = made.pool
        if not made.late and made.outcome not in (None, Outcome.COOLED, Outcome.UNKNOWN):
            ineffective[made.node] += _evicted(made)
    return [
        NodeRow(
            node=node,
            pool=pool,
            episodes=minutes[node],
            hot_minutes=hot[node],
            evictions=evicted.get(node, 0),
            ineffective_evictions=ineffective[node],
        )
        for node, pool in pools.items()
    ]


def _by_heat(row: NodeRow) -> tuple[float, str]:
    return -row.hot_minutes, row.node


def _by_effect(row: NodeRow) -> tuple[int, float, str]:
    return -row.ineffective_evictions, *_by_heat(row)


def _services(moved: Sequence[Eviction], settled: Sequence[Assessment]) -> list[ServiceRow]:
    outcomes_of = {(each.cycle, each.node): each.outcome for each in settled}
    groups: dict[str, list[Eviction]] = defaultdict(list)
    for each in moved:
        groups[each.service_identity].append(each)
    rows = []
    for service, members in groups.items():
        outcomes = Counter(outcomes_of.get((each.reserved.cycle, each.node)) for each in members)
        known = outcomes.total() - outcomes[None] - outcomes[Outcome.UNKNOWN]
        rows.append(
            ServiceRow(
                service=service,
                evictions=len(members),
                nodes=len({each.node for each in members}),
                counts=EvictionCounts.count(members),
                effective=Rate(part=outcomes[Outcome.COOLED], whole=known),
            )
        )
    return sorted(rows, key=lambda row: (-row.evictions, row.service))


def _breakdown(settled: Sequence[Assessment]) -> ChangeBreakdown | None:
    breakdowns = [each.breakdown for each in settled if each.breakdown is not None and each.resource == CPU]
    if not breakdowns:
        return None
    amounts = [part.name for part in fields(ChangeBreakdown) if part.name != "growth_unknown"]
    return ChangeBreakdown(
        **{name: math.fsum(getattr(each, name) for each in breakdowns) for name in amounts},
        growth_unknown=any(each.growth_unknown for each in breakdowns),
    )


def _evicted(assessment: Assessment) -> int:
    return sum(each.evicted for each in assessment.pods)


def _not_assessed(settled: Sequence[Assessment], evictions: int) -> Iterable[str]:
    assessed = sum(_evicted(each) for each in settled)
    if assessed < evictions:
        of_all = f"{assessed} of {counted(evictions, 'eviction')}"
        yield f"rates count only what is assessed, {of_all}; the tables of nodes and services count all"


def _pending(settled: Sequence[Assessment], now: float) -> Iterable[str]:
    waiting = [each for each in settled if each.assessed_at is None]
    overdue = sum(each.due_at < now - OVERDUE_SECONDS for each in waiting)
    if overdue < len(waiting):
        yield f"{counted(len(waiting) - overdue, 'assessment')} pending"
    if overdue:
        made = "made by a daemon, by the next `rebalancer run --once`, or by `rebalancer assess`"
        yield f"{counted(overdue, 'assessment')} overdue: {made}"


def _notes(
    total: RateLine | None,
    episodes: Sequence[HotEpisode],
    settled: Sequence[Assessment],
    breakdown: ChangeBreakdown | None,
    accuracy: Sequence[AccuracyLine],
    *,
    since: float,
    details_since: float | None,
) -> Iterable[str]:
    hot = 0 if total is None else total.counts.hot
    if total is None:
        if episodes:
            yield "no rates yet: a hot node is counted once its hot episode has ended"
        else:
            yield "no data for this time: no node was hot by the hot-node SLO, or the SLO was not evaluated"
    elif hot < ENOUGH_EPISODES:
        yield f"insufficient data: {counted(hot, 'episode')}, rates need at least {ENOUGH_EPISODES}"
    if now := sum(each.ended_at is None for each in episodes):
        yield f"{counted(now, 'node')} still hot when the SLO was last evaluated: their figures may change"
    if late := sum(each.late for each in settled):
        yield f"{counted(late, 'assessment')} made late: not counted"
    if unknown := sum(each.outcome is Outcome.UNKNOWN for each in settled):
        yield f"{counted(unknown, 'assessment')} without the node's load"
    made = [each.breakdown for each in settled if not each.late and each.breakdown is not None and each.resource == CPU]
    change = math.fsum(abs(each.after - each.before) for each in made)
    left_over = math.fsum(abs(each.residual) for each in made)
    if breakdown is not None and left_over > CLOSES * change:
        share = percent(left_over / change) if change else "all"
        yield f"{share} of the CPU change of relieved nodes is not explained by their pods"
    if details_since is not None and details_since > since:
        yield "nodes, services and the change breakdown are of a shorter time: older details are not kept"
    for line in accuracy:
        if line.drift:
            yield f"forecasts of {'all pools' if line.pool is None else f'pool {line.pool}'}: {line.drift}"
