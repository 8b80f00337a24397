"""The three rates, from daily counts that add up: any two sets of rows merge.

    discovery     = discovered / hot           of the episodes hot by the hot-node SLO
    eviction      = evicted_from / discovered  with at least one eviction
    effectiveness = cooled / assessed          at or under target after the settling time, of those assessable

An episode that was not discovered has no strategy and no trigger. Split by these, discovery is still a share of all
episodes, so that the lines add up; the line of the missed episodes has no rates.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Final, Literal, TypeVar

from rebalancer.effect.account import measured_relief, planned_relief
from rebalancer.model.decisions.drains import DrainedNode
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.notation.document import DIMENSIONS, INLINE, Day, Dimension, Shown
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.effect import Assessment, Counts, DayRow, HotEpisode, Outcome, Rate, Step, effect_reason
from rebalancer.model.records.forecasts import Verdict, VerifiedForecast

Key = TypeVar("Key")

DRAINS: Final = "HighNodeUtilization"
"""The strategy that drains nodes."""

_COUNTED: Final = (Verdict.PREVENTED, Verdict.FALSE_ALARM, Verdict.TOO_LATE)
"""Verdicts that are counted; a peak that nothing was evicted ahead of is an ordinary episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLine:
    """The rates of one group of episodes, and the counts behind them."""

    cluster: str | None = None
    """null, here and in the next three: the line is not split by it."""
    pool: str | None = None
    """Empty: nodes in no pool."""
    strategy: str | None = None
    """Empty: episodes that were not discovered."""
    trigger: str | None = None
    """Empty: episodes that were not discovered."""
    discovery: Rate
    """Discovered hot episodes / all hot episodes by the hot-node SLO."""
    eviction: Rate
    """Episodes with at least one eviction / discovered episodes."""
    effectiveness: Rate
    """Episodes at or under target after the settling time / assessable episodes with evictions."""
    counts: Annotated[Counts, INLINE]

    def key(self, dimension: Dimension) -> str | None:
        """The values of the group; None: not split by this dimension."""
        value: str | None = getattr(self, dimension)
        return value

    @property
    def missed(self) -> bool:
        """Only episodes that were not discovered."""
        return self.discovery.whole == 0 < self.counts.hot


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """A day, or a week from Monday."""

    day: Annotated[Day, Shown(name="from")]
    """The first day."""
    days: Literal[1, 7]
    line: Annotated[RateLine, INLINE]


def day_of(at: float) -> int:
    """Days since the epoch, UTC."""
    return math.floor(at / DAY_SECONDS)


def day_rows(
    *,
    cluster: str,
    days: range,
    until: float,
    episodes: Sequence[HotEpisode],
    assessments: Sequence[Assessment],
    judged: Sequence[VerifiedForecast] = (),
    drains: Sequence[DrainedNode] = (),
    saved: Mapping[tuple[str, int], float] | None = None,
    replaces: Sequence[DayRow] = (),
) -> list[DayRow]:
    """The rows of `days`, by day, pool, strategy and trigger.

    Episodes count on the day of their start and their hot time on the days that it is of, assessments (and their
    evictions) on that of the last eviction, forecasts on that of the expected hot time, drained nodes on that on which
    they were emptied, removed or uncordoned; `saved`: (pool, day) -> core-hours. An open episode lasts until `until`;
    it isn't counted while it is neither discovered nor missed. A row of `replaces` without a successor (a missed
    episode that was discovered later) becomes a row of zeros.
    """
    book = _Book(cluster, days)
    for row in replaces:
        if row.cluster == cluster:
            book.count(_blank(row.day, row.pool, row.strategy, row.trigger))
    for episode in episodes:
        if episode.discovered_at is not None or episode.miss_reason is not None or episode.ended_at is not None:
            for row in _of_episode(episode, until):
                book.count(row)
    for assessment in assessments:
        if assessment.step is Step.SETTLED:
            book.count(_of_assessment(assessment))
    for each in judged:
        if each.actuals.verdict in _COUNTED:
            book.count(_of_forecast(each))
    for drain in drains:
        for row in _of_drain(drain):
            book.count(row)
    for (pool, day), core_hours in (saved or {}).items():
        book.count(replace(_blank(day, pool, DRAINS, ""), core_hours_saved=core_hours))
    return book.rows()


def _of_drain(drain: DrainedNode) -> Iterator[DayRow]:
    """A row for each thing that happened to the node."""
    yield replace(_blank(day_of(drain.emptied_at), drain.pool, DRAINS, ""), nodes_emptied=1)
    if drain.removed_at is not None:
        yield replace(_blank(day_of(drain.removed_at), drain.pool, DRAINS, ""), nodes_removed=1)
    if drain.in_vain_at is not None:
        yield replace(_blank(day_of(drain.in_vain_at), drain.pool, DRAINS, ""), nodes_in_vain=1)


def _blank(day: int, pool: str, strategy: str, trigger: str) -> DayRow:
    return DayRow(cluster="", pool=pool, strategy=strategy, trigger=trigger, day=day)


def _of_episode(episode: HotEpisode, until: float) -> Iterator[DayRow]:
    """A row of its start, and one for each day that it was hot on."""
    found = episode.discovered_at is not None
    acted = found and episode.evictions > 0
    until = until if episode.ended_at is None else episode.ended_at
    reasons = {}
    if episode.miss_reason is not None:
        reasons[f"discovery/{episode.miss_reason}"] = 1
    if episode.blocked_reason is not None:
        reasons[f"eviction/{episode.blocked_reason}"] = 1
    of = (episode.pool, episode.strategy, episode.discovery_trigger)
    yield replace(
        _blank(day_of(episode.started_at), *of),
        hot=1,
        discovered=int(found),
        evicted_from=int(acted),
        cooled=int(acted and episode.cooled is True),
        assessed=int(acted and episode.cooled is not None),
        reasons=reasons,
    )
    for day in range(day_of(episode.started_at), day_of(max(until, episode.started_at)) + 1):
        begin, end = max(episode.started_at, day * DAY_SECONDS), min(until, (day + 1) * DAY_SECONDS)
        yield replace(_blank(day, *of), hot_node_minutes=max(end - begin, 0.0) / 60.0)


def _of_assessment(assessment: Assessment) -> DayRow:
    planned, measured = planned_relief(assessment) / 1000.0, measured_relief(assessment) / 1000.0
    # planned and measured are compared: both or none
    known = math.isfinite(planned) and math.isfinite(measured) and assessment.outcome is not Outcome.UNKNOWN
    # one that was made late, after an outage, shows what has happened since
    counted = not assessment.late and assessment.outcome
    # relief is summed in cores
    in_cores = known and counted and assessment.resource == CPU
    return replace(
        _blank(day_of(assessment.last_eviction_at), assessment.pool, assessment.strategy, assessment.trigger),
        evictions=sum(each.evicted for each in assessment.pods),
        relief_planned=planned if in_cores else 0.0,
        relief_measured=measured if in_cores else 0.0,
        reasons={effect_reason(counted, assessment.resource): 1} if counted else {},
    )


def _of_forecast(each: VerifiedForecast) -> DayRow:
    forecast, verdict = each.forecast, each.actuals.verdict
    at = forecast.made_at if forecast.hot_from is None else forecast.hot_from
    return replace(
        _blank(day_of(at), forecast.pool, "", Trigger.FORECAST.value),
        prevented=int(verdict is Verdict.PREVENTED),
        false_alarms=int(verdict is Verdict.FALSE_ALARM),
        too_late=int(verdict is Verdict.TOO_LATE),
    )


class _Book:
    """Sums by day, pool, strategy and trigger."""

    def __init__(self, cluster: str, days: range) -> None:
        self._cluster = cluster
        self._days = days
        self._rows: list[DayRow] = []

    def count(self, row: DayRow) -> None:
        if row.day in self._days:
            self._rows.append(replace(row, cluster=self._cluster))

    def rows(self) -> list[DayRow]:
        return merged(self._rows)


def merged(rows: Iterable[DayRow]) -> list[DayRow]:
    """One row for each cluster, pool, strategy, trigger and day, with the sums; in the order of day_rows."""
    groups = _grouped(rows, lambda row: (row.day, row.cluster, row.pool, row.strategy, row.trigger))
    return [
        DayRow(day=day, cluster=cluster, pool=pool, strategy=strategy, trigger=trigger, **_sums(group))
        for (day, cluster, pool, strategy, trigger), group in sorted(groups.items())
    ]


def rates(rows: Sequence[DayRow], by: Sequence[Dimension] = DIMENSIONS) -> list[RateLine]:
    """A line for each group, by name; without `by` one line for all, if there are any rows."""
    groups = _grouped(rows, lambda row: tuple(_dimension(row, name) for name in by))
    places: list[Dimension] = [name for name in by if name in ("cluster", "pool")]
    hot: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        hot[tuple(_dimension(row, name) for name in places)] += row.hot
    lines = []
    for values, group in sorted(groups.items()):
        key: dict[Dimension, str] = dict(zip(by, values, strict=True))
        sums = Counts(**_sums(group))
        missed = len(places) < len(by) and sums.hot > 0 and not sums.discovered
        lines.append(
            RateLine(
                **key,
                counts=sums,
                discovery=Rate(part=sums.discovered, whole=0 if missed else hot[tuple(key[name] for name in places)]),
                eviction=Rate(part=sums.evicted_from, whole=sums.discovered),
                effectiveness=Rate(part=sums.cooled, whole=sums.assessed),
            )
        )
    return lines


def trend(rows: Sequence[DayRow], *, days: Literal[1, 7] = 1) -> list[TrendPoint]:
    """All rows together, by day or by week, oldest first. A day without rows has no point."""
    groups = _grouped(rows, lambda row: row.day if days == 1 else monday_of(row.day))
    return [TrendPoint(day=day, days=days, line=rates(group, ())[0]) for day, group in sorted(groups.items())]


def monday_of(day: int) -> int:
    """The Monday of the day's week: day 0 was a Thursday."""
    return day - (day + 3) % 7


def _dimension(row: DayRow, name: Dimension) -> str:
    value: str = getattr(row, name)
    return value


def _grouped(rows: Iterable[DayRow], key: Callable[[DayRow], Key]) -> dict[Key, list[DayRow]]:
    groups: dict[Key, list[DayRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _sums(rows: Sequence[DayRow]) -> dict[str, Any]:
    """The fields of Counts, summed."""
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update(row.reasons or {})
    numbers = [each for each in fields(Counts) if each.name != "reasons"]
    sums: dict[str, Any] = {
        each.name: (math.fsum if isinstance(each.default, float) else sum)(getattr(row, each.name) for row in rows)
        for each in numbers
    }
    return {**sums, "reasons": dict(sorted(reasons.items()))}
