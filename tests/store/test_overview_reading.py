"""What the overview reads of cycles: why pods stay on nodes, and what was measured of pools."""

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.reason import Reason
from rebalancer.model.records.cycles import PoolEviction, PoolMeasurement
from tests.store.builders import NOW, build_eviction, build_line, build_refusal
from tests.store.scenarios.ledger_cluster import a_cycle


def codes(found):
    return {(each.node, each.code, each.cycle): each.count for each in found}


def test_refusals_of_a_node_are_those_of_its_newest_cycle(records, elsewhere_records):
    young, budget, reached = (
        [build_refusal(node=node, pod=f"web-{number}", code=code) for number in range(count)]
        for node, code, count in (
            ("n1", Reason.TOO_YOUNG, 3),
            ("n2", Reason.BUDGET_EXHAUSTED, 2),
            ("n1", Reason.GOAL_REACHED, 1),
        )
    )
    window = [build_refusal(node="n2", pod="", code=Reason.STABILIZATION_WINDOW)]
    a_cycle(records, "old", at=NOW, refusals=[*young, *budget])
    a_cycle(records, "of-n2", at=NOW + 60, refusals=window)
    a_cycle(elsewhere_records, "elsewhere", at=NOW + 90, refusals=budget)
    reading = records.reading()
    found = reading.refusals_on(["n1", "n2"], since=NOW - 1)
    assert codes(found) == {("n1", "TooYoung", "old"): 3, ("n2", "StabilizationWindow", "of-n2"): 1}
    assert [(each.of_node, each.lifted_by) for each in found] == [
        (True, "hot readings over usage.stabilizationWindow"),
        (False, "time: guards.minAge after its start"),
    ]
    assert codes(reading.refusals_on(["n1", "n2"], since=NOW + 1)) == {("n2", "StabilizationWindow", "of-n2"): 1}
    assert reading.refusals_on([], since=NOW - 1) == []
    a_cycle(records, "relieved", at=NOW + 120, refusals=reached)
    assert codes(reading.refusals_on(["n1"], since=NOW - 1)) == {}, "nothing more is needed there"


def test_a_code_of_another_version_has_no_lift(records):
    a_cycle(records, "c", at=NOW, refusals=[build_refusal()])
    [found] = records.reading().refusals_on(["n1"], since=NOW)
    strange = type(found)(node="n1", code="FromTomorrow", count=1, examples=(), cycle="c", at=NOW)
    assert (strange.sentence, strange.lifted_by) == ("FromTomorrow", "")


def test_a_pools_hottest_node_is_read_once_for_each_cycle(records, elsewhere_records):
    nodes = [
        build_line(name="n1", before=0.5, high=0.75),
        build_line(name="n2", before=0.9125, high=0.6),
        build_line(name="n3", before=None, high=0.75),
        build_line(name="n4", before=0.99),
    ]
    a_cycle(records, "old", at=NOW - 100, nodes=nodes)
    a_cycle(records, "c1", at=NOW, nodes=nodes)
    a_cycle(elsewhere_records, "elsewhere", at=NOW, nodes=nodes)
    a_cycle(records, "c2", at=NOW + 60, nodes=nodes[2:])
    first = PoolMeasurement(cycle="c1", at=NOW, pool="general", nodes=3, hottest=0.9125)
    second = PoolMeasurement(cycle="c2", at=NOW + 60, pool="general", nodes=1, hottest=None)
    reading = records.reading()
    assert reading.pool_measurements(NOW) == [first, second], "nodes without high were not evaluated"
    assert reading.pool_measurements(NOW, known=["c1"]) == [second]


def test_evictions_are_marks_of_the_pool_that_they_left(blue, green, clock, records):
    blue.answer(blue.reserve(pod="old"), Outcome.EVICTED)
    clock.sleep(100)
    blue.answer(blue.reserve(pod="first", node="n7"), Outcome.EVICTED)
    clock.sleep(1)
    blue.answer(blue.reserve(pod="unknown"), Outcome.UNKNOWN)
    blue.answer(blue.reserve(pod="refused"), Outcome.REFUSED)
    green.answer(green.reserve(pod="elsewhere"), Outcome.EVICTED)
    a_cycle(records, "dry", dry_run=True, evictions=[build_eviction(pod="dry", outcome=Outcome.PLANNED)])
    reading = records.reading()
    marks = [
        PoolEviction(NOW + 100, "general", "n7", "shop/first"),
        PoolEviction(NOW + 101, "general", "n1", "shop/unknown"),
    ]
    assert reading.pool_evictions(NOW + 50, limit=9) == marks
    assert reading.pool_evictions(NOW + 50, limit=1) == marks[1:]
