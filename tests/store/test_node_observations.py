"""What our cycles recorded of a node, read back: found, measured, refused, evicted; and what they left out."""

import math
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.plan import Goal, PodRefusal, ResourceExcess, Trigger
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.records.effect import EffectRecords, NodeObservation
from rebalancer.store import SqlEffect, SqlRecords, open_records
from tests.store.builders import (
    CLUSTER,
    NOW,
    SteppingClock,
    build_eviction,
    build_finding,
    build_line,
    build_refusal,
    build_report,
)
from tests.store.readers import cycle_report, raw_connection
from tests.store.scenarios.ledger_cluster import OTHER, a_cycle
from tests.stories.scenarios.stage import a_scenario, a_stage, burner, service


@pytest.fixture
def effect(records: SqlRecords) -> EffectRecords:
    return records.effect()


def nothing(cycle: str, at: float, **fields: Any) -> NodeObservation:
    given: dict[str, Any] = {"trigger": "manual", "dry_run": False, "finding": None, "share": None, "high": None}
    return NodeObservation(cycle=cycle, at=at, refusals={}, **{**given, **fields})


def test_a_cycle_records_what_it_found_measured_refused_and_evicted(records: SqlRecords, effect: EffectRecords) -> None:
    big, small = (
        PodRefusal(node="n1", namespace="shop", name=name, code=code, message=f"why {name}", cpu_millicores=cpu)
        for name, code, cpu in (("big", Reason.LOCAL_VOLUME, 900.0), ("small", Reason.TOO_YOUNG, 100.0))
    )
    a_cycle(
        records,
        nodes=[build_line(high=0.8, hot=True), build_line(name="n2", before=0.5, planned=0.5, high=0.8)],
        findings=[(build_finding(cpu_share=0.93), "n1")],
        refusals=[
            PodRefusal(node="n1", namespace="", name="", code=Reason.SETTLING, message="the node is settling"),
            build_refusal(pod="unmeasured", detail="3 minutes"),
            small,
            big,
        ],
        evictions=[
            build_eviction(pod="web-1", outcome=Outcome.EVICTED),
            build_eviction(pod="web-2", outcome=Outcome.UNKNOWN),
            build_eviction(pod="web-3", outcome=Outcome.REFUSED),
        ],
    )
    seen = effect.node_observations(["n1", "n2", "n3"], NOW, NOW + 1)
    assert seen["n1"] == [
        NodeObservation(
            cycle="c1",
            at=NOW,
            trigger="manual",
            dry_run=False,
            finding="LowNodeUtilization",
            share=0.91,
            high=0.8,
            refusals={Reason.SETTLING: 1, Reason.TOO_YOUNG: 2, Reason.LOCAL_VOLUME: 1},
            examples=(
                "shop/big: why big",
                "shop/small: why small",
                "shop/unmeasured: younger than the minimum age: 3 minutes",
                "the node is settling",
            ),
            evictions=2,
        )
    ]
    assert seen["n2"] == [nothing("c1", NOW, share=0.5, high=0.8)]
    assert seen["n3"] == [nothing("c1", NOW)]


def test_a_cycle_that_recorded_nothing_of_a_node_is_in_its_list_too(records: SqlRecords, effect: EffectRecords) -> None:
    a_cycle(records, "before", at=NOW - 0.001)
    a_cycle(
        records,
        "second",
        at=NOW + 300,
        dry_run=True,
        findings=[(build_finding(), "n2")],
        evictions=[build_eviction(node="n2")],
    )
    a_cycle(records, "first", at=NOW, stopped=Refusal.of(Reason.COVERAGE_TOO_LOW))
    a_cycle(records, "after", at=NOW + 600)
    seen = effect.node_observations(["n2", "n1"], NOW, NOW + 600)
    stopped = nothing("first", NOW, stopped=Reason.COVERAGE_TOO_LOW)
    assert seen == {
        "n1": [stopped, nothing("second", NOW + 300, dry_run=True)],
        "n2": [stopped, nothing("second", NOW + 300, dry_run=True, finding="LowNodeUtilization", evictions=1)],
    }
    assert effect.node_observations(["n1"], NOW + 601, NOW + 900) == {"n1": []}
    assert effect.node_observations([], NOW, NOW + 600) == {}


def test_a_node_that_a_cycle_did_not_look_at_has_no_share(records: SqlRecords, effect: EffectRecords) -> None:
    lines = [
        build_line(name="cool", before=0.123_456_789, planned=0.123_456_789, high=0.8),
        build_line(name="blind", before=None, planned=None, high=0.8),
        build_line(name="aside", before=0.99, planned=0.99),
    ]
    a_cycle(records, nodes=lines)
    seen = {node: each[0] for node, each in effect.node_observations(["cool", "blind", "aside"], 0.0, NOW + 1).items()}
    assert (seen["cool"].share, seen["cool"].high) == (0.123_457, 0.8)
    assert (seen["blind"].share, seen["blind"].high) == (None, 0.8)
    assert (seen["aside"].share, seen["aside"].high) == (None, None)
    # 5,000 lines a cycle aren't kept as rows
    report = cycle_report(records, "c1")
    assert report is not None
    assert report["nodes"] == []


def test_finishing_again_replaces_what_was_measured(records: SqlRecords, effect: EffectRecords) -> None:
    report = build_report(nodes=[build_line(before=0.5, planned=0.5, high=0.8)])
    records.begin(report)
    records.finish(report)
    report.nodes = [build_line(before=0.25, planned=0.25, high=0.75)]
    records.finish(report)
    ((seen,),) = effect.node_observations(["n1"], NOW, NOW + 1).values()
    assert (seen.share, seen.high) == (0.25, 0.75)
    report.nodes = []
    records.finish(report)
    ((seen,),) = effect.node_observations(["n1"], NOW, NOW + 1).values()
    assert (seen.share, seen.high) == (None, None)


def test_clusters_that_share_a_database_see_their_own_cycles(
    url: str, clock: SteppingClock, effect: EffectRecords
) -> None:
    with open_records(url=url, cluster=OTHER, clock=clock) as theirs:
        a_cycle(theirs, nodes=[build_line(high=0.8)], findings=[(build_finding(), "n1")])
        assert effect.node_observations(["n1"], 0.0, NOW + 1) == {"n1": []}
        assert len(theirs.effect().node_observations(["n1"], 0.0, NOW + 1)["n1"]) == 1


def test_a_code_of_another_version_is_left_out(url: str, records: SqlRecords, effect: EffectRecords) -> None:
    a_cycle(records, refusals=[build_refusal(), build_refusal(code=Reason.LOCAL_VOLUME)])
    with raw_connection(url) as connection:
        connection.execute("UPDATE refusals SET code = 'FromTheFuture' WHERE code = 'LocalVolume'")
        connection.execute("UPDATE cycles SET stopped_code = 'FromTheFuture'")
    ((seen,),) = effect.node_observations(["n1"], NOW, NOW + 1).values()
    assert (seen.refusals, seen.stopped, len(seen.examples)) == ({Reason.TOO_YOUNG: 1}, None, 2)


def test_however_many_nodes_and_cycles_it_is_a_handful_of_statements(
    records: SqlRecords, engine: Engine, clock: SteppingClock
) -> None:
    lines = [build_line(name=f"n{number}", before=0.5, planned=0.5, high=0.8) for number in range(1500)]
    for number in range(20):
        a_cycle(records, f"c{number:02}", at=NOW + number, nodes=lines, refusals=[build_refusal(node="n7")])
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _c, _k, statement, *_: statements.append(statement))
    seen = SqlEffect(engine=engine, cluster=CLUSTER).node_observations([each.name for each in lines], NOW, NOW + 60)
    assert len([each for each in statements if "SELECT" in each]) == 6
    assert len(seen) == 1500
    assert {(each.share, each.high) for some in seen.values() for each in some} == {(0.5, 0.8)}
    assert [len(each.refusals) for each in seen["n7"]] == [1] * 20


def test_the_examples_that_are_kept_are_those_with_most_cpu(records: SqlRecords) -> None:
    cpus = (None, 100.0, math.nan, 700.0, 300.0, 500.0)
    refused = [
        PodRefusal(node="n1", namespace="shop", name=f"p{n}", code=Reason.TOO_YOUNG, message="m", cpu_millicores=cpu)
        for n, cpu in enumerate(cpus)
    ]
    a_cycle(records, refusals=refused)
    report = cycle_report(records, "c1")
    assert report is not None
    (kept,) = report["refusals"]
    assert kept["count"] == 6
    assert [(each["pod"], each["cpu_millicores"]) for each in kept["examples"]] == [
        ("p3", 700.0),
        ("p5", 500.0),
        ("p4", 300.0),
    ]


def test_a_real_cycle_writes_down_what_it_looked_at(tmp_path: Path) -> None:
    """In the lab: all nodes by the timer, and one alone for an alert."""
    machines = ("hot", "cool")
    scenario = a_scenario(machines, burner("burner", "hot", 10.0), service("web", {"hot": 6, "cool": 1}))
    with a_stage(scenario, tmp_path) as stage:
        stage.lab.clock.sleep(120)
        alone = CycleRequest(trigger=Trigger.ALERT, scopes=frozenset({RequestScope(nodes=frozenset({"cool"}))}))
        run_cycle(stage.world, stage.policy, request=alone, dry_run=True)
        stage.lab.clock.sleep(1)
        run_cycle(stage.world, stage.policy, dry_run=True)
        with open_records(url=stage.settings.database, cluster=stage.policy.cluster, clock=stage.lab.clock) as records:
            seen = records.effect().node_observations(["hot", "cool"], 0.0, stage.lab.clock.now() + 1)
    by_alert, by_hand = seen["cool"]
    assert by_alert.high == by_hand.high == 0.75
    assert by_hand.share == pytest.approx(1 / 16, abs=0.02)
    by_alert, by_hand = seen["hot"]
    assert (by_alert.high, by_alert.finding) == (None, None)
    assert (by_hand.high, by_hand.finding, by_hand.dry_run) == (0.75, "LowNodeUtilization", True)
    assert by_hand.share == pytest.approx(1.0, abs=0.02)
    assert by_hand.evictions > 0
    # what would have helped most is named first
    assert by_hand.examples[0].startswith("burn/burner")


def test_a_finding_by_another_resource_has_found_no_node_that_is_hot_by_the_slo(
    records: SqlRecords, effect: EffectRecords
) -> None:
    a_cycle(records, "memory", at=NOW, findings=[(build_finding(resource="memory"), "n1")], evictions=[])
    (seen,) = effect.node_observations(["n1"], NOW, NOW + 60).get("n1", [None])
    assert seen is None or seen.finding is None


def test_a_node_that_is_hot_by_memory_and_cpu_is_found_by_each(records: SqlRecords, effect: EffectRecords) -> None:
    cpu = ResourceExcess(resource="cpu", share=0.9, high=0.8, target=0.7)
    both = build_finding(resource="memory", others=(cpu,))
    evictions = [build_eviction(pod="web-1", outcome=Outcome.EVICTED, resource="memory")]
    a_cycle(records, "both", at=NOW, findings=[(both, "n1")], evictions=evictions)
    (seen,) = effect.node_observations(["n1"], NOW, NOW + 60)["n1"]
    assert (seen.finding, seen.evictions) == ("LowNodeUtilization", 1)


def test_a_strategy_with_another_reason_has_found_no_hot_node(records: SqlRecords, effect: EffectRecords) -> None:
    nan = float("nan")
    other = build_finding(strategy="RemoveDuplicates", cpu_share=nan, high=nan, target=nan, goal=Goal.REMOVE)
    evictions = [
        build_eviction(pod="web-1", strategy="RemoveDuplicates"),
        build_eviction(pod="web-2", strategy="RemoveDuplicates"),
        build_eviction(pod="web-3"),
    ]
    a_cycle(records, "alone", at=NOW, findings=[(other, "n1")], evictions=evictions[:1])
    a_cycle(records, "both", at=NOW + 300, findings=[(other, "n1"), (build_finding(), "n1")], evictions=evictions[1:])
    alone, both = effect.node_observations(["n1"], NOW, NOW + 600)["n1"]
    assert (alone.finding, alone.evictions) == (None, 0)
    assert (both.finding, both.evictions) == ("LowNodeUtilization", 1)
