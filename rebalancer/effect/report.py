"""What is told of some days: the command's table, the HTML file and the dashboard show this and nothing else.

Rates, reasons and trends come from the days' counts, so they are of whole UTC days. Nodes, services and accounts come
from details, which are dropped earlier.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from rebalancer.effect.cluster import PoolDay, PoolSummary, over_days, summaries
from rebalancer.effect.comparison import Comparison
from rebalancer.effect.messages import counted, percent, sentence
from rebalancer.effect.rates import RateLine, TrendPoint, day_of, rates, trend
from rebalancer.model.effect import (
    Assessment,
    ChangeBreakdown,
    DayRow,
    Dimension,
    HotEpisode,
    Moved,
    Outcome,
    PoolHour,
    Rate,
    Step,
)
from rebalancer.model.history import DAY_SECONDS

ENOUGH_EPISODES: Final = 20
"""Rates of fewer say little."""
CLOSES: Final = 0.05
"""An account that leaves more of the change unexplained is named."""
WEEKLY_FROM_DAYS: Final = 45
"""A longer time is told by weeks."""
SHOWN: Final = 10
"""Worst nodes, most moved services."""
COOLED: Final = f"effect/{Outcome.COOLED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyLine:
    """How good the forecasts of a pool were; None = too few to tell. Errors are shares of a node's capacity."""

    pool: str | None
    """None: of all."""
    forecasts: int
    mae: float | None
    coverage: float | None
    hot_recall: float | None
    hot_precision: float | None
    peak_hour_error: float | None
    drift: str = ""
    """A sentence when they are getting worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonLine:
    """Why something did not come to what it should have."""

    key: str
    """`discovery/<MissReason>`, `eviction/<Stuck>` or `effect/<Outcome>`"""
    rate: Rate
    """How many, of the episodes missed, of the found ones that nothing left, of the assessments."""
    sentence: str
    example: str
    """What was written down of the newest; empty when that isn't kept any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node."""

    node: str
    pool: str
    episodes: int
    hot_minutes: float
    """By the standard, in the time of the report."""
    evictions: int
    useless: int
    """Evictions after which it did not cool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRow:
    """A service whose pods were moved."""

    service: str
    evictions: int
    nodes: int
    """That they left."""
    triggers: Mapping[str, int]
    helped: Rate
    """Evictions after which the node had cooled, of those that could be assessed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """See the module. Instants in seconds since the epoch."""

    since: float
    until: float
    by: tuple[Dimension, ...]
    total: RateLine | None
    """None: nothing is known of these days."""
    lines: tuple[RateLine, ...]
    reasons: tuple[ReasonLine, ...]
    """The most frequent of each rate first."""
    trend: tuple[TrendPoint, ...]
    pools: tuple[PoolSummary, ...]
    over_days: tuple[PoolDay, ...]
    hottest: tuple[NodeRow, ...]
    """Nodes with the most hot minutes."""
    useless: tuple[NodeRow, ...]
    """Nodes with the most evictions without effect."""
    services: tuple[ServiceRow, ...]
    """Most moved first."""
    account: ChangeBreakdown | None
    """Sums over the assessments after settling."""
    accuracy: tuple[AccuracyLine, ...]
    comparison: Comparison | None
    notes: tuple[str, ...]
    """What makes the figures doubtful, in sentences."""


def make_report(
    *,
    since: float,
    until: float,
    by: Sequence[Dimension],
    days: Sequence[DayRow],
    episodes: Sequence[HotEpisode] = (),
    assessments: Sequence[Assessment] = (),
    moved: Sequence[Moved] = (),
    hours: Sequence[PoolHour] = (),
    accuracy: Sequence[AccuracyLine] = (),
    comparison: Comparison | None = None,
    details_since: float | None = None,
) -> Report:
    """The report of the days that touch [since, until).

    `hours` from a week before `since` on, to compare with. `details_since`: from when on episodes and assessments are
    kept; None = all of that time.
    """
    counted_days = [row for row in days if day_of(since) <= row.day < math.ceil(until / DAY_SECONDS)]
    episodes = [each for each in episodes if each.started_at < until and (each.ended_at or math.inf) >= since]
    settled = [each for each in assessments if each.step is Step.SETTLED and since <= each.last_eviction_at < until]
    nodes = _nodes(episodes, settled, since=since, until=until)
    total = next(iter(rates(counted_days, ())), None)
    account = _account(settled)
    return Report(
        since=since,
        until=until,
        by=tuple(by),
        total=total,
        lines=tuple(rates(counted_days, by)),
        reasons=() if total is None else tuple(_reasons(total, episodes, settled)),
        trend=tuple(trend(counted_days, days=7 if until - since > WEEKLY_FROM_DAYS * DAY_SECONDS else 1)),
        pools=tuple(summaries(hours, since=since, until=until)),
        over_days=tuple(over_days(hours, since=since, until=until)),
        hottest=tuple(sorted((each for each in nodes if each.hot_minutes), key=_by_heat)[:SHOWN]),
        useless=tuple(sorted((each for each in nodes if each.useless), key=_by_uselessness)[:SHOWN]),
        services=tuple(_services(moved, settled)[:SHOWN]),
        account=account,
        accuracy=tuple(accuracy),
        comparison=comparison,
        notes=tuple(_notes(total, episodes, settled, account, accuracy, since=since, details_since=details_since)),
    )


def _reasons(total: RateLine, episodes: Sequence[HotEpisode], settled: Sequence[Assessment]) -> Iterable[ReasonLine]:
    examples: dict[str, str] = {}  # oldest first: the newest stays
    for episode in sorted(episodes, key=lambda each: each.started_at):
        for key in (f"discovery/{episode.miss_reason}", f"eviction/{episode.blocked_reason}"):
            examples[key] = f"{episode.node}: {episode.detail}"
    for made in sorted(settled, key=lambda each: each.last_eviction_at):
        examples[f"effect/{made.outcome}"] = f"{made.node}: {made.detail}"
    reasons = total.counts.reasons or {}
    wholes: Counter[str] = Counter()
    for key, count in reasons.items():
        wholes[key.partition("/")[0]] += count
    order = {"discovery": 0, "eviction": 1, "effect": 2}
    for key in sorted(reasons, key=lambda key: (order.get(key.partition("/")[0], 3), -reasons[key], key)):
        if key != COOLED:
            rate = Rate(part=reasons[key], whole=wholes[key.partition("/")[0]])
            yield ReasonLine(key=key, rate=rate, sentence=sentence(key), example=examples.get(key, ""))


def _nodes(
    episodes: Sequence[HotEpisode], settled: Sequence[Assessment], *, since: float, until: float
) -> list[NodeRow]:
    minutes: Counter[str] = Counter()
    hot: dict[str, float] = defaultdict(float)
    pools: dict[str, str] = {}
    evictions: Counter[str] = Counter()
    useless: Counter[str] = Counter()
    for episode in episodes:
        begin, end = max(episode.started_at, since), min(episode.ended_at or until, until)
        minutes[episode.node] += 1
        hot[episode.node] += max(end - begin, 0.0) / 60.0
        pools[episode.node] = episode.pool
    for made in settled:
        count = _evicted(made)
        evictions[made.node] += count
        pools[made.node] = made.pool
        if made.outcome not in (None, Outcome.COOLED, Outcome.UNKNOWN):
            useless[made.node] += count
    return [
        NodeRow(
            node=node,
            pool=pool,
            episodes=minutes[node],
            hot_minutes=hot[node],
            evictions=evictions[node],
            useless=useless[node],
        )
        for node, pool in pools.items()
    ]


def _by_heat(row: NodeRow) -> tuple[float, str]:
    return -row.hot_minutes, row.node


def _by_uselessness(row: NodeRow) -> tuple[int, float, str]:
    return -row.useless, *_by_heat(row)


def _services(moved: Sequence[Moved], settled: Sequence[Assessment]) -> list[ServiceRow]:
    came_of = {(each.cycle, each.node): each.outcome for each in settled}
    groups: dict[str, list[Moved]] = defaultdict(list)
    for each in moved:
        groups[each.service].append(each)
    rows = []
    for service, members in groups.items():
        outcomes = Counter(came_of.get((each.cycle, each.node)) for each in members)
        known = outcomes.total() - outcomes[None] - outcomes[Outcome.UNKNOWN]
        rows.append(
            ServiceRow(
                service=service,
                evictions=len(members),
                nodes=len({each.node for each in members}),
                triggers=dict(sorted(Counter(each.trigger for each in members).items())),
                helped=Rate(part=outcomes[Outcome.COOLED], whole=known),
            )
        )
    return sorted(rows, key=lambda row: (-row.evictions, row.service))


def _account(settled: Sequence[Assessment]) -> ChangeBreakdown | None:
    accounts = [each.breakdown for each in settled if each.breakdown is not None]
    if not accounts:
        return None
    return ChangeBreakdown(
        **{part.name: math.fsum(getattr(each, part.name) for each in accounts) for part in fields(ChangeBreakdown)}
    )


def _evicted(assessment: Assessment) -> int:
    return sum(each.evicted for each in assessment.pods)


def _notes(
    total: RateLine | None,
    episodes: Sequence[HotEpisode],
    settled: Sequence[Assessment],
    account: ChangeBreakdown | None,
    accuracy: Sequence[AccuracyLine],
    *,
    since: float,
    details_since: float | None,
) -> Iterable[str]:
    hot = 0 if total is None else total.counts.hot
    if total is None:
        yield "nothing is known of this time: no node was hot by the standard, or the standard was not evaluated"
    elif hot < ENOUGH_EPISODES:
        yield f"too little data: {counted(hot, 'episode')}, rates of fewer than {ENOUGH_EPISODES} say little"
    if now := sum(each.ended_at is None for each in episodes):
        yield f"{counted(now, 'node')} still hot: what is told of them may change"
    if waiting := sum(each.assessed_at is None for each in settled):
        yield f"{counted(waiting, 'assessment')} still to be made"
    if late := sum(each.late for each in settled):
        yield f"{counted(late, 'assessment')} made late: they say less"
    if unknown := sum(each.outcome is Outcome.UNKNOWN for each in settled):
        yield f"{counted(unknown, 'assessment')} without a figure of the node"
    made = [each.breakdown for each in settled if each.breakdown is not None]
    change = math.fsum(abs(each.after_millicores - each.before_millicores) for each in made)
    left_over = math.fsum(abs(each.residual) for each in made)
    if account is not None and left_over > CLOSES * change:
        share = percent(left_over / change) if change else "all"
        yield f"{share} of the change of the nodes that were relieved is in none of their pods"
    if details_since is not None and details_since > since:
        yield "nodes, services and accounts are of a shorter time: older details are not kept"
    for line in accuracy:
        if line.drift:
            yield f"forecasts of {'all pools' if line.pool is None else f'pool {line.pool}'}: {line.drift}"
