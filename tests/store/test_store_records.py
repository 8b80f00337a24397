"""What is written about a cycle comes back as it was."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from rebalancer import __version__
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.past import RequestedSample
from rebalancer.model.decisions.plan import Goal, PlanScore
from rebalancer.model.errors import ConnectError, UnsafeDataError
from rebalancer.model.reason import Reason, Refusal
from rebalancer.store import SqlRecords, open_records, status
from rebalancer.store.cycles.records import OTHERS_KEPT
from rebalancer.store.db.engine import read
from tests.builders import set_fields
from tests.store.builders import (
    CLUSTER,
    NOW,
    SteppingClock,
    a_forecast,
    build_eviction,
    build_finding,
    build_line,
    build_refusal,
    build_report,
)
from tests.store.readers import cycle_report, cycles, raw_connection
from tests.store.scenarios.ledger_cluster import evict
from tests.store.test_effect import an_assessment
from tests.store.test_outcomes import a_pool


def test_a_full_cycle_comes_back_as_it_was_written(records, clock):
    report = build_report(notes=["one node has no metrics"])
    records.begin(report)
    first = evict(records, report, build_eviction(pod="web-1"), clock=clock)
    second = build_eviction(pod="web-2")
    evict(records, report, second, Outcome.REFUSED, "refused by the API server: no room\x00", clock=clock)
    report.evictions += [first, second]
    report.nodes += [
        build_line(name="n2", before=None, planned=math.nan),
        build_line(cpu_after=0.66, hot=True, high=0.8),
    ]
    report.findings += [(build_finding(), "n1"), (build_finding(cpu_share=math.nan, resource="memory"), "n2")]
    report.refusals += [build_refusal(pod="web-9", detail="3 minutes"), build_refusal(node="n2", pod="")]
    report.stopped = Refusal.of(Reason.LEASE_LOST, "another holder")
    report.score = PlanScore(hot_node_minutes=37.5, price=1.25)
    report.finished_at = NOW + 30
    records.finish(report)

    back = cycle_report(records, "c1")

    assert back["cycle"] == {
        "id": "c1",
        "cluster": CLUSTER,
        "trigger": "manual",
        "dry_run": False,
        "started_at": NOW,
        "finished_at": NOW + 30,
        "version": __version__,
        "stopped_code": "LeaseLost",
        "stopped_message": "the cluster's lease is lost or near its end: another holder",
        "notes": ["one node has no metrics"],
        "nodes": 2,
        "hot_nodes": 1,
        "findings": 2,
        "evictions": 2,
        "refusals": 2,
        "hot_node_minutes": 37.5,
        "price": 1.25,
    }
    assert back["nodes"] == [
        {"cycle": "c1", "node": "n1", "pool": "general", "cpu_before": 0.91, "cpu_planned": 0.68}
        | {"cpu_after": 0.66, "hot": True, "high": 0.8},
        {"cycle": "c1", "node": "n2", "pool": "general", "cpu_before": None, "cpu_planned": None}
        | {"cpu_after": None, "hot": False, "high": None},
    ]
    assert [(each["node"], each["cpu_share"], each["high"], each["target"]) for each in back["findings"]] == [
        ("n1", 0.91, 0.8, 0.7),
        ("n2", None, 0.8, 0.7),
    ]
    assert back["findings"][0]["reason"] == "91% of CPU used, above 80%"
    assert [each["resource"] for each in back["findings"]] == ["cpu", "memory"]
    assert back["evictions"][0] == {
        "id": first.reserved.record,
        "cycle": "c1",
        "cluster": CLUSTER,
        "pool": "general",
        "node": "n1",
        "namespace": "shop",
        "pod": "web-1",
        "uid": "uid-web-1",
        "service": "shop/web",
        "service_kind": "Deployment",
        "strategy": "LowNodeUtilization",
        "cpu_millicores": 750.5,
        "target_nodes": [{"node": "n2", "probability": 0.75}, {"node": "n3", "probability": 0.25}],
        "reason": "relieves n1 of 0.09",
        "outcome": "evicted",
        "code": None,
        "detail": "",
        "dry_run": False,
        "planned_at": NOW,
        "answered_at": NOW + 2,
        "reconciled_at": None,
        "replaced_at": None,
        "lease_term": None,
        "service_identity": "shop/web",
        "level": "gold",
        "ready_before": 3,
        "desired_before": 3,
        "deadline_at": NOW + 600,
        "owner_uid": "uid-of-web",
        "target_node": "n2",
        "pull_bytes": 5e8,
        "replacement_pod": None,
        "replacement_uid": None,
        "replacement_node": None,
        "late": False,
        "target_pool": None,
        "grace_seconds": 30.0,
        "in_background": False,
        "closed_at": None,
        "closed_by": None,
        "closed_reason": None,
        "resource": None,
        "amounts": None,
    }
    assert (back["evictions"][1]["outcome"], back["evictions"][1]["detail"]) == (
        "refused",
        "refused by the API server: no room",
    )
    assert [(each["node"], each["code"], each["count"]) for each in back["refusals"]] == [
        ("n1", "TooYoung", 1),
        ("n2", "TooYoung", 1),
    ]
    assert cycles(records, 10) == [back["cycle"] | {"outcomes": {"evicted": 1, "refused": 1}}]


def test_of_what_is_no_hot_node_only_the_most_urgent_is_kept_and_the_rest_is_counted(records):
    many = OTHERS_KEPT + 7
    report = build_report(
        findings=[(build_finding(goal=Goal.REMOVE), f"n{number}") for number in range(many)]
        + [(build_finding(), "hot")],
        refusals=[
            *(build_refusal(node=f"n{number}", pod="web-1") for number in range(many)),
            *(build_refusal(node=f"n{number}", pod="", code=Reason.NODE_NOT_READY) for number in range(many)),
            build_refusal(node="hot", pod="web-2"),
        ],
    )
    records.begin(report)
    records.finish(report)
    back = cycle_report(records, report.id)
    assert back["cycle"]["findings"] == many + 1
    assert back["cycle"]["refusals"] == 2 * many + 1
    assert len(back["findings"]) == OTHERS_KEPT + 1
    assert back["findings"][-1]["node"] == "hot"
    counts = {each["node"]: each["count"] for each in back["refusals"]}
    assert sum(each["count"] for each in back["refusals"]) == 2 * many + 1
    assert counts["hot"] == 1
    # nodes that were not judged are kept one by one: discovery reads them
    assert sum(bool(each["node"]) for each in back["refusals"]) >= many + 1


def test_a_cycle_that_was_never_finished_shows_as_running(records):
    records.begin(build_report())
    (cycle,) = cycles(records, 10)
    assert (cycle["finished_at"], cycle["nodes"], cycle["outcomes"]) == (None, None, {})


def test_an_unknown_cycle_is_none(records):
    assert cycle_report(records, "unknown") is None


def test_finishing_again_replaces_the_older_report(records, clock):
    report = build_report(nodes=[build_line(hot=True)], refusals=[build_refusal()], findings=[(build_finding(), "n1")])
    records.begin(report)
    records.finish(report)
    report.nodes = [build_line(cpu_after=0.67)]
    clock.sleep(60)
    records.finish(report)
    back = cycle_report(records, "c1")
    assert [(each["cpu_after"], each["hot"]) for each in back["nodes"]] == [(0.67, False)]
    assert (len(back["findings"]), len(back["refusals"]), back["cycle"]["hot_nodes"]) == (1, 1, 0)
    assert back["cycle"]["finished_at"] == NOW + 60


def test_a_cycle_id_is_used_once(records):
    records.begin(build_report())
    with pytest.raises(IntegrityError):
        records.begin(build_report())


def test_an_outcome_needs_its_row(records):
    records.begin(build_report())
    eviction = build_eviction(outcome=Outcome.EVICTED)
    with pytest.raises(ValueError, match="planned row"):
        records.outcome(eviction)
    set_fields(eviction, record=4711)
    with pytest.raises(UnsafeDataError, match="eviction 4711 is not in the database"):
        records.outcome(eviction)


def test_finishing_a_cycle_that_was_not_begun_is_an_error(records):
    with pytest.raises(UnsafeDataError, match="cycle c1 is not in the database"):
        records.finish(build_report())


def test_refusals_are_kept_per_node_and_code_with_a_count_and_three_examples(records):
    report = build_report()
    report.refusals += [build_refusal(pod=f"web-{number}", detail=f"{number} s") for number in range(250)]
    report.refusals += [build_refusal(pod="db-0", code=Reason.LOCAL_VOLUME), build_refusal(node="n2", pod="x")]
    records.begin(report)
    records.finish(report)
    back = cycle_report(records, "c1")
    assert back["cycle"]["refusals"] == 252
    assert [(each["node"], each["code"], each["count"]) for each in back["refusals"]] == [
        ("n1", "TooYoung", 250),
        ("n1", "LocalVolume", 1),
        ("n2", "TooYoung", 1),
    ]
    assert back["refusals"][0]["examples"] == [
        {"namespace": "shop", "pod": f"web-{number}", "message": f"younger than the minimum age: {number} s"}
        for number in range(3)
    ]


def test_recent_moves_are_those_that_happened_or_may_have_within_the_window(records, clock):
    report = build_report()
    records.begin(report)
    called = partial(evict, records, report, clock=clock)
    called(build_eviction(pod="too-early"))
    # its call began before the window and was answered within it
    across = called(build_eviction(pod="across", node="n2"), call_seconds=40)
    since = NOW + 30
    called(build_eviction(pod="refused"), Outcome.REFUSED)
    called(build_eviction(pod="failed"), Outcome.FAILED)
    called(build_eviction(pod="unknown", node="n3", cpu=math.nan), Outcome.UNKNOWN)
    records.planned(report, build_eviction(pod="planned", node="n4", service="cart"))
    records.ledger().landed(across.reserved.record, at=NOW + 45.5)

    moves = records.recent_moves(since)

    assert [(move.node, move.at, str(move.service), move.replaced.replaced_at) for move in moves] == [
        ("n2", NOW + 42, "shop/web", NOW + 45.5),
        ("n3", NOW + 48, "shop/web", None),
        ("n4", NOW + 48, "shop/cart", None),
    ]
    assert [move.cpu_millicores for move in moves] == [750.5, pytest.approx(math.nan, nan_ok=True), 750.5]
    assert [move.node for move in records.recent_moves(NOW + 48)] == ["n3", "n4"]
    assert list(records.recent_moves(NOW + 48.001)) == []


def test_dry_runs_and_other_clusters_are_no_recent_moves(url, records, clock):
    dry = build_report(cycle="dry", dry_run=True)
    records.begin(dry)
    record = records.planned(dry, build_eviction())
    with open_records(url=url, cluster="green", clock=clock) as other:
        theirs = build_report(cycle="theirs")
        other.begin(theirs)
        eviction = evict(other, theirs, build_eviction())
        assert [move.node for move in other.recent_moves(0)] == ["n1"]
        assert [cycle["id"] for cycle in cycles(other, 10)] == ["theirs"]
    assert list(records.recent_moves(0)) == []
    assert records.ledger().unreconciled() == []
    assert cycle_report(records, "dry")["evictions"][0]["dry_run"] is True
    assert cycle_report(records, "dry")["evictions"][0]["id"] == record
    with pytest.raises(UnsafeDataError):
        records.outcome(eviction)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
def test_times_are_utc_whatever_the_machines_time_zone(url, engine, clock, zone, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        # an hour that exists twice in New York
        clock.at = 1_762_064_100.123456
        with open_records(url=url, cluster=CLUSTER, clock=clock) as records:
            report = build_report(started_at=clock.at)
            records.begin(report)
            records.planned(report, build_eviction())
            assert records.recent_moves(clock.at)[0].at == clock.at
            assert cycles(records, 1)[0]["started_at"] == clock.at
        kept = "CAST(planned_at AS TEXT)" if "sqlite" in url else "to_char(planned_at, 'YYYY-MM-DD HH24:MI:SS.US')"
        stored = read(engine, lambda connection: connection.execute(text(f"SELECT {kept} FROM evictions")).scalar_one())
        assert stored == "2025-11-02 06:15:00.123456"
    finally:
        monkeypatch.undo()
        time.tzset()


WRITES = {
    "forecasts": lambda records: records.forecasts().keep([a_forecast()]),
    "outcomes": lambda records: records.outcomes().keep_outcomes([a_pool()]),
    "effect": lambda records: records.effect().expect([an_assessment()]),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_locked_database_is_one_line(newest_sqlite_url, impatient_engine, what):
    records = SqlRecords(engine=impatient_engine, cluster=CLUSTER, clock=SteppingClock())
    with raw_connection(newest_sqlite_url) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConnectError, match="locked by another process") as raised:
            WRITES[what](records)
    assert "\n" not in str(raised.value)


def test_the_ledgers_identity_is_made_once(url, clock):
    def ask(_):
        with open_records(url=url, cluster=CLUSTER, clock=clock) as records:
            return records.ledger_identity()

    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(ask, range(8)))
    assert len(answers) == 1
    assert len(next(iter(answers))) == 36
    assert status(url).rows["ledger"] == 1


def test_several_threads_write_at_once(url):
    clock = SteppingClock()
    with open_records(url=url, cluster=CLUSTER, clock=clock) as records:
        report = build_report()
        records.begin(report)

        def one(number):
            return evict(records, report, build_eviction(pod=f"web-{number}")).reserved.record

        with ThreadPoolExecutor(8) as pool:
            rows = list(pool.map(one, range(64)))
        assert len(set(rows)) == 64
        assert cycles(records, 1)[0]["outcomes"] == {"evicted": 64}


def test_records_serve_as_the_port(records):
    from rebalancer.model.decisions.ports import Records

    port: Records = records
    assert isinstance(port, SqlRecords)


def test_samples_of_requests_come_back_oldest_first_and_old_ones_are_dropped(url, records, clock):
    def sample(at: float) -> RequestedSample:
        return RequestedSample(at=at, nodes={"n1": {"cpu": at - NOW, "nvidia.com/gpu": 1.0}, "n2": {}})

    records.put_requested(sample(NOW + 90_000.0))  # the clock was set back
    records.put_requested(sample(NOW - 90_000.0))
    for at in (0.0, 20.0, 50.0):
        records.put_requested(sample(NOW + at))
    assert records.requested(NOW) == [sample(NOW), sample(NOW + 20.0), sample(NOW + 50.0)]
    assert records.requested(NOW + 10.0) == [sample(NOW + 20.0), sample(NOW + 50.0)]
    # another cluster's are its own, and so is what is dropped
    with open_records(url=url, cluster="other", clock=clock) as other:
        assert other.requested(NOW) == []
        other.put_requested(sample(NOW + 500.0))
    records.put_requested(RequestedSample(at=NOW + 50.0, nodes={}))
    assert records.requested(0.0)[-1] == RequestedSample(at=NOW + 50.0, nodes={})
    records.put_requested(sample(NOW + 13 * 3600.0 + 10.0))
    assert [each.at - NOW for each in records.requested(0.0)] == [20.0, 50.0, 13 * 3600.0 + 10.0]
