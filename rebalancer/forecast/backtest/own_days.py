"""Rolling-origin evaluation on a cluster's own last days.

For each day, history and actuals are composed from the pods that are on the nodes now. A node day is scored only if
nearly all of its usage is known, from these pods or from replicas of their services on that day.

Past assignments of pods to nodes are unknown, so a node's own usage cannot be separated from its pods' day by day: its
least daily level is added to history and actuals.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.backtest.backtest import FIRST_PREDICTION, SLOW, Backtest, Group, Run, compared, summary
from rebalancer.forecast.series.compose import compose
from rebalancer.forecast.series.events import uplift
from rebalancer.forecast.series.membership import Members, members_of
from rebalancer.forecast.series.percentiles import P95, quantile
from rebalancer.forecast.series.resource import OF_CPU, ForecastResource
from rebalancer.forecast.series.window import Window
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, DayBlock, Grid, History, date_of
from rebalancer.model.notation.arrays import Bools, Floats, Ints
from rebalancer.policy.schema.forecast import Forecast

LEAST_CLOSED_DAYS = 5
MOST_LEARNING_DAYS = 8
"""Half of the days, at most this many, are not scored."""
KNOWN_SHARE = 0.9
"""Known share of the usage of a node's pods that a scored node day needs. Unknown usage counts as 0."""
MOST_NODES_FOR_SLOW = 500


def replay(
    history: History,
    snapshot: ClusterSnapshot,
    *,
    policy: Forecast,
    pool_of: Ints,
    highs: Mapping[str, float],
    now: float,
    days: int,
    only: Sequence[str] = (),
    step: Callable[[int, int], None] = lambda done, total: None,
    resource: ForecastResource = OF_CPU,
) -> Backtest:
    """Compare the predictors (all, or `only`) over the last `days` closed days of all nodes that are in a pool.
    `history` is of `resource`.

    `highs`: pool -> share of capacity above which a node is hot, infinite without a fixed one; `pool_of` (nodes,)
    indexes it, -1 for a node in none. `step` receives (finished days, all days). Raises UnsafeDataError with too few
    data.
    """
    today, policy = int(now // DAY_SECONDS), resource.section(policy)
    members = members_of(
        snapshot, pool_of=pool_of, pools=tuple(highs), generation=policy.generation, now=now, resource=resource
    )
    groups = list(_groups(members, policy, highs))
    if not groups:
        raise UnsafeDataError("pools: no node is in any: there is nothing to compare")
    known = _Known(members)
    closed: dict[int, int] = {}
    for index, block in enumerate(history.days):
        if today - days <= block.day < today and block.complete:
            known.add(block)
            closed[block.day] = index
    if len(closed) < LEAST_CLOSED_DAYS:
        raise UnsafeDataError(_too_short(len(closed), days, history.notes))
    first = min(closed)
    counts, own = known.counts(range(first, today)), known.own_of_nodes()
    notes = [*history.notes]
    chosen = _predictors(only, sum(len(nodes) for nodes, _ in groups), notes)
    runs = [(nodes, Run(group, policy, chosen, resource=resource)) for nodes, group in groups]
    first_scored = first + max(FIRST_PREDICTION + 1, min((today - first) // 2, MOST_LEARNING_DAYS))
    predicted_days = range(first + FIRST_PREDICTION, today)
    for day, before, after in _sums(history.days, closed, members, predicted_days):
        counted = counts[:, day - first] & (np.isfinite(quantile(before, P95)).sum(axis=1) >= FIRST_PREDICTION)
        came = np.where(counted[:, None], after, np.float32(np.nan))
        for nodes, run in runs:
            earlier, later = (
                uplift(policy.events, run.group.pools[0], Window.before(_start(at)).times()) for at in (day, day + 1)
            )
            used = np.minimum(came[nodes] + own[nodes, None], members.capacity_millicores[nodes, None])
            run.see(
                date_of(day),
                ((before[nodes] + own[nodes, None, None]) / earlier).astype(np.float32),
                (used / later[-1]).astype(np.float32),
                made_at=_start(day),
                scored=day >= first_scored,
            )
        step(predicted_days.index(day) + 1, len(predicted_days))
    return summary([run for _, run in runs], [run.group.pools[0] for _, run in runs], policy, notes=notes)


def _start(day: int) -> float:
    return float(day * DAY_SECONDS)


def _too_short(closed: int, days: int, notes: Sequence[str]) -> str:
    why = f" ({notes[0]})" if notes else ""
    return (
        f"history: {closed} of the last {days} days are closed, expected at least {LEAST_CLOSED_DAYS} for a "
        f"backtest{why}"
    )


def _groups(members: Members, policy: Forecast, highs: Mapping[str, float]) -> Iterator[tuple[NDArray[np.intp], Group]]:
    """(nodes, group) of each pool with nodes."""
    for number, (pool, high) in enumerate(highs.items()):
        nodes = np.flatnonzero(members.pool == number)
        if not len(nodes):
            continue
        capacity = members.capacity_millicores[nodes]
        yield (
            nodes,
            Group(
                nodes=tuple(members.nodes[node] for node in nodes.tolist()),
                capacity_millicores=capacity,
                high_millicores=capacity * high,
                pools=(pool,),
                pool=np.zeros(len(nodes), dtype=np.int32),
                days=policy.day_weights_of(pool),
            ),
        )


def _predictors(only: Sequence[str], nodes: int, notes: list[str]) -> tuple[str, ...]:
    chosen = tuple(only) or compared()
    if nodes <= MOST_NODES_FOR_SLOW or not set(SLOW) & set(chosen):
        return chosen
    notes.append(f"{' and '.join(SLOW)} are left out: too slow for {nodes} nodes")
    return tuple(name for name in chosen if name not in SLOW)


def _sums(
    blocks: Sequence[DayBlock], closed: Mapping[int, int], members: Members, days: range
) -> Iterator[tuple[int, Grid, Grid]]:
    """Each day with (nodes, window's days, 288) its history and (nodes, 288) its actuals, composed from the current
    pods."""
    no_nodes: Grid = np.empty((0, SLOTS), dtype=np.float32)

    def composed(window: Window) -> Grid:
        known = sorted(day for day in closed if window.overlap(day) is not None)
        of_pods = (replace(blocks[closed[day]], nodes=(), node_millicores=no_nodes) for day in known)
        return compose(of_pods, members, window).series

    before = composed(Window.before(_start(days[0])))
    for day in days:
        after = composed(Window.before(_start(day + 1)))
        yield day, before, after[:, -1]
        before = after


class _Known:
    """Known usage of the current pods, day by day."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._used = np.zeros((2, len(members.pods)))
        """Sum and number of each pod's samples."""
        self._rest = np.full(len(members.nodes), np.inf)
        """(nodes,) least daily median of usage besides the current pods."""
        self._own: dict[int, Bools] = {}
        """Day -> (pods,) whether at least half of its samples are known."""
        self._siblings: dict[int, Bools] = {}
        """Day -> (services,) whether at least half of the samples of a replica are known."""

    def add(self, block: DayBlock) -> None:
        """Add one day, in any order."""
        members = self._members
        pod_of_row = np.fromiter(map(members.index.get, block.pods, repeat(-1)), dtype=np.int64, count=len(block.pods))
        finite = np.isfinite(block.pod_millicores)
        steps = finite.sum(axis=1)
        half = steps * 2 >= SLOTS
        here = pod_of_row >= 0
        pods = pod_of_row[here]
        self._used[0, pods] += np.add.reduce(block.pod_millicores, axis=1, where=finite, dtype=np.float64)[here]
        self._used[1, pods] += steps[here]
        self._own[block.day] = np.zeros(len(members.pods), dtype=np.bool_)
        self._own[block.day][pods] = half[here]
        self._siblings[block.day] = np.zeros(len(members.services), dtype=np.bool_)
        service = np.empty(len(block.pods), dtype=np.int64)
        service[here] = members.service[pods]
        service[~here] = [members.service_of_name(block.pods[row]) for row in np.flatnonzero(~here).tolist()]
        self._siblings[block.day][service[half & (service >= 0)]] = True
        self._add_rest(block, np.flatnonzero(here), pods)

    def _add_rest(self, block: DayBlock, rows: NDArray[np.intp], pods: NDArray[np.int64]) -> None:
        members = self._members
        ordered = np.argsort(members.node[pods], kind="stable")
        rows, on = rows[ordered], members.node[pods[ordered]]
        used = np.zeros((len(members.nodes), SLOTS), dtype=np.float32)
        starts = np.flatnonzero(np.diff(on, prepend=-1))
        for begin, end in pairwise([*starts.tolist(), len(rows)]):
            used[on[begin]] = np.nansum(block.pod_millicores[rows[begin:end]], axis=0)
        node_rows = np.array([block.node_row.get(name, -1) for name in members.nodes], dtype=np.int64)
        there = np.flatnonzero(node_rows >= 0)
        rest = quantile(np.maximum(block.node_millicores[node_rows[there]] - used[there], np.float32(0)), 0.5)
        self._rest[there] = np.fmin(self._rest[there], rest)

    def own_of_nodes(self) -> Grid:
        """(nodes,) own usage in millicores: the least daily level, since departed pods only raise it."""
        return np.where(np.isfinite(self._rest), self._rest, 0.0).astype(np.float32)

    def counts(self, days: range) -> Bools:
        """(nodes, days) whether enough is known, on the day and before it."""
        members = self._members
        nodes = len(members.nodes)
        known_before = nothing = np.zeros(len(members.pods), dtype=np.bool_)
        usual = self._usual() * ~members.short_lived
        whole = np.bincount(members.node, weights=usual, minlength=nodes)
        out = np.zeros((nodes, len(days)), dtype=np.bool_)
        for place, day in enumerate(days):
            known = self._own.get(day, nothing) | self._by_siblings(day)
            share = np.bincount(members.node, weights=usual * (known & known_before), minlength=nodes)
            out[:, place] = share >= KNOWN_SHARE * whole
            known_before = known_before | known
        return out

    def _usual(self) -> Floats:
        """(pods,) mean millicores; the mean of the service for a pod without samples."""
        members = self._members
        mean = self._used[0] / np.maximum(self._used[1], 1.0)
        shown = (self._used[1] > 0) & (members.service >= 0)
        services = len(members.services)
        total = np.bincount(members.service[shown], weights=mean[shown], minlength=services)
        of_service = total / np.maximum(np.bincount(members.service[shown], minlength=services), 1)
        without = (self._used[1] == 0) & (members.service >= 0)
        mean[without] = of_service[members.service[without]]
        return np.asarray(mean, dtype=np.float64)

    def _by_siblings(self, day: int) -> Bools:
        """(pods,) whether a replica of the service is known on that day."""
        service, siblings = self._members.service, self._siblings.get(day)
        if siblings is None or not len(siblings):
            return np.zeros(len(service), dtype=np.bool_)
        return np.asarray((service >= 0) & siblings[service], dtype=np.bool_)
