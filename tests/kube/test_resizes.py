"""Pods that are resized in place count with the largest of spec, actual and allocated, as in kube-scheduler."""

from typing import Any

import pytest

from tests.kube.builders import Cluster, Json, a_pod, read

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


def container(name: str, cpu: str | None, **more: Any) -> Json:
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}} if cpu else {}, **more}


def status(name: str, actual: str | None, allocated: str | None = None) -> Json:
    found: Json = {"name": name, "restartCount": 0, "state": {"running": {}}}
    if actual is not None:
        found["resources"] = {"requests": {"cpu": actual}}
    if allocated is not None:
        found["allocatedResources"] = {"cpu": allocated}
    return found


def cpu_of(
    containers: list[Json],
    statuses: list[Json],
    *,
    condition: tuple[str, str] | None = None,
    generation: int = 2,
    inits: tuple[list[Json], list[Json]] = ([], []),
) -> float:
    pod = a_pod("a", spec={"containers": containers, "initContainers": inits[0]})
    pod["metadata"]["generation"] = generation
    pod["status"] |= {"containerStatuses": statuses, "initContainerStatuses": inits[1]}
    if condition is not None:
        kind, reason = condition
        pod["status"].setdefault("conditions", []).append({"type": kind, "status": "True", "reason": reason})
    snapshot = read(Cluster(pods=[pod]))
    assert snapshot.pod_templates[int(snapshot.pods.template[0])].cpu_request_millicores == float(
        snapshot.pods.cpu_request_millicores[0]
    )
    return float(snapshot.pods.cpu_request_millicores[0])


@pytest.mark.parametrize(
    ("spec", "actual", "allocated", "condition", "counted"),
    [
        ("1", "1", "1", None, 1_000.0),
        ("500m", "2", "2", None, 2_000.0),
        ("500m", "2", "500m", (IN_PROGRESS, ""), 2_000.0),
        ("500m", "500m", "2", (IN_PROGRESS, ""), 2_000.0),
        ("3", "1", "1", (PENDING, "Deferred"), 3_000.0),
        ("3", "1", "1", (PENDING, "Infeasible"), 1_000.0),
        ("3", "1", "2", (PENDING, "Infeasible"), 2_000.0),
        ("3", None, None, (PENDING, "Infeasible"), 3_000.0),
        ("1", "2", None, None, 2_000.0),
        ("1", "many", "2", None, 1_000.0),
    ],
    ids=[
        "done",
        "smaller, not seen by the kubelet yet",
        "smaller, allocated",
        "smaller, in force and not allocated",
        "larger, deferred",
        "larger, infeasible",
        "larger again, infeasible",
        "the kubelet doesn't report it",
        "no allocation is reported",
        "no quantity",
    ],
)
def test_the_largest_counts_and_an_infeasible_spec_does_not(
    spec: str, actual: str | None, allocated: str | None, condition: tuple[str, str] | None, counted: float
) -> None:
    assert cpu_of([container("c", spec)], [status("c", actual, allocated)], condition=condition) == counted


def test_containers_are_found_by_name() -> None:
    containers = [container("web", "100m"), container("agent", "100m")]
    assert cpu_of(containers, [status("agent", "900m", "900m"), status("web", "100m", "100m")]) == 1_000.0


def test_of_init_containers_only_sidecars_are_resized() -> None:
    inits = [container("side", "100m", restartPolicy="Always"), container("setup", "100m")]
    found = [status("side", "700m", "700m"), status("setup", "5", "5")]
    assert cpu_of([container("c", "100m")], [], inits=(inits, found)) == 800.0


def test_the_status_of_a_pod_that_was_never_resized_is_not_read() -> None:
    assert cpu_of([container("c", "1")], [status("c", "2", "2")], generation=1) == 1_000.0


def test_pods_of_one_template_differ_while_one_of_them_is_resized() -> None:
    pods = []
    for name, actual in (("a", "1"), ("b", "2")):
        pod = a_pod(name, spec={"containers": [container("c", "1")]})
        pod["metadata"]["generation"] = 2
        pod["status"]["containerStatuses"] = [status("c", actual, actual)]
        pods.append(pod)
    assert read(Cluster(pods=pods)).pods.cpu_request_millicores.tolist() == [1_000.0, 2_000.0]
