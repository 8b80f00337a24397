"""Looking ahead: every few minutes the forecast is made anew, and nodes that can't wait are asked to be relieved.

Between two looks a cycle lays the last forecast over its own snapshot. One that is too old decides nothing.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from rebalancer.constraints.admission import Door, Standing
from rebalancer.constraints.in_flight import usual_start_up
from rebalancer.cycle.request import Request, Scope
from rebalancer.forecast import Foresight, expected_arrivals, foresee
from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.forecasting.verification import judge_due, keep_ahead, keep_daily
from rebalancer.model.forecasts import ForecastRecords
from rebalancer.model.history import DAY_SECONDS, STEP_SECONDS, History
from rebalancer.model.peaks import Peaks, ServiceDays
from rebalancer.model.plan import Trigger
from rebalancer.model.ports import Clock, Ledger
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.usage import Usage
from rebalancer.planner.ahead import Upcoming, upcoming
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import assign_pools
from rebalancer.policy.schema.types import format_duration

STALE_AFTER_LOOKS = 3.0
"""A forecast that is older than so many looks decides nothing: something is wrong."""

BLIND_SECONDS = 6 * 3600.0
"""Nor does one whose newest sample is so old."""

DUE_AGAIN_SECONDS = 300.0
"""So soon it is looked again while something is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What one look saw."""

    at: float
    foresight: Foresight
    coming: tuple[Upcoming, ...]
    """Nodes that are expected to become hot, those that must be relieved first, first."""
    due: tuple[Upcoming, ...]
    """Those that can't wait for the next look."""
    peaks: Peaks
    """Laid over the snapshot that it was made of."""
    known_until: float
    """End of the newest step of history, seconds since the epoch."""
    notes: tuple[str, ...] = ()
    """What went wrong beside it."""

    def request(self) -> Request | None:
        """The cycle that is to be run now."""
        if not self.due:
            return None
        due = {each.node_name: each.hot_from for each in self.due}
        return Request(trigger=Trigger.FORECAST, scopes=frozenset({Scope(nodes=frozenset(due))}), due=due)


@dataclass(slots=True, kw_only=True)
class Lookout:
    """Of one policy. `look` and `remember` are for one thread each, `peaks` for any."""

    policy: RebalancerPolicy
    keeper: HistoryKeeper
    clock: Clock
    ledger: Ledger | None = None
    records: ForecastRecords | None = None
    own_pod: tuple[str, str] | None = None
    asks: bool = True
    """Whether history is read where it is missing; else a forecast is made of what is kept, when it is asked for."""
    last: Ahead | None = None
    before: Foresight | None = None
    """What an earlier lookout saw last: it knows who left which node."""
    _keeping: threading.Lock = field(default_factory=threading.Lock)

    def next_at(self) -> float:
        """When it is time to look again, seconds since the epoch.

        A window may be shorter than the time between two looks: then it is looked as soon as something can begin. And
        while something is due it is looked more often: a limit may have let a part of it through.
        """
        last, every = self.last, self.policy.forecast.every
        if last is None:
            return 0.0
        usual = last.at + (min(every, DUE_AGAIN_SECONDS) if last.due else every)
        starts = [each.start_by for each in last.coming if each.start_by is not None and each.start_by > last.at]
        return min([usual, *starts])

    def look(self, snapshot: ClusterSnapshot) -> Ahead:
        """Make the forecast anew; reads what is missing of history, as far as that goes now."""
        with self._keeping:
            history = self.keeper.update(snapshot) if self.asks else self.keeper.kept()
        seen = self._see(snapshot, history)
        self.last = seen = replace(seen, notes=(*seen.notes, *self._write_down(seen, snapshot, history)))
        return seen

    def peaks(self, snapshot: ClusterSnapshot, now: float) -> Peaks | None:
        """The last forecast, laid over a snapshot; None without one that may be gone by."""
        foresight = self._current(snapshot, now)
        return None if foresight is None else foresight.peaks(snapshot, now=now)

    def service_days(self, snapshot: ClusterSnapshot, now: float) -> ServiceDays | None:
        """How services' usual days go, by the same forecast."""
        foresight = self._current(snapshot, now)
        return None if foresight is None else foresight.service_days(snapshot)

    def _current(self, snapshot: ClusterSnapshot, now: float) -> Foresight | None:
        if self.last is None and not self.asks:
            self.look(snapshot)
        last = self.last
        if last is None or now - last.at > STALE_AFTER_LOOKS * self.policy.forecast.every:
            return None
        return None if now - last.known_until > BLIND_SECONDS else last.foresight

    def remember(self, snapshot: ClusterSnapshot, usage: Usage) -> None:
        """Collect a cycle's usage, where nobody else remembers it."""
        if self.policy.usage.source == "MetricsServer":
            with self._keeping:
                self.keeper.observe(snapshot, usage)

    def _see(self, snapshot: ClusterSnapshot, history: History) -> Ahead:
        policy, now = self.policy, self.clock.now()
        pool_of = assign_pools(policy.pools, snapshot.nodes.names, snapshot.nodes.labels)
        open_evictions = self.ledger.open_evictions() if self.ledger is not None else ()
        foresight = foresee(
            history,
            snapshot,
            policy=policy.forecast,
            pool_of=pool_of,
            pools=[pool.name for pool in policy.pools],
            now=now,
            before=self.last.foresight if self.last is not None else self.before,
            arrivals=expected_arrivals(
                snapshot,
                pool_of=pool_of,
                in_flight=[
                    (f"{each.namespace}/{each.service_name}", each.landing_node)
                    for each in open_evictions
                    if each.landing_node
                ],
            ),
        )
        door = Door(
            policy=policy, snapshot=snapshot, pool_of=pool_of, standing=Standing(), now=now, own_pod=self.own_pod
        )
        peaks = foresight.peaks(snapshot, now=now)
        coming = upcoming(
            snapshot=snapshot,
            peaks=peaks,
            policy=policy,
            pool_of=pool_of,
            door=door,
            start_up=self._start_up(),
            now=now,
        )
        known_until = _known_until(history)
        blind = now - known_until > BLIND_SECONDS
        acts = policy.forecast.mode == "Act" and not blind
        notes = (f"nothing is decided by forecasts: {_age(now - known_until)}",) if blind else ()
        return Ahead(
            at=now,
            foresight=foresight,
            coming=tuple(coming),
            due=tuple(each for each in coming if acts and each.due(now, policy.forecast.every)),
            peaks=peaks,
            known_until=known_until,
            notes=notes,
        )

    def _start_up(self) -> Callable[[str], float]:
        otherwise = self.policy.safety.in_flight.start_up

        @cache
        def of(service: str) -> float:
            known = self.ledger.start_ups(service) if self.ledger is not None else ()
            return usual_start_up(known, otherwise=otherwise)

        return of

    def _write_down(self, seen: Ahead, snapshot: ClusterSnapshot, history: History) -> tuple[str, ...]:
        """What was said, and what came of what was said before. A database that is away costs us that, nothing more."""
        if self.records is None:
            return ()
        policy, forecasts, peaks, now = self.policy, seen.foresight.forecasts, seen.peaks, seen.at
        due = {each.node_name: each.hot_from for each in seen.due}
        return (
            *keep_daily(self.records, forecasts, snapshot, policy=policy, peaks=peaks, now=now),
            *keep_ahead(self.records, forecasts, snapshot, policy=policy, peaks=peaks, hot_from=due, now=now),
            *judge_due(self.records, history, snapshot, now=now).notes,
        )


def _known_until(history: History) -> float:
    """End of the newest step of which anything is known."""
    for block in reversed(history.days):
        for grid in (block.node_millicores, block.pod_millicores):
            known = np.flatnonzero(np.isfinite(grid).any(axis=0))
            if len(known):
                return float(block.day * DAY_SECONDS + (int(known[-1]) + 1) * STEP_SECONDS)
    return -math.inf


def _age(seconds: float) -> str:
    return (
        "there is no history yet" if math.isinf(seconds) else f"history ends {format_duration(seconds // 60 * 60)} ago"
    )
