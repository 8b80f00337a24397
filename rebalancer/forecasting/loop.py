"""Forecast loop: renews the forecast every few minutes and starts cycles for nodes whose relief cannot wait.

Between two runs a cycle applies the last forecast to its own snapshot. A forecast that is too old is not used.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial

from rebalancer.constraints.admission import EvictionAdmission, LedgerState
from rebalancer.constraints.moves.in_flight import typical_start_up
from rebalancer.cycle.isolation import isolated
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.forecast import NodeForecasts, expected_arrivals, forecast_nodes
from rebalancer.forecast.memory.leaks import MemoryLeak, find_leaks
from rebalancer.forecast.series.resource import OF_CPU, ForecastResource
from rebalancer.forecasting.evicted import evicted_pods
from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.forecasting.outcomes import OutcomeKeeper
from rebalancer.forecasting.resources import MAX_HISTORY_GAP_SECONDS, Capacities, forecast_resources, known_until
from rebalancer.forecasting.verification import record_acted_forecasts, record_daily_forecasts, verify_due
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.decisions.ports import Clock, Ledger
from rebalancer.model.measured.history import History
from rebalancer.model.measured.peaks import Peaks, ServiceDayProfiles
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.figures import age
from rebalancer.model.notation.resource_names import CPU, MEMORY
from rebalancer.model.records.forecasts import ForecastRecords
from rebalancer.planner.ahead import PredictedHotNode, first_starts, predicted_hot_nodes
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools

STALE_AFTER_RUNS = 3.0
"""A forecast older than this many intervals is not used."""

RETRIGGER_SECONDS = 300.0
"""Interval of runs while relief is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastRun:
    """The result of one run."""

    at: float
    node_forecasts: NodeForecasts
    others: Mapping[str, NodeForecasts] = field(default_factory=dict)
    """Resource besides CPU -> its forecasts; none from an old history."""
    coming: tuple[PredictedHotNode, ...]
    """Predicted hot nodes, by the time at which their relief must start."""
    due: tuple[PredictedHotNode, ...]
    """Predicted hot nodes whose relief cannot wait for the next run: a node is there for each such resource."""
    peaks: Peaks
    """Predicted peaks for the snapshot of the run."""
    known_until: float
    """End of the newest step of history, seconds since the epoch."""
    notes: tuple[str, ...] = ()
    """Errors and warnings."""
    histories: Mapping[str, History] = field(default_factory=dict)
    """Resource -> its days."""
    leaks: tuple[MemoryLeak, ...] = ()
    """Pods with growing memory that will be OOM-killed, the first to be killed first."""

    def request(self) -> CycleRequest | None:
        """The cycle to run now; None if no relief is due."""
        if not self.due:
            return None
        due = {(each.node_name, each.resource): each.hot_from for each in self.due}
        nodes = frozenset(node for node, _ in due)
        return CycleRequest(trigger=Trigger.FORECAST, scopes=frozenset({RequestScope(nodes=nodes)}), due=due)


@dataclass(slots=True, kw_only=True)
class ForecastLoop:
    """The loop of one policy. `look` and `record_usage` are for one thread each, `peaks` for any."""

    policy: RebalancerPolicy
    keepers: Mapping[str, HistoryKeeper]
    """Resource -> its keeper, CPU among them."""
    clock: Clock
    ledger: Ledger | None = None
    records: ForecastRecords | None = None
    """None: nothing is recorded, judged or verified."""
    outcomes: OutcomeKeeper | None = None
    """Outcomes of earlier forecasts, which forecasts learn from."""
    own_pod: tuple[str, str] | None = None
    reads_history: bool = True
    """Whether missing history is read. Otherwise a forecast is made on demand from the stored history."""
    last: ForecastRun | None = None
    before: NodeForecasts | None = None
    """Last forecasts of the previous policy's loop, from which departed pods are derived."""
    _capacities: Capacities = field(default_factory=dict)
    """Of the last usage that a cycle has read."""
    _freed: Mapping[str, float] = field(default_factory=dict)
    """Uid -> share of a pod's memory that its node is free of once it has left; of departed pods too, until the next
    forecast."""
    _keeping: threading.Lock = field(default_factory=threading.Lock)

    def next_at(self) -> float:
        """Time of the next run, seconds since the epoch.

        While relief is due, runs are more frequent, since limits may have admitted a part of it only.
        """
        renewal = self.renewal_at()
        return min(renewal, self.last.at + RETRIGGER_SECONDS) if self.last is not None and self.last.due else renewal

    def renewal_at(self) -> float:
        """Time at which the last forecast says too little, seconds since the epoch: after an interval, or before when
        relief becomes due or a change window opens."""
        if self.last is None:
            return 0.0
        last = self.last
        starts = [each.start_by for each in last.coming if each.start_by is not None and each.start_by > last.at]
        return min([last.at + self.policy.forecast.interval, *starts])

    def look(self, snapshot: ClusterSnapshot) -> ForecastRun:
        """Renew the forecast; reads missing history within its time budget."""
        before = self.last.node_forecasts if self.last is not None else self.before
        histories = {CPU: self._days(CPU, snapshot)}
        others = [name for name in self.keepers if name != CPU]
        if others and self.last is None and self.reads_history:
            # the first forecast of CPU doesn't wait for the days of the others
            self.last = self._forecast(snapshot, histories, before)
        # the other resources get what CPU leaves of the queries of the hour
        for name in others:
            days, failed = isolated("days not read", partial(self._days, name, snapshot))
            histories[name] = days or History(days=(), notes=failed)
        run = self._forecast(snapshot, histories, before)
        leaks, notes = isolated("memory leaks are not known", partial(_leaks, histories, snapshot, run.at))
        run = replace(run, leaks=leaks or (), notes=(*run.notes, *notes))
        self.last = run = replace(run, notes=(*run.notes, *self._record(run, snapshot, histories[CPU])))
        return run

    def peaks(self, snapshot: ClusterSnapshot, now: float) -> Peaks | None:
        """Predicted peaks of a snapshot by the last forecast; None without a current one of CPU."""
        node_forecasts = self._current(snapshot, now)
        if node_forecasts is None or self.last is None:
            return None
        others = {}
        for name, each in self.last.others.items():
            peaks, _ = isolated(f"{name}: no peaks", partial(each.peaks, snapshot, now=now, freed=self._freed))
            if peaks is not None:
                others[name] = peaks
        return replace(node_forecasts.peaks(snapshot, now=now), resources=others)

    def service_day_profiles(self, snapshot: ClusterSnapshot, now: float) -> ServiceDayProfiles | None:
        """Usual days of the services by the last forecast; None without a current one."""
        node_forecasts = self._current(snapshot, now)
        return None if node_forecasts is None else node_forecasts.service_day_profiles(snapshot)

    def memory_leaks(self, snapshot: ClusterSnapshot, now: float) -> tuple[MemoryLeak, ...]:
        """Leaks of the last run whose pods are still on their nodes; none without a current forecast."""
        if self._current(snapshot, now) is None or self.last is None or not self.last.leaks:
            return ()
        on = {each.node for each in self.last.leaks}
        there = {
            (name, f"{snapshot.namespaces[int(snapshot.pods.namespace[pod])]}/{snapshot.pods.names[pod]}")
            for name in on & snapshot.node_index.keys()
            for pod in snapshot.pods_on(snapshot.node_index[name]).tolist()
        }
        return tuple(each for each in self.last.leaks if (each.node, each.pod) in there)

    def stale(self, now: float) -> bool:
        """Whether there is no forecast, or one that is not used any more."""
        last = self.last
        if last is None or now - last.at > STALE_AFTER_RUNS * self.policy.forecast.interval:
            return True
        return now - last.known_until > MAX_HISTORY_GAP_SECONDS

    def _current(self, snapshot: ClusterSnapshot, now: float) -> NodeForecasts | None:
        if self.last is None and not self.reads_history:
            self.look(snapshot)
        return None if self.last is None or self.stale(now) else self.last.node_forecasts

    def record_usage(self, snapshot: ClusterSnapshot, usage: Usage) -> None:
        """Add a cycle's usage to the history if no Prometheus keeps it."""
        self._capacities = {
            name: dict(zip(snapshot.nodes.names, used.capacity.tolist(), strict=True))
            for name, used in usage.resources.items()
        }
        self._remember_freed(snapshot, usage)
        if self.policy.usage.source == "MetricsServer" and self.reads_history:
            with self._keeping:
                for keeper in self.keepers.values():
                    keeper.observe(snapshot, usage)

    def _remember_freed(self, snapshot: ClusterSnapshot, usage: Usage) -> None:
        used = usage.resources.get(MEMORY)
        if used is None:
            return
        of_memory = self.last.others.get(MEMORY) if self.last is not None else None
        known = of_memory.pods.row if of_memory is not None else {}
        shares = zip(snapshot.pods.uids, used.freed.tolist(), strict=True)
        self._freed = {
            **{uid: share for uid, share in self._freed.items() if uid in known},
            **{uid: share for uid, share in shares if math.isfinite(share)},
        }

    def _days(self, resource: str, snapshot: ClusterSnapshot) -> History:
        with self._keeping:
            keeper = self.keepers[resource]
            return keeper.update(snapshot) if self.reads_history else keeper.kept()

    def _forecast(
        self, snapshot: ClusterSnapshot, histories: Mapping[str, History], before: NodeForecasts | None
    ) -> ForecastRun:
        policy, now = self.policy, self.clock.now()
        node_pools = NodePools.of(policy.pools, snapshot.nodes)
        pool_of = node_pools.of_node
        known, outcome_notes = self.outcomes.known(now) if self.outcomes is not None else ((), ())
        open_evictions = self.ledger.open_evictions() if self.ledger is not None else ()
        arrivals = expected_arrivals(
            snapshot,
            pool_of=pool_of,
            in_flight=[(str(each.service), each.target_node) for each in open_evictions if each.target_node],
        )

        evicted = evicted_pods(self.ledger, now)

        def made(resource: ForecastResource, days: History) -> NodeForecasts:
            return forecast_nodes(
                days,
                snapshot,
                policy=policy.forecast,
                pool_of=pool_of,
                pools=[pool.name for pool in policy.pools],
                now=now,
                before=before,  # departed pods are the same for all resources
                arrivals=arrivals,
                evicted=evicted,
                outcomes=known,
                resource=resource,
            )

        history = histories[CPU]
        node_forecasts = made(OF_CPU, history)
        others, resource_notes = forecast_resources(histories, policy, made, capacities=self._capacities, now=now)
        admission = EvictionAdmission(
            policy=policy, snapshot=snapshot, pool_of=pool_of, ledger_state=LedgerState(), now=now, own_pod=self.own_pod
        )
        peaks = node_forecasts.peaks(snapshot, now=now)
        start_up = self._start_up()

        def coming_of(forecasts: NodeForecasts, peaks: Peaks | None = None) -> list[PredictedHotNode]:
            return predicted_hot_nodes(
                snapshot=snapshot,
                peaks=peaks or forecasts.peaks(snapshot, now=now),
                policy=policy,
                node_pools=node_pools,
                admission=admission,
                start_up=start_up,
                now=now,
                resource=forecasts.resource.name,
                room=forecasts.resource.capacity(snapshot),
            )

        coming, coming_notes = [coming_of(node_forecasts, peaks)], list[str]()
        for name in [each for each in others if each in node_pools.resources]:
            found, failed = isolated(f"{name}: no relief ahead of its peaks", partial(coming_of, others[name]))
            coming.append(found or [])
            coming_notes += failed
        newest = known_until(history)
        blind = now - newest > MAX_HISTORY_GAP_SECONDS
        acts = policy.forecast.mode == "Act" and not blind
        notes = (f"nothing is decided by forecasts: {_age(now - newest)}",) if blind else ()
        return ForecastRun(
            at=now,
            node_forecasts=node_forecasts,
            coming=tuple(first_starts(coming)),
            due=tuple(each for of_one in coming for each in of_one if acts and each.due(now, policy.forecast.interval)),
            peaks=peaks,
            known_until=newest,
            others=others,
            histories=histories,
            notes=(*notes, *outcome_notes, *resource_notes, *coming_notes),
        )

    def _start_up(self) -> Callable[[str], float]:
        otherwise = self.policy.safety.in_flight.start_up
        known = cache(self.ledger.start_ups_by_service) if self.ledger is not None else dict

        @cache
        def of(service: str) -> float:
            return typical_start_up(known().get(service, ()), otherwise=otherwise)

        return of

    def _record(self, run: ForecastRun, snapshot: ClusterSnapshot, history: History) -> tuple[str, ...]:
        """Record new forecasts and verify ended ones. Returns the errors of the database."""
        if self.records is None:
            return ()
        policy, forecasts, peaks, now = self.policy, run.node_forecasts.forecasts, run.peaks, run.at
        # only forecasts of CPU are recorded one by one
        due = {each.node_name: each.hot_from for each in run.due if each.resource == CPU}
        recorded = (
            *record_daily_forecasts(self.records, forecasts, snapshot, policy=policy, peaks=peaks, now=now),
            *record_acted_forecasts(
                self.records, forecasts, snapshot, policy=policy, peaks=peaks, hot_from=due, now=now
            ),
            *verify_due(self.records, history, snapshot, now=now).notes,
        )
        learned, failed = isolated("outcomes are not judged", partial(self._learn, self.records, run))
        return (*recorded, *(learned or ()), *failed)

    def _learn(self, records: ForecastRecords, run: ForecastRun) -> tuple[str, ...]:
        """Keep the forecasts of this period and judge those that are over. Returns the errors of the database."""
        if self.outcomes is None:
            return ()
        blind = run.at - run.known_until > MAX_HISTORY_GAP_SECONDS
        return (
            *self.outcomes.keep(
                [
                    each
                    for forecasts in (*(() if blind else (run.node_forecasts,)), *run.others.values())
                    for each in forecasts.unjudged
                ]
            ),
            *self.outcomes.judge(run.histories, records, events=self.policy.forecast.events, now=run.at),
        )


def _leaks(histories: Mapping[str, History], snapshot: ClusterSnapshot, now: float) -> tuple[MemoryLeak, ...]:
    return find_leaks(histories[MEMORY].days, snapshot, now=now) if MEMORY in histories else ()


def _age(seconds: float) -> str:
    return "there is no history yet" if math.isinf(seconds) else f"history ends {age(seconds // 60 * 60)} ago"
