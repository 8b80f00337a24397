"""What the daemon notifies of: evictions of a cycle, assessments that found no effect, circuit breakers."""

from collections.abc import Callable, Sequence

import structlog

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.dashboard.limits import open_breakers_now
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import Ledger
from rebalancer.model.errors import RebalancerError
from rebalancer.model.records.effect import Assessment, EffectRecords
from rebalancer.notifications import messages
from rebalancer.notifications.outbox import Outbox

LOG = structlog.get_logger("rebalancer")

BREAKERS_EVERY_SECONDS = 60.0


class Notifier:
    """Puts notifications into the outbox, on the leader only. Without receivers it reads nothing."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        active: Callable[[], Active],
        ledger: Ledger,
        effect: EffectRecords,
        dry_run: bool = False,
    ) -> None:
        """With `dry_run` nothing is notified of."""
        self._outbox = outbox
        self._active = active
        self._ledger = ledger
        self._effect = effect
        self._dry_run = dry_run
        self._breakers: dict[str, str] = {}
        self._looked_at = float("-inf")

    @property
    def _wanted(self) -> bool:
        return not self._dry_run and bool(self._active().policy.notifications.receivers)

    def cycle_done(self, report: CycleReport) -> None:
        """Notify of the evictions of a cycle."""
        if self._wanted:
            self._outbox.put(messages.evictions(report))

    def assessed(self, assessments: Sequence[Assessment]) -> None:
        """Notify of nodes that their evictions did not cool."""
        if self._wanted:
            self._outbox.put(messages.not_effective(self._active().policy.cluster, assessments))

    def look(self, monotonic: float) -> None:
        """Notify of circuit breakers that opened or closed, once a minute. An unreachable database is logged."""
        if not self._wanted or monotonic - self._looked_at < BREAKERS_EVERY_SECONDS:
            return
        self._looked_at = monotonic
        try:
            found = open_breakers_now(self._active(), self._ledger, self._effect)
            now = self._ledger.now()
        except RebalancerError as error:
            LOG.warning("circuit breakers not read", error=str(error))
            return
        changes = messages.circuit_breakers(self._active().policy.cluster, self._breakers, found, now=now)
        self._breakers = dict(found)
        self._outbox.put(changes)

    def forget(self) -> None:
        """This replica is not the leader."""
        self._breakers.clear()
