"""Calls of a plan that go together while faults happen: answers of every kind, a ledger that is away, a lost lease.

Unlike in the soak, calls run in threads and in real time, so two runs of a seed differ in what overlaps.
"""

import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rebalancer.cycle.evict.calls import MAX_CALLS
from rebalancer.cycle.run import begin_report, execute_cycle
from rebalancer.lab import Scenario
from rebalancer.model.decisions.eviction import Answer, Eviction, Outcome
from rebalancer.model.decisions.ports import Evictor
from rebalancer.model.errors import ConnectError
from rebalancer.model.reason import Reason, Refusal
from rebalancer.store import SqlLedger
from tests.stories.scenarios.stage import TURN_SECONDS, a_machine, a_scenario, a_stage, burner, service

HOT_NODES, CYCLES = 24, 3
MOST_IN_FLIGHT, MOST_AN_HOUR = 14, 18
LIMITS = {
    "perCycle": 100,
    "cluster": {"inFlight": MOST_IN_FLIGHT, "evictions": [{"max": MOST_AN_HOUR, "per": "1h"}]},
    "service": {"inFlight": 10},
    "replacements": {"perNode": 10},
}
ANSWERS: tuple[tuple[Outcome, Reason, float | None], ...] = (
    (Outcome.REFUSED, Reason.SERVER_BUDGET, None),
    (Outcome.REFUSED, Reason.SERVER_WEBHOOK, None),
    (Outcome.REFUSED, Reason.SERVER_THROTTLED, 5.0),
    (Outcome.FAILED, Reason.SERVER_ERROR, None),
    (Outcome.UNKNOWN, Reason.SERVER_UNKNOWN, None),
)


@dataclass
class Faults:
    """What goes wrong, drawn by the seed; in front of the Eviction API, the ledger and the lease."""

    dice: random.Random
    evictor: Evictor
    ledger: SqlLedger
    lease: Any
    lock: threading.Lock = field(default_factory=threading.Lock)
    running: int = 0
    away: str = ""
    """The transaction that fails from now on: `reserve`, `outcome` or none."""
    lost: bool = False
    """Whether the lease is."""
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def evict(self, eviction: Eviction, *, server_dry_run: bool = False) -> Answer:
        """One call, which may get any answer."""
        counted = {each.reserved.record for each in self.ledger.open_evictions()}
        with self.lock:
            self.running += 1
            self.counts["most calls together"] = max(self.counts["most calls together"], self.running)
            if eviction.reserved.record not in counted:
                self.wrong.append(f"{eviction.pod} was called for without a reservation")
            if len(counted) > MOST_IN_FLIGHT:
                self.wrong.append(f"{len(counted)} evictions in flight, allowed are {MOST_IN_FLIGHT}")
            draw, kind, pause = self.dice.random(), self.dice.choice(ANSWERS), self.dice.uniform(0.0, 0.02)
            self.away = self.away or ("outcome" if draw > 0.98 else "reserve" if draw > 0.96 else "")
            self.lost = self.lost or 0.94 < draw <= 0.96
        try:
            threading.Event().wait(pause)
            outcome, reason, seconds = kind
            if draw > 0.15 or outcome is Outcome.UNKNOWN:
                answer = self.evictor.evict(eviction, server_dry_run=server_dry_run)
                if draw > 0.15:
                    return answer
            with self.lock:
                self.counts[str(reason)] += 1
            return Answer(outcome=outcome, refusal=Refusal.of(reason), retry_after_seconds=seconds)
        finally:
            with self.lock:
                self.running -= 1

    @property
    def term(self) -> int | None:
        return self.lease.term  # type: ignore[no-any-return]

    def holds(self, margin_seconds: float = 0.0) -> bool:
        return not self.lost and self.lease.holds(margin_seconds)

    def fails(self, name: str) -> None:
        """Raise what a ledger raises that is away."""
        if self.away == name:
            self.counts[f"ledger away: {name}"] += 1
            raise ConnectError("the database is away")


class FailingLedger(SqlLedger):
    """A ledger that is away while `faults` say so."""

    faults: Faults

    def reserve_all(self, *args: Any, **named: Any) -> Any:
        self.faults.fails("reserve")
        return super().reserve_all(*args, **named)

    def outcomes(self, evictions: Sequence[Eviction]) -> None:
        self.faults.fails("outcome")
        super().outcomes(evictions)


def calls_together(folder: Path, *, seed: int) -> Faults:
    """A few cycles of one seed; `wrong` is empty where everything held."""
    with a_stage(_cluster(), folder, limits=LIMITS) as stage:
        ledger = stage.ledger
        assert isinstance(ledger, SqlLedger)
        ledger.__class__ = FailingLedger
        faults = Faults(dice=random.Random(seed), evictor=stage.world.evictor, ledger=ledger, lease=stage.world.lease)
        ledger.faults = faults  # type: ignore[attr-defined]
        world = replace(stage.world, evictor=faults, lease=faults, max_calls=MAX_CALLS)
        for _ in range(CYCLES):
            stage.lab.clock.sleep(TURN_SECONDS)
            report = begin_report(world, stage.policy, dry_run=False)
            try:
                execute_cycle(world, stage.policy, report)
            except ConnectError:
                faults.counts["cycles that ended in an error"] += 1
            if faults.running:
                faults.wrong.append(f"{faults.running} calls under way after the cycle")
            faults.counts["calls"] += len(report.evictions)
            faults.away, faults.lost = "", False  # the database is back, and another leader follows
        stage.lab.clock.sleep(TURN_SECONDS)
        ledger.reconcile_outcomes(stage.world.cluster)
        happened = sorted(each.uid for each in stage.log.evicted)
        counted = Counter(each.uid for each in (*ledger.open_evictions(), *ledger.replaced(0.0)))
        faults.wrong += [f"{uid} was evicted and counts {counted[uid]} times" for uid in happened if counted[uid] != 1]
        if len(happened) > MOST_AN_HOUR:
            faults.wrong.append(f"{len(happened)} evictions in an hour, allowed are {MOST_AN_HOUR}")
        faults.wrong += [f"{each.pod} has no outcome" for each in ledger.unreconciled()]
        faults.counts["evictions"] = len(happened)
    return faults


def _cluster() -> Scenario:
    names = [f"hot-{at:02}" for at in range(HOT_NODES)]
    return a_scenario(
        [*map(a_machine, names), *(a_machine(f"cool-{at:02}") for at in range(2 * HOT_NODES))],
        *(burner(f"burner-{name}", name, 7.5) for name in names),
        *(service(f"s-{name}", {name: 2}, cpu=2.5) for name in names),
    )
