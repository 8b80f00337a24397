"""One cluster's side of a ledger, as its daemon uses it."""

from rebalancer.model.limits import Denied
from rebalancer.store import SqlLedger, SqlRecords
from tests.store.builders import CLUSTER, SteppingClock, build_details, build_eviction, build_report, build_scopes

OTHER = "green"


class Cluster:
    """One cluster's side of the ledger, with a cycle that was begun."""

    def __init__(self, engine, clock, name=CLUSTER):
        self.name = name
        self.ledger = SqlLedger(engine=engine, cluster=name, clock=clock)
        self.records = SqlRecords(engine=engine, cluster=name, clock=clock or SteppingClock())
        self.report = build_report(cycle=f"cycle-of-{name}")
        self.records.begin(self.report)

    def reserve(self, *checks, pod="web-1", node="n1", service="web", term=None, scopes=None, **details):
        eviction = build_eviction(pod=pod, node=node, service=service)
        answer = self.ledger.reserve(
            self.report,
            eviction,
            scopes=scopes or build_scopes(cluster=self.name, node=node, service=service),
            checks=checks,
            term=term,
            details=build_details(service=service, **details),
        )
        if isinstance(answer, Denied):
            return answer
        eviction.record = answer
        return eviction

    def answer(self, eviction, outcome):
        eviction.outcome = outcome
        self.ledger.outcome(eviction)
        return eviction
