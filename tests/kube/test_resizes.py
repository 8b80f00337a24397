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
    minor: int = 36,
    **whole: Json,
) -> float:
    """`whole`: the pod-level `spec`, `actual` and `allocated`."""
    level = {"resources": {"requests": whole["spec"]}} if "spec" in whole else {}
    pod = a_pod("a", spec={"containers": containers, "initContainers": inits[0], **level})
    pod["status"] |= {"resources": {"requests": whole["actual"]}} if "actual" in whole else {}
    pod["status"] |= {"allocatedResources": whole["allocated"]} if "allocated" in whole else {}
    pod["metadata"]["generation"] = generation
    pod["status"] |= {"containerStatuses": statuses, "initContainerStatuses": inits[1]}
    if condition is not None:
        kind, reason = condition
        pod["status"].setdefault("conditions", []).append({"type": kind, "status": "True", "reason": reason})
    snapshot = read(Cluster(version=f"v1.{minor}.2", pods=[pod]))
    assert snapshot.minor == minor
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


@pytest.mark.parametrize(("minor", "counted"), [(36, 1_250.0), (37, 1_500.0)])
def test_totals_of_a_pod_with_overhead_have_it_twice(minor: int, counted: float) -> None:
    """The kubelet's totals have it, and the scheduler of 1.37 adds it, also for a pod that was never resized."""
    for generation in (1, 2):
        pod = a_pod("a", spec={"containers": [container("c", "1")], "overhead": {"cpu": "250m"}})
        pod["metadata"]["generation"] = generation
        pod["status"] |= {"resources": {"requests": {"cpu": "1250m"}}, "allocatedResources": {"cpu": "1250m"}}
        pod["status"]["containerStatuses"] = [status("c", "1", "1")]
        assert read(Cluster(version=f"v1.{minor}.2", pods=[pod])).pods.cpu_request_millicores.tolist() == [counted]


def test_pods_of_one_template_differ_while_one_of_them_is_resized() -> None:
    pods = []
    for name, actual in (("a", "1"), ("b", "2")):
        pod = a_pod(name, spec={"containers": [container("c", "1")]})
        pod["metadata"]["generation"] = 2
        pod["status"]["containerStatuses"] = [status("c", actual, actual)]
        pods.append(pod)
    assert read(Cluster(pods=pods)).pods.cpu_request_millicores.tolist() == [1_000.0, 2_000.0]


BOTH_WAYS = ([container("a", "500m"), container("b", "2")], [status("a", "2", "2"), status("b", "500m", "500m")])


@pytest.mark.parametrize(("minor", "counted"), [(36, 4_000.0), (37, 2_500.0)])
def test_from_1_37_on_totals_are_compared(minor: int, counted: float) -> None:
    """One container grows while the other shrinks."""
    assert cpu_of(*BOTH_WAYS, condition=(PENDING, "Deferred"), minor=minor) == counted


@pytest.mark.parametrize(("minor", "counted"), [(36, 3_000.0), (37, 0.0)])
def test_from_1_37_on_an_infeasible_spec_never_counts(minor: int, counted: float) -> None:
    assert cpu_of([container("c", "3")], [], condition=(PENDING, "Infeasible"), minor=minor) == counted


@pytest.mark.parametrize(("minor", "counted"), [(36, 2_500.0), (37, 5_000.0)])
def test_from_1_37_on_init_containers_of_every_kind_are_resized(minor: int, counted: float) -> None:
    inits = ([container("setup", "2500m")], [status("setup", "5", "5")])
    assert cpu_of([container("c", "100m")], [], inits=inits, minor=minor) == counted


@pytest.mark.parametrize(("minor", "counted"), [(36, 1_000.0), (37, 3_000.0)])
def test_from_1_37_on_the_kubelets_totals_come_before_its_containers(minor: int, counted: float) -> None:
    whole = {"actual": {"cpu": "3"}, "allocated": {"cpu": "2"}}
    assert cpu_of([container("c", "1")], [status("c", "1", "1")], minor=minor, **whole) == counted


@pytest.mark.parametrize("minor", [36, 37])
@pytest.mark.parametrize(("condition", "counted"), [((IN_PROGRESS, ""), 4_000.0), ((PENDING, "Infeasible"), 2_000.0)])
def test_requests_of_the_pod_as_a_whole_are_resized(minor: int, condition: tuple[str, str], counted: float) -> None:
    whole = {"spec": {"cpu": "4"}, "actual": {"cpu": "2"}, "allocated": {"cpu": "1"}}
    assert cpu_of([container("c", "1")], [], condition=condition, minor=minor, **whole) == counted


def test_what_is_no_quantity_leaves_the_spec_in_every_version() -> None:
    assert cpu_of([container("c", "1")], [status("c", "many", "2")], minor=37) == 1_000.0


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        ("v1.36.2", 36),
        ("v1.37.0-rc.1+build", 37),
        ("v1.30.4-eks-1", 36),
        ("v1.41.0", 37),
        ("v0.0.0-master", 36),
        ("", 36),
    ],
)
def test_versions_that_are_not_modelled_count_as_the_nearest(version: str, minor: int) -> None:
    assert read(Cluster(version=version)).minor == minor


@pytest.mark.parametrize("code", [403, 404])
def test_without_a_version_the_oldest_is_followed(code: int) -> None:
    cluster = Cluster(version="v1.37.2")
    cluster.refused["version"] = code
    assert read(cluster).minor == 36
