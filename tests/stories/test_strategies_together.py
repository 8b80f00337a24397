"""All strategies at once: each puts right what it sees, and none undoes what another did."""

from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Breaks, Lab
from rebalancer.lab.scenarios.steps import EndContainers, LabelNode, Taint
from tests.stories.oracles.violations import (
    DAY,
    HOST,
    SSD,
    TOO_MANY,
    ZONE,
    crowded,
    in_conflict,
    lying_around,
    misplaced,
    not_tolerated,
    restless,
    too_old,
    uneven,
)
from tests.stories.scenarios.repairing import a_repair, strategy
from tests.stories.scenarios.stage import a_machine, a_scenario, burner, service

ONE_AT_A_TIME = {"max_unavailable": 1}
SPREAD = "RemovePodsViolatingTopologySpreadConstraint"
AFFINITY = "RemovePodsViolatingNodeAffinity"
EVERYTHING = (
    strategy("RemoveFailedPods", minPodLifetime="1h"),
    strategy("RemovePodsViolatingNodeAffinity"),
    strategy("RemovePodsViolatingNodeTaints"),
    strategy("RemovePodsViolatingInterPodAntiAffinity"),
    strategy("RemovePodsHavingTooManyRestarts", podRestartThreshold=TOO_MANY),
    strategy(SPREAD),
    strategy("RemoveDuplicates"),
    strategy("PodLifeTime", maxPodLifeTime="7d"),
    strategy("LowNodeUtilization"),
)
COUNTS = (crowded, in_conflict, lying_around, misplaced, not_tolerated, restless, too_old, uneven)


def anything(lab: Lab) -> set[str]:
    """Whatever is wrong, as what:service; nodes that are over 75%."""
    found = {f"{count.__name__}:{name}" for count in COUNTS for name in count(lab)}
    return found | {f"hot:{name}" for name in lab.truth.hot(0.75)}


def over_zones(name: str, when: str) -> tuple[dict[str, Any], ...]:
    selector = {"matchLabels": {"app.kubernetes.io/name": name}}
    return ({"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when, "labelSelector": selector},)


def test_everything_at_once_is_put_right_and_stays_so(tmp_path: Path) -> None:
    term = {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": "db"}}, "topologyKey": HOST}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    in_zones = over_zones("zoned", "DoNotSchedule")
    failed = Breaks(after_seconds=0.0, restarts=False, pod_reason="Evicted")
    cluster = a_scenario(
        [
            a_machine(f"{zone}{number}", zone=zone, labels=SSD if number == 1 else {})
            for zone in "abc"
            for number in (1, 2, 3)
        ],
        burner("burner", "a2", 10.5),
        service("busy", {"a2": 1, "b2": 1, "c2": 1}, cpu=2.0),
        service("twins", {"a2": 2, "a3": 1}, pdb=ONE_AT_A_TIME),
        service("zoned", {"a3": 2, "b3": 1}, topology_spread=in_zones, pdb=ONE_AT_A_TIME),
        service("db", {"b2": 2, "c3": 1}, affinity=apart, pdb=ONE_AT_A_TIME),
        service("disk", {"a1": 1, "b1": 1}, node_selector=SSD),
        service("guest", {"c2": 1, "b3": 1}),
        service("shaky", {"b3": 1, "c3": 1}, restarts=150, breaks=Breaks(after_seconds=30.0, nodes=("b3",))),
        service("old", {"b1": 1, "c1": 1, "a1": 1}, age_seconds=10 * DAY, pdb=ONE_AT_A_TIME),
        service("tumbled", {"a3": 1, "b2": 1}),
        steps=[
            LabelNode(at_seconds=60.0, node="a1", labels={"disk": "hdd"}),
            Taint(at_seconds=60.0, node="c2", key="dedicated", value="gpu"),
            EndContainers(at_seconds=60.0, workload="tumbled", namespace="shop", node="a3", how=failed),
        ],
    )
    with a_repair(cluster, tmp_path, anything, *EVERYTHING) as repair:
        repair.until_only()
        assert {each.strategy for each in repair.why().values()} == {each["name"] for each in EVERYTHING}
        repair.then_nothing_moves()
        assert repair.moved_twice() == []
        repair.the_api_server_refused_nothing()
        assert {name: repair.fewest_ready(name) for name in ("twins", "zoned", "db", "old")} == dict.fromkeys(
            ("twins", "zoned", "db", "old"), 2
        )


# ---- strategies that want opposite things, and a place that does not help

OPPOSED_CYCLES = 12


def likes_ssd() -> dict[str, Any]:
    expression = {"key": "disk", "operator": "In", "values": ["ssd"]}
    preferred = [{"weight": 100, "preference": {"matchExpressions": [expression]}}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


@pytest.mark.parametrize("opposed", ["the pods prefer one node", "one zone has a single node"])
def test_two_strategies_do_not_undo_each_other(tmp_path: Path, opposed: str) -> None:
    if opposed == "the pods prefer one node":
        other = strategy(AFFINITY, nodeAffinityType=["preferredDuringSchedulingIgnoredDuringExecution"])
        web = service("web", {"n0": 4, "n1": 2}, affinity=likes_ssd())
    else:
        other = strategy(SPREAD, constraints=["DoNotSchedule", "ScheduleAnyway"])
        place = {"n0": 3, "n1": 2, "n2": 1}
        web = service("web", place, topology_spread=over_zones("web", "ScheduleAnyway"))
    others = [a_machine(f"n{number}", zone="a", labels={"disk": "hdd"}) for number in range(1, 6)]
    cluster = a_scenario([a_machine("n0", zone="b", labels=SSD), *others], web)
    with a_repair(cluster, tmp_path, crowded, strategy("RemoveDuplicates"), other) as repair:
        repair.stage.turns(OPPOSED_CYCLES)
        assert repair.moved_twice() == []


def test_a_pod_that_crashes_wherever_it_runs_is_left_alone(tmp_path: Path) -> None:
    doomed = service("doomed", {"n0": 1, "n1": 1}, restarts=20, breaks=Breaks(after_seconds=20.0))
    cluster = a_scenario([a_machine(f"n{number}") for number in range(4)], doomed)
    restarts = strategy("RemovePodsHavingTooManyRestarts", podRestartThreshold=4)
    with a_repair(cluster, tmp_path, restless, restarts) as repair:
        repair.stage.turns(OPPOSED_CYCLES)
        assert repair.moved_twice() == []
