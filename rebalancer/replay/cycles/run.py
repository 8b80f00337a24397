"""One run over a recording: its cycles, under one policy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rebalancer.cycle.context import CycleContext
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import WHOLE_CLUSTER, CycleRequest, RequestScope
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.model.cluster.owners import Service
from rebalancer.model.decisions.eviction import Answered, Eviction, Outcome, Replaced, Reserved
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import Blocked, Grid32, ReplayedCycle
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.modes import acting
from rebalancer.policy.pools import NodePools
from rebalancer.policy.triggers import periodic
from rebalancer.replay.comparison.hot_minutes import hot_minutes
from rebalancer.replay.cycles.alerts import ReplayedAlerts
from rebalancer.replay.cycles.readings import CycleTimes
from rebalancer.replay.simulation.cluster import SimulatedCluster
from rebalancer.replay.simulation.loads import top_owners

EVALUATION_SECONDS = 300.0
"""Between two passes of the evaluation loop."""
MAX_BLOCKED = 50
"""Hot nodes of one cycle whose reasons are kept."""


@dataclass(slots=True, kw_only=True)
class PolicyRun:
    """See the module."""

    cluster: SimulatedCluster
    context: CycleContext
    policy: RebalancerPolicy
    """Its parts in dry run act, too: a replay is one."""
    evaluate: Callable[[], object]
    """One pass of the evaluation loop."""
    forecasts: ForecastLoop | None
    """None where no decision is based on forecasts."""
    cycles: list[ReplayedCycle] = field(default_factory=list)
    _evaluated_at: float = 0.0

    def __post_init__(self) -> None:
        self.policy = acting(self.policy)

    def run(self, *, passed: Callable[[float], None], stopping: Callable[[], bool]) -> None:
        """Run to the end of the recording, or until `stopping`. `passed` is called with the time that was reached."""
        cluster, end = self.cluster, self.cluster.recording.end
        times = CycleTimes(cluster.recording)
        due = {each.name: times.first(each.interval) for each in periodic(self.policy)}
        forecast_at = cluster.now if self.forecasts is not None else end
        alerts = ReplayedAlerts(self.cluster.recording.alerts, self.policy)
        while not stopping():
            at = min(*due.values(), forecast_at, alerts.next_at, end)
            # a cycle with waits ends later than it began
            cluster.run_to(max(at, cluster.now))
            if cluster.now >= end:
                break
            now, request = cluster.now, None
            passed(now)
            if self.forecasts is not None and forecast_at <= now:
                ahead = self._forecast(self.forecasts)
                forecast_at = max(self.forecasts.next_at(), now + STEP_SECONDS)
                if ahead is not None:
                    self._cycle(ahead)
            late = {name for name, next_at in due.items() if next_at <= now}
            if late:
                request = request_of(late, every=len(late) == len(due))
                due |= {
                    each.name: times.after(now, each.interval) for each in periodic(self.policy) if each.name in late
                }
            if late or alerts.next_at <= now:
                request = alerts.asked(self.context, request, now)
            if request is not None:
                self._cycle(request)

    def evictions(self) -> list[Eviction]:
        """Those that happened, oldest first."""
        ledger = self.context.ledger
        return [] if ledger is None else list(ledger.evicted(self.cluster.recording.start))

    def _cycle(self, request: CycleRequest) -> None:
        at = self.cluster.now
        if at - self._evaluated_at >= EVALUATION_SECONDS:
            self.evaluate()
            self._evaluated_at = at
        try:
            report = run_cycle(self.context, self.policy, request=request, dry_run=False).report
        except RebalancerError as error:
            # the daemon goes on with its next cycle, too
            self.cycles.append(ReplayedCycle(at=at, trigger=str(request.trigger), hot=0, evicted=0, stopped=str(error)))
        else:
            self.cycles.append(summary_of(report, at))

    def _forecast(self, loop: ForecastLoop) -> CycleRequest | None:
        """The cycle that the forecast asks for. While relief is due it asks again without being renewed, as a renewal
        costs as much as many cycles."""
        if loop.last is not None and self.cluster.now < loop.renewal_at():
            return loop.last.request()
        try:
            return loop.look(self.context.cluster.snapshot()).request()
        except RebalancerError:
            return None  # the last one is used until it is too old


def request_of(strategies: set[str], *, every: bool) -> CycleRequest:
    """The request of the timer for these strategies."""
    scopes = {WHOLE_CLUSTER} if every else {RequestScope(strategy=name) for name in strategies}
    return CycleRequest(trigger=Trigger.PERIODIC, scopes=frozenset(scopes))


def summary_of(report: CycleReport, at: float) -> ReplayedCycle:
    """A cycle's report as a replay keeps it."""
    hot = [each.name for each in report.nodes if each.hot]
    blocked = [
        Blocked(node=each.name, code=str(each.code), message=each.message, pod=each.pod) for each in report.remaining
    ]
    named = {each.node for each in blocked}
    blocked += [
        Blocked(node=each.node, code=str(each.code), message=each.message)
        for each in report.refusals
        if not each.name and each.node in hot and each.node not in named
    ]
    return ReplayedCycle(
        at=at,
        trigger=str(report.trigger),
        hot=len(hot),
        evicted=sum(each.answered.outcome is Outcome.EVICTED for each in report.evictions),
        stopped=report.stopped.message if report.stopped is not None else "",
        blocked=tuple(blocked[:MAX_BLOCKED]),
    )


def high_millicores(recording: Recording, policy: RebalancerPolicy, high: Mapping[str, float]) -> Floats:
    """(nodes,) millicores over which a node is hot; NaN for a node of no pool."""
    names = NodePools.of(policy.pools, recording.nodes).names
    shares = np.array([high.get(name, np.nan) if name else np.nan for name in names])
    return np.asarray(shares * recording.nodes.cpu_capacity_millicores)


def measured(recording: Recording, high: Floats) -> tuple[Grid32, Grid32]:
    """(nodes, steps) share of the capacity and hot minutes as recorded; `high` as of `high_millicores`."""
    capacity = np.maximum(recording.nodes.cpu_capacity_millicores, 1.0)
    share = recording.usage[CPU].node / capacity[:, None]
    return share.astype(np.float32), hot_minutes(share, high / capacity)


def slowed(policy: RebalancerPolicy, *, cycle_seconds: float, forecast_seconds: float) -> RebalancerPolicy:
    """The policy with cycles and forecasts at most this often."""
    forecast = policy.forecast.model_copy(update={"interval": max(policy.forecast.interval, forecast_seconds)})
    strategies = tuple(
        each.model_copy(update={"interval": max(each.interval, cycle_seconds)}) for each in policy.strategies
    )
    return policy.model_copy(update={"forecast": forecast, "strategies": strategies})


def recorded_evictions(recording: Recording, policy: RebalancerPolicy) -> list[Eviction]:
    """The evictions by rebalancer that a recording has, oldest first."""
    pods, names = recording.pods, NodePools.of(policy.pools, recording.nodes).names
    tops, found = top_owners(recording.owners), []
    for new in np.flatnonzero(pods.replaced >= 0).tolist():
        old = int(pods.replaced[new])
        top = int(tops[pods.owner[old]])
        namespace, node = recording.namespaces[int(pods.namespace[old])], int(pods.node[old])
        service = Service(
            kind=recording.owners[top].kind if top >= 0 else "Pod",
            namespace=namespace,
            name=recording.owners[top].name if top >= 0 else pods.names[old],
        )
        at, ready = float(pods.created[new]), float(pods.ready[new])
        found.append(
            Eviction(
                namespace=namespace,
                pod=pods.names[old],
                uid=pods.uids[old],
                node=recording.nodes.names[node] if node >= 0 else "",
                pool=names[node] if node >= 0 else "",
                service=service,
                strategy="",
                reason="as recorded",
                reserved=Reserved(planned_at=at),
                answered=Answered(outcome=Outcome.EVICTED, answered_at=at),
                replaced=Replaced(
                    replaced_at=ready if np.isfinite(ready) else None,
                    replacement_pod=pods.names[new],
                    replacement_uid=pods.uids[new],
                    replacement_node=recording.nodes.names[int(pods.node[new])] if pods.node[new] >= 0 else "",
                ),
            )
        )
    return sorted(found, key=lambda each: each.at)
