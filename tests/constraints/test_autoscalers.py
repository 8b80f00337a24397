"""Services that autoscalers are changing right now."""

from typing import Any

import pytest

from rebalancer.constraints.pods.guards import guarded
from rebalancer.model.cluster.autoscaling import VPA_UPDATES, HorizontalAutoscaler
from rebalancer.model.cluster.pods import PodStatus
from rebalancer.model.reason import Reason
from tests.builders import NOW, a_node, a_pod, cluster
from tests.constraints.builders import asked, view_of


def scaled(**fields: Any) -> HorizontalAutoscaler:
    given = {"current": 3, "desired": 3, "active": True, "last_scaled": float("nan"), "target": ("ReplicaSet", "web")}
    return HorizontalAutoscaler(**{"name": "web-hpa", "namespace": "shop", **given, **fields})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, None),
        ({"desired": 5}, "shop/web has 3 pods, web-hpa asks for 5"),
        ({"desired": 5, "active": False}, None),
        ({"desired": 5, "target": ("Deployment", "web")}, None),
        ({"desired": 5, "namespace": "other"}, None),
        ({"last_scaled": NOW - 100.0}, "web-hpa scaled shop/web 100s ago"),
        ({"last_scaled": NOW - 180.0}, None),
    ],
)
def test_a_service_that_an_autoscaler_is_changing_is_left_alone(fields: dict[str, Any], says: str | None) -> None:
    refusal = asked(autoscalers=(scaled(**fields),))
    assert (refusal is None) is (says is None)
    if refusal is not None and says is not None:
        assert refusal.code is Reason.AUTOSCALING
        assert says in refusal.message


def test_the_refusal_says_when_it_ends() -> None:
    refusal = asked(autoscalers=(scaled(last_scaled=NOW - 100.0),))
    assert refusal is not None
    assert refusal.next_at == NOW + 80.0


def test_how_long_a_service_is_left_alone_is_the_policys() -> None:
    recently = (scaled(last_scaled=NOW - 100.0),)
    assert asked(autoscalers=recently, guards={"minScaleAge": "1m"}) is None
    assert asked(autoscalers=(scaled(desired=5),), guards={"minScaleAge": "0s"}) is not None


@pytest.mark.parametrize(
    ("fields", "young", "refused"),
    [
        ({"desired": 64}, 0, False),
        ({"desired": 67}, 0, True),
        ({"last_scaled": NOW - 100.0}, 6, False),
        ({"last_scaled": NOW - 100.0}, 7, True),
        ({"last_scaled": NOW - 100.0}, 0, False),
    ],
)
def test_a_change_by_a_small_part_of_many_replicas_keeps_none_in_place(
    fields: dict[str, Any], young: int, refused: bool
) -> None:
    pods = [a_pod(f"web-{at}", "n1", owner="web", age=60.0 if at < young else 86_400.0) for at in range(60)]
    scaler = scaled(current=60, **{"desired": 60, **fields})
    snapshot = cluster([a_node("n1")], pods, autoscalers=(scaler,))
    found = guarded(snapshot.pod(59), view_of(snapshot))
    assert (found is not None and found.code is Reason.AUTOSCALING) is refused


def test_a_resize_in_place_of_one_pod_holds_its_service_and_no_other() -> None:
    resized = PodStatus(resizing=True)
    pods = [
        *(a_pod(f"web-{index}", "n1", owner="web", status=resized if not index else PodStatus()) for index in range(3)),
        *(a_pod(f"api-{index}", "n1", owner="api") for index in range(3)),
    ]
    snapshot = cluster([a_node("n1")], pods)
    view = view_of(snapshot)
    codes = [None if (found := guarded(snapshot.pod(i), view)) is None else found.code for i in range(6)]
    assert codes == [Reason.AUTOSCALING] * 3 + [None] * 3


@pytest.mark.parametrize(
    ("age", "annotations", "refused"),
    [
        (60.0, {VPA_UPDATES: "Pod resources updated by web: container 0: cpu request"}, True),
        (180.0, {VPA_UPDATES: "Pod resources updated by web: container 0: cpu request"}, False),
        (60.0, {}, False),
    ],
)
def test_a_vertical_autoscaler_that_gives_pods_other_requests_is_waited_for(
    age: float, annotations: dict[str, str], refused: bool
) -> None:
    changed = {"cpu": 900.0, "age": age, "template": {"annotations": annotations}}
    refusal = asked(siblings=1, sibling=changed)
    assert (refusal is not None and refusal.code is Reason.AUTOSCALING) is refused
    if refused and refusal is not None:
        assert refusal.next_at == NOW + 180.0 - age
        assert "gave web-1 of shop/web other requests" in refusal.message
