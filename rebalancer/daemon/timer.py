"""Periodic cycle requests: one job for each strategy and pool, at the strategy's interval.

Jobs live in memory, created from the policy; only the leader acts on their requests. By default APScheduler drops a job
that is a second late; here late jobs are merged instead.
"""

from apscheduler.schedulers.background import BackgroundScheduler

from rebalancer.cycle.request import CycleRequest, RequestScope
from rebalancer.daemon.queue import TriggerQueue
from rebalancer.model.plan import Trigger
from rebalancer.policy import RebalancerPolicy

JITTER_SHARE = 0.1


class Timer:
    """Puts periodic requests into the queue."""

    def __init__(self, queue: TriggerQueue) -> None:
        self._queue = queue
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
        for strategy in policy.strategies:
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

    def stop(self) -> None:
        """Stop all jobs."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
