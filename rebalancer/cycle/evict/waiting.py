"""Waiting in a cycle: for replacements or a time that bar a planned move, up to the policy's patience.

The cycle goes on as soon as one of them is Ready, or the time has come. A dry run doesn't wait: it takes them for
Ready.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from rebalancer.constraints.moves.in_flight import typical_start_up
from rebalancer.cycle.observe.ledger_state import landed_since
from rebalancer.cycle.plan.planning import PlanningSession
from rebalancer.model.decisions.eviction import DID_NOT_HAPPEN, Eviction
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.errors import RebalancerError
from rebalancer.planner import Planner

POLL_SECONDS, MANY_NODES = 1.0, 200
"""Between two looks at the cluster, for so many nodes; longer for more, since each look may list their pods."""
MAX_POLL_SECONDS = 5.0
MIN_PAUSE_SECONDS = 0.2
READY = "replacements Ready"
"""Label of the progress: evictions of the cycle whose replacements are Ready, of all."""


class Waiting:
    """The waits of one cycle."""

    def __init__(self, session: PlanningSession, report: CycleReport, planner: Planner) -> None:
        self._session, self._report = session, report
        self.planner = planner
        """May be replaced by one that goes on with what it has begun."""
        self._open = list(planner.admission.open_evictions)
        """Evictions of earlier cycles in flight."""
        self._landed: set[str] = set()
        """UIDs of this cycle's evicted pods whose replacements are Ready."""
        self._patience = session.patience
        """Seconds left."""
        self._expected = session.observation.now
        """Dry run: when the replacements so far are usually Ready (seconds since the epoch); NaN = not known."""

    def next_move(self) -> Eviction | None:
        """The next move after a wait, be it in vain, or None where nothing waits."""
        while self.planner.waits:
            if self._report.dry_run:
                self._resume(self._in_flight(), self._open)
            elif not self._wait():
                self.planner.give_up()
                return self.planner.next_move()
            if (move := self.planner.next_move()) is not None:
                return move
        return None

    def date(self, move: Eviction) -> None:
        """Write into a planned move that waits when it is expected to be possible."""
        if self._report.dry_run and move.waits_for and math.isfinite(self._expected):
            not_before = max(move.reserved.not_before or 0.0, self._expected)
            move.reserved = replace(move.reserved, not_before=not_before)

    def _in_flight(self) -> list[Eviction]:
        return [
            each
            for each in self._report.evictions
            if each.uid not in self._landed and each.answered.outcome not in DID_NOT_HAPPEN
        ]

    def _resume(self, landed: list[Eviction], earlier: list[Eviction]) -> None:
        self._landed |= {each.uid for each in landed}
        if self._report.dry_run:
            self._expected += self._usual_seconds(landed)
            self._expected = max(self._expected, self.planner.waits_until or 0.0)
        self._open = [each for each in self._open if each not in earlier]
        self.planner.admission.landed_earlier(earlier)
        context = self._session.context
        if self._report.dry_run or context.ledger is None:
            now = self.planner.waits_until or 0.0
        else:
            now = context.ledger.now()
        self.planner.resume(landed, now=now, counts=self._report.dry_run)

    def _usual_seconds(self, moves: Sequence[Eviction]) -> float:
        """Usual time until the last of their replacements is Ready, from the services' measured start-up times; NaN
        where one has none."""
        ledger = self._session.context.ledger
        grace: dict[str, float] = {}
        for each in moves:
            grace[str(each.service)] = max(each.reserved.grace_seconds, grace.get(str(each.service), 0.0))
        usual = [
            seconds + typical_start_up(ledger.start_ups(service) if ledger is not None else (), otherwise=math.nan)
            for service, seconds in grace.items()
        ]
        return math.nan if any(map(math.isnan, usual)) else max(usual, default=0.0)

    def _poll_seconds(self) -> float:
        nodes = len(self._session.observation.snapshot.nodes)
        return min(max(POLL_SECONDS * nodes / MANY_NODES, POLL_SECONDS), MAX_POLL_SECONDS)

    def _wait(self) -> bool:
        """Wait until a replacement is Ready; False where the patience ends before, or the process stops."""
        context, policy = self._session.context, self._session.policy
        assert context.ledger is not None
        with self._session.limit.stopped():
            while self._patience > 0 and not context.stopping():
                if context.lease is None or not context.lease.holds():
                    return False
                mine, earlier = self._in_flight(), self._open
                context.progress.step(READY, len(self._landed), len(self._landed) + len(mine))
                try:
                    if context.surges is not None:
                        context.surges.turn()
                    uids = landed_since(context.ledger, policy.safety, context.cluster)
                except RebalancerError:
                    uids = {}  # read again after the pause: what was evicted must be reported whatever fails here
                landed = [each for each in mine if each.uid in uids]
                done = [each for each in earlier if each.uid in uids]
                until = self.planner.waits_until
                if landed or done or (until is not None and context.ledger.now() >= until):
                    context.progress.step(READY, len(self._landed), len(self._landed))  # ends the bar
                    self._resume(landed, done)
                    return True
                pause = min(self._poll_seconds(), self._patience)
                if until is not None:
                    pause = min(pause, max(until - context.ledger.now(), MIN_PAUSE_SECONDS))
                context.clock.sleep(pause)
                self._patience -= pause
        return False
