"""Terms of leadership: each begins as that of a new process, but for the cache, which is kept.

A replica that lost its lease stands by and may lead again. Meanwhile another one may have led: what this one has in
memory of decisions, forecasts and assessments may be wrong. All of it is built again; the ledger's state is read at the
start of every cycle, and evictions without an outcome are reconciled there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rebalancer.bootstrap.daemon import DaemonResources
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.daemon.triggers import TriggerQueue
from rebalancer.model.decisions.plan import Trigger


class Terms:
    """The term that cycles run in. Used by the worker's thread."""

    def __init__(self, *, resources: DaemonResources, queue: TriggerQueue, renew: Callable[[], None]) -> None:
        """`renew` builds the active policy's adapters again. Raises RebalancerError where a file can't be used."""
        self._resources = resources
        self._queue = queue
        self._renew = renew
        self._term: int | None = None

    def begin(self) -> None:
        """Before each cycle: begin the term of leadership, if it is a new one. Raises RebalancerError."""
        term = self._resources.leadership.term
        if term is None or term == self._term:
            return
        if self._term is not None:
            self._renew()
        self._term = term
        self._queue.put(CycleRequest(trigger=Trigger.PERIODIC))

    @contextmanager
    def leading(self) -> Iterator[bool]:
        """Whether a cycle may run in the block: in the term that was begun, from a cache that is complete."""
        with self._resources.leadership.work() as held:
            yield held and self._resources.leadership.term == self._term and self._resources.cluster.synced()
