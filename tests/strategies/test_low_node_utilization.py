"""What LowNodeUtilization finds. A node has 16,000 millicores; it is hot over 12,000 (75%)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import Loads
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.pools import NodePools, cpu_thresholds
from rebalancer.policy.schema.policy import Thresholds
from rebalancer.strategies import Findings
from tests.builders import (
    NOW,
    ANode,
    APod,
    a_node,
    a_pod,
    a_policy,
    an_eviction,
    cluster,
    found_in,
    replicas,
    usage_of,
)

NAN = float("nan")
REQUESTS = [{"name": "LowNodeUtilization", "args": {"source": "Requests"}}]


def find(
    nodes: Sequence[ANode],
    pods: Sequence[APod] = (),
    *,
    policy: Any = None,
    recent: tuple[Eviction, ...] = (),
    **usage: Any,
) -> Findings:
    made = cluster(nodes, pods)
    return found_in(made, usage_of(made, nodes, pods, **usage), policy or a_policy(), recent)[0]


def loads_of(found: Findings) -> Loads:
    assert found.loads is not None
    return found.loads


def hot_in(found: Findings, nodes: Sequence[ANode]) -> list[str]:
    return [nodes[each.node].name for each in found.findings]


def skipped_in(found: Findings, nodes: Sequence[ANode]) -> dict[str, Reason]:
    return {nodes[index].name: refusal.code for index, refusal in found.skipped.items()}


def requests_policy(target: dict[str, float]) -> Any:
    high, low = ({key: mark + by for key, mark in target.items()} for by in (10, -10))
    pool = a_pool(selector={}, requestThresholds={"high": high, "target": target, "low": low})
    return a_policy(pools=[pool], strategies=REQUESTS)


def test_a_node_over_high_is_found_with_its_numbers_in_words() -> None:
    nodes = [a_node("hot", used=13_600.0), a_node("cold", used=1_000.0)]
    found = find(nodes, [a_pod("a", "hot", owner="web"), a_pod("b", "cold", owner="web")])
    (finding,) = found.findings
    assert (finding.strategy, finding.pool) == ("LowNodeUtilization", "general")
    assert (finding.cpu_share, finding.high, finding.target) == (0.85, 0.75, 0.65)
    assert finding.reason == "real CPU 85% is over high 75%, to be cooled to 65%"
    assert finding.candidates.tolist() == [0]
    assert found.skipped == {}


@pytest.mark.parametrize(("used", "hot"), [(12_000.0, False), (12_000.1, True), (0.0, False)])
def test_hot_is_strictly_over_high(used: float, hot: bool) -> None:
    assert bool(find([a_node("n", used=used)]).findings) is hot


def test_requests_do_not_make_a_node_hot_by_real_cpu() -> None:
    assert find([a_node("n", used=100.0)], replicas("web", {"n": 30}, cpu=500)).findings == ()


def test_the_hottest_comes_first_by_excess_as_a_share_of_capacity_and_ties_by_name() -> None:
    nodes = [
        a_node("z", used=14_000.0),
        a_node("small", cpu=2_000, used=1_900.0),
        a_node("a", used=14_000.0),
        a_node("big", cpu=64_000, used=50_000.0),
    ]
    found = find(nodes)
    assert hot_in(found, nodes) == ["small", "a", "z", "big"]
    assert loads_of(found).room[:, 0].tolist() == [16_000.0, 2_000.0, 16_000.0, 64_000.0]
    assert loads_of(found).resources == ("cpu",)


def test_pods_that_just_arrived_can_make_a_node_hot_only_when_it_was_measured_hot() -> None:
    nodes = [a_node("n", used=11_900.0)]
    pods = [a_pod("old", "n", owner="web", used=500.0), a_pod("new", "n", owner="web", used=0.0, age=10.0)]
    found = find(nodes, pods)
    assert skipped_in(found, nodes) == {"n": Reason.STABILIZATION_WINDOW}


# ---- pools


def a_pool(name: str = "general", **fields: Any) -> dict[str, Any]:
    return {"name": name, "selector": {"matchLabels": {"pool": name}}, **fields}


def two_pools(**fields: Any) -> Any:
    thresholds = {
        name: {"high": high, "target": high - 10, "low": 20} for name, high in (("general", 75), ("other", 50))
    }
    return a_policy(pools=[a_pool(name, thresholds=each) for name, each in thresholds.items()], **fields)


def test_each_pool_has_its_own_thresholds() -> None:
    nodes = [a_node("g", used=9_000.0), a_node("o", used=9_000.0, labels={"pool": "other"})]
    found = find(nodes, policy=two_pools())
    assert hot_in(found, nodes) == ["o"]
    assert found.findings[0].pool == "other"


def test_a_node_in_no_pool_is_not_touched() -> None:
    nodes = [a_node("free", used=16_000.0, labels={}), a_node("n", used=0.0)]
    found = find(nodes)
    assert found.findings == ()
    assert np.isnan(loads_of(found).high[0, 0])


def test_a_strategy_looks_only_at_the_pools_that_it_names() -> None:
    nodes = [a_node("g", used=15_000.0), a_node("o", used=15_000.0, labels={"pool": "other"})]
    policy = two_pools(strategies=[{"name": "LowNodeUtilization", "pools": ["other"]}])
    assert hot_in(find(nodes, policy=policy), nodes) == ["o"]


def test_a_node_in_two_pools_is_in_neither_and_the_others_go_on() -> None:
    pools = two_pools().pools
    everything = pools[0].model_copy(update={"name": "all", "selector": type(pools[0].selector)()})
    two = cluster([a_node("n1", labels={"pool": "other"}), a_node("n2", labels={})], [])
    found = NodePools.of([*pools, everything], two.nodes)
    assert found.names == ["", "all"]
    assert found.left_out[0].code is Reason.NODE_IN_TWO_POOLS
    assert found.left_out[0].message.endswith(": other and all")
    assert [each.object for each in found.obstacles()] == ["Node n1"]
    # what lands there stays under the lowest target of both
    high, target, low = found.thresholds(np.array([0.5, 0.5]))
    lowest = min(each.thresholds.target for each in (pools[1], everything) if each.thresholds is not None)
    assert np.isnan([high[0], low[0]]).all()
    assert target[0] == lowest / 100
    three = cluster([a_node("a", labels={"pool": "other"}), a_node("b", labels={}), a_node("c")], [])
    assert NodePools.of(pools, three.nodes).of_node.tolist() == [1, -1, 0]


# ---- nodes that are not judged


@pytest.mark.parametrize(
    ("used", "problem"), [(NAN, Reason.NOT_FINITE), (15_000.0, Reason.STALE_SAMPLE)], ids=["no usage", "a number"]
)
def test_a_node_with_a_problem_is_skipped_with_its_reason_even_if_it_has_a_number(used: float, problem: Reason) -> None:
    nodes = [a_node("blind", used=used), a_node("hot", used=13_000.0)]
    found = find(nodes, problems={0: Refusal.of(problem)})
    assert hot_in(found, nodes) == ["hot"]
    assert skipped_in(found, nodes) == {"blind": problem}


def tainted(key: str) -> dict[str, Any]:
    return {"taints": (Taint(key=key, effect="PreferNoSchedule"),)}


@pytest.mark.parametrize("by_requests", [False, True])
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ready": False}, Reason.NODE_NOT_READY),
        (tainted("ToBeDeletedByClusterAutoscaler"), Reason.NODE_LEAVING),
        (tainted("karpenter.sh/disrupted"), Reason.NODE_LEAVING),
    ],
    ids=["not ready", "cluster-autoscaler removes it", "Karpenter removes it"],
)
def test_a_node_that_is_not_ready_or_about_to_go_is_skipped(
    fields: dict[str, Any], reason: Reason, by_requests: bool
) -> None:
    nodes = [a_node("n", used=15_000.0, cpu=1_000, **fields)]
    found = find(nodes, replicas("web", {"n": 3}), policy=requests_policy({"cpu": 50}) if by_requests else a_policy())
    assert found.findings == ()
    assert skipped_in(found, nodes) == {"n": reason}


def test_a_candidate_that_may_never_be_removed_is_relieved() -> None:
    """In a node group at its minimum size cluster-autoscaler keeps the taint on nodes with small requests."""
    candidate = Taint(key="DeletionCandidateOfClusterAutoscaler", value="1799990000", effect="PreferNoSchedule")
    nodes = [a_node("hot", used=15_000.0, taints=(candidate,)), a_node("cold", used=1_000.0)]
    found = find(nodes, replicas("web", {"hot": 3}), policy=a_policy())
    assert hot_in(found, nodes) == ["hot"]


def test_an_unknown_node_does_not_shift_the_mean_of_its_pool() -> None:
    nodes = [a_node("hot", used=9_600.0), a_node("cold", used=3_200.0), a_node("blind", used=NAN)]
    found = find(nodes, policy=deviation())
    assert hot_in(found, nodes) == ["hot"]
    assert loads_of(found).high[0, 0] / 16_000 == pytest.approx(0.5)


# ---- settling


def a_move(age: float, node: str = "hot", uid: str = "") -> Eviction:
    return an_eviction(node=node, cpu_millicores=10.0, planned_at=NOW - age, service="shop/web", uid=uid)


@pytest.mark.parametrize(
    ("age", "settles"), [(0.0, True), (299.0, True), (300.0, False), (1000.0, False), (-10.0, True)]
)
def test_a_node_settles_for_a_whole_rate_window_after_a_move_from_it(age: float, settles: bool) -> None:
    nodes = [a_node("hot", used=15_000.0), a_node("other", used=15_000.0)]
    found = find(nodes, recent=(a_move(age),))
    assert hot_in(found, nodes) == (["other"] if settles else ["hot", "other"])
    assert skipped_in(found, nodes) == ({"hot": Reason.SETTLING} if settles else {})


def test_how_long_it_still_settles_is_counted_from_the_youngest_move() -> None:
    for moves in ((a_move(100.0),), (a_move(100.0), a_move(200.0))):
        found = find([a_node("hot", used=15_000.0)], recent=moves)
        assert found.skipped[0].message.endswith(": 3m20s to go")


def test_a_pod_that_is_still_there_was_not_moved() -> None:
    nodes, pods = [a_node("hot", used=15_000.0)], [a_pod("a", "hot", owner="web", used=100.0)]
    move = a_move(10.0, uid="uid-shop-a")
    assert hot_in(find(nodes, pods, recent=(move,)), nodes) == ["hot"]
    pods[0].terminating = True
    assert skipped_in(find(nodes, pods, recent=(move,)), nodes) == {"hot": Reason.SETTLING}


def test_a_move_from_a_node_that_is_gone_holds_nothing_back() -> None:
    nodes = [a_node("hot", used=15_000.0)]
    assert hot_in(find(nodes, recent=(a_move(1.0, node="deleted"),)), nodes) == ["hot"]


# ---- debounce: 3 distinct samples over 2 minutes by default


def sampled(times: Sequence[float], used: Sequence[float]) -> dict[str, Any]:
    """`times` are seconds ago of the raw samples behind each reading, oldest first."""
    return {
        "sample_times": np.array([[NOW - ago] for ago in times]),
        "samples": np.array([[each] for each in used], dtype=float),
    }


HOT, COOL = 13_000.0, 11_000.0


@pytest.mark.parametrize(
    ("times", "used", "found"),
    [
        ([120, 60, 0], [HOT] * 3, True),
        ([120, 120, 120], [HOT] * 3, False),  # one sample, seen three times
        ([120, 120, 60, 60, 0], [HOT] * 5, True),
        ([120, 120, 0, 0, 0], [HOT] * 5, False),
        ([120, 60, 0], [HOT, COOL, HOT], False),  # a dip in between
        ([120, 60, 0], [COOL, HOT, HOT], False),
        ([120, 60, 0], [HOT, HOT, 12_000.0], False),  # at high is not over it
        ([30, 15, 0], [HOT] * 3, False),  # enough samples, too short
        ([96, 48, 0], [HOT] * 3, True),  # a scrape interval inside the duration
        ([95, 48, 0], [HOT] * 3, False),
        ([120, 90, 60, 30, 0], [HOT, HOT, NAN, HOT, HOT], True),  # a missing reading is no dip
        ([120, NAN, 60, 0], [HOT, HOT, HOT, HOT], True),
        ([120, NAN, 0], [HOT, HOT, HOT], False),
        ([NAN, NAN, NAN], [HOT] * 3, False),
    ],
)
def test_a_node_must_be_hot_in_enough_distinct_samples_for_long_enough(
    times: list[float], used: list[float], found: bool
) -> None:
    nodes = [a_node("n", used=HOT)]
    findings = find(nodes, **sampled(times, used))
    assert bool(findings.findings) is found
    assert skipped_in(findings, nodes) == ({} if found else {"n": Reason.STABILIZATION_WINDOW})


@pytest.mark.parametrize(
    ("times", "used", "message"),
    [
        ([120, 120, 0], [HOT] * 3, "2 of 3 distinct samples"),
        ([120, 60, 0], [HOT, COOL, HOT], "1 of the last 3 readings were not hot"),
        ([60, 30, 0], [HOT] * 3, "hot for 1m of 2m"),
    ],
)
def test_the_reason_names_what_the_debounce_waits_for(times: list[float], used: list[float], message: str) -> None:
    assert find([a_node("n", used=HOT)], **sampled(times, used)).skipped[0].message.endswith(f": {message}")


def test_one_sample_is_enough_when_the_policy_says_so() -> None:
    policy = a_policy(usage={"source": "MetricsServer", "stabilizationWindow": {"samples": 1, "duration": "0s"}})
    nodes = [a_node("n", used=HOT)]
    assert hot_in(find(nodes, policy=policy, **sampled([10], [HOT])), nodes) == ["n"]


def test_a_node_that_is_not_hot_is_not_debounced() -> None:
    assert find([a_node("n", used=COOL)], **sampled([0], [COOL])).skipped == {}


# ---- deviation mode


def deviation(floor: float = 40, high: float = 10, target: float = 5, low: float = 5) -> Any:
    thresholds = {"high": high, "target": target, "low": low, "relativeToMean": True, "floor": floor}
    return a_policy(pools=[a_pool(selector={}, thresholds=thresholds)])


@pytest.mark.parametrize(
    ("shares", "marks"),
    [
        ([0.4, 0.6, NAN], (0.6, 0.55, 0.45)),  # around the mean of the nodes that are known
        ([0.1, 0.2], (0.4, 0.35, 0.1)),  # lifted to the floor, target with it
        ([0.0, 0.02], (0.4, 0.35, 0.0)),  # low never below nothing
        ([0.95, 0.99], (1.07, 1.02, 0.92)),  # no node can be hot
        ([NAN, NAN], (NAN, NAN, NAN)),  # without any known node there are no marks
    ],
)
def test_marks_lie_around_the_mean_of_the_pool_and_the_floor_lifts_high_and_target_together(
    shares: list[float], marks: tuple[float, float, float]
) -> None:
    thresholds = deviation().pools[0].thresholds
    assert thresholds is not None
    assert cpu_thresholds(thresholds, np.array(shares)) == pytest.approx(marks, nan_ok=True)


def test_absolute_marks_do_not_look_at_the_nodes() -> None:
    thresholds = Thresholds.model_validate({"high": 75, "target": 65, "low": 50})
    assert cpu_thresholds(thresholds, np.array([NAN])) == (0.75, 0.65, 0.5)


@pytest.mark.parametrize(
    ("used", "hot"), [((9_600.0, 3_200.0), True), ((6_000.0, 1_000.0), False), ((8_000.0, 8_000.0), False)]
)
def test_a_node_far_from_the_mean_is_hot_unless_under_the_floor(used: tuple[float, float], hot: bool) -> None:
    nodes = [a_node("a", used=used[0]), a_node("b", used=used[1])]
    assert hot_in(find(nodes, policy=deviation()), nodes) == (["a"] if hot else [])


def test_means_of_pools_are_apart() -> None:
    nodes = [a_node("a", used=9_600.0), a_node("b", used=9_600.0), a_node("c", used=100.0, labels={"pool": "other"})]
    marks = {"high": 10, "target": 5, "low": 5, "relativeToMean": True, "floor": 40}
    policy = a_policy(pools=[a_pool(name, thresholds=marks) for name in ("general", "other")])
    assert find(nodes, policy=policy).findings == ()
