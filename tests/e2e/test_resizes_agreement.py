"""Requests of pods that are resized in place, as a real kube-scheduler counts them.

KUBEBUILDER_ASSETS=/path/to/bin python -m pytest tests/e2e/test_resizes_agreement.py
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.kube.builders import Cluster, read
from tests.real.servers.api_server import ApiServer, api_server
from tests.real.servers.scheduler import Scheduler, assets_with_scheduler, kube_scheduler, scheduler_version

pytestmark = pytest.mark.real

CORES = 8_000
PODS = "/api/v1/namespaces/default/pods"

# name -> millicores by container: (as created, as resized, actual, allocated), and the reason of PodResizePending
CASES: dict[str, tuple[Mapping[str, tuple[int, int | None, int | None, int | None]], str]] = {
    "untouched": ({"a": (500, None, None, None)}, ""),
    "done": ({"a": (500, 1_500, 1_500, 1_500)}, ""),
    "smaller-unseen": ({"a": (2_000, 500, 2_000, 2_000)}, ""),
    "smaller-allocated": ({"a": (2_000, 500, 2_000, 500)}, ""),
    "larger-deferred": ({"a": (500, 3_000, 500, 500)}, "Deferred"),
    "larger-infeasible": ({"a": (500, 3_000, 500, 500)}, "Infeasible"),
    "again-infeasible": ({"a": (500, 3_000, 500, 1_000)}, "Infeasible"),
    "without-status": ({"a": (500, 3_000, None, None)}, "Infeasible"),
    "both-ways": ({"a": (2_000, 500, 2_000, 2_000), "b": (500, 2_000, 500, 500)}, "Deferred"),
    "one-of-two": ({"a": (500, 2_000, 500, 500), "b": (700, None, 700, 700)}, "Deferred"),
}


def container(name: str, millicores: int) -> dict[str, Any]:
    amounts = {"requests": {"cpu": f"{millicores}m"}}
    return {"name": name, "image": "i", "resources": amounts, "terminationMessagePath": "/dev/termination-log"}


def status(name: str, actual: int | None, allocated: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "image": "i", "imageID": "", "ready": True, "restartCount": 0}
    if actual is not None:
        found["resources"] = {"requests": {"cpu": f"{actual}m"}}
    if allocated is not None:
        found["allocatedResources"] = {"cpu": f"{allocated}m"}
    return found


def prepare(server: ApiServer, case: str) -> None:
    """A node of its own with one pod in that state."""
    containers, pending = CASES[case]
    amounts = {"cpu": f"{CORES}m", "memory": "8Gi", "pods": "110"}
    server.call("POST", "/api/v1/nodes", {"metadata": {"name": case, "labels": {"case": case}}})
    ready = [{"type": "Ready", "status": "True", "reason": "r", "message": "m"}]
    server.call(
        "PATCH",
        f"/api/v1/nodes/{case}/status",
        {"status": {"capacity": amounts, "allocatable": amounts, "conditions": ready}},
    )
    server.call("PATCH", f"/api/v1/nodes/{case}", {"spec": {"taints": None}})
    made = [container(name, each[0]) for name, each in containers.items()]
    server.call("POST", PODS, {"metadata": {"name": case}, "spec": {"nodeName": case, "containers": made}})
    if any(each[1] is not None for each in containers.values()):
        resized = [container(name, each[0] if each[1] is None else each[1]) for name, each in containers.items()]
        server.call("PATCH", f"{PODS}/{case}/resize", {"spec": {"containers": resized}})
    found = [status(name, *each[2:]) for name, each in containers.items()]
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    server.call(
        "PATCH",
        f"{PODS}/{case}/status",
        {"status": {"phase": "Running", "containerStatuses": found, "conditions": conditions}},
    )


def binds(server: ApiServer, scheduler: Scheduler, case: str, millicores: int, name: str) -> bool:
    """Whether a pod with this request is bound to the case's node."""
    spec = {"nodeSelector": {"case": case}, "containers": [container("c", millicores)]}
    server.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})
    return scheduler.decision(f"default/{name}").node == case


def test_the_room_beside_a_resized_pod_is_what_kube_scheduler_counts() -> None:
    assets = assets_with_scheduler()
    with api_server() as server:
        for case in CASES:
            prepare(server, case)
        listed = {name: server.call("GET", f"/api/v1/{path}")["items"] for name, path in LISTS.items()}
        version = scheduler_version(assets)
        snapshot = read(Cluster(version=version, pods=listed["pods"], nodes=listed["nodes"]))
        requests = snapshot.pods.cpu_request_millicores.tolist()
        counted = {name: int(cpu) for name, cpu in zip(snapshot.pods.names, requests, strict=True)}
        with kube_scheduler(server) as scheduler:
            wrong = []
            for case in CASES:
                room = CORES - counted[case]
                if binds(server, scheduler, case, room + 1, f"{case}-more"):
                    wrong.append(f"{case}: {counted[case]}m are counted, and there is more room")
                elif not binds(server, scheduler, case, room, f"{case}-fits"):
                    wrong.append(f"{case}: {counted[case]}m are counted, and there is less room")
    assert not wrong
    assert counted["larger-infeasible"] == 500
    assert counted["both-ways"] == (4_000 if snapshot.minor == 36 else 2_500)
    assert counted["without-status"] == (3_000 if snapshot.minor == 36 else 0)


LISTS = {"pods": "namespaces/default/pods", "nodes": "nodes"}
