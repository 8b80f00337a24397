from typing import Any

import pytest

from rebalancer.kube.snapshot.effective_requests import effective_requests, memory_limits
from rebalancer.kube.snapshot.records import Container, Limits, Resources
from rebalancer.lab.controlplane.pod_templates import template_of

MIB = 2.0**20


def container(cpu: str | None = None, memory: str | None = None, *, sidecar: bool = False, **more: str) -> Container:
    requests = {key: text for key, text in {"cpu": cpu, "memory": memory, **more}.items() if text is not None}
    return Container(
        image="i",
        resources=Resources(requests=requests) if requests else None,
        restart_policy="Always" if sidecar else None,
    )


# (containers, init containers, expected millicores)
CASES: dict[str, tuple[list[Container], list[Container], float]] = {
    "containers add up": ([container("100m"), container("1")], [], 1100),
    "nothing requested": ([container()], [], 0),
    "the largest init container counts when it is larger": (
        [container("100m")],
        [container("300m"), container("500m")],
        500,
    ),
    "init containers that are smaller don't count": ([container("1")], [container("300m")], 1000),
    "a sidecar runs beside the containers": ([container("100m")], [container("50m", sidecar=True)], 150),
    "an init container behind a sidecar runs beside it": (
        [container("100m")],
        [container("50m", sidecar=True), container("400m")],
        450,
    ),
    "an init container before a sidecar runs alone": (
        [container("100m")],
        [container("400m"), container("50m", sidecar=True)],
        400,
    ),
    "two sidecars and the init container between them": (
        [container("100m")],
        [container("50m", sidecar=True), container("300m"), container("70m", sidecar=True)],
        350,
    ),
    "three sidecars run beside the containers": (
        [container("100m")],
        [container("200m", sidecar=True), container("300m", sidecar=True)],
        600,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_effective_cpu_is_what_kep_753_says(case: tuple[list[Container], list[Container], float]) -> None:
    mains, inits, expected = case
    assert effective_requests(containers=mains, init_containers=inits).cpu_millicores == pytest.approx(expected)


def test_overhead_is_added_on_top() -> None:
    found = effective_requests(
        containers=[container("100m", "10Mi")],
        init_containers=[container("1")],
        overhead={"cpu": "250m", "memory": "120Mi"},
    )
    assert found.cpu_millicores == pytest.approx(1250)
    assert found.memory_bytes == pytest.approx(130 * MIB)


def test_pod_level_requests_stand_in_place_of_the_containers() -> None:
    found = effective_requests(
        containers=[container("100m"), container()],
        pod_level=Resources(requests={"cpu": "2", "memory": "1Gi"}),
        overhead={"cpu": "1"},
    )
    assert found.cpu_millicores == found.cpu_scored_millicores == pytest.approx(3000)
    assert found.memory_scored_bytes == pytest.approx(1024 * MIB)


def test_the_scheduler_scores_a_default_for_each_container_that_requests_none() -> None:
    found = effective_requests(containers=[container(), container("50m", "10Mi")])
    assert found.cpu_millicores == pytest.approx(50)
    assert found.cpu_scored_millicores == pytest.approx(150)
    assert found.memory_scored_bytes == pytest.approx(209715200 + 10 * MIB)


def test_a_request_of_zero_gets_no_default() -> None:
    found = effective_requests(containers=[container("0", "0")])
    assert found.cpu_scored_millicores == 0
    assert found.memory_scored_bytes == 0


def test_other_resources_are_kept_by_name() -> None:
    gpu = {"nvidia.com/gpu": "2"}
    found = effective_requests(containers=[container("1", **gpu), container("1", **gpu)])
    assert found.extended == {"nvidia.com/gpu": 4.0}


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="lots"):
        effective_requests(containers=[container("lots")])


def limited(memory: str | None) -> Container:
    return Container(image="i", resources=Resources(limits=Limits(memory=memory)))


def test_leak_limits_are_those_of_all_containers_or_of_the_pod() -> None:
    assert memory_limits([limited("1Gi"), limited("256Mi")], None) == (1024 * MIB, 256 * MIB)
    assert memory_limits([limited("1Gi"), limited(None)], None) == ()
    assert memory_limits([limited("1Gi"), container("1")], None) == ()
    assert memory_limits([container()], Resources(limits=Limits(memory="2Gi"))) == (2048 * MIB,)
    assert memory_limits([], None) == ()


def test_leak_limits_of_zero_are_none() -> None:
    assert memory_limits([limited("1Gi"), limited("0")], None) == ()
    assert memory_limits([limited("1Gi")], Resources(limits=Limits(memory="0"))) == (1024 * MIB,)
    with_limits: list[dict[str, Any]] = [{"resources": {"limits": {"memory": each}}} for each in ("1Gi", "0")]
    assert template_of({}, {"containers": with_limits}).memory_limits == ()
    assert template_of({}, {"containers": with_limits[:1], **with_limits[1]}).memory_limits == (1024 * MIB,)
