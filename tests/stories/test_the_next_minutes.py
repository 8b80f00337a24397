"""Nodes that leave, a zone that is lost, and a Job that ends: cycles decide for what comes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.lab import workload
from tests.stories.readers import service_of, unready_seconds
from tests.stories.scenarios.stage import HIGH, START, Stage, a_machine, a_scenario, a_stage, burner, codes, service

SPOT = "aws-node-termination-handler/spot-itn"
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
SLOW_START = 180.0


def evicted(stage: Stage, name: str) -> list[float]:
    """When pods of the service were evicted by us."""
    ours = {move.uid for report in stage.reports for move in report.evictions}
    return [each.at - START for each in stage.log.evicted if each.uid in ours and service_of(each) == name]


@pytest.fixture
def spot(tmp_path: Path) -> Iterator[Stage]:
    """A hot node whose one movable pod has its sibling on a node that is about to be reclaimed."""
    workloads = [
        burner("burner", "hot", 10.0, cpu_request="8"),
        service("web", {"hot": 1, "away": 1}, cpu=3.0, start_seconds=SLOW_START),
    ]
    with a_stage(a_scenario(["hot", "away", "cool", "spare"], *workloads), tmp_path) as stage:
        stage.lab.clock.sleep(120.0)
        yield stage


def test_the_last_pod_that_stays_waits_for_the_replacement_of_its_sibling(spot: Stage) -> None:
    spot.lab.cluster.taint("away", SPOT)
    spot.turn(30.0)
    assert codes(spot.reports[-1], "web") == {"OwnerNotHealthy"}
    spot.lab.clock.sleep(35.0)
    spot.lab.cluster.drain_node("away")
    spot.turns(8, 60.0)
    assert unready_seconds(spot.lab, "web", at_start=2) == 0.0
    # the refusal has ended with its cause
    (moved,) = evicted(spot, "web")
    assert moved >= 120.0 + 65.0 + SLOW_START


TARGET = 0.65
PLACES = {"away-0": 4, "away-1": 3, "away-2": 3}


def landed(stage: Stage, name: str) -> set[str]:
    """Nodes on which what came in place of our evicted pods of a service is."""
    first = min((each.at for each in stage.log.evicted), default=stage.lab.clock.now())
    new = {each.uid for each in stage.log if each.event == "created" and each.at >= first}
    pods = stage.lab.cluster.pods(workload=name)
    return {pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["uid"] in new}


def test_headroom_that_displaced_pods_will_need_is_left_to_them(tmp_path: Path) -> None:
    """Three of nine nodes leave with ten pods of three cores, two for each of the five nodes that are cool: these are
    at 25% now and at 62% then, and a pod of ours would take them to 75%."""
    cool = [f"cool-{n}" for n in range(5)]
    workloads = [
        burner("burner", "hot", 8.0, cpu_request="13"),
        *(burner(f"base-{name}", name, 4.0, cpu_request="4") for name in cool),
        service("web", {"hot": 3}, cpu=2.0),
        service("app", PLACES, cpu=3.0, cpu_request="3"),
    ]
    with a_stage(a_scenario(["hot", *cool, *PLACES], *workloads), tmp_path) as stage:
        stage.lab.clock.sleep(120.0)
        for name in PLACES:
            stage.lab.cluster.taint(name, TO_BE_DELETED)
        stage.turns(2, 30.0)
        for name in PLACES:
            stage.lab.cluster.drain_node(name)
        stage.turns(6, 60.0)
        shares = stage.lab.truth.node_cpu_share()
        assert {name for name in landed(stage, "web") if shares[name] > TARGET} == set(), shares
        assert codes(stage.reports[:2], "web") == {"NoNodeWithHeadroom"}
        # the refusal ends when there is room
        stage.lab.cluster.add_node(a_machine("new"))
        stage.turns(8, 60.0)
        shares = stage.lab.truth.node_cpu_share()
        assert landed(stage, "web") == {"new"}
    assert shares["new"] <= TARGET, shares
    assert shares["hot"] <= HIGH / 100, shares


ZONES = {"a": 3, "b": 3, "c": 3}


@pytest.fixture
def zones(tmp_path: Path) -> Iterator[Stage]:
    """Zone c is lost while a node of zone a is hot."""
    nodes = [a_machine(f"{zone}{n}", zone=zone) for zone, count in ZONES.items() for n in range(count)]
    around = {each.name: 1 for each in nodes}
    workloads = [
        burner("burner", "a0", 9.0, cpu_request="8"),
        *(service(f"web-{n}", around, cpu=0.9) for n in range(4)),
    ]
    with a_stage(a_scenario(nodes, *workloads), tmp_path) as stage:
        stage.lab.clock.sleep(120.0)
        stage.lab.cluster.set_zone("c", up=False)
        yield stage


def test_evictions_stop_while_a_zone_is_lost_and_go_on_afterwards(zones: Stage) -> None:
    zones.turns(4, 30.0)
    assert {code for each in zones.reports for code in codes(each, "web")} <= {"Disturbance", "OwnerNotHealthy"}
    assert "Disturbance" in codes(zones.reports[-1], "web")
    assert not zones.log.evicted
    zones.lab.cluster.set_zone("c", up=True)
    zones.turns(3, 60.0)
    assert zones.log.evicted


def test_evictions_go_on_ten_minutes_after_a_zone_was_lost_for_good(zones: Stage) -> None:
    lost = zones.lab.clock.now()
    zones.turns(15, 60.0)
    assert "Disturbance" in codes(zones.reports[0], "web")
    assert min(each.at - lost for each in zones.log.evicted) >= 600.0


def test_a_node_that_is_hot_while_a_cron_job_runs_is_left_alone(tmp_path: Path) -> None:
    batch = workload(
        "batch",
        namespace="shop",
        kind="CronJob",
        schedule="*/10 * * * *",
        run_seconds=300.0,
        cpu=6.0,
        cpu_request="4",
        node_selector={"kubernetes.io/hostname": "n1"},
    )
    with a_stage(a_scenario(["n1", "n2", "n3"], service("web", {"n1": 4, "n2": 1}, cpu=2.0), batch), tmp_path) as stage:
        # three runs: then their length is known
        stage.lab.clock.sleep(1_900.0)
        stage.turns(20, 60.0)
        timeline = stage.lab.truth.timeline(start=START + 1_900.0, end=stage.lab.clock.now())
        hot = sum(shares["n1"] > 0.75 for _, shares in timeline)
        skipped = {str(each.code) for report in stage.reports for each in report.refusals if not each.name}
    assert hot >= 8
    assert not stage.log.evicted
    assert "CoolsByItself" in skipped
