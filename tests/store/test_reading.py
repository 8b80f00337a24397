"""What the dashboard reads: pages of cycles, single nodes, services; of this cluster only."""

from typing import Any

import pytest
from sqlalchemy import Engine

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.reason import Reason
from rebalancer.model.records.cycles import CycleSummary, ServiceEvictions
from rebalancer.model.records.effect import Outcome as Effect
from rebalancer.model.records.effect import Step
from rebalancer.model.records.forecasts import Actuals, ForecastKind, StoredForecast
from rebalancer.store import SqlForecasts, SqlReading, SqlRecords
from tests.store.builders import (
    CLUSTER,
    NOW,
    SteppingClock,
    a_forecast,
    build_eviction,
    build_finding,
    build_refusal,
    build_report,
)
from tests.store.scenarios import ledger_cluster
from tests.store.scenarios.ledger_cluster import OTHER, Cluster
from tests.store.test_effect import an_assessment


@pytest.fixture
def reading(records: SqlRecords) -> SqlReading:
    return records.reading()


def a_cycle(records: SqlRecords, number: int, **fields: Any) -> None:
    """One that is over, a minute after the one before."""
    ledger_cluster.a_cycle(records, f"c{number}", at=NOW + 60 * number, **fields)


def ids(found: list[CycleSummary]) -> list[str]:
    return [each.id for each in found]


def test_cycles_come_newest_first_in_pages_that_neither_overlap_nor_leave_out(
    records: SqlRecords, reading: SqlReading
) -> None:
    for number in range(7):
        a_cycle(records, number)
    first = reading.cycles(3)
    second = reading.cycles(3, before=first[-1].started_at)
    third = reading.cycles(3, before=second[-1].started_at)
    assert [ids(page) for page in (first, second, third)] == [["c6", "c5", "c4"], ["c3", "c2", "c1"], ["c0"]]
    assert ids(reading.cycles(3, after=third[0].started_at)) == ["c3", "c2", "c1"]
    assert reading.cycles(3, after=first[0].started_at) == []


def test_cycles_tell_what_became_of_their_evictions(
    records: SqlRecords, reading: SqlReading, blue: Cluster, clock: SteppingClock
) -> None:
    a_cycle(records, 1)
    a_cycle(records, 2, evictions=[build_eviction(pod="web-1"), build_eviction(pod="web-2")])
    blue.answer(blue.reserve(pod="web-3"), Outcome.EVICTED)
    found = {row.id: row.outcomes for row in reading.cycles(10)}
    assert found == {"c1": {}, "c2": {"planned": 2}, f"cycle-of-{CLUSTER}": {"evicted": 1}}
    assert ids(reading.cycles(10, acted=True)) == ["c2", f"cycle-of-{CLUSTER}"]


def test_another_clusters_cycles_are_not_ours(reading: SqlReading, blue: Cluster, green: Cluster) -> None:
    assert ids(reading.cycles(10)) == [f"cycle-of-{CLUSTER}"]
    assert reading.cycle(f"cycle-of-{OTHER}") is None
    assert reading.cycle("none") is None
    found = reading.cycle(f"cycle-of-{CLUSTER}")
    assert found is not None
    assert found.summary.outcomes == {}


def test_a_nodes_moves_are_its_own_newest_first_with_what_came_of_them(
    reading: SqlReading, records: SqlRecords, blue: Cluster, green: Cluster, clock: SteppingClock
) -> None:
    blue.answer(blue.reserve(pod="web-1"), Outcome.EVICTED)
    clock.sleep(5)
    blue.answer(blue.reserve(pod="web-2"), Outcome.REFUSED)
    blue.reserve(pod="web-3", node="n2")
    green.reserve(pod="web-4")
    made = {"assessed_at": NOW + 900, "outcome": Effect.COOLED, "last_eviction_at": NOW + 6}
    records.effect().expect([an_assessment("n1", cycle=blue.report.id, **made)])
    records.effect().expect(
        [an_assessment("n1", cycle=blue.report.id, step=Step.DAY, **made | {"outcome": Effect.REMAINING_PODS_GREW})]
    )
    found = reading.evictions_from("n1", limit=10)
    assert [(row.pod, row.answered.outcome, row.reserved.trigger, row.effect) for row in found] == [
        ("web-2", "refused", "manual", ""),
        ("web-1", "evicted", "manual", "cooled"),
    ]
    assert [row.pod for row in reading.evictions_from("n1", limit=1)] == ["web-2"]
    assert [row.pod for row in reading.evictions_of("shop/web", limit=10)] == ["web-3", "web-2", "web-1"]


def test_refusals_of_a_node_are_grouped_by_code_over_its_cycles(records: SqlRecords, reading: SqlReading) -> None:
    young, full = Reason.TOO_YOUNG, Reason.NO_NODE_WITH_HEADROOM
    a_cycle(records, 0, refusals=[build_refusal(pod="old", code=Reason.NOT_READY)])
    a_cycle(records, 1, refusals=[build_refusal(pod="a", code=young), build_refusal(pod="b", code=young)])
    a_cycle(records, 2, refusals=[build_refusal(pod="c", code=full), build_refusal(pod="d", node="n2", code=full)])
    a_cycle(records, 3, refusals=[build_refusal(pod="e", code=young)])
    found = reading.refusals_of("n1", since=NOW + 60)
    assert [(row.code, row.cycles, row.count, row.cycle, row.at) for row in found] == [
        (young.value, 2, 1, "c3", NOW + 180),
        (full.value, 1, 1, "c2", NOW + 120),
    ]
    assert [each.pod for each in found[0].examples] == ["shop/e"]


def test_pods_that_are_not_needed_come_after_the_other_refusals(records: SqlRecords, reading: SqlReading) -> None:
    needless = [build_refusal(pod=pod, code=Reason.GOAL_REACHED) for pod in ("a", "b")]
    a_cycle(records, 1, refusals=[*needless, build_refusal(pod="c", code=Reason.TOO_YOUNG)])
    record = reading.cycle("c1")
    assert record is not None
    for found in (record.refusals, reading.refusals_of("n1", since=NOW)):
        assert [each.code for each in found] == ["TooYoung", "GoalReached"]


def test_findings_of_a_node_come_newest_first_with_their_cycles_time(records: SqlRecords, reading: SqlReading) -> None:
    for number in range(4):
        a_cycle(records, number, findings=[(build_finding(), "n1"), (build_finding(), "n2")])
    found = reading.findings_of("n1", since=NOW + 60, limit=2)
    assert [(row.cycle, row.at, row.node) for row in found] == [
        ("c3", NOW + 180, "n1"),
        ("c2", NOW + 120, "n1"),
    ]


def test_services_tell_how_often_by_what_where_to_and_whether_it_helped(
    reading: SqlReading, records: SqlRecords, blue: Cluster, green: Cluster, clock: SteppingClock
) -> None:
    back, away = (blue.answer(blue.reserve(pod=pod), Outcome.EVICTED) for pod in ("web-1", "web-2"))
    blue.ledger.landed(back.reserved.record, at=NOW, pod="web-9", uid="u9", node="n1")
    blue.ledger.landed(away.reserved.record, at=NOW, pod="web-8", uid="u8", node="n7")
    clock.sleep(60)
    late = blue.answer(blue.reserve(pod="db-0", service="db", node="n3"), Outcome.UNKNOWN)
    blue.ledger.late(late.reserved.record)
    blue.answer(blue.reserve(pod="db-1", service="db"), Outcome.REFUSED)
    green.answer(green.reserve(pod="web-7"), Outcome.EVICTED)
    records.effect().expect(
        [
            an_assessment("n1", cycle=blue.report.id, assessed_at=NOW + 900, outcome=Effect.REPLACEMENTS_RETURNED),
            an_assessment("n3", cycle=blue.report.id, assessed_at=NOW + 900, outcome=Effect.UNKNOWN),
        ]
    )
    web, db = reading.services(NOW - 1)
    assert web == ServiceEvictions(
        service="shop/web",
        kind="Deployment",
        evictions=2,
        last_at=NOW,
        returned=1,
        late=0,
        triggers={"manual": 2},
        strategies={"LowNodeUtilization": 2},
        target_nodes={"n1": 1, "n7": 1},
        effects={"replacementsReturned": 2},
    )
    assert (db.evictions, db.late, db.effects, db.target_nodes) == (1, 1, {}, {"n2": 1})
    assert [each.service for each in reading.services(NOW + 30)] == ["shop/db"]


def test_dry_runs_are_not_evictions_of_a_service(records: SqlRecords, reading: SqlReading) -> None:
    report = build_report(dry_run=True)
    records.begin(report)
    records.planned(report, build_eviction())
    assert reading.services(NOW - 1) == []
    assert [row.reserved.dry_run for row in reading.evictions_of("shop/web", limit=5)] == [True]


def test_a_pod_that_each_dry_run_plans_again_is_shown_once(records: SqlRecords, reading: SqlReading) -> None:
    for number in range(3):
        report = build_report(cycle=f"c{number}", dry_run=True)
        records.begin(report)
        for pod in ("web-1", "web-2"):
            records.planned(report, build_eviction(pod=pod))
    for found in (
        reading.evictions_of("shop/web", limit=9),
        reading.evictions_from("n1", limit=9),
        reading.evictions_since(NOW - 1, limit=9),
    ):
        assert [(row.pod, row.reserved.cycle) for row in found] == [("web-2", "c2"), ("web-1", "c2")]
    report = build_report(cycle="real")
    records.begin(report)
    records.planned(report, build_eviction())
    assert [row.reserved.cycle for row in reading.evictions_of("shop/web", limit=9)] == ["real", "c2", "c2"]


@pytest.mark.parametrize(
    ("like", "found"), [("we", ["shop/web"]), ("%", []), ("_", []), ("shop/", ["shop/db", "shop/web"])]
)
def test_services_are_found_by_a_part_of_their_name_taken_literally(
    like: str, found: list[str], reading: SqlReading, blue: Cluster
) -> None:
    for service in ("web", "db"):
        blue.answer(blue.reserve(pod=f"{service}-1", service=service), Outcome.EVICTED)
    assert [each.service for each in reading.services(NOW - 1, like=like)] == found


def test_of_each_node_the_newest_daily_forecast_whose_peak_is_still_to_come_is_read(
    reading: SqlReading, engine: Engine, clock: SteppingClock
) -> None:
    forecasts = SqlForecasts(engine=engine, cluster=CLUSTER, clock=clock)
    day = 86_400.0

    def kept(node: str, **fields: Any) -> StoredForecast:
        return a_forecast(node, **{"made_at": NOW, "peak_at": NOW + 3600, "peak_millicores": 3000.0, **fields})

    forecasts.keep(
        [
            kept("n1", made_at=NOW - 0.6 * day, peak_millicores=2000.0),
            kept("n1"),
            kept("past", peak_at=NOW - 60),
            kept("ahead", kind=ForecastKind.AHEAD, hot_from=NOW + 60),
            kept("judged"),
        ]
    )
    SqlForecasts(engine=engine, cluster=OTHER, clock=clock).keep([kept("theirs")])
    [(judged, _)] = [each for each in forecasts.due(NOW + 2 * day) if each[1].node == "judged"]
    nothing = dict.fromkeys(
        ("p95_millicores", "peak_millicores", "peak_at", "departed_peak_share", "counterfactual_peak_millicores"),
        float("nan"),
    )
    forecasts.judge([(judged, Actuals(**nothing))])
    found = reading.expected_peaks(NOW)
    assert [(row.node, row.peak_millicores, row.peak_at) for row in found] == [("n1", 2799.5, NOW + 3600)]


def test_a_node_that_was_relieved_since_has_no_peak(
    reading: SqlReading, blue: Cluster, engine: Engine, clock: SteppingClock
) -> None:
    day = 86_400.0

    def kept(node: str) -> StoredForecast:
        fields: dict[str, Any] = {"made_at": NOW, "until": NOW + day, "peak_at": NOW + 3600}
        return a_forecast(node, **fields)

    SqlForecasts(engine=engine, cluster=CLUSTER, clock=clock).keep([kept("n1"), kept("n2"), kept("n3")])
    clock.sleep(5)
    blue.answer(blue.reserve(pod="web-1", node="n1"), Outcome.EVICTED)
    blue.answer(blue.reserve(pod="web-2", node="n2"), Outcome.REFUSED)
    assert [row.node for row in reading.expected_peaks(clock.now())] == ["n2", "n3"]
