"""What the dashboard's first page shows: the verdict, what stops evictions, what is due."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rebalancer.dashboard.due import periodic_cycles
from rebalancer.dashboard.heat import HEAT_SECONDS, KeptPools, MeasuredPools, heat_of_pools
from rebalancer.dashboard.limits import open_breakers_now
from rebalancer.dashboard.nodes import NodeViewCache
from rebalancer.dashboard.pods import PodViews
from rebalancer.dashboard.sources import Sources
from rebalancer.effect.cluster import WEEK_HOURS, heat_of_hours
from rebalancer.effect.messages import OF_REPORT
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.limits import Pause
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.history import HOUR_SECONDS
from rebalancer.model.notation.heat import heat_sentence
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.cycles import CycleSummary, EvictionTotals, PoolEviction, PoolMeasurement, RefusalGroup
from rebalancer.model.records.effect import PoolHour
from rebalancer.planner.ahead import PredictedHotNode
from rebalancer.policy import RebalancerPolicy
from rebalancer.web.pages.overview import Due, Evaluated, why_not
from rebalancer.web.pages.verdict import LATEST_CYCLES, TOTALS_SECONDS, Facts, verdict
from rebalancer.web.pages.views import Map, NodeState, Overview

T = TypeVar("T")

DUE_AT_ONCE = 8
EVICTIONS_AT_ONCE = 500
WEEK_SECONDS = WEEK_HOURS * HOUR_SECONDS
HOT_AT_ONCE = 50
"""Hot nodes whose refusals are read."""


class _Asked:
    """Questions to the database. After the first that it does not answer no other is asked: each may take long."""

    def __init__(self) -> None:
        self.problem = ""

    def __call__(self, ask: Callable[[], T], otherwise: T) -> T:
        if self.problem:
            return otherwise
        try:
            return ask()
        except RebalancerError as error:
            self.problem = str(error)
            return otherwise


class OverviewViews:
    """Makes the first page, and what it has in common with a node's."""

    def __init__(
        self, sources: Sources, snapshot: Callable[[], ClusterSnapshot], node_views: NodeViewCache, pods: PodViews
    ) -> None:
        """`snapshot` raises UnsafeDataError."""
        self._from = sources
        self._snapshot = snapshot
        self._node_views = node_views
        self._pods = pods
        self._measured = MeasuredPools(sources.archive)
        self._kept = KeptPools(sources.current)

    def page(self, nodes: Callable[[], Map]) -> Overview:
        """The page; its `problem` says when the database is unavailable."""
        # a follower's node view asks the database too: both are waited for at once
        self._node_views.renew()
        sources, asked, now = self._from, _Asked(), self._now
        cycles: Sequence[CycleSummary] = asked(lambda: sources.archive.cycles(LATEST_CYCLES), ())
        totals = asked(lambda: sources.archive.eviction_totals(now - TOTALS_SECONDS), EvictionTotals())
        due: Sequence[Due] = asked(self._alerts_due, ())
        breakers: Mapping[str, str] = asked(
            lambda: open_breakers_now(self._policy, self._snapshot, sources.ledger, sources.effect), {}
        )
        pauses: Sequence[Pause] = asked(sources.ledger.pauses, ())
        measured: Sequence[PoolMeasurement] = asked(lambda: self._measured.latest(now), ())
        evictions: Sequence[PoolEviction] = asked(
            lambda: sources.archive.pool_evictions(now - HEAT_SECONDS, limit=EVICTIONS_AT_ONCE), ()
        )
        hours: Sequence[PoolHour] = asked(lambda: self._hours(now), ())
        shown = nodes()
        refusals: Sequence[RefusalGroup] = asked(lambda: self._refusals(now), ())
        view = self._node_views.latest()
        coming, more = self._coming()
        leaks = self._leaks()
        facts = Facts(
            now=now,
            nodes=sum(pool.nodes for pool in shown.pools),
            hot=sum(pool.states[NodeState.HOT] for pool in shown.pools),
            unknown=sum(pool.states[NodeState.UNKNOWN] for pool in shown.pools),
            cycles=cycles,
            cycle_seconds=self._policy.cycle_seconds,
            overdue_seconds=self._policy.overdue_seconds,
            overdue=sources.overdue(),
            totals=totals,
            pauses=pauses,
            stopped_scopes=tuple(breakers),
            refusals=sum(each.count for each in refusals if not each.of_node),
            database_problem=asked.problem,
            cluster_problem=shown.problem,
        )
        return Overview(
            verdict=verdict(facts),
            map=shown,
            last_cycle=cycles[0] if cycles else None,
            due=(*coming, *due, *self._looks_due()),
            more_due=more,
            leaks=tuple(leaks[:DUE_AT_ONCE]),
            more_leaks=max(len(leaks) - DUE_AT_ONCE, 0),
            open_breakers=tuple(breakers.values()),
            pauses=tuple(pauses),
            evaluated=_evaluated(cycles[0], measured) if cycles else None,
            why_not=why_not(refusals, self._services(refusals)),
            heat=heat_of_pools(view, self._kept.before(view, now), measured, evictions, now=now),
            hot_hours=_hot_hours(hours, totals, now=now),
            problem=asked.problem,
        )

    def _hours(self, now: float) -> Sequence[PoolHour]:
        """The pools' hours of the last TOTALS_SECONDS, and a week before."""
        effect, since = self._from.effect, now - TOTALS_SECONDS
        return [*effect.hours(since - WEEK_SECONDS, now - WEEK_SECONDS), *effect.hours(since, now)]

    # -- why not more -------------------------------------------------------------------------------------------------

    def _refusals(self, now: float) -> Sequence[RefusalGroup]:
        """Of the hottest nodes that are hot now, by the last cycle that evaluated each."""
        hot = [line.name for line in self._node_views.latest().lines if line.state is NodeState.HOT]
        longest = max((each.interval for each in self._policy.strategies), default=0.0)
        return self._from.archive.refusals_on(hot[:HOT_AT_ONCE], since=now - 2 * longest - 60.0)

    def _services(self, refusals: Sequence[RefusalGroup]) -> Mapping[str, str]:
        names = {example.pod for each in refusals for example in each.examples}
        return self._pods.services({each.node for each in refusals}, names)

    # -- what is due --------------------------------------------------------------------------------------------------

    def _coming(self) -> tuple[list[Due], int]:
        """Upcoming proactive relief that is shown, and the number of further nodes."""
        coming = self.relief()
        shown = [Due(at=each.start_by, what=why, node=each.node_name) for each, why in coming[:DUE_AT_ONCE]]
        return shown, max(len(coming) - DUE_AT_ONCE, 0)

    def relief(self) -> list[tuple[PredictedHotNode, str]]:
        """Nodes that the last forecast run expected to be hot, in a sentence with the figures of the node view: its
        pods may have left since. Those that are no longer expected to be are left out."""
        forecast_loop, node_view, now = self._from.current().forecast_loop, self._node_views.latest(), self._now
        last = forecast_loop.last if forecast_loop is not None else None
        out = []
        for each in last.coming if last is not None else ():
            line = node_view.by_name.get(each.node_name)
            if each.resource != CPU or line is None or line.peak_share is None or line.peak_at is None:
                out.append((each, each.why))
            elif line.hot_from is not None:
                out.append((each, each.sentence(line.peak_share, line.peak_at, line.hot_from, now)))
        return out

    def _leaks(self) -> list[Due]:
        """Expected OOM kills, the first one first."""
        leaks = self._node_views.latest().expected.leaks
        return [Due(at=each.kill_at, what=f"{each.pod} {each.sentence}", node=each.node) for each in leaks]

    def _alerts_due(self) -> tuple[Due, ...]:
        at = self._from.inbox.next_at()
        return () if at is None else (Due(at=at, what="an open alert is retried"),)

    def _looks_due(self) -> list[Due]:
        forecast_loop = self._from.current().forecast_loop
        due = []
        if forecast_loop is not None and forecast_loop.last is not None:
            due.append(Due(at=forecast_loop.next_at(), what="the forecast is renewed"))
        return [*due, *periodic_cycles(self._policy)]

    @property
    def _policy(self) -> RebalancerPolicy:
        return self._from.current().policy

    @property
    def _now(self) -> float:
        return self._from.clock.now()


def _hot_hours(hours: Sequence[PoolHour], totals: EvictionTotals, *, now: float) -> str:
    """The same as in a report of this time."""
    since = math.floor((now - TOTALS_SECONDS) / HOUR_SECONDS) * HOUR_SECONDS
    if not any(each.hour * HOUR_SECONDS >= since for each in hours):
        return ""
    return heat_sentence(heat_of_hours(hours, since=since, until=now, evictions=totals.happened), of=OF_REPORT)


def _evaluated(cycle: CycleSummary, measured: Sequence[PoolMeasurement]) -> Evaluated | None:
    of = [each for each in measured if each.cycle == cycle.id]
    return Evaluated(nodes=sum(each.nodes for each in of), pools=tuple(each.pool for each in of)) if of else None
