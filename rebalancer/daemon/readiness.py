"""Liveness and readiness of the daemon."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rebalancer.bootstrap.daemon import DaemonResources
from rebalancer.bootstrap.wiring.active import Active
from rebalancer.daemon.reload import PolicyFile
from rebalancer.daemon.supervisor import Heartbeat
from rebalancer.web.app import ReadyCheck

DEAD_AFTER_SECONDS = 3600.0
"""The worker beats at every move. Slow answers of the API server or Prometheus are no reason to end the process: the
supervisor ends it when a thread dies."""


@dataclass(slots=True, kw_only=True)
class Readiness:
    """Checks of the daemon, for any thread."""

    active: Callable[[], Active]
    resources: DaemonResources
    file: PolicyFile
    heartbeat: Heartbeat
    _cycle_due_since: float = field(default_factory=time.monotonic)
    """End of the last cycle, or beginning of leadership (monotonic clock)."""

    def cycle_done(self) -> None:
        """A cycle has ended."""
        self._cycle_due_since = time.monotonic()

    def alive(self) -> bool:
        """Whether the worker moves; that of a follower does too."""
        return time.monotonic() - self.heartbeat.at < DEAD_AFTER_SECONDS

    def checks(self) -> list[ReadyCheck]:
        """The daemon is ready when all are ok."""
        cluster, leadership = self.resources.cluster, self.resources.leadership
        ages = cluster.ages()
        oldest = max(ages, key=lambda kind: ages[kind], default="")
        database = self.resources.database_problem()
        updated = cluster.problem() or f"{oldest} last updated {ages.get(oldest, 0.0):.0f}s ago"
        # a follower is ready: it accepts alerts
        leader = "leader" if leadership.holds() else leadership.waiting_for
        return [
            ReadyCheck("cache", cluster.synced(), updated),
            ReadyCheck("database", not database, database),
            ReadyCheck("lease", not leadership.prevented, leader),
            self._cycles_check(),
            *self._parts(),
            ReadyCheck("policy", True, self.file.reloads.error or "active"),
            ReadyCheck("stopping", not self.heartbeat.stopping.is_set(), ""),
        ]

    def overdue(self) -> str:
        """Why cycles are late, on the leader; empty where they are not, and on a follower."""
        check = self._cycles_check()
        return "" if check.ok else check.sentence

    def _parts(self) -> list[ReadyCheck]:
        """Parts that are skipped or restarted, a line each. The rest goes on, so the daemon is ready. The text of an
        error is left out, for probes need no credentials."""
        failed = [each.brief for each in self.resources.parts.current()]
        return [ReadyCheck("parts", True, sentence) for sentence in failed or ["all work"]]

    def _cycles_check(self) -> ReadyCheck:
        """Whether cycles come when they are due, on the leader."""
        if not self.resources.leadership.holds():
            self._cycle_due_since = time.monotonic()
            return ReadyCheck("cycles", True, "none on a follower")
        policy, ago = self.active().policy, time.monotonic() - self._cycle_due_since
        if math.isinf(policy.cycle_seconds):
            return ReadyCheck("cycles", True, "none is periodic")
        said = f"the last one ended {ago:.0f}s ago, one is due every {policy.cycle_seconds:.0f}s"
        return ReadyCheck("cycles", ago <= policy.overdue_seconds, said)
