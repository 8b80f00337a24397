"""Autoscalers of workloads: horizontal ones scale by CPU, vertical ones change requests."""

from collections.abc import Callable
from typing import Any

from rebalancer.lab import CpuModel, HpaSpec, Lab, node, scenario, workload

Start = Callable[..., Lab]


def a_shop(**fields: Any) -> Any:
    """Its pods share 4 cores and request half a core each: 8 pods would use all that they request."""
    usual = {"namespace": "shop", "place": {"a": 2, "b": 2}, "cpu_request": "500m", "cpu": CpuModel(total=4.0)}
    nodes = [node(name, cpu=8, memory="32Gi") for name in "abc"]
    return scenario(nodes=nodes, workloads=[workload("web", **{**usual, **fields})], start_seconds=6.0)


def replicas(lab: Lab) -> int:
    return int(lab.cluster.store.get("deployments", "shop", "web")["spec"]["replicas"])


def requests(lab: Lab) -> set[str]:
    pods = lab.cluster.pods(workload="web")
    return {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in pods}


def test_a_service_is_scaled_up_until_its_pods_use_what_they_should(start: Start) -> None:
    lab = start(a_shop(hpa=HpaSpec(max_replicas=20, utilization=80)), stepped=True)
    lab.clock.sleep(300.0)
    assert replicas(lab) == 10  # 4 cores at 80 % of half a core each
    assert len(lab.cluster.pods(workload="web")) == 10
    status = lab.cluster.store.get("horizontalpodautoscalers", "shop", "web")["status"]
    assert status["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 80
    assert (status["currentReplicas"], status["desiredReplicas"]) == (10, 10)
    assert lab.log.entries("scaled")[0].detail == "4 to 8"  # it doubles at most


def test_it_never_has_more_than_its_maximum(start: Start) -> None:
    lab = start(a_shop(hpa=HpaSpec(max_replicas=6)), stepped=True)
    lab.clock.sleep(600.0)
    assert replicas(lab) == 6


def test_it_is_scaled_down_only_after_five_minutes(start: Start) -> None:
    lab = start(a_shop(cpu=CpuModel(total=0.4), hpa=HpaSpec(max_replicas=6, min_replicas=2)), stepped=True)
    lab.clock.sleep(290.0)
    assert replicas(lab) == 4
    lab.clock.sleep(120.0)
    assert replicas(lab) == 2
    lab.clock.sleep(30.0)
    assert len(lab.cluster.pods(workload="web")) == 2


def test_a_resize_changes_running_pods_in_place_and_those_that_come_later(start: Start) -> None:
    lab = start(a_shop(), stepped=True)
    uids = {pod["metadata"]["uid"] for pod in lab.cluster.pods()}
    lab.cluster.resize("shop", "web", {"cpu": "900m"})
    assert requests(lab) == {"900m"}
    assert {pod["metadata"]["uid"] for pod in lab.cluster.pods()} == uids
    owner = lab.cluster.store.get("deployments", "shop", "web")
    assert owner["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "500m"
    lab.cluster.roll_out("shop", "web", plural="deployments")
    lab.clock.sleep(120.0)
    assert requests(lab) == {"900m"}
    assert {pod["metadata"]["uid"] for pod in lab.cluster.pods()}.isdisjoint(uids)
