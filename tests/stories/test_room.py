"""Room that others would take, nodes that are no landing, and images that still have to be pulled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab, Scenario, workload
from tests.stories.scenarios.stage import (
    HIGH,
    NO_COOLDOWNS,
    TOLERATES_ALL,
    Stage,
    a_machine,
    a_scenario,
    a_stage,
    burner,
    codes,
    messages,
    service,
)

# ---- pending pods


def scale(lab: Lab, namespace: str, name: str, replicas: int) -> None:
    """As `kubectl scale deployment`."""
    with lab.cluster.lock:
        found = lab.cluster.store.get("deployments", namespace, name)
        lab.cluster.store.update("deployments", {**found, "spec": {**found["spec"], "replicas": replicas}})


def test_a_pending_pod_that_would_take_the_room_stops_the_eviction(tmp_path: Path) -> None:
    everywhere = dict.fromkeys(("hot", "a", "b"), 1)
    here = {"kubernetes.io/hostname": "hot"}
    waiting = workload("waiting", namespace="shop", replicas=1, cpu=1.0, cpu_request="800m", node_selector=here)
    # 500m are free on the hot node: too little for what waits, until a pod leaves
    burns = burner("burner", "hot", 11.0, cpu_request="14500m")
    cluster = a_scenario((*everywhere, "c"), burns, service("web", everywhere), service("api", everywhere), waiting)
    with a_stage(cluster, tmp_path) as stage:
        for _ in range(2):
            report = stage.turn()
            assert codes(report, "web-") == codes(report, "api-") == {"PendingTakesRoom"}
            assert all("shop/waiting-" in each for each in messages(report, "web-"))
        assert stage.lab.log.evictions() == ()
        scale(stage.lab, "shop", "waiting", 0)
        stage.turn()
        stage.lab.clock.sleep(60)
        log = stage.log
    gone = [each for each in log if each.event == "terminating" and each.name.startswith("waiting-")]
    assert len(gone) == 1
    assert {each.name.split("-")[0] for each in log.evicted} == {"web", "api"}


# ---- nodes that are no landing


def a_hot_node(other: str, *empty: str, **fields: Any) -> Scenario:
    """Both services have a pod on the hot node and on the other."""
    services = (service(name, {"hot": 1, other: 1}, **fields) for name in ("web", "api"))
    return a_scenario(("hot", *empty, other), burner("burner", "hot", 11.0, cpu_request="8"), *services)


def mark(key: str, effect: str) -> Callable[[Lab], None]:
    return lambda lab: lab.cluster.taint("closed", key, effect=effect)


def cordon(lab: Lab) -> None:
    lab.cluster.cordon("closed")


CLOSINGS: dict[str, Callable[[Lab], None]] = {
    "to be deleted": mark("ToBeDeletedByClusterAutoscaler", "NoSchedule"),
    "candidate": mark("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"),
    "karpenter": mark("karpenter.sh/disrupted", "NoSchedule"),
    "cordoned": cordon,
}


@pytest.mark.parametrize("tolerant", [False, True], ids=["", "tolerates everything"])
@pytest.mark.parametrize("closing", CLOSINGS)
def test_a_node_that_is_about_to_leave_is_no_landing(tmp_path: Path, closing: str, tolerant: bool) -> None:
    """By requests and in fact it is the emptiest. Pods that tolerate everything would go there: they stay."""
    more = {"tolerations": TOLERATES_ALL} if tolerant else {}
    with a_stage(a_hot_node("open", "closed", **more), tmp_path) as stage:
        CLOSINGS[closing](stage.lab)
        report = stage.turn()
        stage.lab.clock.sleep(60)
        log = stage.log
        closed_for_good = codes(report, "web-") == {"TargetNodeUnavailable"}
    if tolerant:
        assert log.evicted == []
        assert closed_for_good
        assert all("closed" in each for each in messages(report, "web-"))
    else:
        assert {each.target for each in log.moves} == {"open"}
        assert {each.service for each in log.moves} == {"web", "api"}


def test_a_node_that_has_just_joined_is_no_landing_for_five_minutes(tmp_path: Path) -> None:
    with a_stage(a_hot_node("old"), tmp_path, safety={"cooldowns": NO_COOLDOWNS}, softTaint={"mode": "Off"}) as stage:
        stage.lab.cluster.add_node(a_machine("new"))
        joined = stage.lab.clock.now()
        for _ in range(2):
            report = stage.turn()
            assert codes(report, "web-") == codes(report, "api-") == {"TargetNodeUnavailable"}
        assert stage.lab.log.evictions() == ()
        stage.turns(2)
        log = stage.log
    assert {each.target for each in log.moves} == {"new"}
    assert min(each.at for each in log.moves) - joined >= 300


def test_a_node_that_has_just_joined_gets_a_soft_taint_instead(tmp_path: Path) -> None:
    with a_stage(a_hot_node("old"), tmp_path, safety={"cooldowns": NO_COOLDOWNS}) as stage:
        stage.lab.cluster.add_node(a_machine("new"))
        report = stage.turn()
        log = stage.log
    assert "new" in report.soft_tainted
    assert {each.target for each in log.moves} == {"old"}


# ---- images


MIB = 2**20
IMAGE_BYTES = 600 * MIB
PULLED_AT_ONCE = "1Gi"
"""One image, not two."""
BIG = ("red", "green", "blue")


def most_pulled_at_once(stage: Stage) -> int:
    """Bytes of images that bound replacements had to wait for at the same moment, ever."""
    pulling, most = set[str](), 0
    waits = {each.uid for each in stage.lab.log.entries("pulled")}
    for each in stage.log:
        if each.uid in waits and each.event in ("bound", "pulled"):
            (pulling.add if each.event == "bound" else pulling.discard)(each.uid)
            most = max(most, len(pulling) * IMAGE_BYTES)
    return most


@pytest.mark.parametrize(("limit", "at_once", "turns"), [(PULLED_AT_ONCE, 1, 8), ("20Gi", 3, 2)])
def test_evictions_wait_until_images_have_been_pulled(tmp_path: Path, limit: str, at_once: int, turns: int) -> None:
    cluster = a_scenario(
        ("hot", "a", "b", "c"),
        burner("burner", "hot", 8.8, cpu_request="8"),
        *(
            service(name, {"hot": 2}, cpu=0.9, image=f"registry.example/{name}:1", image_size=IMAGE_BYTES)
            for name in BIG
        ),
        pull_bytes_per_second=3 * MIB,
    )
    limits = {"replacements": {"pullBytesPerPool": limit}}
    with a_stage(cluster, tmp_path, limits=limits) as stage:
        stage.turns(turns)
        stage.lab.clock.sleep(600)
        waited = "LimitImagePulls" in codes(stage.reports)
        log = stage.log
        assert most_pulled_at_once(stage) == at_once * IMAGE_BYTES
        assert stage.lab.truth.hot(HIGH / 100) == {}
    assert waited == (at_once == 1)
    assert len(log.moves) == 3
    assert len({each.service for each in log.moves}) > 1
    assert log.returned == []
