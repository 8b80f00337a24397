"""Autoscalers of nodes: removed nodes are counted, nodes emptied in vain are left alone for longer each time, and soft
taints, which karpenter doesn't tolerate, are there only for a short time."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import Lab
from rebalancer.lab.controlplane.owned import terminate
from rebalancer.model.decisions.drains import DrainedNode, in_vain_in_a_row
from rebalancer.model.notation.quantity import parse_quantity
from rebalancer.model.reason import Reason
from tests.stories.readers import Log, cordoned, ours_on, pods_by_node
from tests.stories.scenarios.stage import NO_COOLDOWNS, Stage, a_scenario, a_stage, burner, service
from tests.stories.test_draining_nodes import HOLD, an_old_machine, drains

HOUR = 3600.0
BACKOFF = {"initial": "1h", "factor": 2, "max": "7d"}
SAFETY = {"safety": {"cooldowns": {**NO_COOLDOWNS, "backoff": BACKOFF}}}


def remembered(stage: Stage) -> list[DrainedNode]:
    return list(stage.world.records.drains(0.0))


# ---- cluster-autoscaler


def test_nodes_that_the_autoscaler_removes_are_counted_and_nothing_fights(tmp_path: Path) -> None:
    with a_stage(an_old_machine(remove_empty_after_seconds=400.0), tmp_path, **drains(), **SAFETY) as stage:
        stage.turns(20)
        log = stage.log
        (drain,) = remembered(stage)
        assert set(pods_by_node(stage.lab)) == {"a", "b"}
        assert cordoned(stage.lab) == set()
    (removed,) = [each for each in log if each.event == "removed"]
    assert (drain.node, drain.pool, drain.pool_nodes, drain.in_vain_at) == ("old", "all", 3, None)
    assert drain.removed_at is not None
    assert drain.removed_at == pytest.approx(removed.at, abs=130.0)
    # no pod moved twice, and the node was cordoned once
    assert log.moved_once
    assert len(log.cordons) == 1


def refill(lab: Lab, node: str) -> None:
    """Pods of `web` are made again, say by a rollout: kube-scheduler likes the empty node best."""
    with lab.cluster.lock:
        if not lab.cluster.pods(node=node) and node not in cordoned(lab):
            for pod in lab.cluster.pods(workload="web"):
                terminate(lab.cluster.store, lab.log, pod, grace_seconds=1.0)
    lab.clock.sleep(90.0)


def live(stage: Stage, hours: float) -> None:
    end = stage.lab.clock.now() + hours * HOUR
    while stage.lab.clock.now() < end:
        stage.turn(300.0)
        refill(stage.lab, "old")


def begun(log: Log) -> list[float]:
    """Times at which the drains of `old` began."""
    return [each.start for each in log.cordons if each.node == "old"]


def test_a_node_that_nothing_removes_is_drained_after_longer_and_longer_times(tmp_path: Path) -> None:
    with a_stage(an_old_machine(), tmp_path, **drains(), **SAFETY) as stage:
        live(stage, 6.0)
        first = begun(stage.log)
        refusals = [each for each in stage.reports[-1].refusals if each.code is Reason.EMPTIED_IN_VAIN]
        assert {each.node for each in refusals} == {"old"}
        assert "in a row, next at " in refusals[0].message
        count, evictions = len(first), len(stage.log.evicted)
        assert all(each.in_vain_at is not None for each in remembered(stage))
        assert len(remembered(stage)) == count
    # each time the hold has to pass, then one hour, two hours, four hours
    assert count == 3
    for hours, (earlier, later) in enumerate(pairwise(first), start=1):
        assert hours * HOUR + HOLD <= later - earlier <= hours * HOUR + HOLD + 900.0
    assert evictions <= 3 * count


def test_a_removal_ends_the_memory_and_a_restart_does_not(tmp_path: Path) -> None:
    """What is known is read from the database by every cycle."""
    with a_stage(an_old_machine(), tmp_path, **drains(), **SAFETY) as stage:
        live(stage, 1.0)
        (before,) = remembered(stage)
        assert before.in_vain_at is not None
        known = stage.world.records.drains(0.0)
    removed = DrainedNode(
        node="old", pool="all", capacity_millicores=1.0, pool_nodes=3, emptied_at=before.in_vain_at + 1, removed_at=9e9
    )
    assert in_vain_in_a_row([*known]) == {"old": [before.in_vain_at]}
    assert in_vain_in_a_row([*known, removed]) == {}


# ---- karpenter


def cores(pod: dict[str, Any]) -> float:
    """What a pod requests."""
    requests = [each.get("resources", {}).get("requests") or {} for each in pod["spec"]["containers"]]
    return sum(float(parse_quantity(each.get("cpu", "0"))) for each in requests)


def karpenter_removes(lab: Lab, *, taints: bool) -> set[str]:
    """Nodes whose pods all fit on others, by requests. With `taints` as in karpenter's simulation: no pod tolerates
    PreferNoSchedule, so nodes with our soft taint take none."""
    with lab.cluster.lock:
        room = {each["metadata"]["name"]: 16.0 for each in lab.cluster.nodes()}
        pods = {name: sorted(map(cores, lab.cluster.pods(node=name)), reverse=True) for name in room}
    closed = set(ours_on(lab)) if taints else set()
    return {
        name for name in room if fits(pods[name], {o: room[o] - sum(pods[o]) for o in room if o not in {name, *closed}})
    }


def fits(pods: list[float], free: dict[str, float]) -> bool:
    """First fit, the largest first."""
    for asked in pods:
        place = next((name for name in sorted(free) if free[name] >= asked), None)
        if place is None:
            return False
        free[place] -= asked
    return True


def test_soft_taints_keep_karpenter_from_consolidating_only_while_a_node_is_relieved(tmp_path: Path) -> None:
    """`spare` could be removed: its pods fit on `warm-1` and `warm-2`. These get a soft taint, for they are empty by
    requests and warm in fact, and kube-scheduler would put there what leaves `hot`."""
    cluster = a_scenario(
        ("hot", "warm-1", "warm-2", "cool", "spare"),
        burner("burner", "hot", 9.0, cpu_request="8"),
        service("web", {"hot": 3, "cool": 1}, cpu=1.5, cpu_request="1500m"),
        burner("warmth-1", "warm-1", 9.5, cpu_request="100m"),
        burner("warmth-2", "warm-2", 9.5, cpu_request="100m"),
        burner("filler", "cool", 1.0, cpu_request="7"),
        service("light", {"spare": 2}, cpu=3.9, cpu_request="7500m"),
    )
    lost = free = 0
    with a_stage(cluster, tmp_path) as stage:
        for _ in range(120):
            stage.turn(30.0)
            free += len(karpenter_removes(stage.lab, taints=False))
            lost += len(karpenter_removes(stage.lab, taints=False) - karpenter_removes(stage.lab, taints=True))
        log = stage.log
    assert log.evicted
    tainted = [each for each in log.stints if each.node.startswith("warm")]
    assert {each.node for each in tainted} == {"warm-1", "warm-2"}
    # until the replacement has landed, a cycle later; of an hour karpenter loses less than a hundredth
    assert all(each.end is not None and each.end - each.start <= 60.0 for each in tainted)
    assert 0 < lost <= free / 100
