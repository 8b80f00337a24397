"""What a plan does with a finding: which candidates go, how many, where to, and why the others stay."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.decisions.plan import Goal, Loads
from rebalancer.strategies import Findings
from tests.builders import APod, a_budget, a_node, replicas, some_limits
from tests.planner.builders.findings import STRATEGY, Scene, scene
from tests.planner.builders.plans import cold, heavy, single

BUSY = 11_000.0
"""Of a node: over its target of 10,400 millicores, not hot."""


def untidy(*others: Any, pods: int = 4, **fields: Any) -> Scene:
    """A node with single pods p0, p1, ... of 500 millicores each, to which the scheduler would bring none back."""
    nodes = [a_node("untidy", used=4_000.0), *(others or [cold()])]
    return scene(nodes, [*(single(f"p{at}", "untidy", used=500.0) for at in range(pods)), heavy("untidy")], **fields)


# ---- how many, in which order


def test_the_candidates_go_in_the_order_given_whatever_they_use() -> None:
    one = untidy()
    plan = one.plan(one.finding("untidy", "p2", "p0", "p3"))
    assert plan.landings == {"p2": {"cold"}, "p0": {"cold"}, "p3": {"cold"}}
    assert plan.pods == ["p2", "p0", "p3"]
    assert plan.codes == {}
    assert [move.reason for move in plan.moves] == ["untidy is untidy"] * 3
    assert {(move.strategy, move.pool, move.node) for move in plan.moves} == {(STRATEGY, "general", "untidy")}


@pytest.mark.parametrize("wanted", [0, 1, 3])
def test_no_more_go_than_are_wanted_and_the_others_say_so(wanted: int) -> None:
    one = untidy()
    plan = one.plan(one.finding("untidy", "p0", "p1", "p2", "p3", wanted=wanted))
    assert plan.pods == ["p0", "p1", "p2"][:wanted]
    assert plan.codes == dict.fromkeys(["p0", "p1", "p2", "p3"][wanted:], "EnoughEvicted")


def test_the_next_one_goes_for_one_that_can_not() -> None:
    one = untidy(policy={"limits": some_limits()})
    held = [replace(pod, template={"annotations": {"karpenter.sh/do-not-disrupt": "true"}}) for pod in one.pods[:1]]
    again = scene(one.nodes, [*held, *one.pods[1:]])
    plan = again.plan(again.finding("untidy", "p0", "p1", "p2", wanted=1))
    assert plan.pods == ["p1"]
    assert plan.codes == {"p0": "AnnotationVeto", "p2": "EnoughEvicted"}


def test_what_is_rejected_later_is_not_counted_as_gone() -> None:
    one = untidy(policy={"limits": some_limits(cycle=1)})
    plan = one.plan(one.finding("untidy", "p0", "p1", "p2", wanted=2))
    assert plan.codes == dict.fromkeys(["p1", "p2"], "LimitCycle")


@pytest.mark.parametrize(("wanted", "others"), [(1, []), (2, ["p2"])])
def test_a_pod_of_two_findings_goes_once_and_counts_for_both(wanted: int, others: list[str]) -> None:
    one = untidy()
    plan = one.plan(one.finding("untidy", "p0", "p1"), one.finding("untidy", "p1", "p2", "p3", wanted=wanted))
    assert plan.pods == ["p0", "p1", *others]


def test_nobody_asks_what_a_removal_relieves() -> None:
    """The pod uses nothing, nobody knows what the other one uses, and no node is under its low."""
    one = scene(
        [a_node("untidy", used=9_000.0), cold(used=9_000.0)],
        [single("idle", "untidy", used=0.0), single("unknown", "untidy"), heavy("untidy")],
    )
    assert one.plan(one.finding("untidy", "idle", "unknown")).pods == ["idle", "unknown"]


# ---- the CPU targets hold for every landing


@pytest.mark.parametrize(
    ("used", "code"),
    [(9_900.0, None), (9_901.0, "NoNodeWithHeadroom"), (BUSY, "NoNodeWithHeadroom"), (13_000.0, "NoNodeWithHeadroom")],
)
def test_a_landing_stays_at_or_under_its_target(used: float, code: str | None) -> None:
    one = untidy(cold(used=used), pods=1)
    assert one.plan(one.finding("untidy", "p0")).codes.get("p0") == code


def test_a_pod_of_which_nobody_knows_the_cpu_brings_what_it_requests() -> None:
    pods = [single("unknown", "untidy", cpu=600.0)]
    for used, code in ((9_800.0, None), (9_801.0, "NoNodeWithHeadroom")):
        one = scene([a_node("untidy", used=4_000.0), cold(used=used)], pods)
        assert one.plan(one.finding("untidy", "unknown")).codes.get("unknown") == code


def test_a_node_whose_cpu_is_not_known_is_no_landing() -> None:
    one = untidy(cold(used=float("nan")), pods=1)
    assert one.plan(one.finding("untidy", "p0")).codes == {"p0": "NoNodeWithHeadroom"}


def test_a_node_without_thresholds_is_judged_by_none() -> None:
    pool = {"name": "general", "selector": {"matchLabels": {"pool": "general"}}}
    elsewhere = {"pools": [pool], "strategies": [{"name": "PodLifeTime"}]}
    for policy, code in ((None, "NoNodeWithHeadroom"), (elsewhere, None)):
        one = untidy(cold(used=15_000.0), pods=1, policy=policy or {})
        assert one.plan(one.finding("untidy", "p0")).codes.get("p0") == code


def test_earlier_moves_of_other_findings_are_counted_in() -> None:
    one = untidy(cold(used=9_800.0))
    plan = one.plan(one.finding("untidy", "p3"), one.finding("untidy", "p0", "p1"))
    assert plan.pods == ["p3"]
    assert plan.codes == {"p0": "NoNodeWithHeadroom", "p1": "NoNodeWithHeadroom"}


def _low_loads(one: Scene, target: float, *nodes: str, high: float = 15_000.0) -> Loads:
    """A strategy's own marks, on these nodes only; without `high` no node can be hot by it."""
    marked = np.where(one.mask(*nodes), target, np.nan)[:, None]
    return replace(one.base, high=np.where(np.isfinite(marked), high, np.nan), target=marked, low=marked)


def test_a_strategys_own_marks_are_strict_and_another_ones_are_not() -> None:
    one = untidy(cold("marked", used=2_000.0), pods=2)
    loads = _low_loads(one, 2_600.0, "untidy")
    finding = one.finding("untidy", "p0", "p1")
    assert one.plan(finding, loads=loads).codes == dict.fromkeys(["p0", "p1"], "NoNodeWithHeadroom")
    other = Findings(findings=(), loads=loads)
    assert one.plan(found=[Findings(findings=(finding,)), other]).pods == ["p0", "p1"]
    tight = Findings(findings=(), loads=_low_loads(one, 2_600.0, "untidy", "marked"))
    plan = one.plan(found=[Findings(findings=(finding,)), tight])
    assert plan.pods == ["p0"]  # what another strategy balances is not broken
    assert plan.codes == {"p1": "NoNodeWithHeadroom"}
    its_own = Findings(findings=(), loads=_low_loads(one, 2_600.0, "untidy", "marked", high=float("nan")))
    assert one.plan(found=[Findings(findings=(finding,)), its_own]).pods == ["p0", "p1"]


def test_a_strategy_that_cools_but_does_not_say_by_what_moves_nothing() -> None:
    one = untidy(pods=1)
    plan = one.plan(one.finding("untidy", "p0", goal=Goal.COOL))
    assert plan.codes == {"p0": "NoRelief"}
    with pytest.raises(ValueError, match="balances nothing"):
        plan.planner.outcome.planned_load()


def test_cooling_in_the_order_given_takes_the_first_that_helps_and_stops_at_the_target() -> None:
    pods = [heavy("hot"), *(single(f"p{used}", "hot", used=float(used)) for used in (3_000, 1_600, 1_500, 10))]
    one = scene([a_node("hot", used=13_400.0), cold()], pods)
    order = ("p10", "p1500", "p1600", "p3000")
    mine = one.plan(one.finding("hot", *order, goal=Goal.COOL, in_order=True), loads=one.base)
    assert mine.pods == ["p1500", "p1600"]
    assert mine.codes == {"p10": "NoRelief", "p3000": "GoalReached"}
    assert mine.moves[0].reason == "hot is untidy; relieves the node of 9.4% cpu; price 2.05"
    best = one.plan(one.finding("hot", *order, goal=Goal.COOL), loads=one.base)
    assert best.pods == ["p3000"]


def test_a_landing_under_low_is_no_better_than_a_warmer_one_in_any_order() -> None:
    def pinned(name: str, to: str) -> APod:
        return single(name, "hot", used=1_000.0, template={"nodeSelector": {"kubernetes.io/hostname": to}})

    for first, second in (("cold", "lukewarm"), ("lukewarm", "cold")):
        pods = [heavy("hot"), pinned("a", first), pinned("b", second)]
        one = scene([a_node("hot", used=12_100.0), cold(), cold("lukewarm", used=9_000.0)], pods)
        for fields in ({"in_order": True}, {}):
            finding = one.finding("hot", "a", "b", goal=Goal.COOL, **fields)
            assert one.plan(finding, loads=one.base).landings == {"a": {first}, "b": {second}}


# ---- which landings repair it


def test_nothing_lands_outside_the_nodes_that_repair_it() -> None:
    one = untidy(cold("a"), cold("b"))
    rule = {"only": one.mask("b")}
    alone = one.plan(one.finding("untidy", "p0", rule=rule))
    assert alone.codes == {"p0": "TargetNodeNotBetter"}
    assert "a, with a probability of 50%" in alone.refused["p0"].message
    soft_tainted = one.plan(one.finding("untidy", "p0", "p1", rule=rule), steering=1)
    assert soft_tainted.landings == {"p0": {"b"}, "p1": {"b"}}
    assert soft_tainted.budget is not None
    assert [one.nodes[node].name for node in soft_tainted.budget.chosen] == ["a"]


def test_when_no_node_that_repairs_it_would_take_the_pod_it_stays() -> None:
    one = untidy(cold("a"), cold("full"), pods=1)
    full = scene([*one.nodes[:2], a_node("full", used=2_000.0, pods=0)], one.pods)
    plan = full.plan(full.finding("untidy", "p0", rule={"only": full.mask("full")}))
    assert plan.codes == {"p0": "NoBetterNode"}


def test_a_new_pod_may_come_back_to_its_own_node_where_that_is_all_that_is_wanted() -> None:
    """Its node is far over its target; another pod there makes it no warmer than it is."""
    one = scene([a_node("own", used=15_900.0), cold(used=15_900.0)], [single("old", "own", used=500.0)])
    assert one.plan(one.finding("own", "old")).codes == {"old": "NoNodeWithHeadroom"}
    plan = one.plan(one.finding("own", "old", rule={"elsewhere": False}))
    assert plan.codes == {"old": "TargetNodeWithoutHeadroom"}  # as likely on the other one
    alone = scene([a_node("own", used=15_900.0)], [single("old", "own", used=500.0)])
    assert alone.plan(alone.finding("own", "old")).codes == {"old": "NoTargetNode"}
    assert alone.plan(alone.finding("own", "old", rule={"elsewhere": False})).landings == {"old": {"own"}}


def test_a_cordoned_own_node_is_no_landing() -> None:
    tolerates = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}
    pods = [single("old", "own", used=500.0, template=tolerates), heavy("cold", 1_000)]
    one = scene([a_node("own", unschedulable=True), cold()], pods)
    assert one.plan(one.finding("own", "old", rule={"elsewhere": False})).codes == {"old": "TargetNodeUnavailable"}


# ---- pods that do no work


@pytest.mark.parametrize("phase", [FAILED, SUCCEEDED])
def test_a_finished_pod_lands_nowhere_and_takes_nobodys_room(phase: int) -> None:
    pods = [single("dead", "untidy", phase=phase, ready=False), *replicas("web", {"untidy": 1}, used=500.0)]
    one = scene([a_node("untidy", used=4_000.0), cold(used=9_900.0)], pods, budgets=[a_budget("pdb", "own-dead", 0)])
    assert one.plan(one.finding("untidy", "dead")).codes == {"dead": "Finished"}
    plan = one.plan(one.finding("untidy", "dead", broken=True), one.finding("untidy", "web-0"))
    assert plan.pods == ["dead", "web-0"]
    assert (plan.moves[0].target_nodes, plan.moves[0].target_node, plan.moves[0].target_pool) == ((), "", "")


def test_only_for_broken_pods_it_does_not_matter_that_they_are_not_ready_or_the_last() -> None:
    owner = Owner(kind="ReplicaSet", namespace="shop", name="own-crashing", uid="u", desired=1, ready=0)
    one = scene(
        [a_node("untidy", used=4_000.0), cold()],
        [single("crashing", "untidy", ready=False)],
        policy={"guards": {"minReplicas": 2}},
        owners=[owner],
    )
    assert one.plan(one.finding("untidy", "crashing")).codes == {"crashing": "NotReady"}
    assert one.plan(one.finding("untidy", "crashing", broken=True)).pods == ["crashing"]
