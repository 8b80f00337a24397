"""Interference: who waits for CPU, and who makes it wait. A node has 16,000 millicores, a noisy pod uses 3,200
more than it requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.plan import Goal
from rebalancer.model.measured.usage import Contention
from rebalancer.model.reason import Reason, Refusal
from rebalancer.strategies import Findings
from rebalancer.strategies.utilization.interference import BUSIEST_LANDING, WORTH
from tests.builders import NOW, ANode, APod, a_node, a_pod, an_eviction, cluster, found_in, usage_of
from tests.strategies.builders.finding import names_of, strategy_policy

NAME = "Interference"

NAN = float("nan")
NOISY: dict[str, Any] = {"owner": "batch", "cpu": 1_000, "used": 6_000.0}
MODEST: dict[str, Any] = {"owner": "web", "cpu": 2_000, "used": 1_500.0}


@dataclass(frozen=True)
class Seen:
    """What was found, in names."""

    found: Findings
    snapshot: ClusterSnapshot

    @property
    def pods(self) -> list[list[str]]:
        return [names_of(each, self.snapshot) for each in self.found.findings]

    @property
    def nodes(self) -> list[str]:
        return [self.snapshot.nodes.names[each.node] for each in self.found.findings]

    @property
    def skipped(self) -> dict[str, Reason]:
        return {self.snapshot.nodes.names[node]: why.code for node, why in self.found.skipped.items()}

    def landings(self, at: int = 0) -> list[str]:
        only = self.found.findings[at].landing.only
        assert only is not None
        return [self.snapshot.nodes.names[node] for node in np.flatnonzero(only)]


def look(
    nodes: Sequence[ANode],
    pods: Sequence[APod],
    *,
    node: Mapping[str, float] | None = None,
    pod: Mapping[str, float] | None = None,
    throttled: Mapping[str, float] | None = None,
    args: Mapping[str, Any] | None = None,
    recent: tuple[Eviction, ...] = (),
    **usage: Any,
) -> Seen:
    """`node`, `pod` and `throttled` are shares by name. A node that isn't named waits 0, a pod's isn't known."""
    made = cluster(nodes, pods)
    contention = Contention(
        node_pressure=np.array([(node or {}).get(each.name, 0.0) for each in nodes]),
        pod_pressure=np.array([(pod or {}).get(each.name, NAN) for each in pods]),
        pod_throttled=np.array([(throttled or {}).get(each.name, NAN) for each in pods]),
    )
    measured = usage_of(made, nodes, pods, **({"contention": contention} | usage))
    return Seen(found_in(made, measured, strategy_policy(NAME, args), recent)[0], made)


def two(noisy: Mapping[str, Any] | None = None, modest: Mapping[str, Any] | None = None) -> list[APod]:
    """One noisy and one modest pod share a node."""
    return [a_pod("batch", "a", **(NOISY | dict(noisy or {}))), a_pod("web", "a", **(MODEST | dict(modest or {})))]


AB = [a_node("a"), a_node("b")]


def test_the_noisy_pod_of_a_node_that_waits_is_found_and_not_its_neighbour() -> None:
    seen = look(AB, two(), node={"a": 0.4})
    (finding,) = seen.found.findings
    assert (seen.nodes, seen.pods) == (["a"], [["batch"]])
    assert (finding.goal, finding.wanted, finding.broken, finding.landing.elsewhere) == (Goal.REMOVE, 1, False, True)
    assert (finding.strategy, finding.pool) == (NAME, "general")
    assert finding.reason == (
        "tasks wait for CPU 40% of the time while 46.9% of the node's CPU is in use; "
        "shop/batch uses 6000m and requests 1000m"
    )
    assert seen.landings() == ["b"]
    assert seen.skipped == {}


def test_a_victim_is_enough_where_the_node_says_nothing() -> None:
    seen = look(AB, two(), node={"a": NAN}, pod={"web": 0.45, "batch": 0.1})
    assert seen.pods == [["batch"]]
    assert "1 pod within their requests wait for CPU, shop/web 45% of the time" in seen.found.findings[0].reason


@pytest.mark.parametrize(
    ("at", "pressure", "found"),
    [
        *(("node", pressure, found) for pressure, found in ((0.29, 0), (0.3, 1), (0.0, 0), (1.0, 1), (NAN, 0))),
        *(("pod", pressure, found) for pressure, found in ((0.29, 0), (0.3, 1), (NAN, 0))),
    ],
)
def test_a_node_and_a_pod_suffer_from_their_own_pressure_on(at: str, pressure: float, found: int) -> None:
    assert len(look(AB, two(), **{at: {"a" if at == "node" else "web": pressure}}).found.findings) == found


@pytest.mark.parametrize(
    ("modest", "found"),
    [
        ({"used": 2_000.0}, True),
        ({"used": 2_001.0}, False),
        ({"used": NAN}, False),
        # who requests nothing was promised nothing
        ({"cpu": 0, "used": 0.0}, False),
        # it has just come: its rate says little yet
        ({"age": 299.0}, False),
        ({"age": 300.0}, True),
        ({"terminating": True}, False),
    ],
)
def test_a_victim_uses_no_more_than_it_requests(modest: dict[str, Any], found: bool) -> None:
    assert bool(look(AB, two(modest=modest), pod={"web": 0.5}).found.findings) is found


@pytest.mark.parametrize(
    ("noisy", "found"),
    [
        ({"used": 4_199.0}, False),
        ({"used": 4_200.0}, True),
        ({"cpu": 6_000, "used": 6_000.0}, False),
        ({"used": NAN}, False),
        ({"cpu": 0, "used": 3_200.0}, True),
        ({"age": 299.0}, False),
        ({"terminating": True}, False),
        ({"phase": 3}, False),
    ],
)
def test_noisy_is_who_uses_far_more_than_it_requests(noisy: dict[str, Any], found: bool) -> None:
    seen = look([a_node("a", used=8_000.0), a_node("b")], two(noisy), node={"a": 0.5})
    assert bool(seen.found.findings) is found
    assert seen.skipped == ({} if found else {"a": Reason.NO_NOISY_NEIGHBOUR})


def test_the_largest_excess_comes_first_and_ties_by_name() -> None:
    pods = [
        a_pod("c", "a", owner="x", cpu=100, used=3_400.0),
        a_pod("b", "a", owner="y", cpu=100, used=3_400.0),
        a_pod("a-more", "a", owner="z", cpu=3_000, used=6_300.0),
        a_pod("most", "a", owner="w", cpu=1_000, used=4_400.0),
    ]
    big = [a_node("a", cpu=16_000), a_node("b", cpu=64_000)]
    assert look(big, pods, node={"a": 0.5}).pods == [["most", "a-more", "b", "c"]]


def test_a_pod_that_only_its_own_limit_throttles_is_no_victim() -> None:
    pods = two()
    assert look(AB, pods, pod={"web": 0.5}, throttled={"web": 0.4}).found.findings == ()
    assert look(AB, pods, pod={"web": 0.8}, throttled={"web": 0.4}).pods == [["batch"]]


def test_what_limits_take_away_is_not_the_nodes_pressure() -> None:
    """On Linux the waiting of throttled tasks shows in the node's pressure, too."""
    pods = two()
    limited = {"node": {"a": 0.6}, "throttled": {"web": 0.5}}
    assert look(AB, pods, pod={"web": 0.5, "batch": 0.0}, **limited).found.findings == ()  # type: ignore[arg-type]
    # of a pod whose pressure isn't known it is at most its throttled periods
    assert look(AB, pods, **limited).found.findings == ()  # type: ignore[arg-type]
    limited["node"]["a"] = 0.9
    assert look(AB, pods, **limited).pods == [["batch"]]  # type: ignore[arg-type]


def test_how_much_throttling_explains_of_the_waiting() -> None:
    pods = [a_pod("batch", "a", **NOISY), *(a_pod(f"web-{n}", "a", **MODEST) for n in range(15))]
    little = {f"web-{n}": 0.05 for n in range(15)}
    assert look(AB, pods, node={"a": 0.9}, throttled=little).pods == [["batch"]]
    # 1 - 0.95^15 = 0.54 is theirs
    assert look(AB, pods, node={"a": 0.6}, throttled=little).pods == []
    # one that is throttled all the time tells nothing of its neighbours
    assert look(AB, two(), node={"a": 1.0}, pod={"web": 1.0}, throttled={"web": 1.0}).pods == []


def test_a_pod_that_waits_for_itself_alone_is_left_alone() -> None:
    """It has more threads than the node has CPUs, and its neighbours go on undisturbed."""
    pods = two()
    assert look(AB, pods, node={"a": 0.9}, pod={"batch": 0.9, "web": 0.01}).found.findings == ()
    assert look(AB, pods, node={"a": 0.9}, pod={"batch": 0.9, "web": 0.31}).pods == [["batch"]]
    # as long as one neighbour's waiting isn't known, the node is believed
    assert look(AB, pods, node={"a": 0.9}, pod={"batch": 0.9}).pods == [["batch"]]


def test_neighbours_that_wait_a_little_each_suffer_together() -> None:
    pods = [a_pod("batch", "a", **NOISY), *(a_pod(f"web-{n}", "a", **MODEST) for n in range(4))]
    waits = {f"web-{n}": 0.1 for n in range(4)} | {"batch": 0.3}
    assert look(AB, pods, node={"a": 0.4}, pod=waits).pods == [["batch"]]


def test_nothing_known_is_noted_once_and_for_each_node() -> None:
    seen = look(AB, two(), contention=None)
    assert seen.found.findings == ()
    assert seen.skipped == {"a": Reason.NO_CONTENTION, "b": Reason.NO_CONTENTION}
    assert seen.found.notes == ("Interference found nothing: test has no CPU contention",)


def test_a_node_of_which_nothing_is_known_is_neither_found_nor_a_landing() -> None:
    nodes = [*AB, a_node("old-kernel")]
    seen = look(nodes, two(), node={"a": 0.5, "old-kernel": NAN})
    assert seen.skipped == {"old-kernel": Reason.NO_CONTENTION}
    assert seen.landings() == ["b"]


def test_a_node_that_leaves_is_not_ready_or_has_no_usage_is_not_judged() -> None:
    going = a_node("a", taints=(Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule"),))
    assert look([going, a_node("b")], two(), node={"a": 0.5}).skipped == {"a": Reason.NODE_LEAVING}
    assert look([a_node("a", ready=False), a_node("b")], two(), node={"a": 0.5}).skipped == {"a": Reason.NODE_NOT_READY}
    problems = {0: Refusal.of(Reason.STALE_SAMPLE)}
    assert look(AB, two(), node={"a": 0.5}, problems=problems).skipped == {"a": Reason.STALE_SAMPLE}


@pytest.mark.parametrize(("age", "found"), [(0.0, False), (299.0, False), (300.0, True)])
def test_a_node_that_was_just_relieved_waits_for_a_whole_window(age: float, found: bool) -> None:
    move = an_eviction(node="a", cpu_millicores=3_000.0, planned_at=NOW - age, service="shop/other", uid="gone")
    seen = look(AB, two(), node={"a": 0.5}, recent=(move,))
    assert bool(seen.found.findings) is found
    assert seen.skipped == ({} if found else {"a": Reason.SETTLING})


def test_a_landing_suffers_not_is_known_and_holds_what_the_pod_uses() -> None:
    """The pod uses 6,000 of 16,000 millicores on a node of which 60% are in use."""
    nodes = [
        a_node("a", used=9_600.0),
        a_node("empty", used=0.0),
        a_node("edge", used=9_600.0 - WORTH * 16_000 - 6_001.0),
        a_node("no-better", used=9_600.0 - WORTH * 16_000 - 5_999.0),
        a_node("small", cpu=8_000, used=0.0),
        a_node("suffers", used=0.0),
        a_node("throttles", used=0.0),
        a_node("dark", used=NAN),
    ]
    pods = [*two(), a_pod("limited", "throttles", owner="x", cpu=100, used=100.0)]
    pressure = {"a": 0.5, "suffers": 0.3, "throttles": 0.5}
    seen = look(nodes, pods, node=pressure, throttled={"limited": 0.9})
    assert seen.landings() == ["empty", "edge"]


def test_a_landing_keeps_idle_cpu_however_busy_the_node_is_that_the_pod_leaves() -> None:
    most = BUSIEST_LANDING * 16_000 - 6_000.0
    nodes = [a_node("a", used=15_900.0), a_node("edge", used=most), a_node("over", used=most + 1)]
    assert look(nodes, two(), node={"a": 0.9}).landings() == ["edge"]


def test_one_that_no_node_can_hold_gives_way_to_the_next() -> None:
    nodes = [a_node("a", used=14_000.0), a_node("b", used=7_000.0)]
    pods = [a_pod("huge", "a", owner="x", cpu=100, used=9_000.0), a_pod("large", "a", owner="y", cpu=100, used=4_000.0)]
    seen = look(nodes, pods, node={"a": 0.5})
    assert (seen.pods, seen.landings()) == ([["large"]], ["b"])
    # where none can go, the refusal is about the noisiest
    nodes[1] = a_node("b", used=12_000.0)
    seen = look(nodes, pods, node={"a": 0.5})
    assert (seen.pods, seen.landings()) == ([["huge"]], [])


def test_only_chosen_pods_go_and_all_count_as_victims() -> None:
    seen = look(AB, two(), pod={"web": 0.5}, args={"labelSelector": {"matchLabels": {"app": "batch"}}})
    assert seen.pods == [["batch"]]
    seen = look(AB, two(), pod={"web": 0.5}, args={"labelSelector": {"matchLabels": {"app": "web"}}})
    assert (seen.pods, seen.skipped) == ([], {"a": Reason.NO_NOISY_NEIGHBOUR})


def test_thresholds_are_the_policys() -> None:
    args = {"nodePressure": 50, "podPressure": 60, "excess": 40}
    noisy = {"used": 7_400.0}
    assert look(AB, two(noisy), node={"a": 0.5}, args=args).pods == [["batch"]]
    assert look(AB, two(noisy), node={"a": 0.49}, args=args).pods == []
    assert look(AB, two(noisy), pod={"web": 0.6}, args=args).pods == [["batch"]]
    assert look(AB, two(noisy), pod={"web": 0.59}, args=args).pods == []
    assert look(AB, two({"used": 7_399.0}), node={"a": 0.5}, args=args).pods == []


def test_who_waits_longest_comes_first() -> None:
    nodes = [a_node(name) for name in "abcd"]
    pods = [a_pod(f"batch-{name}", name, **NOISY) for name in "abc"] + [a_pod("web", "c", **MODEST)]
    pressure = {"a": 0.4, "b": 0.5, "c": 0.0}
    seen = look(nodes, pods, node=pressure, pod={"web": 0.6})
    assert seen.nodes == ["c", "b", "a"]


def test_how_nodes_and_pods_are_listed_changes_nothing() -> None:
    nodes = [a_node(name, used=9_000.0) for name in ("a", "b")] + [a_node("z", used=100.0), a_node("y", used=100.0)]
    pods = [a_pod(f"{kind}-{n}", n, **what) for n in "ab" for kind, what in (("batch", NOISY), ("web", MODEST))]
    pressure = {"a": 0.5, "b": 0.5}
    one, other = look(nodes, pods, node=pressure), look(nodes[::-1], pods[::-1], node=pressure)
    assert (one.nodes, one.pods) == (other.nodes, other.pods)
    assert sorted(one.landings()) == sorted(other.landings())
    assert [each.reason for each in one.found.findings] == [each.reason for each in other.found.findings]


@settings(max_examples=60, deadline=None)
@given(
    loads=st.lists(st.integers(0, 40_000), min_size=3, max_size=6),
    noisy=st.lists(st.integers(3_500, 9_000), min_size=1, max_size=4),
    crowded_from=st.floats(0.1, 0.95),
)
def test_carried_out_again_and_again_it_comes_to_an_end(
    loads: list[int], noisy: list[int], crowded_from: float
) -> None:
    """Whatever makes nodes wait (here: a load over a mark), every move leaves the nodes more even than before, and none
    takes a landing over what it can hold."""
    names = [f"n{number}" for number in range(len(loads))]
    home = {f"batch-{number}": "n0" for number in range(len(noisy))}
    uses = dict(zip(home, noisy, strict=True))
    left: set[tuple[str, str]] = set()
    unevenness = float("inf")
    for _ in range(100):
        busy = {
            name: load + sum(uses[pod] for pod, at in home.items() if at == name)
            for name, load in zip(names, loads, strict=True)
        }
        assert sum(each**2 for each in busy.values()) < unevenness
        unevenness = sum(each**2 for each in busy.values())
        nodes = [a_node(name, cpu=64_000, used=float(busy[name])) for name in names]
        pods = [a_pod(pod, at, owner=pod, cpu=100, used=float(uses[pod])) for pod, at in home.items()]
        waits = {name: float(busy[name] / 64_000 >= crowded_from) for name in names}
        seen = look(nodes, pods, node=waits, args={"excess": 5})
        goes = [(at, each) for at, each in enumerate(seen.pods) if seen.landings(at)]
        if not goes:
            return
        at, (pod, *_) = goes[0]
        source, target = seen.nodes[at], seen.landings(at)[0]
        assert busy[target] + uses[pod] <= BUSIEST_LANDING * 64_000
        assert waits[target] == 0
        left.add((pod, source))
        assert len(noisy) > 1 or (pod, target) not in left
        home[pod] = target
    pytest.fail("it never ends")
