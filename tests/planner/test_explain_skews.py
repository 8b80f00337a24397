"""The explanation of placement: services that one node attracts, and the mean of an autoscaler."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from rebalancer.model.cluster.autoscaling import HorizontalAutoscaler, ScalingMetric
from rebalancer.model.cluster.scheduler import SchedulerConfig, SchedulerProfile
from rebalancer.model.reason import Reason
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.scheduler.engine import Engine
from rebalancer.planner.explain.skew import PlacementSkew, placement_skew_of, tail
from tests.builders import (
    GIB,
    NOW,
    ANode,
    APod,
    a_node,
    a_pod,
    cluster,
    replicas,
)
from tests.planner.test_explain import check_of, hot_world, of_node, of_pod, scene_of

IMAGE = {"registry.example/report:1": 3 * GIB}


def skewed_world(*, here: int, there: int = 0, **fields: Any) -> tuple[list[ANode], list[APod]]:
    """Four nodes; n1 has a large image. A Job's pods aren't spread by the scheduler."""
    nodes = [a_node("n1", images=IMAGE), *(a_node(f"n{number}") for number in range(2, 5))]
    template = {"images": ("registry.example/report:1",), **fields}
    pods = replicas("report", {"n1": here, "n2": there}, owner_kind="Job", cpu=50.0, age=600.0, template=template)
    return nodes, pods


def attraction(
    nodes: Sequence[ANode], pods: Sequence[APod], node: int = 0, *, config: SchedulerConfig | None = None
) -> PlacementSkew:
    snapshot = cluster(nodes, pods)
    found = placement_skew_of(snapshot, Engine(Board(snapshot), config), 0, node, NOW)
    assert found is not None
    return found


def test_image_locality_is_named_with_its_points() -> None:
    found = attraction(*skewed_world(here=12))
    assert found.skewed
    decisive = found.next_pod.decisive
    assert decisive is not None
    # 3 GiB on one of four nodes: (768 - 23) / (1000 - 23) MiB
    assert (decisive.plugin, decisive.here, decisive.median) == ("ImageLocality", 76, 0)
    assert (found.here, found.replicas, found.fair, found.eligible, found.last_hour) == (12, 12, 3.0, 4, 12)
    (image,) = found.images
    assert (image.name, image.size_bytes) == ("registry.example/report:1", 3 * GIB)
    assert (image.nodes_with, image.missing, image.here) == (1, 3, True)
    assert found.next_pod.probability == 1.0


def test_points_count_by_weight() -> None:
    config = SchedulerConfig(profiles={"default-scheduler": SchedulerProfile(weights={"ImageLocality": 3})})
    found = attraction(*skewed_world(here=12), config=config)
    assert found.next_pod.decisive is not None
    assert found.next_pod.decisive.lead == 3 * 76
    assert found.next_pod.total_lead == 3 * 76


def test_an_even_spread_is_no_skew() -> None:
    nodes = [a_node(f"n{number}") for number in range(4)]
    pods = replicas("web", {node.name: 10 for node in nodes})
    assert not any(attraction(nodes, pods, node).skewed for node in range(4))


def test_a_few_pods_together_are_no_skew() -> None:
    assert not attraction(*skewed_world(here=3, there=1)).skewed


def test_what_one_of_several_nodes_gets_by_chance_is_no_skew() -> None:
    nodes, pods = skewed_world(here=4)
    found = attraction(nodes, pods)
    assert found.p_value == pytest.approx(4 * 0.25**4)
    assert not found.skewed


def test_nodes_without_room_count_as_nodes_that_may_hold_them() -> None:
    nodes, pods = skewed_world(here=12)
    full = [a_pod(f"full-{node.name}", node.name, cpu=16_000) for node in nodes[2:]]
    found = attraction(nodes, [*pods, *full])
    assert (found.eligible, found.next_pod.feasible, found.fair) == (4, 2, 3.0)


def test_a_large_node_may_hold_more() -> None:
    nodes = [a_node("n1", cpu=128_000), *(a_node(f"n{number}", cpu=4_000) for number in range(2, 5))]
    found = attraction(nodes, replicas("web", {"n1": 30, "n2": 1, "n3": 1, "n4": 1}, cpu=50))
    assert found.fair == pytest.approx(33 * 128 / 140)
    assert not found.skewed


def test_pods_that_may_go_nowhere_else_are_no_skew() -> None:
    nodes, pods = skewed_world(here=12, nodeSelector={"kubernetes.io/hostname": "n1"})
    found = attraction(nodes, pods)
    assert found.eligible == 1
    assert not found.skewed


def test_a_full_node_takes_no_more_but_counts_as_one_that_may_hold_them() -> None:
    nodes, pods = skewed_world(here=12)
    nodes[0].pods = 12
    found = attraction(nodes, pods)
    assert found.skewed
    assert found.eligible == 4
    assert (found.next_pod.takes_more, found.next_pod.decisive, found.next_pod.leads) == (False, None, ())
    assert found.next_pod.refused_by == ("NodeResourcesFit", "Too many pods")


def test_daemon_set_pods_and_services_that_are_not_there_are_not_told_of() -> None:
    nodes = [a_node("n1"), a_node("n2")]
    snapshot = cluster(nodes, replicas("agent", {"n1": 1}, owner_kind="DaemonSet"))
    assert placement_skew_of(snapshot, Engine(Board(snapshot)), 0, 0, NOW) is None
    snapshot = cluster(nodes, replicas("web", {"n1": 1}))
    assert placement_skew_of(snapshot, Engine(Board(snapshot)), 0, 1, NOW) is None


def test_the_node_lists_its_skews_first() -> None:
    nodes, pods = skewed_world(here=12)
    scene = scene_of(nodes, [*replicas("web", {"n1": 15, "n2": 15, "n3": 15, "n4": 15}, cpu=50.0), *pods])
    assert [(each.service.name, each.skewed) for each in of_node(scene, "n1").attractions] == [
        ("report", True),
        ("web", False),
    ]


@pytest.mark.parametrize(
    ("draws", "at_least", "chance", "expected"),
    [
        (5, 0, 0.2, 1.0),
        (5, 6, 0.2, 0.0),
        (5, 5, 0.5, 1 / 32),
        (5, 1, 0.5, 31 / 32),
        (3, 2, 0.25, 3 * 0.25**2 * 0.75 + 0.25**3),
        (4, 2, 1.0, 1.0),
        (4, 2, 0.0, 0.0),
    ],
)
def test_the_tail_of_a_binomial(draws: int, at_least: int, chance: float, expected: float) -> None:
    assert tail(draws, at_least, chance) == pytest.approx(expected)


def test_the_tail_of_many_draws_is_finite() -> None:
    assert 0 < tail(100_000, 1_100, 0.01) < 0.01
    assert math.isclose(tail(100_000, 900, 0.01), 1.0, abs_tol=0.01)


def test_what_a_scheduler_decides_that_is_not_known_is_not_told() -> None:
    nodes, pods = skewed_world(here=12, schedulerName="other")
    found = attraction(nodes, pods)
    assert found.skewed
    assert (found.next_pod.decisive, found.next_pod.leads, found.next_pod.probability) == (None, (), None)
    assert found.next_pod.unknown_reason is not None
    assert found.next_pod.unknown_reason.code is Reason.PLACEMENT_NOT_MODELLED
    explained = of_pod(scene_of(nodes, pods), "report-0")
    assert explained.target_nodes == ()
    assert [(each.scores, each.total) for each in explained.scored] == [({}, 0.0)] * 4


@pytest.mark.parametrize(
    ("pods", "mean", "says"),
    [
        (4, 60.0, "while one of 4 pods starts, the mean cpu of the others rises from 60 to 80, over the target of 70"),
        (10, 60.0, "rises from 60 to 66.7, within the target of 70 with its tolerance of 10%"),
        (1, 60.0, "no mean over several pods is known"),
    ],
)
def test_it_says_what_a_move_does_to_the_mean_of_an_autoscaler(pods: int, mean: float, says: str) -> None:
    scaler = HorizontalAutoscaler(
        name="web-hpa",
        namespace="shop",
        target=("ReplicaSet", "web"),
        current=pods,
        desired=pods,
        active=True,
        last_scaled=float("nan"),
        metrics=(ScalingMetric(name="cpu", current=mean, target=70.0),),
    )
    nodes, running = hot_world()
    explained = of_pod(scene_of(nodes, running, autoscalers=(scaler,)), "web-0")
    check = check_of(explained, "autoscaler")
    assert check.ok
    assert check.detail.startswith("web-hpa: ")
    assert says in check.detail
    assert [each for each in of_pod(scene_of(nodes, running), "web-0").checks if each.name == "autoscaler"] == []
