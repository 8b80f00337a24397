"""Pods that fail and containers that restart, and what their controllers and the eviction API make of it."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from rebalancer.lab import Breaks, Lab, Scenario, node, scenario, workload
from rebalancer.lab.objects.errors import ApiError
from tests.lab.conftest import Client

Start = Callable[..., Lab]
Json = dict[str, Any]

LOOPS = {"after_seconds": 5.0, "exit_code": 137, "reason": "OOMKilled", "nodes": ["a"]}
FAILS = Breaks(after_seconds=0.0, exit_code=3, restarts=False)
EVICTED = Breaks(after_seconds=0.0, exit_code=137, restarts=False, pod_reason="Evicted")


def two_nodes(*workloads: Any, **fields: Any) -> Scenario:
    nodes = [node(name, cpu=8, memory="32Gi") for name in "ab"]
    return scenario(nodes=nodes, workloads=workloads, history_days=0.01, start_seconds=6.0, **fields)


def main_of(pod: Json) -> Json:
    found: Json = pod["status"]["containerStatuses"][0]
    return found


def is_ready(pod: Json) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"])


def phases(lab: Lab, name: str) -> list[str]:
    return sorted(pod["status"]["phase"] for pod in lab.cluster.pods(workload=name))


def test_a_container_that_ends_waits_longer_each_time_and_its_restarts_are_counted(start: Start) -> None:
    lab = start(two_nodes(workload("web", place={"a": 1}, breaks=LOOPS)), stepped=True)
    (pod,) = lab.cluster.pods(workload="web")
    assert (is_ready(pod), main_of(pod)["restartCount"]) == (True, 0)
    lab.clock.sleep(5)
    (pod,) = lab.cluster.pods(workload="web")
    assert main_of(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert main_of(pod)["lastState"]["terminated"]["exitCode"] == 137
    assert (pod["status"]["phase"], is_ready(pod), main_of(pod)["restartCount"]) == ("Running", False, 0)
    lab.clock.sleep(10)
    (pod,) = lab.cluster.pods(workload="web")
    assert ("running" in main_of(pod)["state"], main_of(pod)["restartCount"]) == (True, 1)
    lab.clock.sleep(3600)
    restarts = [each.at for each in lab.log.entries("restarted")]
    gaps = [later - earlier - 5 for earlier, later in pairwise(restarts)]
    assert gaps[:6] == [20, 40, 80, 160, 300, 300]
    assert main_of(lab.cluster.pods(workload="web")[0])["restartCount"] == len(restarts)


def test_a_pod_that_breaks_on_one_node_is_well_on_another(start: Start) -> None:
    lab = start(two_nodes(workload("web", replicas=2, place={"a": 1}, breaks=LOOPS)), stepped=True)
    lab.cluster.cordon("a")
    (on_a,) = lab.cluster.pods(workload="web", node="a")
    Client(lab.url).evict(on_a)
    lab.clock.sleep(600)
    pods = lab.cluster.pods(workload="web")
    assert [(pod["spec"]["nodeName"], is_ready(pod), main_of(pod)["restartCount"]) for pod in pods] == [
        ("b", True, 0),
        ("b", True, 0),
    ]


def test_a_container_that_starts_again_is_ready_after_a_while(start: Start) -> None:
    lab = start(two_nodes(workload("web", place={"a": 1}, restarts=120)), stepped=True)
    (pod,) = lab.cluster.pods(workload="web")
    assert main_of(pod)["restartCount"] == 120
    lab.cluster.end_containers("default", pod["metadata"]["name"])
    lab.clock.sleep(299)
    assert not is_ready(lab.cluster.pods(workload="web")[0])
    lab.clock.sleep(10)
    (pod,) = lab.cluster.pods(workload="web")
    assert (is_ready(pod), main_of(pod)["restartCount"]) == (True, 121)


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        # the failed one lies around beside its successor, except where the successor needs its name or its node
        ("Deployment", ["Failed", "Running", "Running"]),
        ("StatefulSet", ["Running", "Running"]),
        ("DaemonSet", ["Running", "Running"]),
        ("Job", ["Failed", "Running", "Running"]),
        ("Pod", ["Failed", "Running"]),
    ],
)
def test_a_failed_pod_gets_a_successor_from_its_controller(start: Start, kind: str, left: list[str]) -> None:
    place = {} if kind == "DaemonSet" else {"a": 2}
    lab = start(two_nodes(workload("web", kind=kind, place=place)), stepped=True)
    name = lab.cluster.pods(workload="web")[0]["metadata"]["name"]
    lab.cluster.end_containers("default", name, EVICTED)
    (failed,) = [pod for pod in lab.cluster.pods() if pod["metadata"]["name"] == name]
    assert (failed["status"]["phase"], failed["status"]["reason"]) == ("Failed", "Evicted")
    assert main_of(failed)["state"]["terminated"]["exitCode"] == 137
    assert not is_ready(failed)
    lab.clock.sleep(60)
    assert phases(lab, "web") == left


def test_only_a_running_pod_can_end(start: Start) -> None:
    lab = start(two_nodes(workload("bare", kind="Pod", place={"a": 1})), stepped=True)
    lab.cluster.end_containers("default", "bare", FAILS)
    with pytest.raises(ApiError, match="not Running"):
        lab.cluster.end_containers("default", "bare", FAILS)


def test_a_job_gives_up_after_so_many_failures(start: Start) -> None:
    breaks = {"after_seconds": 10.0, "restarts": False}
    lab = start(two_nodes(workload("batch", kind="Job", replicas=1, breaks=breaks)), stepped=True)
    lab.clock.sleep(600)
    assert phases(lab, "batch") == ["Failed"] * 7
    job = lab.cluster.store.get("jobs", "default", "batch")
    assert job["status"]["failed"] == 7
    assert job["status"]["conditions"][0]["reason"] == "BackoffLimitExceeded"
    for pod in lab.cluster.pods(workload="batch"):
        assert Client(lab.url).evict(pod).code == 201
    lab.clock.sleep(60)
    # what had failed already isn't counted again when it is deleted
    assert lab.cluster.pods(workload="batch") == []
    assert lab.cluster.store.get("jobs", "default", "batch")["status"]["failed"] == 7


def test_evicting_a_failed_pod_takes_it_away_without_asking_its_budget(start: Start) -> None:
    lab = start(two_nodes(workload("web", place={"a": 2}, pdb={"min_available": 2})), stepped=True)
    first, second = lab.cluster.pods(workload="web")
    lab.cluster.end_containers("default", first["metadata"]["name"], FAILS)
    client = Client(lab.url)
    assert client.evict(second).code == 429
    assert client.evict(first).code == 201
    lab.clock.sleep(0.1)
    assert first["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in lab.cluster.pods(workload="web")}


def test_a_failed_pod_uses_no_cpu_and_holds_no_room(start: Start) -> None:
    big = workload("web", place={"a": 1}, cpu=2.0, cpu_request="7", node_selector={"kubernetes.io/hostname": "a"})
    lab = start(two_nodes(big), stepped=True)
    lab.cluster.end_containers("default", lab.cluster.pods(workload="web")[0]["metadata"]["name"], FAILS)
    lab.clock.sleep(30)
    assert {(pod["status"]["phase"], pod["spec"]["nodeName"]) for pod in lab.cluster.pods(workload="web")} == {
        ("Failed", "a"),
        ("Running", "a"),
    }
    assert lab.truth.node_cpu_share_instant()["a"] == pytest.approx(2.3 / 8)
