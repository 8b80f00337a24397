"""What the daemon notifies of: evictions, proposals, assessments that found no effect, circuit breakers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.dashboard.limits import open_breakers_now
from rebalancer.model.decisions.approval_links import ApprovalLinks
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import Ledger
from rebalancer.model.errors import RebalancerError
from rebalancer.model.records.effect import Assessment, EffectRecords
from rebalancer.notifications import messages
from rebalancer.notifications.outbox import Outbox

LOG = structlog.get_logger("rebalancer")

BREAKERS_EVERY_SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class Notifier:
    """Puts notifications into the outbox, on the leader only. Without receivers it reads nothing."""

    outbox: Outbox
    active: Callable[[], Active]
    ledger: Ledger
    effect: EffectRecords
    links: ApprovalLinks | None = None
    dry_run: bool = False
    """Nothing is notified of."""
    _breakers: dict[str, str] = field(default_factory=dict)
    _looked_at: float = float("-inf")

    @property
    def _wanted(self) -> bool:
        return not self.dry_run and bool(self.active().policy.notifications.receivers)

    def cycle_done(self, report: CycleReport) -> None:
        """Notify of the evictions of a cycle, and of what it proposes."""
        if self._wanted:
            self.outbox.put([*messages.evictions(report), *messages.proposals(report, self.links)])

    def assessed(self, assessments: Sequence[Assessment]) -> None:
        """Notify of nodes that their evictions did not cool."""
        if self._wanted:
            self.outbox.put(messages.not_effective(self.active().policy.cluster, assessments))

    def look(self, monotonic: float) -> None:
        """Notify of circuit breakers that opened or closed, once a minute. An unreachable database is logged."""
        if not self._wanted or monotonic - self._looked_at < BREAKERS_EVERY_SECONDS:
            return
        self._looked_at = monotonic
        try:
            active = self.active()
            found = open_breakers_now(active.policy, active.context.cluster.snapshot, self.ledger, self.effect)
            now = self.ledger.now()
        except RebalancerError as error:
            LOG.warning("circuit breakers not read", error=str(error))
            return
        changes = messages.circuit_breakers(self.active().policy.cluster, self._breakers, found, now=now)
        self._breakers = dict(found)
        self.outbox.put(changes)

    def forget(self) -> None:
        """This replica is not the leader."""
        self._breakers.clear()
