"""The reported time against the time before it, with a control group: pools without evictions.

Each day after is matched with one of the same weekday before, hour by hour, the nearest days first. The result is the
median of the paired differences with the interval of the sign test: no assumption about their distribution, and
deterministic. Hours of one day are correlated, so a day counts once.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rebalancer.effect.cluster import DAY_HOURS, load_change, mean_of
from rebalancer.model.measured.history import HOUR_SECONDS
from rebalancer.model.notation.document import Amount, Count, Share
from rebalancer.model.notation.figures import NOTHING, counted, percent
from rebalancer.model.records.effect import PoolHour
from rebalancer.policy.schema.forecast import Event

ENOUGH_DAYS: Final = 5
"""Fewer matched days are insufficient data."""
ENOUGH_HOURS: Final = 12
"""Least hours of a matched day, on both sides."""
MOVED: Final = 0.10
"""Relative change above which a confounder is listed."""
DOUBT: Final = 0.05
"""Confidence of the interval; with few days it is higher, and stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The median of paired differences, and its confidence interval."""

    median: float
    low: float
    high: float
    confidence: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The reported time against the time before it: hot minutes per node and day; differences are after - before."""

    matched_days: Count
    sufficient_data: bool
    before: Amount | None
    """Median of the matched days."""
    after: Amount | None
    change: Interval | None
    share_stddev: Interval | None
    """Change of the standard deviation of the nodes' CPU shares."""
    control: Interval | None
    """Change of the control group: pools without evictions."""
    net_change: Interval | None
    """Change beyond that of the control group, on the same days (difference in differences)."""
    confounders: tuple[str, ...]
    """Other changes that may explain the difference, in sentences."""
    verdict: str
    """A sentence."""


def compare(
    before: Sequence[PoolHour],
    after: Sequence[PoolHour],
    untouched: Collection[str] = (),
    events: Sequence[Event] = (),
) -> Comparison:
    """Hot minutes before and after; `untouched` are the pools of the control group.

    Pools with data on one side only are left out.
    """
    both = {each.pool for each in before} & {each.pool for each in after}
    touched, alone = both - set(untouched), both & set(untouched)
    pairs = _paired_days(before, after, touched)
    beside = _paired_days(before, after, alone)
    days = [(_hot_minutes(then), _hot_minutes(now)) for then, now in pairs.values()]
    difference = {key: _hot_minutes(now) - _hot_minutes(then) for key, (then, now) in pairs.items()}
    other = {key: _hot_minutes(now) - _hot_minutes(then) for key, (then, now) in beside.items()}
    spreads = [
        later - earlier
        for then, now in pairs.values()
        if (later := _spread(now)) is not None and (earlier := _spread(then)) is not None
    ]
    change = _interval(list(difference.values()))
    net = _interval([difference[key] - other[key] for key in difference if key in other])
    confounders = tuple(_confounders(pairs, touched, events))
    unknown = ["insufficient data of the control group"] if untouched and net is None else []
    return Comparison(
        matched_days=len(pairs),
        sufficient_data=change is not None,
        before=median([then for then, _ in days]) if days else None,
        after=median([now for _, now in days]) if days else None,
        change=change,
        share_stddev=_interval(spreads),
        control=_interval(list(other.values())),
        net_change=net,
        confounders=confounders,
        verdict=_verdict(len(pairs), change, net, [*confounders, *unknown]),
    )


_Day = list[PoolHour]
_Pairs = dict[tuple[int, int], tuple[_Day, _Day]]
"""(day before, day after) -> their hours, the same pools and hours of the day on both sides."""


def _paired_days(before: Sequence[PoolHour], after: Sequence[PoolHour], pools: Collection[str]) -> _Pairs:
    then, now = _by_day(before, pools), _by_day(after, pools)
    waiting: dict[int, list[int]] = defaultdict(list)
    for day in sorted(then):
        waiting[day % 7].append(day)
    pairs: _Pairs = {}
    for day in sorted(now):
        for partner in reversed(waiting[day % 7]):
            shared = sorted(then[partner].keys() & now[day].keys())
            if len({hour for _, hour in shared}) >= ENOUGH_HOURS:
                waiting[day % 7].remove(partner)
                pairs[partner, day] = [then[partner][key] for key in shared], [now[day][key] for key in shared]
                break
    return pairs


def _by_day(hours: Sequence[PoolHour], pools: Collection[str]) -> dict[int, dict[tuple[str, int], PoolHour]]:
    """Day -> (pool, hour of the day) -> hour."""
    out: dict[int, dict[tuple[str, int], PoolHour]] = defaultdict(dict)
    for each in hours:
        if each.pool in pools and each.nodes and math.isfinite(each.hot_node_minutes):
            out[each.hour // DAY_HOURS][each.pool, each.hour % DAY_HOURS] = each
    return out


def _hot_minutes(day: _Day) -> float:
    """Per node and day."""
    return DAY_HOURS * math.fsum(each.hot_node_minutes for each in day) / sum(each.nodes for each in day)


def _spread(day: _Day) -> float | None:
    return mean_of((each.share_stddev, each.nodes) for each in day)


def _interval(differences: Sequence[float]) -> Interval | None:
    """The sign test's: the k-th smallest and k-th largest of n differences; the median lies outside of them with
    probability 2 P(Binomial(n, 1/2) < k). None for too few."""
    count = len(differences)
    if count < ENOUGH_DAYS:
        return None
    ranked = sorted(differences)
    k, outside = 1, 2 * 0.5**count
    while (more := outside + 2 * math.comb(count, k) * 0.5**count) <= DOUBT:
        k, outside = k + 1, more
    return Interval(median=median(ranked), low=ranked[k - 1], high=ranked[count - k], confidence=1 - outside)


def _confounders(pairs: _Pairs, pools: Collection[str], events: Sequence[Event]) -> Iterable[str]:
    for pool in sorted(pools):
        hours = [
            (later, earlier)
            for then, now in pairs.values()
            for earlier, later in zip(then, now, strict=True)
            if later.pool == pool
        ]
        load = load_change(hours)
        if load is not None and abs(load) > MOVED:
            yield f"pool {pool} used {percent(abs(load))} {'more' if load > 0 else 'less'} CPU"
        now, then = (mean_of((float(pair[at].nodes), 1) for pair in hours) for at in (0, 1))
        if now is not None and then and abs(now / then - 1) > MOVED:
            yield f"pool {pool} had {now:.4g} nodes, {then:.4g} before"
    for event in events:
        sides = [
            name
            for name, at in (("before", 0), ("after", 1))
            if any(_holds(event, each) for pair in pairs.values() for each in pair[at])
        ]
        if sides:
            yield f"declared event {event.name} was {' and '.join(sides)}"


def _holds(event: Event, hour: PoolHour) -> bool:
    begin = hour.hour * HOUR_SECONDS
    return (not event.pools or hour.pool in event.pools) and event.from_ < begin + HOUR_SECONDS and event.to > begin


def _verdict(days: int, change: Interval | None, net: Interval | None, but: Sequence[str]) -> str:
    if change is None:
        return f"insufficient data: {counted(days, 'matched day')}, at least {ENOUGH_DAYS} are needed"
    interval = net or change
    against = " than in the control group" if net else ""
    sure = f"{percent(interval.confidence, 0)} sure, {counted(days, 'matched day')}"
    if interval.low <= 0 <= interval.high:
        text = f"no clear change in hot time: {_minutes(interval)} ({sure})"
    else:
        way = "shorter" if interval.high < 0 else "longer"
        least, most = sorted((abs(interval.low), abs(interval.high)))
        text = (
            f"a node is hot for {_plain(abs(interval.median))} minutes a day {way}{against}, "
            f"between {_plain(least)} and {_plain(most)} ({sure})"
        )
    return f"{text}; but {'; '.join(but)}" if but else text


def _minutes(interval: Interval) -> str:
    return f"between {_plain(interval.low)} and {_plain(interval.high)} minutes a day"


def _plain(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else NOTHING
