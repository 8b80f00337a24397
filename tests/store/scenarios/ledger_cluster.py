"""One cluster's side of a ledger, as its daemon uses it."""

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import Denied
from rebalancer.store import SqlLedger, SqlRecords
from tests.builders import set_fields
from tests.store.builders import CLUSTER, NOW, SteppingClock, build_eviction, build_report

OTHER = "green"


def evict(records, report, eviction, outcome=Outcome.EVICTED, detail="", *, clock=None, call_seconds=2.0):
    """Plan, "call" and write the outcome, as the cycle does; with a clock the call takes its time."""
    set_fields(eviction, record=records.planned(report, eviction))
    if clock is not None:
        clock.sleep(call_seconds)
    set_fields(eviction, outcome=outcome, detail=detail)
    records.outcome(eviction)
    return eviction


def a_cycle(records, cycle="c1", *, at=NOW, evictions=(), **fields):
    """Begun, carried out and finished; each eviction gets the outcome that it has."""
    report = build_report(cycle=cycle, started_at=at, **fields)
    records.begin(report)
    for eviction in evictions:
        outcome = eviction.answered.outcome
        set_fields(eviction, outcome=Outcome.PLANNED)
        evict(records, report, eviction, outcome)
    report.evictions += list(evictions)
    records.finish(report)
    return report


class Cluster:
    """One cluster's side of the ledger, with a cycle that was begun."""

    def __init__(self, engine, clock, name=CLUSTER):
        self.name = name
        self.ledger = SqlLedger(engine=engine, cluster=name, clock=clock)
        self.records = SqlRecords(engine=engine, cluster=name, clock=clock or SteppingClock())
        self.report = build_report(cycle=f"cycle-of-{name}")
        self.records.begin(self.report)

    def reserve(self, *checks, term=None, **fields):
        eviction = build_eviction(cluster=self.name, **fields)
        answer = self.ledger.reserve(self.report, eviction, checks=checks, term=term)
        if isinstance(answer, Denied):
            return answer
        set_fields(eviction, record=answer)
        return eviction

    def answer(self, eviction, outcome):
        set_fields(eviction, outcome=outcome)
        self.ledger.outcome(eviction)
        return eviction
