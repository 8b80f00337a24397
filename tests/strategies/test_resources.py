"""Thresholds by resource: hot by any, relieved of what it has too much of, no landing over a target of another."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.cycle.observe.resource_notes import resource_notes
from rebalancer.model.cluster.objects import Taint, Toleration
from rebalancer.model.cluster.pods import SUCCEEDED
from rebalancer.model.measured.usage import ResourceUsage
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies.interface.resources import expected_amounts
from rebalancer.strategies.interface.view import Findings
from rebalancer.strategies.utilization.high_node_utilization import find as find_low
from rebalancer.strategies.utilization.low_node_utilization import find
from tests.builders import APod, Outcome, a_node, a_policy, carry_out, cluster, planner_for, replicas, usage_of, view_of

NODES = ("hot", "b", "c")
LICENCES = {"name": "licences", "node": "lic:node", "capacity": "lic:all", "pod": "lic:pod"}


def by_resources(*strategies: Mapping[str, Any], **marks: Any) -> RebalancerPolicy:
    """CPU 75/65/50, and 80/70/50 of each resource of `marks`, where it has no own."""
    usual = {"high": 80, "target": 70, "low": 50}
    thresholds = {
        "high": 75,
        "target": 65,
        "low": 50,
        "resources": {name: each or usual for name, each in marks.items()},
    }
    return a_policy(
        pools=[{"name": "general", "selector": {"matchLabels": {"pool": "general"}}, "thresholds": thresholds}],
        usage={"prometheus": {"url": "http://127.0.0.1:9090", "resources": [LICENCES]}},
        strategies=list(strategies) or [{"name": "LowNodeUtilization"}],
        guards={"minReplicas": 1},
    )


def amounts(nodes: Sequence[float], pods: Sequence[float], rows: int = 5, **fields: Any) -> ResourceUsage:
    """Of 100 on each node, as long as the stabilization window."""
    node = np.array(nodes, dtype=float)
    return ResourceUsage(
        **{
            "node": node,
            "capacity": np.full(len(node), 100.0),
            "pod": np.array(pods, dtype=float),
            "samples": np.repeat(node[None, :], rows, axis=0),
            **fields,
        }
    )


class Scene:
    """Three nodes of 16,000 millicores with these pods."""

    def __init__(
        self,
        cpu: Sequence[float],
        pods: Sequence[APod],
        resources: Mapping[str, ResourceUsage],
        policy: RebalancerPolicy,
    ) -> None:
        nodes = [a_node(name, used=used) for name, used in zip(NODES, cpu, strict=True)]
        self.snapshot, self.policy = cluster(nodes, pods), policy
        self.usage = usage_of(self.snapshot, nodes, pods, resources=resources)
        self.view = view_of(self.snapshot, self.usage, policy)

    def find(self) -> Findings:
        return find(self.view)

    def plan(self) -> Outcome:
        planner = planner_for(self.snapshot, self.usage, self.policy, base=self.view.base, reserve=None)
        return carry_out(planner, self.snapshot)


def test_a_node_is_hot_by_any_resource_and_the_finding_names_it() -> None:
    pods = replicas("web", {"hot": 3}, used=500.0)
    scene = Scene([2_000] * 3, pods, {"memory": amounts([90, 20, 20], [30, 30, 30])}, by_resources(memory=None))
    (finding,) = scene.find().findings
    assert (finding.resource, finding.cpu_share, finding.high, finding.target) == ("memory", 0.9, 0.8, 0.7)
    assert finding.reason == "real memory 90% is over high 80%, to be cooled to 70%"


def test_a_node_that_is_hot_by_two_names_both() -> None:
    pods = replicas("web", {"hot": 3}, used=500.0)
    scene = Scene([12_800, 0, 0], pods, {"memory": amounts([90, 20, 20], [30, 30, 30])}, by_resources(memory=None))
    (finding,) = scene.find().findings
    assert finding.resource == "memory"
    assert "; real CPU 80% is over high 75%" in finding.reason


def on_hot(name: str, used: float, **fields: Any) -> APod:
    """A pod of a service of its own."""
    return APod(name=name, node="hot", owner=name, used=used, **fields)


def test_the_victim_relieves_the_resource_that_exceeds() -> None:
    """One pod has the CPU, the other one the memory."""
    pods = [on_hot("busy", 4_000.0), on_hot("large", 100.0)]
    memory = {"memory": amounts([90, 10, 10], [1, 25])}
    assert Scene([11_000, 0, 0], pods, memory, by_resources(memory=None)).plan().pods == ["large"]
    memory = {"memory": amounts([75, 10, 10], [1, 25])}
    assert Scene([13_000, 0, 0], pods, memory, by_resources(memory=None)).plan().pods == ["busy"]
    # a resource that was high for a moment is not relieved with a stable one
    moment = amounts([90, 10, 10], [1, 25], samples=np.array([[30.0, 10, 10]] * 4 + [[90.0, 10, 10]]))
    assert Scene([13_000, 0, 0], pods, {"memory": moment}, by_resources(memory=None)).plan().pods == ["busy"]


def test_no_landing_goes_over_the_target_of_another_resource() -> None:
    """`b` and `c` have room for memory, and only one of them for CPU; and the other way round."""
    pods = [APod(name="large", node="hot", owner="large", used=2_000.0, cpu=12_000)]
    memory = {"memory": amounts([90, 10, 10], [25])}
    nowhere = Scene([8_000, 9_000, 9_000], pods, memory, by_resources(memory=None)).plan()
    assert nowhere.refusals == {"large": "PoolFull"}
    full = {"memory": amounts([20, 60, 60], [25])}
    nowhere = Scene([13_000, 100, 100], pods, full, by_resources(memory={"high": 80, "target": 70, "low": 65})).plan()
    assert nowhere.refusals == {"large": "NoNodeWithHeadroom"}
    (refusal,) = nowhere.planner.outcome.refusals()
    assert "2 nodes fit by requests; b would be at 85% of its memory, its target is 70%" in refusal.message


def test_a_resource_of_the_users_own_needs_lines_of_the_policy_only() -> None:
    pods = [APod(name=f"p{at}", node="hot", owner=f"own{at}", used=100.0) for at in range(3)]
    used = {"licences": amounts([95, 0, 0], [30, 5, 5])}
    outcome = Scene([2_000] * 3, pods, used, by_resources(licences=None)).plan()
    assert outcome.pods == ["p0"]
    assert "real licences 95% is over high 80%" in outcome.accepted[0].reason


def test_a_policy_without_thresholds_of_a_resource_plans_as_before() -> None:
    pods = replicas("web", {"hot": 4}, used=1_000.0)
    plain = by_resources()
    with_memory = Scene([13_000, 0, 0], pods, {"memory": amounts([99, 50, 50], [9] * 4)}, plain)
    without = Scene([13_000, 0, 0], pods, {}, plain)
    assert with_memory.plan().moves == without.plan().moves != []
    assert with_memory.view.base.resources == ("cpu",)


def test_hot_in_too_few_samples_waits_for_more() -> None:
    pods = replicas("web", {"hot": 3}, used=500.0)
    samples = np.array([[50.0, 20, 20]] + [[90.0, 20, 20]] * 4)
    memory = {"memory": amounts([90, 20, 20], [30, 30, 30], samples=samples)}
    found = Scene([2_000] * 3, pods, memory, by_resources(memory=None)).find()
    assert found.findings == ()
    assert "1 of the last 5 readings were not hot" in found.skipped[0].message


def test_a_terminating_pod_needs_no_second_relief() -> None:
    pods = [
        APod(name="going", node="hot", owner="web", used=500.0, terminating=True),
        APod(name="stays", node="hot", owner="web", used=500.0),
    ]
    memory = {"memory": amounts([90, 20, 20], [30, 30])}
    scene = Scene([2_000] * 3, pods, memory, by_resources(memory=None))
    assert scene.find().findings == ()
    at = scene.view.base.resources.index("memory")
    assert scene.view.base.node[0, at] == 90.0


def test_nothing_lands_where_a_resource_with_thresholds_is_not_known() -> None:
    pods = [APod(name="a", node="hot", owner="a", used=3_000.0)]
    memory = {"memory": amounts([20, float("nan"), float("nan")], [5])}
    assert Scene([13_000, 0, 0], pods, memory, by_resources(memory=None)).plan().moves == []


def test_a_node_is_low_only_by_all_resources() -> None:
    drain = {"name": "HighNodeUtilization", "args": {"source": "CPU"}}
    pods = [APod(name="a", node="b", owner="a", used=100.0), APod(name="b", node="c", owner="b", used=100.0)]
    policy = by_resources(drain, memory=None)
    scene = Scene([9_000, 500, 500], pods, {"memory": amounts([60, 60, 10], [5, 5])}, policy)
    (finding,) = find_low(scene.view).findings
    assert NODES[finding.node] == "c"
    assert "real memory 10% is under low 50%" in finding.reason


@pytest.mark.parametrize(
    ("marks", "wording"),
    [
        ({"gpu-memory": None}, "expected memory or a name of usage.prometheus.resources"),
        ({"memory": {"high": 60, "target": 70, "low": 50}}, "expected low <= target < high"),
    ],
)
def test_thresholds_are_of_measured_resources_and_in_order(marks: dict[str, Any], wording: str) -> None:
    with pytest.raises(ValueError, match=wording):
        by_resources(**marks)


def test_pods_that_started_after_the_snapshots_time_are_the_youngest() -> None:
    nodes = [a_node(name, used=1000.0) for name in NODES]
    pods = replicas("new", {"b": 1, "c": 1}, used=50.0, age=-2.0)
    snapshot = cluster(nodes, pods)
    usage = usage_of(snapshot, nodes, pods, resources={"memory": amounts([10, 10, 10], [1, 2])})
    expected = expected_amounts(snapshot, usage.resources["memory"].pod, unknown=np.zeros(2))
    assert expected.tolist() == [2.0, 2.0]


def test_a_pod_without_a_figure_of_another_resource_still_relieves_cpu() -> None:
    pods = [APod(name=f"p{index}", node="hot", owner=f"o{index}", used=1_500.0) for index in range(4)]
    unknown = amounts([95, 0, 0], [np.nan] * 3 + [94])
    assert Scene([13_000, 0, 0], pods, {"licences": unknown}, by_resources(licences=None)).plan().pods


# ---- what isn't known


def test_a_pod_without_a_series_counts_with_the_median_of_its_siblings() -> None:
    """Its siblings are younger: what they use is no less likely than nothing."""
    ages = (9_000.0, 900.0, 800.0, 700.0)
    pods = [APod(name=f"web-{at}", node="b", owner="web", age=age) for at, age in enumerate(ages)]
    snapshot = cluster([a_node("b")], pods)
    expected = expected_amounts(snapshot, np.array([np.nan, 30.0, 10.0, 20.0]), unknown=np.zeros(4))
    assert expected[0] == 20.0


def test_a_cluster_whose_owners_have_no_pod_has_no_siblings() -> None:
    """As in a first minute, or while all that run are pods of their own."""
    pods = [APod(name="web-1", node="b", owner="web", phase=SUCCEEDED)]
    snapshot = cluster([a_node("b")], pods)
    assert snapshot.owners
    assert not snapshot.active.any()
    assert expected_amounts(snapshot, np.array([np.nan]), unknown=np.array([3.0])).tolist() == [3.0]


@pytest.mark.parametrize(("measured", "moved"), [(94.0, True), (20.0, False), (np.nan, False)])
def test_a_pod_of_unknown_amount_uses_no_more_than_its_node_does_besides_the_others(
    measured: float, moved: bool
) -> None:
    """Of 95 of `hot` either the pod beside it uses nearly all, or the pod itself may use too much for the others."""
    pods = [on_hot("unknown", 3_000.0), on_hot("other", 10.0, cpu=15_000)]
    licences = {"licences": amounts([95, 0, 0], [np.nan, measured])}
    policy = by_resources(licences={"high": 99, "target": 70, "low": 50})
    assert Scene([13_000, 0, 0], pods, licences, policy).plan().pods == (["unknown"] if moved else [])


def test_a_pod_of_unknown_amount_lands_nowhere_where_its_nodes_amount_is_unknown_too() -> None:
    pods = [APod(name="unknown", node="hot", owner="unknown", used=3_000.0)]
    licences = {"licences": amounts([np.nan, 0, 0], [np.nan])}
    assert Scene([13_000, 0, 0], pods, licences, by_resources(licences=None)).plan().moves == []


def test_a_pool_that_is_full_for_want_of_a_measurement_says_so() -> None:
    pods = [APod(name="a", node="hot", owner="a", used=3_000.0)]
    scene = Scene([13_000, 0, 0], pods, {}, by_resources(memory=None))
    (refusal,) = scene.plan().planner.outcome.refusals()
    assert refusal.code == "PoolFull"
    assert "memory of b and 1 more isn't known" in refusal.message
    some = {"memory": amounts([20, np.nan, 90], [5])}
    (refusal,) = Scene([13_000, 0, 0], pods, some, by_resources(memory=None)).plan().planner.outcome.refusals()
    assert "memory of b isn't known" in refusal.message


def notes(scene: Scene) -> list[str]:
    return resource_notes(scene.snapshot, scene.usage, scene.view.node_pools)


def test_a_resource_with_thresholds_that_is_not_measured_is_noted() -> None:
    pods = [APod(name="a", node="hot", owner="a", used=3_000.0)]
    assert notes(Scene([13_000, 0, 0], pods, {}, by_resources(memory=None))) == [
        "memory has thresholds in general and isn't measured: no node there is hot by it, and nothing lands there"
    ]
    assert notes(Scene([13_000, 0, 0], pods, {}, by_resources())) == []


def test_nodes_and_pods_whose_amount_is_not_known_are_noted() -> None:
    pods = replicas("web", {"hot": 2}, used=500.0)
    used = {"memory": amounts([20, np.nan, 20], [5, np.nan]), "licences": amounts([5, 5, np.nan], [np.nan, 5])}
    assert notes(Scene([2_000] * 3, pods, used, by_resources(licences=None))) == [
        "memory of 1 of 3 nodes isn't known (b): no landing there is checked by it",
        "memory of 1 of 2 pods isn't known (shop/web-1): each counts with the median of its siblings, or with its "
        "request",
        "licences of 1 of 3 nodes isn't known (c): nothing lands there",
        "licences of 1 of 2 pods isn't known (shop/web-0): each counts with the median of its siblings, or with what "
        "its node uses besides its measured pods",
    ]
    assert notes(Scene([2_000] * 3, pods, used, by_resources()))[0].startswith("memory of 1 of 3 nodes")


def test_a_move_off_a_node_that_is_hot_by_memory_cools_it() -> None:
    """So the cooldown of a pool that scales up holds for it."""
    pods = replicas("web", {"hot": 3}, used=500.0)
    outcome = Scene([2_000] * 3, pods, {"memory": amounts([90, 20, 20], [30] * 3)}, by_resources(memory=None)).plan()
    assert [each.in_plan.cools for each in outcome.accepted] == [True]


# ---- memory in short supply

PRESSED = Taint(key="node.kubernetes.io/memory-pressure", value="", effect="NoSchedule")


def short_scene(
    *, pressed: Sequence[str] = (), swap: float = 0.0, share: float = 75.0, samples: float = 10.0, **usage: Any
) -> Scene:
    """`hot` uses `share` % of its memory, and lately `samples` %."""
    pods = replicas("web", {"hot": 3}, used=500.0)
    rows = np.array([[samples, 20, 20]] * 4 + [[share, 20, 20]])
    used = {"memory": amounts([share, 20, 20], [10] * 3, samples=rows)}
    scene = Scene([2_000] * 3, pods, used, by_resources(memory=None))
    nodes = [a_node(name, used=2_000.0, taints=(PRESSED,) if name in pressed else ()) for name in NODES]
    scene.snapshot = cluster(nodes, pods)
    swapped = np.array([swap, 0.0, 0.0])
    scene.usage = usage_of(scene.snapshot, nodes, pods, resources=used, swap_in_pages=swapped, **usage)
    scene.view = view_of(scene.snapshot, scene.usage, scene.policy)
    return scene


@pytest.mark.parametrize(
    ("short", "wording"),
    [
        ({"pressed": ["hot"]}, "is over its target 70%, to be cooled to 70%; it is under memory pressure"),
        ({"swap": 900.0}, "is over its target 70%, to be cooled to 70%; it reads 900 pages/s back from swap"),
    ],
)
def test_a_node_that_is_short_of_memory_is_relieved_at_once(short: dict[str, Any], wording: str) -> None:
    """Between its target and its high, for one sample."""
    (finding,) = short_scene(**short).find().findings
    assert finding.urgent
    assert finding.reason.endswith(wording)
    assert short_scene().find().findings == ()
    assert short_scene(swap=10.0).find().findings == ()
    assert short_scene(share=60.0, **short).find().findings == ()


def test_a_node_that_is_short_of_memory_comes_first_and_does_not_wait() -> None:
    pods = [*replicas("large", {"hot": 2}, used=4_000.0), *replicas("web", {"b": 3}, used=100.0)]
    used = {"memory": amounts([20, 75, 20], [1, 1, 10, 10, 10])}
    scene = Scene([13_000, 2_000, 100], pods, used, by_resources(memory=None))
    assert scene.plan().pods[0].startswith("large")
    nodes = [
        a_node(name, used=cpu, taints=(PRESSED,) if name == "b" else ())
        for name, cpu in zip(NODES, (13_000, 2_000, 100), strict=True)
    ]
    scene.snapshot = cluster(nodes, pods)
    scene.usage = usage_of(scene.snapshot, nodes, pods, resources=used)
    scene.view = view_of(scene.snapshot, scene.usage, scene.policy)
    assert scene.plan().pods[0].startswith("web")


def test_nothing_lands_on_a_node_under_memory_pressure() -> None:
    """Pods that aren't BestEffort tolerate the taint."""
    tolerates = (Toleration(key=PRESSED.key, operator="Exists", effect="NoSchedule"),)
    pods = [APod(name="a", node="hot", owner="a", used=3_000.0, template={"tolerations": tolerates})]
    nodes = [a_node("hot", used=13_000.0), a_node("b", used=100.0, taints=(PRESSED,))]
    snapshot, policy = cluster(nodes, pods), by_resources()
    planner = planner_for(snapshot, usage_of(snapshot, nodes, pods), policy)
    assert planner.next_move() is None
    (refusal,) = planner.outcome.refusals()
    assert refusal.message == "no target node is under its low: b is, but closed (under memory pressure)"


def test_file_cache_of_a_pod_relieves_its_node_of_nothing() -> None:
    """The working set of `files` is the largest, and nearly all of it the kernel would drop anyway."""
    pods = [on_hot("files", 100.0), on_hot("objects", 100.0)]
    memory = {"memory": amounts([90, 10, 10], [40, 25], relief=np.array([1.0, 25.0]))}
    assert Scene([2_000, 0, 0], pods, memory, by_resources(memory=None)).plan().pods == ["objects"]


def test_a_dip_of_memory_makes_no_node_low() -> None:
    drain = {"name": "HighNodeUtilization", "args": {"source": "CPU"}}
    pods = [APod(name="b", node="c", owner="b", used=100.0)]
    policy = by_resources(drain, memory=None)
    samples = np.array([[60.0, 60, 10], [60, 60, 55], [60, 60, 10]])
    used = {"memory": amounts([60, 60, 10], [5], samples=samples)}
    assert find_low(Scene([9_000, 9_000, 500], pods, used, policy).view).findings == ()
    used = {"memory": amounts([60, 60, 10], [5])}
    assert len(find_low(Scene([9_000, 9_000, 500], pods, used, policy).view).findings) == 1
