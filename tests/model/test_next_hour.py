"""The heat of the hour after a plan."""

from typing import Any

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.next_hour import heat_of_next_hour, others_sentence
from rebalancer.model.decisions.plan import CycleReport, NodeLine, RemainingHotNode, Trigger
from rebalancer.model.notation.heat import Heat
from rebalancer.model.reason import Reason
from tests.builders import an_eviction


def a_line(name: str, planned: float, **fields: Any) -> NodeLine:
    given: dict[str, Any] = {"cpu_before": 0.9, "high": 0.75, "hot": True, "hot_by": ("cpu",), **fields}
    return NodeLine(name=name, pool="general", cpu_planned=planned, **given)


def a_report(*lines: NodeLine, **fields: Any) -> CycleReport:
    given: dict[str, Any] = {"id": "c", "cluster": "test", "trigger": Trigger.PERIODIC, "dry_run": False, **fields}
    return CycleReport(started_at=0.0, nodes=list(lines), **given)


def test_a_node_is_hot_for_the_hour_where_the_plan_leaves_it_over_its_high() -> None:
    lines = [a_line("cooled", 0.75), a_line("left", 0.76), a_line("cool", 0.4, hot=False, hot_by=())]
    moves = [an_eviction(node="cooled"), an_eviction(node="left"), an_eviction(node="left", outcome=Outcome.REFUSED)]
    assert heat_of_next_hour(a_report(*lines, evictions=moves)) == Heat(before=2.0, after=1.0, evictions=2)


def test_what_was_measured_afterwards_counts_more_than_the_plan() -> None:
    lines = [a_line("a", 0.6, cpu_after=0.8), a_line("b", 0.8, cpu_after=0.6)]
    assert heat_of_next_hour(a_report(*lines)) == Heat(before=2.0, after=1.0, evictions=0)


def test_parts_in_dry_run_relieve_nothing() -> None:
    moves = [an_eviction(node="a", uid="1"), an_eviction(node="b", uid="2")]
    lines = [a_line("a", 0.6), a_line("b", 0.6)]
    report = a_report(*lines, evictions=moves, not_made=frozenset({"2"}))
    assert heat_of_next_hour(report) == Heat(before=2.0, after=1.0, evictions=1)


def test_a_node_that_the_cycle_was_not_for_stays_hot() -> None:
    assert heat_of_next_hour(a_report(a_line("a", 0.9, high=None))) == Heat(before=1.0, after=1.0, evictions=0)


def test_of_another_resource_it_counts_what_the_plan_leaves_over() -> None:
    lines = [a_line(name, 0.5, cpu_before=0.5, hot_by=("memory",)) for name in ("a", "b")]
    left = RemainingHotNode(
        name="b",
        pool="general",
        resource="memory",
        share_planned=0.9,
        code=Reason.BARE_POD,
        message="",
    )
    assert heat_of_next_hour(a_report(*lines, remaining=[left])) == Heat(before=2.0, after=1.0, evictions=0)


def test_evictions_that_make_room_relieve_nothing() -> None:
    moves = [an_eviction(node="a"), an_eviction(node="b", room_for="shop/large")]
    report = a_report(a_line("a", 0.6), evictions=moves)
    assert heat_of_next_hour(report) == Heat(before=1.0, after=0.0, evictions=1)


def test_the_pods_that_room_is_made_for_are_counted() -> None:
    first = an_eviction(room_for="shop/large")
    assert others_sentence(a_report(evictions=[first, an_eviction()])) == "1 eviction makes room for 1 pending pod"
    others = [an_eviction(room_for="shop/large"), an_eviction(room_for="shop/db-1")]
    report = a_report(evictions=[first, *others])
    assert others_sentence(report) == "3 evictions make room for 2 pending pods"
    failed = an_eviction(room_for="shop/db-1", outcome=Outcome.REFUSED)
    report = a_report(evictions=[first, *others, failed])
    assert others_sentence(report) == "2 evictions make room for 1 pending pod"
    assert others_sentence(a_report(evictions=[failed, an_eviction()])) == ""


def test_evictions_for_another_reason_relieve_nothing_and_are_counted_by_strategy() -> None:
    returns = [an_eviction(node="b", strategy="PoolPreference", cools=False) for _ in range(3)]
    report = a_report(a_line("a", 0.6), evictions=[an_eviction(node="a"), *returns, an_eviction(room_for="shop/large")])
    assert heat_of_next_hour(report) == Heat(before=1.0, after=0.0, evictions=1)
    assert others_sentence(report) == "1 eviction makes room for 1 pending pod, 3 evictions by PoolPreference"


def test_room_that_only_parts_in_dry_run_would_make_is_not_made() -> None:
    moves = [an_eviction(uid="1", room_for="shop/large")]
    assert others_sentence(a_report(evictions=moves, not_made=frozenset({"1"}))) == ""
