"""What a pod uses on another node, and where the figure is from. The rate window is 300 s."""

from typing import Any

import numpy as np
import pytest

from rebalancer.forecast.series.pod_cpu import SOURCES, PodCpu, missing_replicas, pod_cpu
from rebalancer.model.decisions.eviction import Eviction, TargetNode
from rebalancer.model.measured.usage import Contention
from rebalancer.policy.schema.forecast import Generation
from tests.builders import NOW, APod, a_node, a_pod, an_eviction, cluster, replicas, usage_of

NAN = float("nan")


def figures(
    pods: list[APod],
    *,
    used: dict[str, float] | None = None,
    evictions: list[Eviction] | None = None,
    in_flight: bool = True,
    speed: dict[str, float] | None = None,
    **usage: Any,
) -> PodCpu:
    """Of pods on the nodes a, b and c of 4 cores, which use `used` millicores (a little where not given)."""
    nodes = [
        a_node(name, cpu=4_000, used=(used or {}).get(name, 1_000.0), labels={"pool": "general", "type": name})
        for name in ("a", "b", "c")
    ]
    snapshot = cluster(nodes, pods)
    moves = evictions or []
    return pod_cpu(
        snapshot,
        usage_of(snapshot, nodes, pods, **usage),
        now=NOW,
        missing=missing_replicas(moves if in_flight else (), () if in_flight else moves, now=NOW, window_seconds=300.0),
        generation=None if speed is None else Generation(label="type", factors=speed),
    )


def sources(found: PodCpu) -> list[str]:
    return [SOURCES[index].value for index in found.source]


def gone(age: float = 1_000.0, cpu: float = 600.0, **fields: Any) -> Eviction:
    """The eviction of a pod of the ReplicaSet `web`, so long ago."""
    made = an_eviction(
        node="a", uid="gone", cpu_millicores=cpu, planned_at=NOW - age, target_nodes=(TargetNode("c", 1.0),), **fields
    )
    made.service = type(made.service)(kind="ReplicaSet", namespace="shop", name="web")
    return made


def test_a_settled_pod_uses_what_was_measured() -> None:
    found = figures([a_pod("p", "a", owner="web", used=500.0), a_pod("q", "a", owner="web")])
    assert found.here.tolist()[:1] == found.elsewhere.tolist()[:1] == [500.0]
    assert sources(found) == ["measured", "unknown"]


def test_a_new_pod_uses_what_its_siblings_do_or_what_it_requests() -> None:
    alone = a_pod("alone", "a", owner="api", age=10.0, cpu=250.0)
    web = [a_pod("new", "a", owner="web", age=10.0), a_pod("old", "b", owner="web", used=700.0)]
    found = figures([*web, alone])
    assert found.elsewhere.tolist() == [700.0, 700.0, 250.0]
    assert sources(found) == ["siblings", "measured", "request"]


# ---- saturated nodes


@pytest.mark.parametrize(("level", "expected"), [(3_880.0, 1_500.0), (3_879.0, 900.0)])
def test_a_node_is_saturated_from_97_percent(level: float, expected: float) -> None:
    pods = [a_pod("p", "a", owner="web", used=900.0), a_pod("q", "b", owner="web", used=1_500.0)]
    found = figures(pods, used={"a": level})
    assert (found.elsewhere[0], found.here[0]) == (expected, 900.0)


def test_a_node_whose_tasks_wait_half_of_the_time_is_saturated() -> None:
    pods = [a_pod("p", "a", owner="web", used=900.0), a_pod("q", "b", owner="web", used=1_500.0)]
    unknown = dict.fromkeys(("pod_pressure", "pod_throttled"), np.array([NAN] * 2))
    for pressure, expected in ((0.5, 1_500.0), (0.49, 900.0), (NAN, 900.0)):
        contention = Contention(node_pressure=np.array([pressure, 0.0, NAN]), **unknown)
        assert figures(pods, contention=contention).elsewhere[0] == expected


def test_siblings_on_saturated_nodes_say_nothing_and_less_is_never_believed() -> None:
    pods = [
        a_pod("p", "a", owner="web", used=900.0, cpu=100.0),
        a_pod("q", "b", owner="web", used=1_500.0, cpu=100.0),
        a_pod("r", "c", owner="web", used=400.0, cpu=100.0),
    ]
    found = figures(pods, used={"a": 4_000.0, "b": 4_000.0})
    assert found.elsewhere.tolist() == [900.0, 1_500.0, 400.0]
    assert sources(found) == ["measured"] * 3


# ---- a missing replica


def test_the_share_of_a_missing_replica_is_a_surplus_of_its_siblings() -> None:
    # three pods of 600m each; one is gone, so two carry 900m
    found = figures(replicas("web", {"b": 1, "c": 1}, used=900.0), evictions=[gone()])
    assert found.surplus.tolist() == [300.0, 300.0]
    assert found.here.tolist() == found.elsewhere.tolist() == [900.0, 900.0]


@pytest.mark.parametrize(
    ("used", "eviction", "surplus"),
    [
        ((600.0, 600.0), gone(), [0.0, 0.0]),
        ((3_000.0, 700.0), gone(), [300.0, 100.0]),
        ((900.0, 900.0), gone(cpu=NAN), [300.0, 300.0]),
    ],
    ids=["pods that share no load", "never more than the missing one's load", "unknown CPU is an even share"],
)
def test_the_surplus_of_each_sibling(used: tuple[float, float], eviction: Eviction, surplus: list[float]) -> None:
    pods = [a_pod(f"web-{node}", node, owner="web", used=each) for node, each in zip("bc", used, strict=True)]
    assert figures(pods, evictions=[eviction]).surplus.tolist() == surplus


@pytest.mark.parametrize(("age", "surplus"), [(30.0, 30.0), (300.0, 300.0), (9_000.0, 300.0)])
def test_the_rate_window_shows_it_bit_by_bit(age: float, surplus: float) -> None:
    found = figures(replicas("web", {"b": 1, "c": 1}, used=900.0, age=86_400.0), evictions=[gone(age)])
    assert found.surplus.tolist() == pytest.approx([surplus, surplus])


@pytest.mark.parametrize(("ready_ago", "surplus"), [(30.0, 270.0), (299.0, 1.0), (300.0, 0.0), (5_000.0, 0.0)])
def test_it_fades_out_over_the_window_once_the_replacement_is_ready(ready_ago: float, surplus: float) -> None:
    evictions = [gone(9_000.0, replaced_at=NOW - ready_ago)]
    found = figures(replicas("web", {"b": 1, "c": 1}, used=900.0), evictions=evictions, in_flight=False)
    assert found.surplus.tolist() == pytest.approx([surplus, surplus])


def test_a_replacement_counts_with_its_siblings_usual_cpu_until_it_shows_it() -> None:
    pods = [
        *replicas("web", {"b": 2}, used=900.0),
        a_pod("web-new", "c", owner="web", used=20.0, age=900.0, ready=False),
    ]
    found = figures(pods, evictions=[gone()])
    assert (found.here[2], bool(found.arrived[2]), sources(found)[2]) == (600.0, True, "siblings")


# ---- a replacement carries what its predecessor used


def landed(age: float, cpu: float, replacement: str = "web-new", **fields: Any) -> Eviction:
    """The eviction of a pod that used `cpu` millicores; its replacement has been Ready for `age`."""
    name = f"uid-shop-{replacement}"
    return gone(age + 30.0, cpu, replacement_uid=name, replaced_at=NOW - age, **fields)


def test_a_hot_shard_that_has_landed_carries_its_predecessors_load() -> None:
    pods = [*replicas("web", {"b": 2}, used=400.0), a_pod("web-new", "c", owner="web", used=600.0, age=90.0)]
    found = figures(pods, evictions=[landed(90.0, 8_000.0)], in_flight=False)
    assert (found.here[2], found.elsewhere[2], sources(found)[2]) == (8_000.0, 8_000.0, "predecessor")


def test_it_does_until_it_is_measured_over_a_whole_rate_window() -> None:
    pods = [*replicas("web", {"b": 2}, used=400.0), a_pod("web-new", "c", owner="web", used=600.0, age=310.0)]
    evictions = [landed(290.0, 8_000.0)]
    assert figures(pods, evictions=evictions, in_flight=False).here[2] == 8_000.0
    evictions = [landed(300.0, 8_000.0)]
    found = figures(pods, evictions=evictions, in_flight=False)
    assert (found.here[2], sources(found)[2]) == (600.0, "measured")


def test_a_replacement_that_is_not_ready_carries_it_as_well() -> None:
    pods = [
        *replicas("web", {"b": 2}, used=400.0),
        a_pod("web-new", "c", owner="web", used=20.0, age=900.0, ready=False),
    ]
    found = figures(pods, evictions=[gone(cpu=8_000.0, replacement_uid="uid-shop-web-new")])
    assert (found.here[2], sources(found)[2]) == (8_000.0, "predecessor")


def test_of_predecessor_siblings_and_measurement_the_largest_counts() -> None:
    new = a_pod("web-new", "c", owner="web", used=600.0, age=90.0)
    for usual, before, shown, source in (
        (900.0, 100.0, 900.0, "siblings"),
        (400.0, 500.0, 600.0, "measured"),
        (400.0, NAN, 600.0, "measured"),
    ):
        pods = [*replicas("web", {"b": 2}, used=usual), new]
        found = figures(pods, evictions=[landed(90.0, before)], in_flight=False)
        # of the siblings a little is a surplus
        assert found.here[2] == pytest.approx(shown, rel=0.01), (usual, before)
        assert sources(found)[2] == source, (usual, before)


def test_a_predecessor_says_more_than_the_request_of_a_pod_without_siblings() -> None:
    alone = a_pod("web-new", "c", owner="web", used=10.0, age=90.0, cpu=2_000.0)
    found = figures([alone], evictions=[landed(90.0, 700.0)], in_flight=False)
    assert (found.here[0], sources(found)[0]) == (700.0, "predecessor")


def test_a_replacement_is_counted_in_the_cpu_of_its_machine() -> None:
    pods = [a_pod("web-new", "c", owner="web", used=10.0, age=90.0)]
    move = landed(90.0, 1_000.0)
    found = figures(pods, evictions=[move], in_flight=False, speed={"a": 1.0, "b": 1.0, "c": 2.0})
    assert (found.here[0], found.elsewhere[0]) == (500.0, 1_000.0)


def test_a_finished_pods_eviction_leaves_no_sibling_with_more() -> None:
    move = gone()
    move.target_nodes = ()
    assert figures(replicas("web", {"b": 2}, used=900.0), evictions=[move]).surplus.tolist() == [0.0, 0.0]


# ---- machines of different speed


def test_figures_are_compared_on_the_reference_machine() -> None:
    pods = [
        a_pod("fast", "a", owner="web", used=500.0),
        a_pod("slow", "b", owner="web", used=1_000.0),
        a_pod("new", "b", owner="web", age=10.0),
    ]
    found = figures(pods, speed={"a": 2.0, "b": 1.0})
    assert found.elsewhere.tolist() == [1_000.0, 1_000.0, 1_000.0]
    assert found.here.tolist() == [500.0, 1_000.0, 1_000.0]
