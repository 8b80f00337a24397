"""Deployments change their template in steps, within maxSurge and maxUnavailable."""

from collections.abc import Callable
from typing import Any

from rebalancer.lab import Lab, PdbSpec, workload
from tests.lab.conftest import three_nodes

Start = Callable[..., Lab]


def web(**fields: Any) -> Any:
    return workload("web", namespace="shop", place={"a": 3, "b": 3, "c": 2}, cpu_request="200m", **fields)


def counts(lab: Lab) -> tuple[int, int]:
    """(all pods that are not terminating, Ready ones of them)"""
    pods = [pod for pod in lab.cluster.pods(workload="web") if not pod["metadata"].get("deletionTimestamp")]
    ready = [pod for pod in pods if any(c["type"] == "Ready" and c["status"] == "True" for c in _conditions(pod))]
    return len(pods), len(ready)


def _conditions(pod: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod["status"].get("conditions") or []
    return found


def test_a_rollout_keeps_three_quarters_available_and_starts_a_quarter_more(start: Start) -> None:
    lab = start(three_nodes(web(pdb=PdbSpec(max_unavailable=1))), stepped=True)
    lab.cluster.roll_out("shop", "web", plural="deployments", image="web:2")
    seen = [counts(lab)]
    for _ in range(60):
        lab.clock.sleep(1.0)
        seen.append(counts(lab))
    assert max(total for total, _ in seen) == 10
    assert min(ready for _, ready in seen) == 6
    assert seen[-1] == (8, 8)
    assert {pod["spec"]["containers"][0]["image"] for pod in lab.cluster.pods(workload="web")} == {"web:2"}
    status = lab.cluster.store.get("deployments", "shop", "web")["status"]
    assert (status["replicas"], status["updatedReplicas"], status["availableReplicas"]) == (8, 8, 8)
    # the sets together have more than the Deployment wants while it rolls; its budget counts what it wants
    assert lab.cluster.store.get("poddisruptionbudgets", "shop", "web")["status"]["expectedPods"] == 8


def test_a_template_whose_pods_never_get_ready_stops_half_way(start: Start) -> None:
    lab = start(three_nodes(web()), stepped=True)
    owner = lab.cluster.store.get("deployments", "shop", "web")
    template = {**owner["spec"]["template"], "metadata": {**owner["spec"]["template"]["metadata"]}}
    template["metadata"]["annotations"] = {"lab.rebalancer.dev/behaviour": '{"ready":false}'}
    lab.cluster.store.update("deployments", {**owner, "spec": {**owner["spec"], "template": template}})
    lab.clock.sleep(600.0)
    assert counts(lab) == (10, 6)
    status = lab.cluster.store.get("deployments", "shop", "web")["status"]
    assert status["updatedReplicas"] == 4
    assert {"Progressing": "ReplicaSetUpdated"}.items() <= {
        c["type"]: c["reason"] for c in _conditions(owner_of(lab))
    }.items()


def owner_of(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = lab.cluster.store.get("deployments", "shop", "web")
    return found
