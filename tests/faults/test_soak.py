"""The soak in short, and its oracles. `make soak` runs it for hours, with 1,000 failovers."""

from pathlib import Path

import pytest

from rebalancer.store import upgrade
from tests.faults.fakes import Point
from tests.faults.oracles import Call, Row, disagreements, fullest, most_out_at_once, out_of_term, rows_of
from tests.faults.scenarios.fleet import a_fleet
from tests.faults.scenarios.soak import LONG_SECONDS, all_faults, failovers, interrupt, settled, soak
from tests.real.servers.postgres import PostgresServer


def a_call(uid: str, *, at: float = 0.0, term: int = 1, node: str = "n") -> Call:
    return Call(cluster="c", at=at, uid=uid, service="s", node=node, term=term)


def a_row(uid: str, outcome: str = "evicted", *, at: float = 0.0) -> Row:
    return Row(cluster="c", uid=uid, outcome=outcome, reserved=at, term=1)


@pytest.mark.real
def test_soak_ledger_and_clusters_agree_after_ten_minutes_of_faults(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.create_database("soak_short")
    upgrade(url)
    with a_fleet(tmp_path, url, clusters=2, seed=10, through_proxy=True) as fleet:
        verdict = soak(fleet, minutes=10, seed=10)
    postgres.drop_database("soak_short")
    assert verdict.wrong == ()
    assert verdict.counts["faults"] == 20
    # one before, four at the end: nothing makes a minute of faults longer
    assert verdict.counts["simulated minutes"] == 1 + 10 + 4
    assert verdict.counts["evictions"] >= 5
    assert verdict.counts["calls without a certain reservation"] == 0
    # there was something to reconcile
    assert verdict.counts["interrupted: answered"] >= 1


def test_failovers_never_two_evictors_but_for_the_call_under_way(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rebalancer.db'}"
    upgrade(url)
    with a_fleet(tmp_path, url, clusters=1, seed=3, quick=True) as fleet:
        verdict = failovers(fleet, number=20, seed=3)
    assert verdict.wrong == ()
    assert verdict.counts["failovers"] == 20
    assert verdict.counts.get("failovers without an eviction", 0) <= 5
    assert verdict.counts["evictions"] >= 20


@pytest.mark.real
def test_an_answer_after_the_refund_is_counted_although_the_database_is_away(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.create_database("soak_away")
    upgrade(url)
    with a_fleet(tmp_path, url, clusters=1, seed=3, quick=True, through_proxy=True) as fleet:
        (cluster,), proxy = fleet.clusters, fleet.proxy
        assert proxy is not None
        fleet.advance(60.0)
        stopped = cluster.leader()
        assert stopped is not None
        interrupt(cluster, "stopped for long", Point.UNDER_WAY)
        while not stopped.stopped:
            fleet.advance(5.0)
        (uid,), term = cluster.late, stopped.term
        # the next leader refunds it, and may not evict the same pod
        cluster.lab.faults.set(denied=(("create", "pods/eviction"),))
        fleet.advance(LONG_SECONDS - 20.0)
        assert {each.outcome for each in rows_of(url) if each.uid == uid and each.term == term} == {"failed"}
        cluster.lab.faults.clear()
        proxy.cut()
        fleet.advance(30.0)
        assert [each.uid for each in stopped.ledger.unwritten] == [uid]
        assert not stopped.leads()
        proxy.mend()
        calls, wrong = settled(fleet)
        assert uid in {each.uid for each in calls}
        assert wrong == []
        assert not fleet.lost()
        assert [each.outcome for each in rows_of(url) if each.uid == uid].count("evicted") == 1
    postgres.drop_database("soak_away")


def test_soak_has_at_least_40_different_faults() -> None:
    assert len(all_faults()) >= 40


def test_soak_oracle_finds_evictions_that_are_lost_or_counted_twice_or_did_not_happen() -> None:
    calls = [a_call("a"), a_call("b")]
    assert disagreements(calls, [a_row("a"), a_row("b"), a_row("c", "failed")]) == []
    assert disagreements(calls, [a_row("a"), a_row("b", "failed")]) == ["('c', 'b') was evicted, 0 rows count it"]
    assert disagreements(calls, [a_row("a"), a_row("b"), a_row("b")]) == ["('c', 'b') was evicted, 2 rows count it"]
    assert disagreements(calls, [a_row("a"), a_row("b"), a_row("b")], late={("c", "b")}) == []
    lost = {("c", "b")}
    assert disagreements(calls, [a_row("a"), a_row("b", "failed")], late=lost, lost=lost) == []
    # without a call that was held, a pod that is gone is reconciled
    assert disagreements(calls, [a_row("a"), a_row("b", "failed")], lost=lost) != []
    assert disagreements(calls[:1], [a_row("a"), a_row("b")]) == ["('c', 'b') is counted and was not evicted"]
    assert disagreements(calls, [a_row("a"), a_row("b"), a_row("d", "unknown")]) == ["c/d: unknown at the end"]


def test_soak_oracle_counts_windows_terms_and_pods_that_are_out() -> None:
    calls = [a_call("a", at=0.0), a_call("b", at=299.0, term=2), a_call("d", at=300.0, term=1)]
    assert fullest(calls, "node", 300.0, set(), []) == calls[:2]
    assert fullest(calls, "node", 301.0, set(), []) == calls
    # on its way since its reservation: it counts there, and not at all once it can have been refunded
    assert fullest(calls, "node", 300.0, {("c", "d")}, [a_row("d", at=250.0)]) == [calls[0], calls[2], calls[1]]
    assert fullest(calls, "node", 301.0, {("c", "d")}, [a_row("d", at=0.0)]) == calls[:2]
    assert out_of_term(calls) == [calls[2]]
    assert most_out_at_once([(0.0, "s", 1), (20.0, "s", -1), (20.0, "s", 1), (21.0, "t", 1)]) == 1
    assert most_out_at_once([(0.0, "s", 1), (10.0, "s", 1)]) == 2
