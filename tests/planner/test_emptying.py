"""Emptying nodes: everything or nothing, and what may spread it over cycles."""

from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.pods import FAILED
from rebalancer.model.cluster.steering import DRAINING, SOFT_TAINT
from rebalancer.model.decisions.plan import Finding, Goal
from rebalancer.model.reason import Reason, Refusal
from rebalancer.planner import PlanningTime
from tests.builders import APod, a_budget, a_node, replicas, some_limits
from tests.planner.builders.findings import Plan, Scene, scene
from tests.planner.builders.plans import cold, heavy, single

VETO = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
CORDONED: dict[str, Any] = {
    "unschedulable": True,
    "taints": (
        Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),
        Taint(key=SOFT_TAINT, value=DRAINING, effect="PreferNoSchedule"),
    ),
}
"""A node that we cordoned in an earlier cycle."""


def pods_on(node: str, count: int = 3, **fields: Any) -> list[APod]:
    return [single(f"{node}-{at}", node, **{"used": 500.0, **fields}) for at in range(count)]


def emptied(one: Scene, *nodes: str) -> list[Finding]:
    return [one.finding(node, goal=Goal.EMPTY) for node in nodes or ("old",)]


def both(one: Scene, *nodes: str, **options: Any) -> Plan:
    """The plan after its simulation."""
    return one.simulated(*emptied(one, *nodes), **options)[1]


def test_all_pods_go_when_every_one_of_them_lands_elsewhere() -> None:
    one = scene([a_node("old"), cold()], pods_on("old"))
    simulation, plan = one.simulated(*emptied(one))
    assert simulation.cordoned == plan.cordoned == ["old"]
    assert plan.pods == simulation.pods == ["old-0", "old-1", "old-2"]
    assert set().union(*plan.landings.values()) == {"cold"}


def test_the_largest_by_requests_goes_first() -> None:
    pods = [single(f"p{cpu}", "old", cpu=float(cpu), used=100.0) for cpu in (500, 2_000, 1_000)]
    one = scene([a_node("old"), cold()], pods)
    assert both(one).pods == ["p2000", "p1000", "p500"]


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (single("bad", "old", used=100.0, template=VETO), "shop/bad: an annotation forbids it"),
        (single("bad", "old", used=9_000.0), "shop/bad: every node that would take the replacement would go over"),
        (single("bad", "old", used=100.0, cpu=15_000.0), "shop/bad: no node would take the replacement"),
        (single("bad", "old", used=100.0, ready=False), "shop/bad: not Ready"),
    ],
    ids=["protected", "too much CPU", "too large", "not Ready"],
)
def test_when_one_can_not_go_none_does_and_all_say_which(pod: APod, why: str) -> None:
    agent = heavy("cold", 2_000)
    one = scene([a_node("old"), cold()], [*pods_on("old"), pod, agent])
    simulation, plan = one.simulated(*emptied(one))
    assert (simulation.moves, simulation.cordoned, plan.moves) == ([], [], [])
    ours = [simulation.refused[f"old-{at}"] for at in range(3)]
    assert {each.code for each in ours} == {"NodeNotDrainable"}
    assert all(each.message.startswith(f"the node can't be drained: {why}") for each in ours)
    assert plan.codes["old-0"] == "NotCordoned"


def test_all_pods_that_hold_a_node_are_named() -> None:
    def why(count: int) -> str:
        bad = [single(f"bad-{at}", "old", used=100.0, template=VETO) for at in range(count)]
        one = scene([a_node("old"), cold()], [*pods_on("old"), *bad])
        return one.simulated(*emptied(one))[0].refused["old-0"].message.partition("; held by ")[2]

    assert why(1) == ""
    assert why(3) == "shop/bad-1, shop/bad-2 too"
    assert why(8) == "shop/bad-1, shop/bad-2, shop/bad-3, shop/bad-4, shop/bad-5 and 2 more too"


def test_each_landing_holds_with_all_earlier_ones_counted_in() -> None:
    for free, count in ((1_500.0, 3), (1_499.0, 0)):
        one = scene([a_node("old"), cold(used=10_400.0 - free)], pods_on("old"))
        assert len(both(one).pods) == count


def test_what_was_tried_in_vain_leaves_no_trace() -> None:
    """The same findings behind a node that can't be emptied, and without it."""
    pods = [*pods_on("stuck", 5), single("bad", "stuck", used=9_000.0), *pods_on("old", 4)]
    one = scene([a_node("stuck"), a_node("old"), cold("x", used=7_000.0), cold("y", used=7_000.0)], pods)
    with_it, without = one.simulated(*emptied(one, "stuck", "old")), one.simulated(*emptied(one, "old"))
    for mine, other in zip(with_it, without, strict=True):
        assert mine.moves == other.moves
        assert mine.cordoned == other.cordoned == ["old"]
        if mine.budget is not None and other.budget is not None:
            assert mine.budget.chosen == other.budget.chosen


def test_what_was_steered_away_from_in_vain_is_not() -> None:
    pods = [single("p", "old", used=500.0), single("bad", "old", used=9_000.0, cpu=100.0), heavy("cold", 4_000)]
    one = scene([a_node("old"), a_node("full", used=10_400.0), cold()], pods)
    fine = one.plan(one.finding("old", "p", goal=Goal.EMPTY), steering=1)
    assert fine.landings == {"p": {"cold"}}
    assert fine.budget is not None
    assert [one.nodes[node].name for node in fine.budget.chosen] == ["full"]
    vain = one.plan(*emptied(one), steering=1)
    assert vain.budget is not None
    assert (vain.moves, vain.budget.chosen, vain.budget.left) == ([], {}, [1])


def test_what_was_tried_in_vain_evens_out_nothing() -> None:
    pods = [*replicas("web", {"old": 3}, used=500.0), single("bad", "old", used=9_000.0, cpu=100.0)]
    one = scene([a_node("old"), cold()], pods)
    even = {"even": one.even({"old": 0, "cold": 1}, [3, 0])}
    vain = one.finding("old", "web-0", "bad", goal=Goal.EMPTY, rule=even)
    plan = one.plan(vain, one.finding("old", "web-0", rule=even), steering=0)
    assert plan.pods == ["web-0"]


def test_a_node_that_is_not_cordoned_keeps_its_pods() -> None:
    one = scene([a_node("old"), cold()], pods_on("old"))
    plan = one.plan(*emptied(one))
    assert plan.moves == []
    assert set(plan.codes.values()) == {"NotCordoned"}
    assert plan.cordoned == []


def test_so_many_at_a_time_and_those_that_can_not_be_emptied_take_no_turn() -> None:
    pods = [*pods_on("a", 2), *pods_on("b", 2), *pods_on("c", 2), single("bad", "a", used=100.0, template=VETO)]
    one = scene([a_node("a"), a_node("b"), a_node("c"), cold()], pods)
    simulation, plan = one.simulated(*emptied(one, "a", "b", "c"), empty_at_most=1)
    assert simulation.cordoned == ["b"]
    assert plan.pods == ["b-0", "b-1"]
    assert simulation.codes == {
        "a-0": "NodeNotDrainable", "a-1": "NodeNotDrainable", "bad": "AnnotationVeto",
        "c-0": "DrainQueued", "c-1": "DrainQueued",
    }  # fmt: skip


def test_a_node_that_is_begun_is_finished_before_another_one_is_begun() -> None:
    one = scene([a_node("a"), a_node("begun", **CORDONED), cold()], [*pods_on("a", 2), *pods_on("begun", 2)])
    plan = both(one, "a", "begun", empty_at_most=1, cordoned=one.mask("begun"))
    assert plan.pods == ["begun-0", "begun-1"]
    assert set(plan.codes.values()) == {"DrainQueued", "NotCordoned"} - {"DrainQueued"}


def test_a_node_that_takes_pods_in_this_plan_is_not_emptied_in_it() -> None:
    """Where all nodes are low: `b` takes some of what leaves `a`, and would give it all to `c`. Both at once is more
    than `c` can take: `a` would be cordoned for nothing."""
    nodes = [a_node("a"), a_node("b"), cold("c", used=10_400.0 - 2_000.0)]
    pods = [*pods_on("a", 2), *pods_on("b", 3), heavy("c")]
    one = scene(nodes, pods)
    findings = [
        one.finding("a", *(f"a-{at}" for at in range(2)), goal=Goal.EMPTY, rule={"only": one.mask("b", "c")}),
        one.finding("b", *(f"b-{at}" for at in range(3)), goal=Goal.EMPTY, rule={"only": one.mask("c")}),
    ]
    simulation, plan = one.simulated(*findings)
    assert simulation.cordoned == ["a"]
    assert plan.pods == ["a-0", "a-1"]
    assert {simulation.codes[f"b-{at}"] for at in range(3)} == {"DrainQueued"}
    assert "b" in set().union(*simulation.landings.values())


# ---- over several cycles


def test_limits_spread_it_over_cycles_and_the_node_stays_cordoned() -> None:
    one = scene([a_node("old"), cold()], pods_on("old"), policy={"limits": some_limits(cycle=1)})
    simulation, plan = one.simulated(*emptied(one))
    assert simulation.cordoned == plan.cordoned == ["old"]
    assert plan.pods == ["old-0"]
    assert plan.codes == {"old-1": "LimitCycle", "old-2": "LimitCycle"}


def test_a_budget_that_has_room_for_each_alone_spreads_it_over_cycles() -> None:
    for allowed, moved in ((1, ["web-0"]), (0, [])):
        pods = replicas("web", {"old": 2, "cold": 1}, used=500.0)
        one = scene([a_node("old"), cold()], pods, budgets=[a_budget("pdb", "web", allowed)])
        assert both(one).pods == moved


def test_that_this_plan_has_used_up_a_budget_is_no_reason_not_to_begin() -> None:
    web = [single(f"web-{at}", node, used=500.0, labels={"app": "web"}) for at, node in enumerate(("other", "old"))]
    pods = [*web, *pods_on("old", 1), heavy("other")]
    one = scene([a_node("old"), a_node("other"), cold()], pods, budgets=[a_budget("pdb", "web", 1)])
    first = one.finding("other", "web-0")
    simulation = one.plan(first, one.finding("old", "web-1", "old-0", goal=Goal.EMPTY), steering=0)
    assert simulation.pods == ["web-0", "old-0"]
    assert simulation.cordoned == ["old"]
    assert simulation.codes == {"web-1": "BudgetExhausted"}


def test_a_node_of_which_nothing_may_go_now_is_not_cordoned_to_wait() -> None:
    policy = {"limits": some_limits(cycle=1)}
    one = scene([a_node("a"), a_node("old"), cold()], [*pods_on("a", 1), *pods_on("old")], policy=policy)
    simulation, plan = one.simulated(one.finding("a", "a-0"), *emptied(one))
    assert simulation.cordoned == []
    assert plan.pods == ["a-0"]
    assert set(simulation.codes.values()) == {"LimitCycle"}


def test_what_the_evictions_before_left_behind_is_waited_for() -> None:
    """Its service has one fewer ready, its budget is used up: because of the pod that has just left."""
    pods = replicas("web", {"old": 1, "cold": 1}, used=500.0)
    late = [single("late", "old", used=500.0, ready=False)]
    for begun, cordoned in (({}, []), (CORDONED, ["old"])):
        one = scene([a_node("old", **begun), cold()], [*pods, *late], budgets=[a_budget("pdb", "web", 0)])
        _, plan = one.simulated(*emptied(one), cordoned=one.mask("old") if begun else one.mask())
        assert plan.cordoned == cordoned
        assert plan.moves == []
        assert plan.codes["web-0"] == ("BudgetExhausted" if begun else "NotCordoned")


def test_a_begun_node_that_can_not_be_emptied_any_more_is_let_go() -> None:
    one = scene([a_node("old", **CORDONED), cold(used=10_000.0)], pods_on("old"))
    simulation, _ = one.simulated(*emptied(one), cordoned=one.mask("old"))
    assert simulation.cordoned == []
    assert set(simulation.codes.values()) == {"NodeNotDrainable"}


def test_when_there_is_no_time_to_look_what_is_cordoned_stays_so() -> None:
    one = scene([a_node("old", **CORDONED), cold()], pods_on("old"))
    plan = one.plan(*emptied(one), cordoned=one.mask("old"), time=PlanningTime(spent=lambda: True))
    assert plan.cordoned == ["old"]
    assert set(plan.codes.values()) == {"PlanningTimeout"}


def test_a_pod_that_has_been_moved_for_another_reason_needs_no_room_twice() -> None:
    one = scene([a_node("old"), cold(used=10_400.0 - 1_500.0)], pods_on("old"))
    plan = one.plan(one.finding("old", "old-0"), *emptied(one), steering=0)
    assert plan.pods == ["old-0", "old-1", "old-2"]
    assert plan.cordoned == ["old"]


def test_when_the_plan_is_stopped_what_it_did_not_look_at_stays_cordoned() -> None:
    pods = [*pods_on("a", 1), *pods_on("b", 1, used=9_000.0)]  # b can't be emptied; nobody has looked
    one = scene([a_node("a", **CORDONED), a_node("b", **CORDONED), cold()], pods)
    planner = one.planner(*emptied(one, "a", "b"), cordoned=one.mask("a", "b"))
    planner.stop(Refusal.of(Reason.STOPPING))
    assert planner.cordoned.tolist() == [True, True, False]
    assert {each.code for each in planner.outcome.refusals()} == {Reason.STOPPING}
    assert planner.next_move() is None


def test_pods_that_go_by_themselves_keep_no_node() -> None:
    pods = [*pods_on("old", 1), single("going", "old", terminating=True), single("dead", "old", phase=FAILED)]
    one = scene([a_node("old"), cold()], pods)
    plan = both(one)
    assert plan.pods == ["old-0"]
    assert plan.codes == {"going": "Terminating", "dead": "Finished"}


def test_room_is_kept_for_what_could_not_go_yet() -> None:
    """Each node could be emptied alone; begun together, both would be left half empty."""
    pods = [*pods_on("a", 2), *pods_on("b", 2)]
    one = scene([a_node("a"), a_node("b"), cold(used=10_400.0 - 1_500.0)], pods, policy={"limits": some_limits(node=1)})
    simulation, plan = one.simulated(*emptied(one, "a", "b"))
    assert simulation.cordoned == ["a"]
    assert plan.pods == ["a-0"]
    assert simulation.codes["b-0"] == "NodeNotDrainable"


# ---- the scheduler sees the cordon


def test_nothing_else_lands_on_a_node_that_is_being_emptied() -> None:
    pods = [*pods_on("old", 1, cpu=0.0, memory=0.0), single("p", "untidy", used=500.0), heavy("untidy")]
    one = scene([a_node("old"), a_node("untidy"), cold()], pods)
    finding = one.finding("untidy", "p")
    assert one.plan(finding).landings == {"p": {"cold", "old"}}
    assert one.plan(*emptied(one), finding, steering=0).landings == {"old-0": {"cold"}, "p": {"cold"}}
    assert one.plan(finding, cordoned=one.mask("old")).landings == {"p": {"cold"}}


def test_a_pod_that_tolerates_cordons_may_come_back_and_keeps_its_node() -> None:
    tolerates = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}
    one = scene([a_node("old"), cold()], [single("p", "old", used=500.0, template=tolerates), heavy("cold")])
    simulation, _ = one.simulated(*emptied(one), steering=0)
    assert simulation.moves == []
    assert "kube-scheduler would put the replacement back" in simulation.refused["p"].message


def test_a_cordon_of_ours_that_is_lifted_is_not_seen() -> None:
    pods = [single("p", "untidy", used=500.0), heavy("untidy")]
    one = scene([a_node("was", **CORDONED), a_node("untidy"), cold()], pods)
    finding = one.finding("untidy", "p")
    assert one.plan(finding).landings == {"p": {"cold"}}
    lifted = one.plan(finding, cordoned=one.mask(), soft_tainted=one.mask())
    assert lifted.landings == {"p": {"cold", "was"}}


def test_a_cordon_of_others_is_never_overlooked() -> None:
    pods = [single("p", "untidy", used=500.0), heavy("untidy")]
    one = scene([a_node("theirs", unschedulable=True), a_node("untidy"), cold()], pods)
    assert one.plan(one.finding("untidy", "p"), cordoned=one.mask()).landings == {"p": {"cold"}}


def test_the_order_in_which_nodes_and_pods_are_listed_changes_nothing() -> None:
    nodes, pods = [a_node("a"), a_node("b"), cold("x"), cold("y")], [*pods_on("a"), *pods_on("b")]
    told = []
    for way in (1, -1):
        one = scene(nodes[::way], pods[::way])
        simulation, plan = one.simulated(*emptied(one, "a", "b"), empty_at_most=1)
        told.append((plan.pods, plan.landings, simulation.codes, simulation.cordoned))
    assert told[0] == told[1]
    assert np.any(told[0][0])
