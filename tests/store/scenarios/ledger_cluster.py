"""One cluster's side of a ledger, as its daemon uses it."""

from rebalancer.model.decisions.limits import Denied
from rebalancer.store import SqlLedger, SqlRecords
from tests.store.builders import CLUSTER, SteppingClock, build_eviction, build_report

OTHER = "green"


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
        eviction.record = answer
        return eviction

    def answer(self, eviction, outcome):
        eviction.outcome = outcome
        self.ledger.outcome(eviction)
        return eviction
