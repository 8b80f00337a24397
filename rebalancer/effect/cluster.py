"""The whole cluster over time, from its pools' hours.

Rates describe single nodes, hours the whole cluster. Hours also change without evictions, so each line has what else
changes them: load compared with last week, free capacity, placement of new pods.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated, Final

import numpy as np

from rebalancer.model.measured.history import HOUR_SECONDS
from rebalancer.model.notation.arrays import Floats, Rows
from rebalancer.model.notation.document import INLINE, Amount, Count, Day
from rebalancer.model.notation.heat import Heat
from rebalancer.model.records.effect import PoolHour, Rate

DAY_HOURS: Final = 24
WEEK_HOURS: Final = 168


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSummary:
    """Means over some hours of a pool, or of all pools (then weighted by nodes). null = unknown."""

    pool: str | None
    """null: all pools."""
    hours: Count
    """Hours with data."""
    nodes: Amount | None
    """Mean."""
    hot_nodes: Amount | None
    """Mean number at a time."""
    hot_node_minutes: Amount
    """Minutes over the threshold of the hot-node SLO in these hours, also without an episode."""
    share_stddev: Amount | None
    """Standard deviation of the nodes' CPU shares."""
    highest_share: Amount | None
    """CPU share of the hottest node."""
    cpu_share: Amount | None
    cpu_change: float | None
    """Relative to the same hours of the week before; only of hours with data in both weeks."""
    free_by_usage: float | None
    free_by_requests: float | None
    new_pods_over_target: Rate
    """New pods on nodes over target / all new pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDay:
    """One UTC day of a pool, or of all pools."""

    day: Day
    summary: Annotated[PoolSummary, INLINE]


def summaries(hours: Sequence[PoolHour], *, since: float, until: float) -> list[PoolSummary]:
    """A line for each pool by name, then for all together, from the hours in [since, until), compared with the week
    before. No lines without data."""
    columns = _Columns(hours)
    nothing = np.zeros(len(hours), dtype=np.int64)
    return [line for _, line in columns.lines(columns.within(since, until), nothing)]


def over_days(hours: Sequence[PoolHour], *, since: float, until: float) -> list[PoolDay]:
    """The same for each UTC day."""
    columns = _Columns(hours)
    lines = columns.lines(columns.within(since, until), columns.hour // DAY_HOURS)
    return [PoolDay(day=day, summary=line) for day, line in lines]


def heat_of_hours(hours: Sequence[PoolHour], *, since: float, until: float, evictions: int) -> Heat:
    """Hot node-hours of the hours that begin in [since, until), of those pools and hours of the week that are known of
    the weeks before, too, beside theirs; of all, where none is."""
    weeks = math.ceil((until - since) / (WEEK_HOURS * HOUR_SECONDS)) * WEEK_HOURS
    minutes = {(each.pool, each.hour): each.hot_node_minutes for each in hours if math.isfinite(each.hot_node_minutes)}
    inside = {key for key in minutes if since <= key[1] * HOUR_SECONDS < until}
    pairs = [
        (minutes[pool, hour - weeks], minutes[pool, hour]) for pool, hour in inside if (pool, hour - weeks) in minutes
    ]
    if not pairs:
        return Heat(before=None, after=math.fsum(minutes[key] for key in inside) / 60.0, evictions=evictions)
    before, after = (math.fsum(part) / 60.0 for part in zip(*pairs, strict=True))
    return Heat(before=before, after=after, evictions=evictions)


class _Columns:
    """Hours as (hours,) columns: a year of ten pools is 87,600."""

    def __init__(self, hours: Sequence[PoolHour]) -> None:
        self.pools = sorted({each.pool for each in hours})
        index = {name: at for at, name in enumerate(self.pools)}
        self.pool = np.array([index[each.pool] for each in hours], dtype=np.int64)
        self.hour = np.array([each.hour for each in hours], dtype=np.int64)
        self._first = int(self.hour.min()) if len(hours) else 0
        self._span = int(np.ptp(self.hour)) + 1 if len(hours) else 1
        self.nodes = np.array([each.nodes for each in hours], dtype=np.float64)
        self.hot_nodes = np.array([each.hot_nodes for each in hours], dtype=np.float64)
        self.hot_minutes = np.array([each.hot_node_minutes for each in hours], dtype=np.float64)
        self.cpu = np.array([each.cpu_share for each in hours], dtype=np.float64)
        self.requested = np.array([each.requested_share for each in hours], dtype=np.float64)
        self.share_stddev = np.array([each.share_stddev for each in hours], dtype=np.float64)
        self.highest = np.array([each.highest_share for each in hours], dtype=np.float64)
        self.new_pods = np.array([each.new_pods for each in hours], dtype=np.float64)
        self.on_warm = np.array([each.new_pods_over_target for each in hours], dtype=np.float64)

    def within(self, since: float, until: float) -> Rows:
        """Rows of the hours that begin in [since, until)."""
        begin = self.hour * HOUR_SECONDS
        return np.flatnonzero((begin >= since) & (begin < until))

    def lines(self, rows: Rows, part: Rows) -> list[tuple[int, PoolSummary]]:
        """(part, line) by part, then pool, then all pools together; `part` (hours,) is a further key of the groups."""
        parts, at = np.unique(part[rows], return_inverse=True)
        wide = len(self.pools) + 1
        names: list[str | None] = [*self.pools, None]
        then = self._last_week(rows)
        out: list[tuple[int, PoolSummary]] = []
        for pool in (self.pool[rows], np.full(len(rows), wide - 1)):
            figures = self._figures(rows, then, at * wide + pool, len(parts) * wide)
            out += [
                (group, _summary(names[group % wide], figures, group))
                for group in np.flatnonzero(figures["hours"]).tolist()
            ]
        return [(int(parts[group // wide]), line) for group, line in sorted(out, key=itemgetter(0))]

    def _last_week(self, rows: Rows) -> Rows:
        """(rows,) row of the same pool and hour one week earlier, -1 for none."""
        if not len(rows):
            return rows
        # pools are a week apart, so that a week back never reaches another pool
        key = self.pool * (self._span + WEEK_HOURS) + self.hour
        order = np.argsort(key)
        wanted = key[rows] - WEEK_HOURS
        found = order[np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)]
        return np.where(key[found] == wanted, found, -1)

    def _figures(self, rows: Rows, then: Rows, group: Rows, count: int) -> dict[str, Floats]:
        """Each figure as (groups,), NaN without data; `then` (rows,) from `_last_week`."""
        nodes = self.nodes[rows]

        def total(values: Floats) -> Floats:
            return np.bincount(group, np.nan_to_num(values), count).astype(np.float64)

        def ratio(part: Floats, whole: Floats) -> Floats:
            out: Floats = np.divide(part, whole, out=np.full(count, np.nan), where=whole > 0)
            return out

        def mean(values: Floats) -> Floats:
            return ratio(total(values * nodes), total(np.where(np.isfinite(values), nodes, 0.0)))

        highest = np.full(count, -np.inf)
        np.fmax.at(highest, group, self.highest[rows])
        matched = (then >= 0) & np.isfinite(self.cpu[rows]) & np.isfinite(self.cpu[then])
        used = total(np.where(matched, self.cpu[rows] * nodes, 0.0))
        used_then = total(np.where(matched, self.cpu[then] * self.nodes[then], 0.0))
        _, firsts = np.unique(group * self._span + self.hour[rows] - self._first, return_index=True)
        hours = np.bincount(group[firsts], minlength=count).astype(np.float64)
        hot_known = total(np.isfinite(self.hot_nodes[rows]))
        return {
            "hours": hours,
            "nodes": ratio(total(nodes), hours),
            "hot_nodes": np.where(hot_known > 0, ratio(total(self.hot_nodes[rows]), hours), np.nan),
            "hot_node_minutes": total(self.hot_minutes[rows]),
            "share_stddev": mean(self.share_stddev[rows]),
            "highest_share": highest,
            "cpu_share": mean(self.cpu[rows]),
            "cpu_change": ratio(used, used_then) - 1,
            "requested_share": mean(self.requested[rows]),
            "new_pods": total(self.new_pods[rows]),
            "on_warm": total(self.on_warm[rows]),
        }


def _summary(pool: str | None, figures: dict[str, Floats], group: int) -> PoolSummary:
    def of(name: str) -> float | None:
        value = float(figures[name][group])
        return value if math.isfinite(value) else None

    cpu, requested = of("cpu_share"), of("requested_share")
    return PoolSummary(
        pool=pool,
        hours=int(figures["hours"][group]),
        nodes=of("nodes"),
        hot_nodes=of("hot_nodes"),
        hot_node_minutes=float(figures["hot_node_minutes"][group]),
        share_stddev=of("share_stddev"),
        highest_share=of("highest_share"),
        cpu_share=cpu,
        cpu_change=of("cpu_change"),
        free_by_usage=None if cpu is None else 1 - cpu,
        free_by_requests=None if requested is None else 1 - requested,
        new_pods_over_target=Rate(part=int(figures["on_warm"][group]), whole=int(figures["new_pods"][group])),
    )


def load_change(pairs: Iterable[tuple[PoolHour, PoolHour]]) -> float | None:
    """Relative change from then to now of pairs (now, then), weighted by nodes."""
    both = [(now, then) for now, then in pairs if math.isfinite(now.cpu_share) and math.isfinite(then.cpu_share)]
    used_now = math.fsum(now.cpu_share * now.nodes for now, _ in both)
    used_then = math.fsum(then.cpu_share * then.nodes for _, then in both)
    return used_now / used_then - 1 if used_then > 0 else None


def mean_of(values: Iterable[tuple[float, float]]) -> float | None:
    """Weighted mean of (value, weight) over the known values."""
    known = [(value, weight) for value, weight in values if math.isfinite(value) and weight > 0]
    total = math.fsum(weight for _, weight in known)
    return math.fsum(value * weight for value, weight in known) / total if total else None
