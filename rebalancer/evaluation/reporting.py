"""Reads the input of a report from the database, for `rebalancer report` and the dashboard.

Each query is a transaction of its own, so concurrent writes may be in one part of a report and not yet in another.
"""

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Protocol

from rebalancer.effect.comparison import Comparison, compare
from rebalancer.effect.rates import day_of
from rebalancer.effect.report import SHOWN, AccuracyLine, Report, make_report
from rebalancer.forecast.evaluation.accuracy import BEFORE_SECONDS, RECENT_SECONDS, figures
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import PlanScore, total_score
from rebalancer.model.measured.history import DAY_SECONDS, HOUR_SECONDS
from rebalancer.model.notation.document import Dimension
from rebalancer.model.notation.figures import counted
from rebalancer.model.records.effect import Assessment, DayRow, EffectRecords, HotEpisode, PoolHour, Step
from rebalancer.model.records.forecasts import ForecastRecords, ForecastSums
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.forecast import Event

WEEK_DAYS: Final = 7
FORECASTS_SECONDS: Final = 30 * DAY_SECONDS
"""Forecasts of the last days only: earlier ones say little about the current quality."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The records of one cluster."""

    cluster: str
    effect: EffectRecords
    forecasts: ForecastRecords
    keep_details: float | None
    """Its detail retention in seconds; None = not known."""
    events: Sequence[Event] = ()
    """Declared events of its policy, where that is known."""


class Effects(EffectRecords, Protocol):
    """Evaluation records of one cluster."""

    def keeps_details(self) -> float | None:
        """Detail retention in seconds; None = not recorded."""
        ...


class Records(Protocol):
    """A database, shared by one or several clusters."""

    def clusters(self) -> Sequence[str]:
        """Names of the clusters with records."""
        ...

    def of(self, cluster: str) -> "Records":
        """The records of another cluster in the same database."""
        ...

    def effect(self) -> Effects: ...

    def forecasts(self) -> ForecastRecords: ...


def sources_of(records: Records, policy: RebalancerPolicy, *, all_clusters: bool) -> list[Source]:
    """The policy's cluster, or all clusters by name. Raises ConnectError."""
    names = sorted({policy.cluster, *records.clusters()}) if all_clusters else [policy.cluster]
    out = []
    for name in names:
        own, effect = name == policy.cluster, records.of(name).effect()
        out.append(
            Source(
                cluster=name,
                effect=effect,
                forecasts=records.of(name).forecasts(),
                keep_details=policy.effect.detail_retention if own else effect.keeps_details(),
                events=policy.forecast.events if own else (),
            )
        )
    return out


def gather(sources: Sequence[Source], *, since: float, until: float, by: Sequence[Dimension], now: float) -> Report:
    """The report of the days that overlap [since, until), in seconds since the epoch, up to `now`. It begins with the
    hour of `since`: the pools' hot time is known by hours, and all tables are of one time.

    With evictions it is compared with as many whole weeks before as needed. In a report of several clusters, pools and
    nodes are named `cluster/name`. Raises ConnectError.
    """
    since, until = math.floor(since / HOUR_SECONDS) * HOUR_SECONDS, min(until, now)
    week = WEEK_DAYS * DAY_SECONDS
    earlier = since - math.ceil((until - since) / week) * week
    read = [_Reader(each, several=len(sources) > 1) for each in sources]
    days = [row for each in read for row in each.days(earlier, until)]
    hours = [hour for each in read for hour in each.hours(earlier, until)]
    evaluated = [at for each in sources if (at := each.effect.slo_evaluated_until()) is not None]
    kept = [now - each.keep_details for each in sources if each.keep_details is not None]
    comparison, notes = _compared(read, days, hours, since=since)
    evicted: Counter[tuple[str, str]] = Counter()
    for one in read:
        evicted.update(one.eviction_counts(since, until))
    report = make_report(
        since=since,
        until=until,
        by=by,
        days=[row for _, row in days],
        episodes=[one for each in read for one in each.episodes(since, until)],
        assessments=[one for each in read for one in each.assessments(since, until)],
        evicted=_of(evicted, 1),
        moved=_moved(read, _of(evicted, 0), since=since, until=until),
        hours=hours,
        plans=total_score(one.worth_of_plans(since, until) for one in read),
        accuracy=_accuracy(read, since=since, until=until),
        comparison=comparison,
        details_since=max(kept, default=None),
        evaluated_until=min(evaluated, default=math.inf),
        now=now,
    )
    return replace(report, notes=(*report.notes, *notes))


class _Reader:
    """Reads one cluster's records, with the cluster in the names where there are several."""

    def __init__(self, source: Source, *, several: bool) -> None:
        self._effect = source.effect
        self._forecasts = source.forecasts
        self._events = source.events
        self._cluster = source.cluster if several else None

    def _named(self, name: str) -> str:
        return name if self._cluster is None else f"{self._cluster}/{name}"

    def days(self, since: float, until: float) -> list[tuple[str, DayRow]]:
        """(pool name in the report, row)"""
        rows = self._effect.days(day_of(since), math.ceil(until / DAY_SECONDS))
        return [(self._named(row.pool), row) for row in rows]

    def hours(self, since: float, until: float) -> Iterable[PoolHour]:
        found = self._effect.hours(since, until)
        return found if self._cluster is None else [replace(each, pool=self._named(each.pool)) for each in found]

    def episodes(self, since: float, until: float) -> Iterable[HotEpisode]:
        found = self._effect.episodes(since, until)
        if self._cluster is None:
            return found
        return [replace(each, pool=self._named(each.pool), node=self._named(each.node)) for each in found]

    def assessments(self, since: float, until: float) -> Iterable[Assessment]:
        found = self._effect.assessments(since, until, step=Step.SETTLED)
        if self._cluster is None:
            return found
        return [replace(each, pool=self._named(each.pool), node=self._named(each.node)) for each in found]

    def eviction_counts(self, since: float, until: float) -> dict[tuple[str, str], int]:
        found = self._effect.eviction_counts(since, until).items()
        return {(service, self._named(node)): count for (service, node), count in found}

    def worth_of_plans(self, since: float, until: float) -> PlanScore | None:
        return self._effect.worth_of_plans(since, until)

    def moved(self, since: float, until: float, services: Collection[str]) -> Iterable[Eviction]:
        found = self._effect.moved(since, until, services=services)
        return found if self._cluster is None else [replace(each, node=self._named(each.node)) for each in found]

    def sums(self, since: float, until: float) -> Iterable[ForecastSums]:
        found = self._forecasts.sums(since, until)
        return found if self._cluster is None else [replace(each, pool=self._named(each.pool)) for each in found]

    def minutes_off(self, since: float, until: float) -> dict[str, Mapping[int, int]]:
        return {self._named(pool): each for pool, each in self._forecasts.minutes_off(since, until).items()}

    def events(self, pools: Iterable[str]) -> list[Event]:
        """Declared events with the pools of this cluster."""
        own = tuple(pool for pool in pools if pool.startswith(self._named("")))
        touched = [(each, tuple(map(self._named, each.pools)) or own) for each in self._events]
        # an event without pools would apply to all
        return [each.model_copy(update={"pools": pools}) for each, pools in touched if pools]


def _of(evicted: Mapping[tuple[str, str], int], part: int) -> Counter[str]:
    """Evictions by one part of their key."""
    out: Counter[str] = Counter()
    for key, count in evicted.items():
        out[key[part]] += count
    return out


def _moved(read: Sequence[_Reader], evictions: Mapping[str, int], *, since: float, until: float) -> list[Eviction]:
    """Evictions of the services that the report shows, no others. `evictions`: of all services."""
    shown = heapq.nsmallest(SHOWN, evictions, key=lambda service: (-evictions[service], service))
    return [one for each in read for one in each.moved(since, until, shown)]


def _accuracy(read: Sequence[_Reader], *, since: float, until: float) -> list[AccuracyLine]:
    """For all pools, then by pool; at most the last 30 days, without pools that have no forecasts. Drift compares the
    days before `until`, whatever the time of the report."""
    since = max(since, until - FORECASTS_SECONDS)
    recent_since = until - RECENT_SECONDS - DAY_SECONDS  # a forecast is for the day after it was made
    before_since = recent_since - BEFORE_SECONDS
    # each forecast is read once, though the drift's times overlap the report's
    edges = sorted({since, before_since, recent_since, until})
    parts = {span: [one for each in read for one in each.sums(*span)] for span in pairwise(edges)}

    def within(begin: float, end: float) -> list[ForecastSums]:
        return [one for span, found in parts.items() if begin <= span[0] and span[1] <= end for one in found]

    sums = within(since, until)
    minutes_off = {pool: found for each in read for pool, found in each.minutes_off(since, until).items()}
    recent, before = within(recent_since, until), within(before_since, recent_since)
    lines = []
    for pool in (None, *sorted({each.pool for each in sums})):
        found = figures(
            [each for each in sums if pool in (None, each.pool)],
            minutes_off=[each for name, each in minutes_off.items() if pool in (None, name)],
            recent=[each for each in recent if pool in (None, each.pool)],
            before=[each for each in before if pool in (None, each.pool)],
        )
        lines.append(
            AccuracyLine(
                pool=pool,
                forecasts=found.count,
                mae=_known(found.mae),
                coverage=_known(found.coverage),
                hot_recall=_known(found.hot_recall),
                hot_precision=_known(found.hot_precision),
                peak_hour_error=_known(found.peak_hour_error),
                drift=found.drift,
            )
        )
    return [line for line in lines if line.forecasts]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _compared(
    read: Sequence[_Reader], days: Sequence[tuple[str, DayRow]], hours: Sequence[PoolHour], *, since: float
) -> tuple[Comparison | None, list[str]]:
    """(comparison with the time before `since`, caveats); None without evictions after it.

    Pools without evictions on either side are the control group.
    """
    evicted = {False: 0, True: 0}
    touched = set()
    for pool, row in days:
        if row.evictions:
            evicted[row.day >= day_of(since)] += row.evictions
            touched.add(pool)
    if not evicted[True]:
        return None, []
    pools = {each.pool for each in hours}
    comparison = compare(
        [each for each in hours if each.hour * HOUR_SECONDS < since],
        [each for each in hours if each.hour * HOUR_SECONDS >= since],
        untouched=pools - touched,
        events=[event for each in read for event in each.events(pools)],
    )
    if not (comparison.sufficient_data and evicted[False]):
        return comparison, []
    before = f"{counted(evicted[False], 'pod')} were also evicted before"
    return comparison, [f"{before}: the comparison shows the change since then, not the effect of evictions alone"]
