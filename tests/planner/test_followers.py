"""Required affinity of others: a pod stays where others need it."""

from typing import Any

import pytest

from rebalancer.model.decisions.plan import Goal
from rebalancer.model.reason import Reason
from tests.builders import APod, a_node, a_pod, a_policy, plan_all
from tests.placement.test_affinity import HOSTNAME, near, term
from tests.planner.builders.findings import scene
from tests.planner.builders.plans import cold, heavy, hot
from tests.planner.test_explain import of_pod, scene_of

RULES: dict[str, Any] = {"guards": {"minReplicas": 1}}


def leader(**fields: Any) -> APod:
    return a_pod("leader", "hot", **{"owner": "leader", "used": 3_500.0, "labels": {"app": "leader"}, **fields})


def followers(key: str = HOSTNAME, node: str = "hot", count: int = 4, **fields: Any) -> list[APod]:
    """They use too little for their moves to help."""
    rule = near(term("leader", key, **fields.pop("term", {})))
    return [
        a_pod(f"follower-{at}", node, owner="follower", used=10.0, cpu=10.0, template=rule, **fields)
        for at in range(count)
    ]


def codes(*pods: APod, nodes: list[Any] | None = None, policy: dict[str, Any] | None = None) -> tuple[list[str], str]:
    """The pods that are moved, and the code of the leader."""
    # there is no room for the replacement of the leader beside its followers
    outcome = plan_all(nodes or [hot(), cold()], [heavy("hot", 15_300), *pods], a_policy(**(policy or RULES)))
    return outcome.pods, outcome.refusals.get("leader", "")


def test_a_leader_is_not_moved_away_from_its_followers() -> None:
    assert codes(leader()) == (["leader"], "")
    assert codes(leader(), *followers()) == ([], "NeededByOthers")


def test_the_refusal_says_how_many_and_where_and_what_lifts_it() -> None:
    outcome = plan_all([hot(), cold()], [heavy("hot", 15_300), leader(), *followers()], a_policy(**RULES))
    (refusal,) = (each for each in outcome.planner.outcome.refusals() if each.name == "leader")
    assert refusal.message.endswith("4 pods in kubernetes.io/hostname=hot")
    assert "guards.neededPods" in Reason.NEEDED_BY_OTHERS.lifted_by
    assert Reason.NEEDED_BY_OTHERS.setting == "guards.neededPods"


def test_another_pod_that_their_rule_selects_lets_it_go() -> None:
    second = a_pod("second", "hot", owner="second", used=10.0, labels={"app": "leader"})
    assert codes(leader(), second, *followers())[0] == ["leader"]
    # one that is about to leave is none
    second = a_pod("second", "hot", owner="second", used=10.0, labels={"app": "leader"}, terminating=True)
    assert codes(leader(), second, *followers())[1] == "NeededByOthers"


def test_of_two_leaders_one_goes() -> None:
    two = [leader(used=1_400.0), a_pod("other", "hot", owner="other", used=1_400.0, labels={"app": "leader"})]
    moved, _ = codes(*two, *followers())
    assert len(moved) == 1


def test_followers_that_are_leaving_need_nothing() -> None:
    assert codes(leader(), *followers(terminating=True))[0] == ["leader"]


@pytest.mark.parametrize(("second_zone", "moved"), [("a", ["leader"]), ("b", [])])
def test_within_a_zone_it_moves_where_its_replacement_stays_in_it(second_zone: str, moved: list[str]) -> None:
    zones = {"hot": "a", "cold": second_zone}
    labels = {name: {"pool": "general", "zone": zone} for name, zone in zones.items()}
    nodes = [hot(labels=labels["hot"]), cold(labels=labels["cold"])]
    assert codes(leader(), *followers("zone"), nodes=nodes)[0] == moved


def test_followers_of_other_namespaces_keep_no_pod() -> None:
    foreign = followers(namespace="other", term={"namespaces": ["shop"]})
    assert codes(leader(), *foreign)[0] == ["leader"]


def test_the_policy_lets_needed_pods_go() -> None:
    assert codes(leader(), *followers(), policy={"guards": {"minReplicas": 1, "neededPods": True}})[0] == ["leader"]
    override = {"strategies": ["LowNodeUtilization"], "neededPods": True}
    rules = {"guards": {"minReplicas": 1, "overrides": [override]}}
    assert codes(leader(), *followers(), policy=rules)[0] == ["leader"]


def emptied(*pods: APod) -> list[str]:
    one = scene([a_node("hot"), cold("cold", labels={"pool": "general", "zone": "a"})], list(pods))
    return one.simulated(one.finding("hot", goal=Goal.EMPTY))[1].pods


def test_a_node_is_emptied_with_its_group() -> None:
    """The leader goes first, and its followers where it has landed."""
    assert emptied(leader(used=50.0), *followers(count=2)) == ["leader", "follower-0", "follower-1"]


def test_a_node_is_not_emptied_of_a_leader_whose_followers_stay() -> None:
    """They are on the other node of its zone, and the replacement would leave that zone."""
    labels = {"pool": "general", "zone": "b"}
    nodes = [a_node("hot", labels=labels), a_node("beside", labels=labels, cpu=50.0), cold()]
    rule = [leader(used=50.0), *followers("zone", node="beside", count=2)]
    one = scene(nodes, rule)
    simulation, plan = one.simulated(one.finding("hot", goal=Goal.EMPTY))
    assert (simulation.cordoned, plan.pods) == ([], [])
    assert "2 pods in zone=b" in simulation.refused["leader"].message


def test_the_explanation_of_a_leader_says_who_needs_it() -> None:
    """On a cool node as well."""
    for used in (13_400.0, 1_000.0):
        scene = scene_of([hot(used), cold()], [heavy("hot", 15_300), leader(), *followers()], policy=RULES)
        check = next(each for each in of_pod(scene, "leader").checks if each.code is Reason.NEEDED_BY_OTHERS)
        assert (check.name, check.ok) == ("guards, lists, levels, windows", False)
        assert "4 pods in kubernetes.io/hostname=hot" in check.detail
