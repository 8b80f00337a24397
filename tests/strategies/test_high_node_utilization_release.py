"""Release: nodes that are full by requests and idle in fact. A node has 16,000 millicores."""

from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.decisions.plan import Goal
from rebalancer.model.measured.usage import ResourceUsage
from tests.builders import ANode, APod, a_node, a_pod
from tests.strategies.builders.emptied import DAY, Found, found_in_view, hoarders
from tests.strategies.builders.finding import strategy_policy

NAME = "HighNodeUtilization"
NAN = float("nan")


def release(nodes: list[ANode], pods: list[APod], *, args: dict[str, Any] | None = None, **fields: Any) -> Found:
    return found_in_view(NAME, nodes, pods, {"mode": "Release", **(args or {})}, **fields)


def test_a_node_that_is_full_by_requests_and_idle_in_fact_is_found() -> None:
    found = release([a_node("n"), a_node("m")], [*hoarders("n"), *hoarders("m", 13)])
    (finding,) = found.findings.findings
    assert finding.reason == (
        "full by requests (87.5% of its CPU) and idle in fact (8.8% in use), to be brought down to 70% requested"
    )
    assert (finding.goal, finding.in_order) == (Goal.COOL, True)
    assert (finding.cpu_share, finding.high, finding.target) == (0.875, 0.85, 0.7)
    loads = found.findings.loads
    assert loads is not None
    assert (loads.node[0, 0], loads.target[0, 0]) == (14_000.0, 11_200.0)
    assert not loads.over.any()


@pytest.mark.parametrize(("requested", "found"), [(13_599.0, []), (13_600.0, ["n"])])
def test_full_begins_at_its_mark(requested: float, found: list[str]) -> None:
    pods = [a_pod("p", "n", owner="w", cpu=requested, used=10.0, age=60 * DAY)]
    assert release([a_node("n")], pods).nodes == found


@pytest.mark.parametrize(("used", "found"), [(4_800.0, ["n"]), (4_801.0, [])])
def test_idle_ends_at_its_mark(used: float, found: list[str]) -> None:
    assert release([a_node("n", used=used)], hoarders("n")).nodes == found


def test_a_node_that_is_busy_at_its_peak_or_was_just_now_is_not_idle() -> None:
    nodes = [a_node("n", used=1e3)]
    assert release(nodes, hoarders("n"), peaks={"n": 4e3}).nodes == ["n"]
    assert release(nodes, hoarders("n"), peaks={"n": 9e3}).nodes == []
    readings = np.full((5, 1), 1_000.0)
    readings[1] = 9_000.0
    assert release(nodes, hoarders("n"), usage={"samples": readings}).nodes == []


def test_a_full_node_whose_cpu_is_not_known_is_skipped() -> None:
    found = release([a_node("n", used=NAN), a_node("m", used=NAN)], [*hoarders("n"), *hoarders("m", 2)])
    assert (found.nodes, found.skipped) == ([], {"n": "no usage sample"})


@pytest.mark.parametrize(
    "fields",
    [
        {"unschedulable": True},
        {"ready": False},
        {"taints": (Taint(key="karpenter.sh/disrupted", effect="NoSchedule"),)},
        {"labels": {}},
    ],
)
def test_room_is_not_freed_where_nothing_can_be_placed(fields: dict[str, Any]) -> None:
    assert release([a_node("n", **fields)], hoarders("n")).nodes == []


def test_the_largest_gap_goes_first_the_oldest_on_ties_and_what_changed_lately_stays() -> None:
    pods = [
        a_pod("small", "n", owner="w", cpu=500, used=100.0, age=90 * DAY),
        a_pod("older", "n", owner="w", cpu=2_000, used=100.0, age=90 * DAY),
        a_pod("old", "n", owner="w", cpu=2_000, used=100.0, age=60 * DAY),
        a_pod("largest", "n", owner="w", cpu=3_000, used=100.0, age=31 * DAY),
        a_pod("young", "n", owner="w", cpu=4_000, used=100.0, age=29 * DAY),
        a_pod("using", "n", owner="w", cpu=1_000, used=1_000.0, age=90 * DAY),
        a_pod("unknown", "n", owner="w", cpu=1_000, age=90 * DAY),
        a_pod("starting", "n", owner="w", cpu=1_000, used=1.0, age=90 * DAY, phase=PENDING),
        a_pod("agent", "n", owner="agent", owner_kind="DaemonSet", cpu=900, used=1.0, age=90 * DAY),
    ]
    assert release([a_node("n")], pods).pods("n") == ["largest", "older", "old", "small"]


def test_who_wins_most_comes_first_and_a_node_of_which_nothing_may_go_is_not_found() -> None:
    nodes = [a_node("a", used=4e3), a_node("b", used=1e3), a_node("c", used=1e3)]
    assert release(nodes, [pod for node in "abc" for pod in hoarders(node)]).nodes == ["b", "c", "a"]
    assert release([a_node("n")], hoarders("n", age=DAY)).nodes == []


def test_any_node_may_take_pods_up_to_the_share_that_is_released_to() -> None:
    nodes = [a_node("n"), a_node("no-pool", labels={})]
    loads = release(nodes, hoarders("n")).findings.loads
    assert loads is not None
    assert loads.target[:, 0].tolist() == [11_200.0, 11_200.0]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"full": 60, "releaseTarget": 60}, "releaseTarget < full"),
        ({"resource": "licences"}, "expected one of cpu, memory, got 'licences'"),
    ],
    ids=["under the full share", "measured"],
)
def test_what_is_released_must_be_under_the_full_share_and_measured(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy_policy(NAME, {"mode": "Release", **args})


# ---- by another resource

GIB = 2.0**30


def by_memory(used: list[float], pods: list[float], **args: Any) -> Found:
    """Nodes of 64 GiB; `n` has four pods that request 15 GiB each. `used` of nodes and of these pods in GiB."""
    nodes = [a_node(name, memory=64 * GIB, used=12_000.0) for name in ("n", "m")]
    old = [a_pod(f"p{at}", "n", owner="w", memory=15 * GIB, used=3_000.0, age=60 * DAY) for at in range(4)]
    memory = ResourceUsage(
        node=np.array(used) * GIB,
        capacity=np.full(2, 64 * GIB),
        pod=np.array(pods) * GIB,
        samples=np.array([used]) * GIB,
    )
    return release(nodes, old, args={"resource": "memory", **args}, usage={"resources": {"memory": memory}})


def test_room_is_released_by_the_name_of_a_resource() -> None:
    """CPU is busy, and no one asked for it."""
    found = by_memory([10, 10], [5, 1, 3, NAN])
    (finding,) = found.findings.findings
    assert finding.reason == (
        "full by requests (93.8% of its memory) and idle in fact (15.6% in use), to be brought down to 70% requested"
    )
    assert finding.resource == "memory"
    assert found.pods("n") == ["p1", "p2", "p0"]
    loads = found.findings.loads
    assert loads is not None
    assert loads.resources == ("memory",)
    assert (loads.node[0, 0], loads.target[0, 0]) == (60 * GIB, pytest.approx(0.7 * 64 * GIB))


def test_a_node_whose_memory_is_in_use_or_not_known_releases_nothing() -> None:
    assert by_memory([30, 10], [5, 5, 5, 5]).nodes == []
    assert by_memory([NAN, 10], [5, 5, 5, 5]).skipped == {"n": "no usage sample"}
