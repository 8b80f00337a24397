"""CPU that a pool has to spare or lacks, wherever its pods run."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rebalancer.cycle.report.spare_cpu import spare_cpu, spare_notes
from rebalancer.daemon.telemetry import count
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.reason import Reason, Refusal
from rebalancer.web.metrics import Metrics
from tests.builders import ANode, APod, a_node, a_pod, a_policy, cluster, usage_of, view_of
from tests.stories.scenarios.stage import a_scenario, a_stage, burner, service

LEAVING: dict[str, Any] = {"taints": (Taint("ToBeDeletedByClusterAutoscaler", "", "NoSchedule"),)}
HIGH = 12_000.0
"""Of a node of 16 cores."""


def spare(nodes: list[ANode], pods: list[APod], **policy: Any) -> dict[str, float]:
    snapshot = cluster(nodes, pods)
    view = view_of(snapshot, usage_of(snapshot, nodes, pods), a_policy(**policy))
    return spare_cpu(snapshot, view.node_pools, view.cpu, view.projection)


def web(node: str, used: float, **fields: Any) -> APod:
    return a_pod(f"web-{node}", node, owner="web", used=used, **fields)


@pytest.mark.parametrize(
    ("nodes", "pods", "left"),
    [
        pytest.param([a_node("a"), a_node("b")], [web("a", 13_000.0)], 11_000.0, id="a hot node beside an empty one"),
        pytest.param(
            [a_node("a"), a_node("b")], [web("a", 15_000.0), web("b", 10_000.0)], -1_000.0, id="both are full"
        ),
        pytest.param(
            [a_node("a"), a_node("b")],
            [a_pod("agent", "b", owner="agent", owner_kind="DaemonSet", used=9_000.0), web("a", 15_000.0)],
            0.0,
            id="a DaemonSet leaves a quarter of a node",
        ),
        pytest.param(
            [a_node("a"), a_node("b", used=14_000.0)],
            [web("a", 12_500.0), web("b", 500.0)],
            -1_000.0,
            id="a node that is hot by itself has no room, and none to offer",
        ),
        pytest.param(
            [a_node("a"), a_node("b", unschedulable=True)],
            [web("a", 13_000.0), web("b", 4_000.0)],
            -1_000.0,
            id="a cordoned node keeps its pods and takes no more",
        ),
        pytest.param(
            [a_node("a"), a_node("b", unschedulable=True)],
            [web("a", 10_000.0), web("b", 13_000.0)],
            1_000.0,
            id="a hot cordoned node gives some away",
        ),
        pytest.param(
            [a_node("a"), a_node("b", **LEAVING)],
            [web("a", 10_000.0), web("b", 4_000.0)],
            -2_000.0,
            id="pods of a leaving node need another",
        ),
        pytest.param(
            [a_node("a"), a_node("b", used=float("nan"))],
            [web("a", 13_000.0), web("b", 1_000.0)],
            -1_000.0,
            id="what isn't known offers no room",
        ),
        pytest.param(
            [a_node("a"), a_node("b", labels={"pool": "other"})], [web("a", 13_000.0)], -1_000.0, id="of another pool"
        ),
    ],
)
def test_what_is_left_under_high_with_all_pods(nodes: list[ANode], pods: list[APod], left: float) -> None:
    assert spare(nodes, pods) == {"general": pytest.approx(left)}


def test_a_pool_of_nodes_that_are_not_known_is_left_out() -> None:
    assert spare([a_node("a", used=float("nan"))], []) == {}


def test_only_a_pool_that_lacks_cpu_has_a_note() -> None:
    (note,) = spare_notes({"general": -1_250.0, "batch": 0.0, "other": 9_000.0})
    assert note.startswith("pool general lacks 1.25 cores of CPU")


STEP = 1_000.0
LOADS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=5)
"""(node, cores) of pods."""


@settings(max_examples=150, deadline=None)
@given(own=st.lists(st.integers(0, 14), min_size=3, max_size=3), loads=LOADS, cordoned=st.sets(st.integers(0, 2)))
@example(own=[0, 0, 0], loads=[(0, 9), (0, 9), (0, 9), (1, 9)], cordoned=set())
@example(own=[0, 0, 13], loads=[(0, 9), (0, 3), (1, 9), (1, 3)], cordoned={2})
def test_where_some_placement_keeps_all_nodes_cool_nothing_is_lacking(
    own: list[int], loads: list[tuple[int, int]], cordoned: set[int]
) -> None:
    """Of all placements of the pods on nodes that admit them; nodes that are hot by themselves are to hold none."""
    nodes = [
        a_node(
            f"n{at}", used=STEP * (base + sum(load for node, load in loads if node == at)), unschedulable=at in cordoned
        )
        for at, base in enumerate(own)
    ]
    pods = [
        a_pod(f"p{at}", f"n{node}", owner=f"own-{at}", used=STEP * load)
        for at, (node, load) in enumerate(loads)
        if load
    ]
    loads = [each for each in loads if each[1]]
    limits = [max(HIGH / STEP - base, 0.0) for base in own]
    places = [[at for at in range(3) if at == home or at not in cordoned] for home, _ in loads]
    cool = any(
        all(
            sum(load for (_, load), where in zip(loads, chosen, strict=True) if where == at) <= limits[at]
            for at in range(3)
        )
        for chosen in itertools.product(*places)
    )
    (left,) = spare(nodes, pods).values()
    if cool:
        assert left >= -1e-6


def test_a_plan_says_that_its_pool_lacks_cpu_and_metrics_do_until_it_has_some(tmp_path: Path) -> None:
    metrics = Metrics()

    def shown() -> list[str]:
        lines = metrics.page()[0].decode().splitlines()
        return [each for each in lines if each.startswith("rebalancer_pool_spare_cores{")]

    full = a_scenario(["a", "b"], burner("a", "a", 8.0), burner("b", "b", 10.0), service("web", {"a": 4}, cpu=2.0))
    with a_stage(full, tmp_path / "full") as stage:
        report = stage.cycle()
    ((pool, left),) = report.spare_cpu.items()
    assert left < 0
    assert any(each.startswith(f"pool {pool} lacks") for each in report.notes), report.notes
    count(metrics, report, 1.0)
    (line,) = shown()
    assert float(line.split()[-1]) == pytest.approx(left / 1000)
    stopped = replace(report, stopped=Refusal.of(Reason.COVERAGE_TOO_LOW), spare_cpu={})
    count(metrics, stopped, 1.0)
    assert shown() == [line]
    roomy = a_scenario(["a", "b"], burner("a", "a", 8.0), service("web", {"a": 4}, cpu=2.0))
    with a_stage(roomy, tmp_path / "roomy") as stage:
        report = stage.cycle()
    assert report.spare_cpu[pool] > 0
    assert not any("lacks" in each for each in report.notes)
    metrics.clear_leaders()
    assert shown() == []
