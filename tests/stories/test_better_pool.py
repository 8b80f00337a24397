"""PoolPreference in the lab: spot nodes vanish, pods fall back to on-demand nodes, spot nodes come back, and so do the
pods. What is true is read from the lab's own objects."""

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab, NodeSpec, Scenario
from rebalancer.lab.scenarios.specs import TaintSpec
from tests.stories.scenarios.repairing import strategy
from tests.stories.scenarios.stage import HIGH, START, Stage, a_machine, a_run, a_scenario, a_stage, burner, service
from tests.stories.test_room import scale

SPOT = ("spot-1", "spot-2", "spot-3")
ON_DEMAND = ("demand-1", "demand-2", "demand-3")
POOLS = [
    {
        "name": name,
        "selector": {"matchLabels": {"pool": name}},
        "thresholds": {"high": HIGH, "target": 65, "low": 50},
    }
    for name in ("spot", "on-demand")
]
POOL_PREFERENCE = strategy("PoolPreference", order=["spot", "on-demand"])
GUARDS = {"minReplicas": 1, "minAge": "1m"}
SECTIONS: dict[str, Any] = {"strategies": [POOL_PREFERENCE], "guards": GUARDS, "pools": POOLS}
"""With the default limits."""

TOLERATES = ({"key": "spot", "operator": "Exists"},)
PREFERS = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["spot"]}]}}
        ]
    }
}
SERVICES = ("web", "api", "cart", "mail")
WITHIN = 1800.0
DAY = 86_400.0


def spot(name: str) -> NodeSpec:
    return a_machine(name, pool="spot", taints=(TaintSpec(key="spot", value="yes"),))


def fallen_back(**fields: Any) -> Scenario:
    """Sixteen pods that prefer spot nodes, on on-demand nodes; two that don't tolerate these."""
    placed = {"demand-1": 1, "demand-2": 1, "demand-3": 2}
    return a_scenario(
        [a_machine(name, pool="on-demand") for name in ON_DEMAND],
        *(service(name, placed, tolerations=TOLERATES, affinity=PREFERS, start_seconds=10.0) for name in SERVICES),
        service("stays", {"demand-1": 1, "demand-2": 1}),
        **fields,
    )


def come_back(stage: Stage, *, warm: str = "") -> float:
    """The spot nodes join; `warm`: one of them uses 10 of its 16 cores without any request. Returns when."""
    for name in SPOT:
        stage.lab.cluster.add_node(spot(name))
    if warm:
        stage.lab.cluster.add_workload(burner("warm", warm, 10.0, tolerations=TOLERATES))
    return stage.lab.clock.now()


def vanish(stage: Stage) -> None:
    for name in SPOT:
        stage.lab.cluster.remove_node(name)


def places(lab: Lab) -> Counter[str]:
    """Pool -> running pods of the services that prefer spot nodes."""
    return Counter(
        each["spec"].get("nodeName", "").rpartition("-")[0]
        for name in SERVICES
        for each in lab.cluster.pods(namespace="shop", workload=name)
        if "deletionTimestamp" not in each["metadata"]
    )


def never_hot(lab: Lab, since: float) -> bool:
    timeline = lab.truth.timeline(start=since, end=lab.clock.now(), step_seconds=60.0)
    return all(share <= HIGH / 100 for _, shares in timeline for share in shares.values())


def test_the_pods_are_back_within_half_an_hour_and_no_node_gets_hot(tmp_path: Path) -> None:
    with a_stage(fallen_back(), tmp_path, **SECTIONS) as stage:
        stage.turns(3)
        began = come_back(stage, warm="spot-2")
        while stage.lab.clock.now() + 120.0 <= began + WITHIN:
            stage.turn()
        assert places(stage.lab)["spot"] >= 0.9 * 4 * len(SERVICES), places(stage.lab)
        assert never_hot(stage.lab, began)
        gone = stage.log.evicted
        assert min(each.at for each in gone) >= began + 600.0
        assert not [each for each in gone if each.name.startswith("stays")]
        assert {each.target.rpartition("-")[0] for each in stage.log.moves} == {"spot"}
        assert stage.log.moved_once


@pytest.mark.timeout(600)  # 180 cycles
def test_a_day_that_is_repeated_ten_times_has_no_swing(tmp_path: Path) -> None:
    """Each day the spot nodes come back, vanish when the pods are there again, and come back once more."""
    count = 4 * len(SERVICES)
    with a_stage(fallen_back(), tmp_path, **SECTIONS) as stage:
        lab = stage.lab
        for day in range(10):
            start, before = come_back(stage), len(stage.log.evicted)
            for seconds in (120.0, 300.0, 305.0, 120.0, 480.0, 120.0):
                stage.turn(seconds)
            assert lab.clock.now() <= start + WITHIN
            assert places(lab)["spot"] >= 0.9 * count, (day, places(lab))
            last = stage.log.evicted[-1].at
            vanish(stage)
            stage.turn()
            assert places(lab)["spot"] == 0
            come_back(stage)
            stage.turns(3, 480.0)
            assert lab.clock.now() < last + 3600.0
            # they fell back: for an hour after their return they stay
            assert len(stage.log.evicted) - before == count, day
            stage.turns(9, 480.0)
            assert places(lab)["spot"] == count
            assert never_hot(lab, start)
            # a pod goes back once for each time that the spot nodes came back
            assert len(stage.log.evicted) - before == 2 * count, day
            vanish(stage)
            lab.clock.sleep(start + DAY - lab.clock.now())
            stage.turn()


def test_a_restart_neither_forgets_how_old_the_room_is_nor_which_pods_fell_back(tmp_path: Path) -> None:
    with Lab.start(fallen_back(), stepped=True, start_time=START) as lab:
        with a_run(lab, tmp_path, **SECTIONS) as first:
            began = come_back(first)
            first.turns(3)
            assert first.log.evicted == []
        with a_run(lab, tmp_path, **SECTIONS) as second:
            second.turns(3)
            assert 600.0 <= min(each.at for each in second.log.evicted) - began < 840.0
            second.turns(8)
            moved = len(second.log.evicted)
            assert moved == 4 * len(SERVICES)
            vanish(second)
            second.turn()
            come_back(second)
        with a_run(lab, tmp_path, **SECTIONS) as third:
            third.turns(8)
            assert len(third.log.evicted) == moved
            assert "fallen back after a return, left alone for a time: 16 pods" in third.reports[-1].notes[-1]


def test_room_that_others_leave_counts_when_it_has_been_there_for_long_enough(tmp_path: Path) -> None:
    """Old spot nodes that are full by requests; then a Deployment of others is scaled down."""
    full = service("batch", dict.fromkeys(SPOT, 1), cpu=0.5, cpu_request="15800m", tolerations=TOLERATES)
    cluster = fallen_back()
    cluster = a_scenario([*cluster.nodes, *map(spot, SPOT)], *cluster.workloads, full)
    with a_stage(cluster, tmp_path, **SECTIONS) as stage:
        stage.turns(8)
        assert stage.log.evicted == []
        scale(stage.lab, "shop", "batch", 0)
        left = stage.lab.clock.now()
        stage.turns(4)
        assert stage.log.evicted == []
        assert "no room for 10m in a better pool yet: 16 pods" in stage.reports[-1].notes[-1]
        stage.turns(3)
        assert stage.log.evicted
        assert min(each.at for each in stage.log.evicted) >= left + 600.0


def test_spot_nodes_with_a_notice_are_no_room(tmp_path: Path) -> None:
    with a_stage(fallen_back(), tmp_path, **SECTIONS) as stage:
        come_back(stage)
        stage.turns(4)
        for name in SPOT:
            stage.lab.cluster.taint(name, "aws-node-termination-handler/spot-itn")
        stage.turns(6)
        assert stage.log.evicted == []


def test_a_past_that_can_not_be_read_concerns_this_strategy_alone(tmp_path: Path) -> None:
    with a_stage(fallen_back(), tmp_path, **SECTIONS) as stage:
        come_back(stage)
        stage.turns(8)
        with sqlite3.connect(stage.settings.database.removeprefix("sqlite:///")) as database:
            database.execute("UPDATE requested SET nodes = x'00'")
        before = len(stage.log.evicted)
        report = stage.turn()
        assert [note for note in report.notes if note.startswith("the past of the nodes is not known: ")]
        assert len(stage.log.evicted) == before
