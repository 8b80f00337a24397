"""The counts of a cluster's evictions over some time."""

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.records.cycles import EvictionTotals
from tests.store.builders import NOW, build_eviction
from tests.store.scenarios.ledger_cluster import a_cycle


def test_evictions_are_counted_by_what_became_of_them(blue, green, clock, records):
    blue.ledger.landed(blue.answer(blue.reserve(pod="old"), Outcome.EVICTED).reserved.record, at=NOW)
    clock.sleep(100)
    landed, late, closed = (
        blue.answer(blue.reserve(pod=pod), Outcome.EVICTED).reserved.record for pod in ("landed", "late", "closed")
    )
    blue.ledger.landed(landed, at=clock.now())
    blue.ledger.late(late)
    blue.ledger.close(closed, by="ada", reason="it is gone")
    clock.sleep(100)
    blue.answer(blue.reserve(pod="unknown"), Outcome.UNKNOWN)
    blue.reserve(pod="called")
    blue.answer(blue.reserve(pod="refused"), Outcome.REFUSED)
    green.reserve(pod="elsewhere")
    found = records.reading().eviction_totals(NOW + 50)
    assert found == EvictionTotals(happened=5, replaced=1, in_flight=3, late=1, oldest_at=NOW + 100)
    assert found.closed == 1


def test_a_pod_of_several_dry_runs_is_counted_once(records):
    for number in range(3):
        planned = [build_eviction(pod=pod, outcome=Outcome.PLANNED) for pod in ("web-1", "web-2")]
        a_cycle(records, f"c{number}", at=NOW + number, dry_run=True, evictions=planned)
    assert records.reading().eviction_totals(NOW - 1) == EvictionTotals(dry=2)


def test_without_evictions_all_counts_are_zero(records):
    assert records.reading().eviction_totals(NOW) == EvictionTotals()
