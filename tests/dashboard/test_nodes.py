"""What people see of the nodes: states, marks and peaks, from a snapshot and what was measured."""

from typing import Any

import numpy as np
import pytest

from rebalancer.dashboard.nodes import ExpectedPeaks, MeasuredCpu, NodeView, node_view
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.cluster.steering import SOFT_TAINT
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy import RebalancerPolicy
from rebalancer.web.pages.views import NodeState
from tests.builders import NOW, ANode, a_node, a_policy, cluster, replicas, usage_of
from tests.strategies.test_resources import amounts

GENERAL = {"pool": "general"}
NAN = float("nan")


def expected(snapshot: ClusterSnapshot, **peaks: tuple[float, float, float]) -> ExpectedPeaks:
    """Node -> (peak in millicores, when, hot from); nothing is known of the others."""
    rows = [peaks.get(name.replace("-", "_"), (NAN, NAN, NAN)) for name in snapshot.nodes.names]
    columns = np.array(rows, dtype=np.float64).T
    return ExpectedPeaks(made_at=NOW - 60, peak_millicores=columns[0], peak_at=columns[1], hot_from=columns[2])


def seen(
    nodes: list[ANode], policy: RebalancerPolicy | None = None, peaks: dict[str, Any] | None = None, **usage: Any
) -> NodeView:
    pods = replicas("web", {node.name: 3 for node in nodes})
    snapshot = cluster(nodes, pods)
    measured = MeasuredCpu.of(snapshot, usage_of(snapshot, nodes, pods, **usage))
    return node_view(snapshot, measured, expected(snapshot, **(peaks or {})), policy or a_policy())


def test_a_node_over_its_high_is_hot_and_one_that_will_be_is_expected_hot() -> None:
    nodes = [
        a_node("cool", cpu=4000, used=1000.0, labels=GENERAL),
        a_node("hot", cpu=4000, used=3200.0, labels=GENERAL),
        a_node("soon", cpu=4000, used=2000.0, labels=GENERAL),
        a_node("both", cpu=4000, used=3100.0, labels=GENERAL),
    ]
    peaks = {"soon": (3600.0, NOW + 7200, NOW + 3600), "both": (3900.0, NOW + 7200, NOW), "cool": (1500.0, NOW, NAN)}
    found = seen(nodes, peaks=peaks)
    assert [(line.name, line.state) for line in found.lines] == [
        ("hot", NodeState.HOT),
        ("both", NodeState.HOT),
        ("soon", NodeState.EXPECTED),
        ("cool", NodeState.COOL),
    ]
    soon = found.by_name["soon"]
    assert (soon.share, soon.peak_share, soon.peak_at, soon.hot_from) == (0.5, 0.9, NOW + 7200, NOW + 3600)
    assert (soon.high, soon.target, soon.pods, soon.capacity_millicores) == (0.75, 0.65, 3, 4000.0)


def test_a_node_that_is_not_measured_is_unknown_and_says_why() -> None:
    nodes = [a_node("silent", used=NAN, labels=GENERAL), a_node("cool", used=100.0, labels=GENERAL)]
    found = seen(nodes, problems={0: Refusal.of(Reason.NO_SAMPLE, "none for 5m")})
    silent = found.lines[-1]
    assert (silent.name, silent.state, silent.share) == ("silent", NodeState.UNKNOWN, None)
    assert silent.problem == "no usage sample: none for 5m"


def test_steered_cordoned_and_not_ready_nodes_are_marked() -> None:
    ours = Taint(key=SOFT_TAINT, value="no-room", effect="PreferNoSchedule")
    nodes = [
        a_node("soft_tainted", labels=GENERAL, taints=(ours,)),
        a_node("cordoned", labels=GENERAL, unschedulable=True),
        a_node("broken", labels=GENERAL, ready=False),
    ]
    found = seen(nodes)
    marks = {line.name: (line.soft_tainted, line.cordoned, line.ready) for line in found.lines}
    assert marks == {
        "soft_tainted": ("no-room", False, True),
        "cordoned": ("", True, True),
        "broken": ("", False, False),
    }
    [general] = found.pools
    assert (general.soft_tainted, general.cordoned) == (1, 1)


def test_pools_are_counted_in_the_policys_order_and_nodes_of_none_last() -> None:
    thresholds = {"high": 75, "target": 65, "low": 50}
    policy = a_policy(
        pools=[
            {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": thresholds}
            for name in ("second", "first", "empty")
        ]
    )
    nodes = [
        a_node("a", cpu=1000, used=900.0, labels={"pool": "first"}),
        a_node("b", cpu=1000, used=100.0, labels={"pool": "second"}),
        a_node("c", cpu=1000, used=300.0, labels={"pool": "second"}),
        a_node("d", cpu=1000, used=990.0),
    ]
    found = seen(nodes, policy)
    assert [(pool.name, pool.nodes, pool.share) for pool in found.pools] == [
        ("second", 2, pytest.approx(0.2)),
        ("first", 1, pytest.approx(0.9)),
        ("empty", 0, None),
        ("", 1, pytest.approx(0.99)),
    ]
    assert found.pools[1].states[NodeState.HOT] == 1
    outside = found.by_name["d"]
    assert (outside.pool, outside.state, outside.high) == ("", NodeState.COOL, None)


def test_in_deviation_mode_marks_lie_around_the_mean() -> None:
    marks = {"high": 20, "target": 10, "low": 10, "relativeToMean": True, "floor": 30}
    policy = a_policy(pools=[{"name": "all", "selector": {}, "thresholds": marks}])
    found = seen([a_node("a", cpu=1000, used=200.0), a_node("b", cpu=1000, used=600.0)], policy)
    assert found.by_name["b"].high == pytest.approx(0.6)
    assert found.by_name["b"].target == pytest.approx(0.5)


def test_what_was_measured_holds_for_nodes_that_came_and_went_since() -> None:
    before, pods = [a_node("gone", used=500.0), a_node("stays", cpu=1000, used=300.0)], replicas("web", {"stays": 1})
    earlier = cluster(before, pods)
    measured = MeasuredCpu.of(earlier, usage_of(earlier, before, pods))
    now = cluster([a_node("stays", cpu=1000), a_node("came")], pods)
    found = node_view(now, measured, expected(now), a_policy())
    assert {name: line.share for name, line in found.by_name.items()} == {"stays": 0.3, "came": None}


def test_nothing_measured_is_unknown_everywhere() -> None:
    snapshot = cluster([a_node("a")], [])
    found = node_view(snapshot, None, expected(snapshot), a_policy())
    assert (found.lines[0].state, found.measured_at) == (NodeState.UNKNOWN, None)


def test_what_is_expected_of_a_node_is_told_step_by_step() -> None:
    snapshot = cluster([a_node("a", cpu=1000), a_node("b", cpu=2000)], [])
    nothing = np.full(2, NAN)
    grid = np.array([[NAN, NAN], [500.0, NAN]], dtype=np.float32)
    ahead = ExpectedPeaks(
        made_at=NOW, peak_millicores=nothing, peak_at=nothing, hot_from=nothing, ahead=grid, starts_at=NOW
    )
    found = node_view(snapshot, None, ahead, a_policy())
    assert found.ahead("b") == [(NOW, 0.25), (NOW + 300, None)]
    assert found.ahead("a") == [(NOW, None), (NOW + 300, None)]
    assert found.ahead("nobody") == []


def test_a_node_shows_each_measured_resource_and_is_hot_by_any_with_thresholds() -> None:
    nodes = [a_node(name, cpu=4000, used=1000.0, labels=GENERAL) for name in ("full", "free", "unknown")]
    marks = {"high": 75, "target": 65, "low": 50, "resources": {"memory": {"high": 80, "target": 70, "low": 50}}}
    policy = a_policy(pools=[{"name": "general", "selector": {"matchLabels": GENERAL}, "thresholds": marks}])
    used = {"memory": amounts([90.0, 20.0, NAN], [1.0] * 9), "disk-busy": amounts([99.0, 1.0, 1.0], [0.0] * 9)}
    found = seen(nodes, policy, resources=used)
    assert {line.name: (line.state, line.hot_by) for line in found.lines} == {
        "full": (NodeState.HOT, ["memory"]),
        "free": (NodeState.COOL, []),
        "unknown": (NodeState.COOL, []),
    }
    shown = [(each.resource, each.share, each.high) for each in found.by_name["full"].resources]
    assert shown == [("disk-busy", 0.99, None), ("memory", 0.9, 0.8)]
    assert found.by_name["unknown"].resources[1].share is None
