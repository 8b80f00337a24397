"""HighNodeUtilization drains low nodes: all of a node or nothing, behind a cordon of ours, with an eye on the peak."""

from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Scenario
from rebalancer.model.cluster.steering import DRAINING
from tests.stories.readers import annotate, cordoned, empty_nodes, ours_on, pods_by_node
from tests.stories.scenarios.stage import (
    GENEROUS,
    START,
    TURN_SECONDS,
    ForeseeingStage,
    Stage,
    a_foreseeing_stage,
    a_machine,
    a_scenario,
    a_stage,
    burner,
    codes,
    messages,
    service,
)

CALM_CYCLES = 50
HOLD = 600.0
TARGET, RESERVE = 0.65, 0.05


def a_pool(low: float) -> list[dict[str, Any]]:
    return [{"name": "all", "selector": {}, "thresholds": {"high": 75, "target": 100 * TARGET, "low": low}}]


POOLS = a_pool(low=30)


def drains(**args: Any) -> dict[str, Any]:
    """Sections of a policy. Low nodes are no landing, and the scheduler likes them best: all get a soft taint."""
    strategy = {"name": "HighNodeUtilization", "args": {"cordonAfterDrain": f"{HOLD:g}s", **args}}
    return {"strategies": [strategy], "pools": POOLS, "limits": GENEROUS, "softTaint": {"maxNodes": 20}}


def one_at_a_time(**args: Any) -> dict[str, Any]:
    """One eviction a cycle."""
    return {**drains(**args), "limits": {**GENEROUS, "perCycle": 1}}


# ---- the next peak

MIDNIGHT = START - START % 86_400.0
HOUR = 3600.0
LOOK_SECONDS = 1200.0
NIGHT_HOLD = 1800.0
MORNING = {"base": 0.62, "amplitude": 0.9, "peak_hour": 10.0}
"""1.18 cores at ten, a twentieth of it at night."""


def a_quiet_night() -> Scenario:
    """Six machines that hardly do anything at night, and are a third in use at ten; two that always do something."""
    names = [f"node-{number}" for number in range(1, 9)]
    webs = [service(f"web-{at}", {name: 3, names[(at + 1) % 6]: 1}, cpu=MORNING) for at, name in enumerate(names[:6])]
    steady = service("base", {"node-7": 4, "node-8": 4}, cpu=1.0)
    return a_scenario([a_machine(name, overhead_cores=0.3) for name in names], *webs, steady, anchor_hour=0.0)


def live_until(stage: ForeseeingStage, hour: float) -> None:
    while stage.lab.clock.now() < MIDNIGHT + hour * HOUR:
        stage.turn(LOOK_SECONDS)


def highest(stage: Stage) -> float:
    """Share of real CPU of any node since midnight."""
    now = stage.lab.clock.now()
    return max(max(each.values()) for _, each in stage.lab.truth.timeline(start=MIDNIGHT, end=now, step_seconds=300.0))


def the_night(folder: Path, mode: str) -> Any:
    sections = drains(maxConcurrentNodes=2, cordonAfterDrain=f"{NIGHT_HOLD:g}s", headroom=100 * RESERVE)
    forecast = {"mode": mode, "interval": "1h"}
    return a_foreseeing_stage(
        a_quiet_night(), folder, start=MIDNIGHT, forecast=forecast, **{**sections, "pools": a_pool(low=25)}
    )


def test_what_is_freed_at_night_is_not_missed_in_the_morning(tmp_path: Path) -> None:
    with the_night(tmp_path, "Act") as stage:
        live_until(stage, 11.0)
        assert highest(stage) <= TARGET - RESERVE + 0.005
        stage.turns(CALM_CYCLES, LOOK_SECONDS)
        log = stage.log
        freed = empty_nodes(stage.lab)
        assert len(freed) >= 2
        assert highest(stage) <= TARGET - RESERVE + 0.005
        # nothing went to and fro: no pod moved twice, no node was begun twice, and none is kept when its time is over
        assert log.moved_once
        gone = log.cordons
        assert {each.node for each in gone} == freed
        assert len(gone) == len(freed)
        assert cordoned(stage.lab) == set()
        assert ours_on(stage.lab) == {}
        for each in gone:
            assert each.end is not None
            last = max(one.at for one in log.evicted if one.node == each.node)
            assert NIGHT_HOLD <= each.end - last <= NIGHT_HOLD + LOOK_SECONDS
            assert each.start <= min(one.at for one in log.evicted if one.node == each.node)


def test_without_a_forecast_the_same_night_makes_a_hot_morning(tmp_path: Path) -> None:
    """The story above can fail."""
    with the_night(tmp_path, "Off") as stage:
        live_until(stage, 10.5)
        assert highest(stage) > TARGET + 0.1
        assert len(empty_nodes(stage.lab)) > 2


# ---- a node that can't be emptied


def an_old_machine(*more: Any, **scenario: Any) -> Scenario:
    """`old` is low, the others are not; what is on it has room there."""
    return a_scenario(
        ("old", "a", "b"),
        service("web", {"old": 2, "a": 1, "b": 1}),
        service("api", {"old": 1, "a": 1}),
        service("filler", {"a": 2, "b": 2}, cpu=2.5, cpu_request="3"),
        *more,
        **scenario,
    )


IN_THE_WAY = {
    "a bare pod": (burner("alone", "old", 0.1, cpu_request="100m"), "no controlling owner"),
    "a budget without room": (
        service("strict", {"old": 1, "a": 1}, cpu=0.1, pdb={"min_available": 2}),
        "PodDisruptionBudget has no room",
    ),
    "no landing": (service("huge", {"old": 1, "a": 1}, cpu=0.2, cpu_request="9"), "no node would take"),
    "no room in real CPU": (service("busy", {"a": 1, "b": 1}, cpu=2.5, cpu_request="100m"), "over its target"),
}


@pytest.mark.parametrize("way", IN_THE_WAY)
def test_a_node_that_can_not_be_emptied_keeps_all_its_pods_and_is_never_cordoned(tmp_path: Path, way: str) -> None:
    obstacle, why = IN_THE_WAY[way]
    with a_stage(an_old_machine(obstacle), tmp_path, **drains()) as stage:
        before = pods_by_node(stage.lab)["old"]
        for _ in range(5):
            stage.turn()
            assert pods_by_node(stage.lab)["old"] == before
        assert any(why in each for each in messages(stage.reports[-1], "web-")), messages(stage.reports[-1], "web-")
        log = stage.log
    assert log.cordons == []
    assert log.evicted == []


# ---- an emptied node


def test_an_emptied_node_is_cordoned_until_its_time_is_over_and_stays_empty(tmp_path: Path) -> None:
    with a_stage(an_old_machine(), tmp_path, **drains()) as stage:
        stage.turns(CALM_CYCLES)
        log = stage.log
        assert empty_nodes(stage.lab) == {"old"}
        assert cordoned(stage.lab) == set()
        assert stage.lab.truth.hot(TARGET) == {}
    (only,) = log.cordons
    last = max(each.at for each in log.evicted)
    assert only.node == "old"
    assert only.end is not None
    assert only.start <= min(each.at for each in log.evicted)
    assert HOLD <= only.end - last <= HOLD + TURN_SECONDS
    assert log.moved_once


def test_an_emptied_node_is_cordoned_when_the_autoscaler_removes_it(tmp_path: Path) -> None:
    with a_stage(an_old_machine(remove_empty_after_seconds=400.0), tmp_path, **drains()) as stage:
        stage.turns(10)
        log = stage.log
        assert set(pods_by_node(stage.lab)) == {"a", "b"}
        assert cordoned(stage.lab) == set()
    (removed,) = [each for each in log if each.event == "removed"]
    (only,) = log.cordons
    # it was not uncordoned before it was gone
    assert (only.node, only.end) == ("old", None)
    assert only.start < removed.at
    assert log.moved_once


# ---- on the way


def test_a_pod_that_becomes_protected_on_the_way_ends_the_drain_and_the_rest_stays(tmp_path: Path) -> None:
    veto = "karpenter.sh/do-not-disrupt"
    with a_stage(an_old_machine(), tmp_path, **one_at_a_time()) as stage:
        stage.turn()
        assert cordoned(stage.lab) == {"old"}
        assert len(stage.log.evicted) == 1
        stage.lab.clock.sleep(TURN_SECONDS / 2)
        rest = pods_by_node(stage.lab)["old"]
        name = stage.lab.cluster.pods(node="old")[0]["metadata"]["name"]
        annotate(stage.lab, "pods", name, veto, "true", namespace="shop")
        for _ in range(4):
            stage.turn()
            assert cordoned(stage.lab) == set()
            assert ours_on(stage.lab) == {}
            assert pods_by_node(stage.lab)["old"] == rest
        # nothing is in the way any more: it is begun again
        annotate(stage.lab, "pods", name, veto, None, namespace="shop")
        stage.turns(4)
        assert empty_nodes(stage.lab) == {"old"}
        log = stage.log
    assert len(log.cordons) == 2
    assert log.moved_once


MAX_AGE = 240.0


def test_a_drain_that_takes_longer_than_a_soft_taint_may_last_is_not_begun_twice(tmp_path: Path) -> None:
    """`low` would take what leaves `old`, so it is soft_tainted away from; by and by that taint is too old."""
    cluster = a_scenario(
        ("low", "old", "a", "b"),
        service("web", {"old": 6, "a": 1}, cpu=0.3),
        service("filler", {"a": 2, "b": 2}, cpu=3.5, cpu_request="3"),
        burner("alone", "low", 2.5, cpu_request="100m"),
    )
    steering = {"maxNodes": 2, "maxAge": f"{MAX_AGE:g}s"}
    with a_stage(cluster, tmp_path, **{**one_at_a_time(), "softTaint": steering}) as stage:
        stage.turns(12)
        log = stage.log
        assert pods_by_node(stage.lab)["old"] == set()
    soft = [each for each in log.stints if each.value != DRAINING]
    assert {each.node for each in soft} == {"low"}
    assert len(soft) > 1
    assert all(each.end is not None and each.end - each.start <= MAX_AGE + TURN_SECONDS for each in soft)
    assert [each.node for each in log.cordons] == ["old"]
    assert len(log.evicted) == 6
    assert log.moved_once


# ---- all are low


def test_where_all_nodes_are_low_pods_go_to_fuller_ones_and_come_to_rest(tmp_path: Path) -> None:
    """What holds: each move goes to a node that is at least as full as the one that it leaves. Such a pod may move
    again, when its new node is the emptiest by then; it never comes back to a node that it left."""
    names = [f"node-{number}" for number in range(6)]
    places = [{names[(at * at + step) % 6]: 1 for step in range(1 + at % 3)} for at in range(10)]
    cluster = a_scenario(names, *(service(f"s{at}", place, cpu=0.7 + 0.1 * at) for at, place in enumerate(places)))
    with a_stage(cluster, tmp_path, **drains(), guards={"minAge": "1m", "minReplicas": 1}) as stage:
        shares = stage.lab.truth.node_cpu_share().values()
        assert 0.0 < min(shares) <= max(shares) < 0.3
        stage.turns(CALM_CYCLES)
        truth, log = stage.lab.truth, stage.log
        freed = empty_nodes(stage.lab)
        assert len(freed) >= 2
        assert max(truth.node_cpu_share().values()) <= TARGET - RESERVE + 0.005
        for each in log.moves:
            share = truth.node_cpu_share(each.at)
            assert share[each.source] <= share[each.target] + 0.001, each
        for chain in log.chains:
            way = [chain[0].source, *(each.target for each in chain)]
            assert len(set(way)) == len(way), way
        assert not any(report.evictions or report.cordons for report in stage.reports[-20:])
        # a node that was emptied stayed so, and none was begun twice
        assert sorted(each.node for each in log.cordons) == sorted(freed)


# ---- cordoned by others


def test_a_node_that_people_cordoned_is_neither_emptied_nor_marked_nor_uncordoned(tmp_path: Path) -> None:
    cluster = an_old_machine(service("theirs", {"theirs": 2}))
    cluster = a_scenario([*cluster.nodes, a_machine("theirs", unschedulable=True)], *cluster.workloads)
    with a_stage(cluster, tmp_path, **drains()) as stage:
        before = pods_by_node(stage.lab)["theirs"]
        stage.turns(8)
        log = stage.log
        assert pods_by_node(stage.lab)["theirs"] == before
        assert cordoned(stage.lab) == {"theirs"}
        assert "theirs" not in {each.node for each in log if each.key}
        assert "NodeKept" in {str(each.code) for each in stage.reports[-1].refusals if each.node == "theirs"}
        assert codes(stage.reports[-1], "theirs-") == set()
    assert [each.node for each in log.cordons] == ["old"]
