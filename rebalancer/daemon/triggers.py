"""Triggers of cycles: the queue of requests from the timer, alerts, forecasts and users, and the timer itself.

One cycle at a time runs in a cluster. Requests that arrive meanwhile are merged into the next one.
"""

import threading
from collections.abc import Callable, Sequence

from apscheduler.schedulers.background import BackgroundScheduler

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.model.decisions.plan import Trigger
from rebalancer.model.errors import ConfigError
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.triggers import periodic

JITTER_SHARE = 0.1
CLOCK_SET_SECONDS = 2.0
"""A greater change of the clock, besides the time that passed, means that it was set."""


LEFTOVERS_SECONDS = 60.0
"""Where no strategy is periodic: how often the timer looks for what only another cycle ends."""


class TriggerQueue:
    """Holds at most one request: all requests since the last `take`, merged."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: CycleRequest | None = None
        self._woken = False

    def put(self, request: CycleRequest) -> None:
        """Request a cycle."""
        with self._changed:
            self._pending = request if self._pending is None else self._pending.merged(request)
            self._changed.notify_all()

    def wake(self) -> None:
        """End a waiting `take` without a request: an alert has arrived, or the daemon stops."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def take(self, timeout_seconds: float, *, monotonic: Callable[[], float]) -> CycleRequest | None:
        """The next request; None when woken or after the timeout."""
        end = monotonic() + timeout_seconds
        with self._changed:
            while self._pending is None and not self._woken and (left := end - monotonic()) > 0:
                self._changed.wait(left)
            request, self._pending, self._woken = self._pending, None, False
            return request


class Timer:
    """Periodic requests: a job for each periodic strategy and pool, at the strategy's interval.

    Jobs live in memory, created from the policy; only the leader acts on their requests. By default APScheduler drops a
    job that is a second late; here late jobs are merged instead.
    """

    def __init__(self, queue: TriggerQueue, *, leftovers: Callable[[], bool] = lambda: False) -> None:
        """`leftovers`: whether earlier cycles have left something that only another one ends, such as a soft taint."""
        self._queue, self._leftovers = queue, leftovers
        self._offset: float | None = None
        """Of the clock from the monotonic one, in seconds."""
        self._scheduler = BackgroundScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )

    def start(self, policy: RebalancerPolicy) -> None:
        """Start, with a first request for the whole cluster."""
        self.use(policy)
        self._scheduler.start()
        self._queue.put(CycleRequest(trigger=Trigger.PERIODIC))

    def use(self, policy: RebalancerPolicy) -> None:
        """Replace the jobs by those of another policy."""
        self._scheduler.remove_all_jobs()
        if not periodic(policy):
            self._scheduler.add_job(self._end_leftovers, "interval", seconds=LEFTOVERS_SECONDS)
        for strategy in periodic(policy):
            for pool in strategy.pools or tuple(each.name for each in policy.pools):
                self._scheduler.add_job(
                    self._queue.put,
                    "interval",
                    args=(
                        CycleRequest(
                            trigger=Trigger.PERIODIC,
                            scopes=frozenset({RequestScope(strategy=strategy.name, pools=frozenset({pool}))}),
                        ),
                    ),
                    seconds=strategy.interval,
                    jitter=max(1, round(strategy.interval * JITTER_SHARE)),
                )

    def _end_leftovers(self) -> None:
        """A cycle of no strategy: none is periodic."""
        if self._leftovers():
            self._queue.put(CycleRequest(trigger=Trigger.PERIODIC))

    def follow_clock(self, policy: RebalancerPolicy, *, now: float, monotonic: float) -> None:
        """Restart the periods, with a request for the whole cluster, when the clock was set. Called regularly, with
        both clocks in seconds.

        APScheduler compares times of day: after a clock was set back by ten minutes no job would run for ten minutes.
        """
        offset, before = now - monotonic, self._offset
        self._offset = offset
        if before is not None and abs(offset - before) > CLOCK_SET_SECONDS:
            self.use(policy)
            self._queue.put(CycleRequest(trigger=Trigger.PERIODIC))

    def stop(self) -> None:
        """Stop all jobs."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)


def manual_request(active: Active, nodes: Sequence[str], strategy: str | None) -> CycleRequest:
    """A user's request for a cycle of these nodes, none for all. Raises ConfigError for an unknown node or strategy."""
    have = [each.name for each in active.policy.strategies]
    if strategy is not None and strategy not in have:
        raise ConfigError(f"strategy: expected one of {', '.join(have)}, got {strategy}")
    unknown = sorted(set(nodes) - active.context.cluster.snapshot().node_index.keys())
    if unknown:
        raise ConfigError(f"nodes: no node of this cluster is {', '.join(unknown)}")
    scope = RequestScope(strategy=strategy, nodes=frozenset(nodes))
    return CycleRequest(trigger=Trigger.MANUAL, scopes=frozenset({scope}))
