"""What HighNodeUtilization finds. A node has 16,000 millicores; it is low under 8,000 (50%), its target is 10,400."""

from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.steering import DRAINING, MAINTENANCE
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import PEAK, Goal
from rebalancer.model.reason import Reason, Refusal
from tests.builders import NOW, ANode, APod, a_node, a_pod, an_eviction, replicas
from tests.strategies.builders.emptied import Found, found_in_view, pods_on

NAME = "HighNodeUtilization"
NAN = float("nan")
DAY = 86_400.0
SCALE_DOWN = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
REQUEST_POOL = [
    {
        "name": "general",
        "selector": {"matchLabels": {"pool": "general"}},
        "requestThresholds": {
            "high": {"cpu": 90, "pods": 90},
            "target": {"cpu": 80, "pods": 80},
            "low": {"cpu": 30, "pods": 30},
        },
    }
]


def drain(nodes: list[ANode], pods: list[APod], *, args: dict[str, Any] | None = None, **fields: Any) -> Found:
    return found_in_view(NAME, nodes, pods, args, **fields)


def beside_busy(name: str = "n", **fields: Any) -> list[ANode]:
    """A low node, and a busy one to take its pods."""
    return [a_node(name, **{"used": 1e3, **fields}), a_node("m", used=9e3)]


# ---- drain: which nodes


def test_low_nodes_are_found_emptiest_first_with_the_numbers() -> None:
    nodes = [a_node("b", used=4_000.0), a_node("c", used=1_600.0), a_node("a", used=4_000.0), a_node("busy", used=9e3)]
    found = drain(nodes, pods_on(a=1, b=2, c=3, busy=4))
    assert found.nodes == ["c", "a", "b"]
    first = found.findings.findings[0]
    assert first.reason == "real CPU 10% is under low 50%, pods to go elsewhere: 3"
    assert (first.strategy, first.pool, first.goal) == (NAME, "general", Goal.EMPTY)
    assert sorted(found.pods("c")) == ["on-c-0", "on-c-1", "on-c-2"]
    assert found.findings.empty_at_most == 1
    assert found.cordons == {}


def test_where_all_nodes_of_the_pool_are_low_none_is_drained_unless_the_policy_says_so() -> None:
    low, busy = [a_node("a", used=1e3), a_node("b", used=2e3)], a_node("c", used=9e3)
    pods, keep = pods_on(a=1, b=1, c=1), {"drainWhenAllLow": False}
    assert drain(low, pods[:2]).nodes == ["a", "b"]
    kept = drain(low, pods[:2], args=keep)
    assert kept.nodes == []
    assert kept.skipped == dict.fromkeys("ab", "low, but not to be drained: all nodes of its pool are low")
    assert drain([*low, busy], pods, args=keep).nodes == ["a", "b"]
    cordoned = a_node("c", used=9e3, unschedulable=True)
    assert drain([*low, cordoned], pods, args=keep).nodes == []


@pytest.mark.parametrize(("used", "low"), [(7_999.9, True), (8_000.0, False), (0.0, True)])
def test_low_is_strictly_under_low(used: float, low: bool) -> None:
    assert bool(drain(beside_busy(used=used), pods_on(n=1, m=1)).nodes) is low


def test_one_dip_makes_no_node_low() -> None:
    readings = np.full((5, 2), 9_000.0)
    readings[-1] = 1_000.0
    nodes = [a_node("n", used=1e3), a_node("m", used=1e3)]
    assert drain(nodes, pods_on(n=1, m=1), usage={"samples": readings}).nodes == []


def test_a_node_whose_cpu_is_not_known_is_skipped_with_the_reason() -> None:
    problems = {1: Refusal.of(Reason.STALE_SAMPLE, "9m old")}
    nodes = [a_node("none", used=NAN), a_node("stale", used=NAN), a_node("busy", used=9e3)]
    found = drain(nodes, pods_on(none=1, stale=1, busy=1), usage={"problems": problems})
    assert found.nodes == []
    assert found.skipped == {"none": "no usage sample", "stale": "the usage sample is too old: 9m old"}


def test_a_node_that_is_not_ready_is_not_emptied() -> None:
    found = drain(beside_busy(ready=False), pods_on(n=1, m=1))
    assert found.nodes == []
    assert found.findings.skipped[0].code is Reason.NODE_NOT_READY


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        (SCALE_DOWN, "true", True),
        (SCALE_DOWN, "false", False),
        (SCALE_DOWN, "yes", True),
        (SCALE_DOWN, "", True),
        ("karpenter.sh/do-not-disrupt", "true", True),
        ("karpenter.sh/do-not-disrupt", "0", False),
        ("example.com/other", "true", False),
    ],
)
def test_an_annotation_keeps_a_node_unless_it_plainly_says_false(key: str, value: str, kept: bool) -> None:
    found = drain(beside_busy(annotations={key: value}), pods_on(n=1, m=1))
    assert (found.nodes == []) is kept
    assert found.skipped == ({"n": f'low, but not to be drained: {key} is "{value}"'} if kept else {})


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("ToBeDeletedByClusterAutoscaler", "about to go: taint ToBeDeletedByClusterAutoscaler"),
        ("DeletionCandidateOfClusterAutoscaler", "cluster-autoscaler may remove it"),
        ("karpenter.sh/disrupted", "about to go: taint karpenter.sh/disrupted"),
    ],
)
def test_what_an_autoscaler_removes_is_left_to_it(key: str, why: str) -> None:
    found = drain(beside_busy(taints=(Taint(key=key, effect="NoSchedule"),)), pods_on(n=1, m=1))
    assert (found.nodes, found.skipped) == ([], {"n": f"low, but not to be drained: {why}"})


def test_a_node_that_people_cordoned_is_emptied_only_where_it_need_not_be_marked() -> None:
    nodes, pods = beside_busy(unschedulable=True), pods_on(n=1, m=1)
    assert drain(nodes, pods).skipped == {"n": "low, but not to be drained: cordoned, not by rebalancer"}
    found = drain(nodes, pods, args={"wholeNodes": False})
    assert (found.nodes, found.cordons, found.landings("n")) == (["n"], {}, ["m"])


def test_a_node_that_is_cordoned_for_maintenance_is_left_to_that() -> None:
    found = drain(beside_busy(unschedulable=True), pods_on(n=1, m=1), cordons={"n": (MAINTENANCE, 60.0)})
    assert (found.nodes, found.cordons) == ([], {})
    assert found.skipped == {"n": "low, but not to be drained: cordoned by rebalancer for maintenance"}


def test_pods_that_go_with_their_node_do_not_keep_it_from_being_empty() -> None:
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    pods = [
        a_pod("agent", "n", owner="agent", owner_kind="DaemonSet"),
        a_pod("static", "n", owner="n", owner_kind="Node"),
        a_pod("mirror", "n", template=mirror),
        a_pod("from-file", "n", template={"annotations": {"kubernetes.io/config.source": "file"}}),
        a_pod("done", "n", owner="job", phase=SUCCEEDED),
        a_pod("failed", "n", owner="web", phase=FAILED),
        *pods_on(m=1),
    ]
    nodes = beside_busy()
    assert drain(nodes, pods).nodes == []
    # a bare pod nobody makes again keeps it: that it can't go is for others to say
    pods += [a_pod("bare", "n"), a_pod("web", "n", owner="web"), a_pod("going", "n", owner="web", terminating=True)]
    assert sorted(drain(nodes, pods).pods("n")) == ["bare", "web"]


def test_only_nodes_that_are_asked_for_and_of_its_pools_are_found() -> None:
    marks = {"high": 75, "target": 65, "low": 50}
    pools = [
        {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": marks}
        for name in ("general", "other")
    ]
    nodes = [a_node("a", used=1e3), a_node("b", used=1e3), a_node("o", used=1e3, labels={"pool": "other"})]
    pods = pods_on(a=1, b=1, o=1)
    assert drain(nodes, pods, pools=pools).nodes == ["a", "b", "o"]
    assert drain(nodes, pods, pools=pools, in_pools=["general"]).nodes == ["a", "b"]
    assert drain(nodes, pods, pools=pools, in_pools=["general"], only=["b", "o"]).nodes == ["b"]


def test_by_requests_a_node_is_low_when_it_is_in_every_resource() -> None:
    nodes = [a_node(name, cpu=4_000, pods=10) for name in ("low", "many", "large", "even")]
    pods = [
        *replicas("a", {"low": 2}, cpu=400),
        *replicas("b", {"many": 3}, cpu=100),
        *replicas("c", {"large": 1}, cpu=1_200),
        *replicas("d", {"even": 1}, cpu=1_199),
    ]
    found = drain(nodes, pods, args={"source": "Requests"}, pools=REQUEST_POOL)
    assert found.nodes == ["low", "even"]
    assert found.findings.findings[0].reason == (
        "requested cpu 20% is under low 30% and requested pods 20% is under low 30%, pods to go elsewhere: 2"
    )
    assert found.findings.loads is None


def test_real_cpu_is_not_asked_for_with_requests() -> None:
    nodes = [a_node("n", used=NAN), a_node("m", used=16e3)]
    found = drain(nodes, pods_on(n=1, m=20), args={"source": "Requests"}, pools=REQUEST_POOL)
    assert (found.nodes, found.skipped) == (["n"], {})


# ---- drain: where to


def test_pods_go_only_to_nodes_that_are_not_to_be_emptied() -> None:
    nodes = [
        a_node("low", used=1e3),
        a_node("low-too", used=2e3),
        a_node("empty", used=10.0),
        a_node("busy", used=9e3),
        a_node("cordoned", used=9e3, unschedulable=True),
        a_node("kept", used=1e3, annotations={SCALE_DOWN: "true"}),
        a_node("no-pool", used=1e3, labels={}),
    ]
    found = drain(nodes, pods_on(low=1, **{"low-too": 1, "busy": 1, "kept": 1}))
    assert found.nodes == ["low", "low-too"]
    assert found.landings("low") == found.landings("low-too") == ["busy", "kept", "no-pool"]


def test_where_all_nodes_are_low_pods_go_to_fuller_ones_and_never_to_an_empty_one() -> None:
    nodes = [a_node(name, used=used) for name, used in (("c", 3e3), ("b", 2e3), ("a", 2e3), ("d", 4e3), ("e", 5e3))]
    found = drain(nodes, pods_on(a=1, b=1, c=1, d=1))
    assert found.nodes == ["a", "b", "c", "d"]
    landings = {"a": ["b", "c", "d"], "b": ["c", "d"], "c": ["d"], "d": []}
    assert {node: found.landings(node) for node in found.nodes} == landings


@pytest.mark.parametrize("other", [{"unschedulable": True}, {"ready": False}, {"used": NAN}])
def test_a_node_that_can_take_nothing_does_not_keep_low_ones_from_taking_pods(other: dict[str, Any]) -> None:
    nodes = [a_node("a", used=1e3), a_node("b", used=2e3), a_node("x", **{"used": 9e3, **other})]
    assert "b" in drain(nodes, pods_on(a=1, b=1, x=1)).landings("a")


def test_landings_keep_a_reserve_under_their_target_now_and_at_their_peak() -> None:
    nodes = [a_node("n", used=1e3), a_node("m", used=9e3), a_node("no-pool", used=0.0, labels={})]
    loads = drain(nodes, pods_on(n=1, m=1), args={"headroom": 5}, peaks={"n": 2e3, "m": 9.5e3}).findings.loads
    assert loads is not None
    assert loads.resources == ("cpu", PEAK)
    assert loads.target[:2].tolist() == [[9_600.0, 9_600.0], [9_600.0, 9_600.0]]
    assert loads.node[:2].tolist() == [[1e3, 2e3], [9e3, 9.5e3]]
    assert np.isnan(loads.target[2]).all()
    assert not loads.over.any()


def test_without_whole_nodes_the_cheapest_pods_go_first() -> None:
    guaranteed, effort = {"qos": "Guaranteed"}, {"qos": "BestEffort"}
    pods = [
        a_pod("vip", "n", owner="w", priority=5, template=effort),
        a_pod("g", "n", owner="w", template=guaranteed),
        a_pod("old", "n", owner="w", age=9 * DAY),
        a_pod("b", "n", owner="w", age=1 * DAY),
        a_pod("a", "n", owner="w", age=1 * DAY),
        a_pod("effort", "n", owner="w", age=9 * DAY, template=effort),
        *pods_on(m=1),
    ]
    found = drain(beside_busy(), pods, args={"wholeNodes": False})
    assert found.findings.findings[0].goal is Goal.REMOVE
    assert found.findings.empty_at_most is None
    assert found.pods("n") == ["effort", "a", "b", "old", "g", "vip"]


# ---- drain: what was begun


def begun(ago: float = 60.0, **fields: Any) -> dict[str, Any]:
    return {"cordons": {"x": (DRAINING, ago)}, **fields}


def left(ago: float | None) -> list[Eviction]:
    """Of the last pod of x."""
    return [] if ago is None else [an_eviction(node="x", cpu_millicores=1.0, planned_at=NOW - ago)]


def test_what_is_being_emptied_comes_first_and_stays_cordoned() -> None:
    nodes = [a_node("a", used=1e3), *beside_busy("x", used=9e3, unschedulable=True)]
    found = drain(nodes, pods_on(a=1, x=2, m=1), args={"maxConcurrentNodes": 2}, **begun())
    assert found.nodes == ["x", "a"]
    assert found.cordons == {"x": DRAINING}
    assert found.findings.empty_at_most == 2
    assert found.findings.findings[0].reason == "draining, pods to go elsewhere: 2"
    assert found.landings("a") == ["m"]


def test_it_stays_cordoned_and_counts_when_it_is_not_looked_at_and_while_its_last_pods_are_leaving() -> None:
    nodes = [a_node("a", used=1e3), *beside_busy("x", unschedulable=True)]
    found = drain(nodes, pods_on(a=1, x=2, m=1), args={"maxConcurrentNodes": 1}, only=["a", "m"], **begun())
    assert (found.nodes, found.cordons, found.findings.empty_at_most) == (["a"], {"x": DRAINING}, 0)
    pods = [*pods_on(a=1, m=1), a_pod("going", "x", owner="web", terminating=True)]
    found = drain(nodes, pods, args={"maxConcurrentNodes": 3, "cordonAfterDrain": "0s"}, **begun())
    assert (found.nodes, found.cordons, found.findings.empty_at_most) == (["a"], {"x": DRAINING}, 2)


@pytest.mark.parametrize(
    ("ago", "left_ago", "held"),
    [(600.0, None, True), (1_800.0, None, False), (5_000.0, 600.0, True), (5_000.0, 2_000.0, False)],
)
def test_an_empty_node_is_held_for_a_while_and_then_let_go(ago: float, left_ago: float | None, held: bool) -> None:
    nodes = beside_busy("x", used=10.0, unschedulable=True)
    found = drain(nodes, pods_on(m=1), args={"cordonAfterDrain": "30m"}, recent=left(left_ago), **begun(ago))
    assert found.cordons == ({"x": DRAINING} if held else {})
    assert (found.nodes, found.findings.empty_at_most) == ([], 1)


@pytest.mark.parametrize(
    ("hold", "ago", "left_ago", "goes_on"),
    [
        ("0s", 3_599.0, None, True),
        ("0s", 3_600.0, None, False),
        ("0s", 90_000.0, 3_599.0, True),
        ("0s", 90_000.0, 3_600.0, False),
        ("2h", 7_199.0, None, True),
        ("2h", 7_200.0, None, False),
    ],
)
def test_a_node_that_nothing_can_leave_is_not_cordoned_for_ever(
    hold: str, ago: float, left_ago: float | None, goes_on: bool
) -> None:
    nodes = beside_busy("x", unschedulable=True)
    found = drain(nodes, pods_on(x=1, m=1), args={"cordonAfterDrain": hold}, recent=left(left_ago), **begun(ago))
    assert (found.nodes, found.cordons) == ((["x"], {"x": DRAINING}) if goes_on else ([], {}))
    if not goes_on:
        waited = "1h" if hold == "0s" else hold
        assert f"no pod could leave it for {waited}, so it is uncordoned" in found.skipped["x"]


@pytest.mark.parametrize(
    ("fields", "cordons"),
    [
        ({"annotations": {SCALE_DOWN: "true"}}, {}),
        ({"taints": (Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule"),)}, {"x": DRAINING}),
        ({"labels": {}}, {}),
    ],
    ids=["may no longer be emptied", "an autoscaler takes over", "of another pool"],
)
def test_a_node_that_may_no_longer_be_emptied_is_let_go_and_one_of_an_autoscaler_keeps_its_cordon(
    fields: dict[str, Any], cordons: dict[str, str]
) -> None:
    found = drain(beside_busy("x", unschedulable=True, **fields), pods_on(x=1, m=1), **begun())
    assert (found.nodes, found.cordons) == ([], cordons)


def test_a_node_is_low_by_the_requested_share_of_an_extended_resource() -> None:
    gpu = "nvidia.com/gpu"
    marks = {"high": {gpu: 90}, "target": {gpu: 80}, "low": {gpu: 30}}
    pools = [{"name": "general", "selector": {}, "requestThresholds": marks}]
    template = {"extendedRequests": {gpu: 1.0}}
    nodes = [a_node("idle", extended={gpu: 8.0}), a_node("busy", extended={gpu: 8.0}), a_node("none")]
    pods = [
        *(a_pod(f"p{at}", node, owner="w", template=template) for at, node in enumerate(["idle", *["busy"] * 4])),
        a_pod("web", "none", owner="web"),
    ]
    found = drain(nodes, pods, args={"source": "Requests"}, pools=pools)
    assert found.nodes == ["idle"]
    (finding,) = found.findings.findings
    assert "requested nvidia.com/gpu 12.5% is under low 30%" in finding.reason
