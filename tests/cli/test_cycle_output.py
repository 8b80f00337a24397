"""Tables and JSON of a cycle: planned CPU with its 99th percentile, moves that wait, nodes that stay hot."""

import math
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

from rich.console import Console

from rebalancer.cli.output.cycle import print_cycle
from rebalancer.cli.output.cycle_document import cycle_document
from rebalancer.cli.output.json import encode
from rebalancer.model.decisions.eviction import Outcome, PodAmount, TargetNode
from rebalancer.model.decisions.plan import (
    CycleReport,
    Goal,
    NodeLine,
    PlanScore,
    PodRefusal,
    RemainingHotNode,
    ResourceExcess,
    Trigger,
)
from rebalancer.model.reason import Reason
from tests.builders import an_eviction
from tests.store.builders import build_finding

NOW = 1_790_000_000.0


def a_report(**fields: Any) -> CycleReport:
    usual = {"id": "c1", "trigger": Trigger.MANUAL, "dry_run": True, "started_at": NOW - 2.0, "finished_at": NOW}
    return CycleReport(cluster="test", **{**usual, **fields})


def a_line(name: str, *, p99: float | None = None) -> NodeLine:
    return NodeLine(name=name, pool="general", cpu_before=0.91, cpu_planned=0.62, cpu_planned_p99=p99, hot=True)


def a_waiting_move(pod: str = "cart-8", **fields: Any) -> Any:
    usual = {
        "waits_for": "the replacement of shop/cart-7 to be Ready",
        "not_before": NOW + 40.0,
        "node": "hot",
        "cpu_millicores": 1000.0,
    }
    return an_eviction(service="shop/cart", pod=pod, **{**usual, "target_nodes": (TargetNode("cool", 1.0),), **fields})


STAYS = RemainingHotNode(
    name="hot-2",
    pool="general",
    share_planned=0.81,
    code=Reason.LIMIT_NODE,
    message="6 of 6 in 5m",
    setting="limits.node.evictions",
    value="8 per 5m",
)


def tables(report: CycleReport, **options: Any) -> list[str]:
    """Lines, with single spaces."""
    out = StringIO()
    print_cycle(Console(file=out, width=240), report, **options)
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def section(lines: Sequence[str], title: str) -> list[str]:
    """The rows of a table, its head left out."""
    at = lines.index(title)
    return list(lines[at + 2 :])


def test_the_99th_percentile_is_shown_where_it_differs_from_the_mean() -> None:
    rows = section(tables(a_report(nodes=[a_line("n1", p99=0.66), a_line("n2"), a_line("n3", p99=0.62)])), "Node CPU")
    assert rows == ["n1 general 91% -> 62% (p99 66%)", "n2 general 91% -> 62%", "n3 general 91% -> 62%"]


def test_a_node_is_shown_when_the_evictions_change_it() -> None:
    lines = [replace(a_line(name), hot=False, changed=name == "target") for name in ("target", "measured late")]
    assert section(tables(a_report(nodes=lines)), "Node CPU") == ["target general 91% -> 62%"]


def test_json_has_the_mean_and_the_99th_percentile_of_every_node() -> None:
    nodes = cycle_document(a_report(nodes=[a_line("n1", p99=0.66), a_line("n2")]))["nodes"]
    assert [(each["cpuSharePlanned"], each["cpuSharePlannedP99"]) for each in nodes] == [(0.62, 0.66), (0.62, 0.62)]


def test_a_waiting_move_says_what_it_waits_for_and_for_how_long() -> None:
    rows = section(tables(a_report(evictions=[a_waiting_move(), a_waiting_move("cart-9", not_before=None)])), "Waiting")
    assert rows == [
        "shop/cart-8 40s the replacement of shop/cart-7 to be Ready",
        "shop/cart-9 - the replacement of shop/cart-7 to be Ready",
    ]


def test_a_plan_has_the_moves_that_wait_in_their_order_and_says_which_wait() -> None:
    report = a_report(evictions=[an_eviction(pod="cart-7"), a_waiting_move()])
    lines = tables(report)
    assert [row.split()[-1] for row in section(lines, "Planned evictions (dry run)")[:2]] == ["planned", "waits"]
    assert [row.split()[0] for row in section(lines, "Waiting")] == ["shop/cart-8"]
    waits = [each["waitsFor"] for each in cycle_document(report)["evictions"]]
    assert waits == [None, "the replacement of shop/cart-7 to be Ready"]


def test_a_move_that_was_made_waits_no_longer() -> None:
    lines = tables(a_report(dry_run=False, evictions=[a_waiting_move(outcome=Outcome.EVICTED)]))
    assert "Waiting" not in lines
    assert "waits" not in " ".join(lines)


def test_json_says_of_a_move_what_it_waits_for_and_until_when() -> None:
    [move] = cycle_document(a_report(evictions=[a_waiting_move()]))["evictions"]
    assert (move["namespace"], move["pod"], move["targetNode"]) == ("shop", "cart-8", "cool")
    assert move["waitsFor"] == "the replacement of shop/cart-7 to be Ready"
    assert move["notBefore"] == "2026-09-21T14:14:00+00:00"


def test_json_names_the_setting_that_holds_a_refusal() -> None:
    held = PodRefusal(node="n1", namespace="shop", name="web-1", code=Reason.LIMIT_NODE, message="full")
    free = replace(held, setting="limits.node.evictions", value="8 per 5m")
    refusals = cycle_document(a_report(refusals=[held, free]))["refusals"]
    settings = [(each["setting"], each["value"]) for each in refusals]
    assert settings == [(None, None), ("limits.node.evictions", "8 per 5m")]


def test_a_node_that_stays_hot_has_its_reason_and_the_setting_that_helps_most() -> None:
    alone = RemainingHotNode(name="hot-3", pool="", share_planned=0.9, code=Reason.BARE_POD, message="a bare pod")
    report = a_report(remaining=[STAYS, alone])
    assert section(tables(report), "Nodes that stay hot") == [
        "hot-2 general 81% LimitNode 6 of 6 in 5m limits.node.evictions: 8 per 5m",
        "hot-3 - 90% BarePod a bare pod -",
    ]
    first, second = cycle_document(report)["remainingHotNodes"]
    shares = {"resource": "cpu", "cpuSharePlanned": 0.81, "sharePlanned": 0.81}
    held = {"code": "LimitNode", "message": "6 of 6 in 5m", "setting": "limits.node.evictions", "value": "8 per 5m"}
    assert first == {"node": "hot-2", "pool": "general", **shares, **held}
    assert (second["pool"], second["setting"], second["value"]) == (None, None, None)


def test_findings_nodes_and_moves_name_their_resources() -> None:
    cpu = ResourceExcess(resource="cpu", share=0.8, high=0.75, target=0.65)
    memory = build_finding(resource="memory", others=(cpu,))
    removed = build_finding(goal=Goal.REMOVE, cpu_share=math.nan, high=math.nan, target=math.nan)
    move = an_eviction(resource="memory", amounts={"memory": PodAmount(2e9, 0.12), "disk-busy": PodAmount(0.3, 0.3)})
    report = a_report(
        nodes=[replace(a_line("n1"), hot_by=("memory", "cpu"))],
        findings=[(memory, "n1"), (build_finding(), "n2"), (removed, "n3")],
        evictions=[move, an_eviction()],
    )
    document = encode(cycle_document(report))
    shares = [(each["resource"], each["share"], each["cpuShare"]) for each in document["findings"]]
    assert shares == [("memory", 0.91, None), ("cpu", 0.91, 0.91), ("cpu", None, None)]
    assert document["findings"][0]["resources"] == [
        {"resource": "memory", "share": 0.91, "high": 0.8, "target": 0.7},
        {"resource": "cpu", "share": 0.8, "high": 0.75, "target": 0.65},
    ]
    assert document["findings"][2]["resources"] == []
    assert document["nodes"][0]["hotBy"] == ["memory", "cpu"]
    assert [each["resource"] for each in document["evictions"]] == ["memory", None]
    assert document["evictions"][0]["amounts"] == [
        {"resource": "memory", "amount": 2e9, "nodeShare": 0.12},
        {"resource": "disk-busy", "amount": 0.3, "nodeShare": 0.3},
    ]


def a_refusal(pod: str, message: str, *, code: Reason = Reason.LIMIT_SERVICE, **fields: Any) -> PodRefusal:
    return PodRefusal(node="hot", namespace="shop", name=pod, code=code, message=message, **fields)


FOUND = [(build_finding(), "hot")]


def test_a_node_that_does_not_reach_its_target_is_not_counted_as_cooled() -> None:
    lines = [replace(a_line("one"), cpu_planned=0.7), replace(a_line("two"), cpu_planned=0.724)]
    findings = [(build_finding(node=number), line.name) for number, line in enumerate(lines)]
    report = a_report(nodes=lines, findings=findings, evictions=[an_eviction(node="one"), an_eviction(node="two")])
    assert tables(report)[0] == "2 evictions cool 1 of 2 hot nodes; two reaches 72.4%, not its target of 70%"
    scored = replace(report, score=PlanScore(hot_node_minutes=61.2, price=3.456))
    worth = (
        "Hot node-hours of the next hour, if loads stay, 2 -> 0 (-100%): 2 evictions, 1 for each hour relieved, at a "
        "price of 3.46 ordinary ones."
    )
    assert worth in " ".join(tables(scored))


def test_evictions_that_make_room_are_counted_apart_from_those_that_cool() -> None:
    moves = [an_eviction(node="one"), *(an_eviction(node="two", room_for="shop/large") for _ in range(2))]
    score = PlanScore(hot_node_minutes=61.2, price=3.456)
    rooms, price = "2 evictions make room for 1 pending pod", "a price of 3.46 ordinary ones."
    report = a_report(nodes=[a_line("one")], findings=[(build_finding(), "one")], evictions=moves, score=score)
    heat = "Hot node-hours of the next hour, if loads stay, 1 -> 0 (-100%): 1 eviction, 1 for each hour relieved."
    lines = tables(report)
    assert lines[:2] == ["1 eviction cools 1 of 1 hot node.", f"{rooms}."]
    assert f"{heat} All evictions have {price}" in lines
    alone = tables(a_report(evictions=moves[1:], score=score))
    assert alone[0] == f"{rooms}, at {price}"


def test_reasons_are_announced_only_where_they_follow() -> None:
    alone, line = tables(a_report(findings=FOUND)), a_line("hot")
    assert "No useful eviction is allowed." in alone
    assert "1 node above the high threshold, none to be relieved now." in tables(a_report(nodes=[line]))
    refused = a_report(findings=FOUND, refusals=[a_refusal("cart-1", "opted out")])
    assert "No useful eviction is allowed; the reasons are below." in tables(refused)


def test_a_namespace_without_evictions_says_how_many_there_are_in_others() -> None:
    report = a_report(findings=FOUND, evictions=[an_eviction(service="shop/cart", pod="cart-7", node="hot")])
    assert "No eviction in namespace logging, 1 in others." in tables(report, namespace="logging")


def test_a_group_of_pods_with_different_messages_shows_whose_message_it_is() -> None:
    budget = Reason.BUDGET_EXHAUSTED
    refusals = [
        a_refusal("a-1", "service shop/a: 1 of 1 in flight"),
        a_refusal("b-1", "service shop/b: 1 of 1 in flight"),
        a_refusal("c-1", f"{budget.sentence}: c allows 0 disruptions", code=budget),
        a_refusal("d-1", f"{budget.sentence}: d allows 0 disruptions", code=budget),
        a_refusal("e-1", "opted out", code=Reason.OPTED_OUT),
        a_refusal("f-1", "opted out", code=Reason.OPTED_OUT),
    ]
    assert section(tables(a_report(refusals=refusals)), "Not evicted") == [
        f"hot BudgetExhausted 2 shop/c-1 {budget.sentence}; shop/c-1: c allows 0 disruptions",
        "hot LimitService 2 shop/a-1 the service's limit is reached; shop/a-1: service shop/a: 1 of 1 in flight",
        "hot OptedOut 2 shop/e-1 opted out",
    ]


def test_pods_that_are_not_needed_come_after_the_obstacles_of_their_node() -> None:
    goal, guard = Reason.GOAL_REACHED, Reason.OPTED_OUT
    refusals = [a_refusal("a-1", goal.sentence, code=goal), a_refusal("b-1", guard.sentence, code=guard)]
    rows = section(tables(a_report(refusals=refusals)), "Not evicted")
    assert [row.split()[1] for row in rows] == ["OptedOut", "GoalReached"]
