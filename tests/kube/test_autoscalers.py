"""HorizontalPodAutoscalers, in-place resizes and the mark of VerticalPodAutoscalers as they are read."""

import math

import pytest

from rebalancer.model.cluster.autoscaling import VPA_UPDATES, ScalingMetric
from rebalancer.model.cluster.owners import Service
from tests.kube.builders import Cluster, Json, a_pod, meta, read

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}


def an_autoscaler(*, metrics: list[Json] | None = None, behavior: Json | None = None, **state: object) -> Json:
    return {
        "metadata": meta("web-hpa", "shop"),
        "spec": {"scaleTargetRef": TARGET, "metrics": metrics or [CPU]} | ({"behavior": behavior} if behavior else {}),
        "status": {"currentReplicas": 4, "desiredReplicas": 6} | state,
    }


def current(*, name: str = "cpu", **figure: object) -> Json:
    return {"type": "Resource", "resource": {"name": name, "current": figure}}


def test_an_autoscaler_is_read_with_its_target_and_its_status() -> None:
    (scaler,) = read(
        Cluster(
            horizontalpodautoscalers=[
                an_autoscaler(
                    lastScaleTime="2026-11-21T03:00:00Z",
                    currentMetrics=[current(averageUtilization=65, averageValue="650m")],
                )
            ]
        )
    ).autoscalers
    assert (scaler.namespace, scaler.name, scaler.target) == ("shop", "web-hpa", ("Deployment", "web"))
    assert (scaler.current, scaler.desired, scaler.is_scaling) == (4, 6, True)
    assert scaler.last_scaled == 1_795_230_000.0
    assert scaler.metrics == (ScalingMetric(name="cpu", current=65, target=70),)
    assert scaler.tolerance == 0.1


def test_a_value_target_and_a_tolerance_of_its_own_are_read() -> None:
    memory = {"type": "Resource", "resource": {"name": "memory", "target": {"averageValue": "1Gi"}}}
    queue = {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"value": "5"}}}
    given = an_autoscaler(
        metrics=[memory, queue, CPU],
        behavior={"scaleUp": {"tolerance": "50m"}},
        currentMetrics=[current(name="memory", averageValue="512Mi"), {"type": "External", "external": {}}],
    )
    (scaler,) = read(Cluster(horizontalpodautoscalers=[given])).autoscalers
    assert scaler.metrics == (ScalingMetric(name="memory", current=2.0**29, target=2.0**30),)
    assert scaler.tolerance == 0.05
    assert math.isnan(scaler.last_scaled)


@pytest.mark.parametrize("condition", ["AbleToScale", "ScalingActive"])
def test_one_that_can_not_scale_is_not_scaling(condition: str) -> None:
    """Without its metrics its controller keeps the last number that it asked for."""
    given = an_autoscaler(conditions=[{"type": condition, "status": "False"}])
    (scaler,) = read(Cluster(horizontalpodautoscalers=[given])).autoscalers
    assert not scaler.is_scaling


@pytest.mark.parametrize("code", [403, 404])
def test_without_the_permission_or_the_api_there_are_none(code: int) -> None:
    cluster = Cluster(horizontalpodautoscalers=[an_autoscaler()])
    cluster.refused["horizontalpodautoscalers"] = code
    snapshot = read(cluster)
    assert snapshot.autoscalers == ()
    assert snapshot.autoscaler_of(Service(kind="Deployment", namespace="shop", name="web")) is None


@pytest.mark.parametrize(
    ("condition", "resizing"), [("PodResizeInProgress", True), ("PodResizePending", False), ("Ready", False)]
)
def test_a_resize_in_progress_is_in_the_status(condition: str, resizing: bool) -> None:
    pod = a_pod(
        "a", status={"conditions": [{"type": "Ready", "status": "True"}, {"type": condition, "status": "True"}]}
    )
    snapshot = read(Cluster(pods=[pod]))
    assert snapshot.statuses[int(snapshot.pods.status[0])].resizing is resizing


def test_a_resize_that_the_kubelet_can_not_do_holds_nothing() -> None:
    failed = {"type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "memory limit too low"}
    snapshot = read(Cluster(pods=[a_pod("a", status={"conditions": [failed]})]))
    assert not snapshot.statuses[int(snapshot.pods.status[0])].resizing


def test_the_mark_of_a_vertical_autoscaler_is_kept() -> None:
    pod = a_pod("a", metadata=meta("a", "shop", annotations={VPA_UPDATES: "Pod resources updated by web"}))
    snapshot = read(Cluster(pods=[pod]))
    assert VPA_UPDATES in snapshot.pod_templates[0].annotations
