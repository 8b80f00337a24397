"""Interference, from the victims' side: what waited no longer waits, and what was moved stays where it is.

How long a pod waits comes from the lab's model of contention, which has every pod's demand; see also
`test_noisy_neighbours`."""

from collections import Counter
from pathlib import Path
from typing import Any

from rebalancer.lab import Lab, Scenario
from tests.stories.readers import pods_by_node
from tests.stories.scenarios.stage import GENEROUS, a_machine, a_scenario, a_stage, service

CALM_CYCLES = 50
WINDOW = 60.0
SUFFERS = 0.3
POLICY: dict[str, Any] = {"strategies": [{"name": "Interference"}], "limits": GENEROUS}
BURSTS = {"base": 5.0, "burst_cores": 9.0, "burst_share": 0.5}


def waits(lab: Lab, name: str) -> dict[str, float]:
    """Node -> share of time in which the longest-waiting pod of a service there waits for CPU, its own limit's part
    left out."""
    found = lab.contention.window_mean(lab.clock.now(), window_seconds=WINDOW)
    worst: dict[str, float] = {}
    for at, row in enumerate(found.rows.tolist()):
        stay = found.columns.stays[row]
        if stay.pod.startswith(f"{name}-") and stay.end > lab.clock.now():
            own = float(found.throttled[at])
            crowd = (float(found.pods[at]) - own) / max(1.0 - own, 1e-9)
            worst[stay.node] = max(worst.get(stay.node, 0.0), crowd)
    return worst


def where(lab: Lab, name: str) -> Counter[str]:
    with lab.cluster.lock:
        return Counter(pod["spec"]["nodeName"] for pod in lab.cluster.pods(workload=name))


def a_crowd(**noisy: Any) -> Scenario:
    """Two noisy pods, of two services, on the machine of the victims; three machines with room for one each."""
    machines = [a_machine(name) for name in ("crowded", "b", "c", "d")]
    return a_scenario(
        machines,
        service("batch", {"crowded": 1, "d": 1}, cpu=BURSTS, cpu_request="1", **noisy),
        service("train", {"crowded": 1, "c": 1}, cpu={**BURSTS, "base": 4.5}, cpu_request="1", **noisy),
        service("victim", {"crowded": 3, "b": 1}, cpu=0.8, cpu_request="1"),
    )


def test_the_victims_stop_waiting_and_the_noisy_ones_do_not_come_back(tmp_path: Path) -> None:
    with a_stage(a_crowd(), tmp_path, **POLICY) as stage:
        lab = stage.lab
        before = waits(lab, "victim")
        assert before["crowded"] > SUFFERS
        assert before["b"] < 0.05
        stage.turns(6)
        moved = len(stage.log.evicted)
        stage.turns(CALM_CYCLES)
        after, log = waits(lab, "victim"), stage.log
        assert max(after.values()) < SUFFERS
        assert after["crowded"] < before["crowded"] / 2
        assert where(lab, "victim") == {"crowded": 3, "b": 1}
    assert len(log.evicted) == moved
    assert {each.service for each in log.moves} <= {"batch", "train"}
    assert {each.source for each in log.moves} == {"crowded"}
    assert log.moved_once


def test_who_waits_for_its_own_limit_alone_is_left_alone(tmp_path: Path) -> None:
    """No move would help it. Its machine has room, and its neighbours don't wait."""
    cluster = a_scenario(
        ("a", "b"),
        service("tight", {"a": 1, "b": 1}, cpu=4.0, cpu_request="500m", cpu_limit="3"),
        service("victim", {"a": 3}, cpu=0.8, cpu_request="1"),
    )
    with a_stage(cluster, tmp_path, **POLICY) as stage:
        lab = stage.lab
        found = lab.contention.window_mean(lab.clock.now(), window_seconds=WINDOW)
        assert found.throttled.max() > 0.9
        assert max(waits(lab, "victim").values()) < 0.05
        before = pods_by_node(lab)
        stage.turns(8)
        assert pods_by_node(lab) == before
        assert stage.log.evicted == []
