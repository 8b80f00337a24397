"""The timer: every strategy looks at each of its pools as often as the policy says.

Jobs live in memory: they are made anew from the policy, and only the leader acts on them. APScheduler drops a job that
is a second late by default; a late look is better than none, so here it is never dropped, only merged.
"""

from apscheduler.schedulers.background import BackgroundScheduler

from rebalancer.cycle.request import CycleRequest, RequestScope
from rebalancer.daemon.queue import TriggerQueue
from rebalancer.model.plan import Trigger
from rebalancer.policy import RebalancerPolicy

JITTER_SHARE = 0.1


class Timer:
    """Puts a request into the queue for each strategy and pool, again and again."""

    def __init__(self, queue: TriggerQueue) -> None:
        self._queue = queue
        self._scheduler = BackgroundScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )

    def start(self, policy: RebalancerPolicy) -> None:
        """Begin, with a look at everything at once."""
        self.use(policy)
        self._scheduler.start()
        self._queue.put(CycleRequest(trigger=Trigger.PERIODIC))

    def use(self, policy: RebalancerPolicy) -> None:
        """Go by another policy from now on."""
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
        """No more requests."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
