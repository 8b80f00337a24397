"""HighNodeUtilization releases nodes that are full by requests and idle in fact: others come there, and it is used."""

from collections import Counter
from pathlib import Path
from typing import Any

from rebalancer.lab import Lab, Scenario, workload
from rebalancer.model.notation.quantity import parse_quantity
from tests.stories.scenarios.stage import GENEROUS, a_machine, a_scenario, a_stage, codes, service

CALM_CYCLES = 50
LONG_AGO = 90 * 86_400.0
FULL, RELEASE_TO = 0.85, 0.70
ARGS = {"mode": "Release", "full": 100 * FULL, "releaseTarget": 100 * RELEASE_TO}
POLICY: dict[str, Any] = {"strategies": [{"name": "HighNodeUtilization", "args": ARGS}], "limits": GENEROUS}
ONLY_FULL = {"disk": "fast"}
"""What selects `full`, and nothing else."""


def requested(lab: Lab, node: str) -> float:
    """Share of its CPU, by the lab's objects."""
    cores = 0.0
    with lab.cluster.lock:
        for pod in lab.cluster.pods(node=node):
            for each in pod["spec"]["containers"]:
                cores += float(parse_quantity((each.get("resources", {}).get("requests") or {}).get("cpu", "0")))
        return cores / float(parse_quantity(lab.cluster.store.get("nodes", "", node)["status"]["allocatable"]["cpu"]))


def hoarders() -> Scenario:
    """On `full` five pods request three cores each and use a third of one; they run for three months."""
    return a_scenario(
        [a_machine("full", labels=ONLY_FULL), a_machine("a"), a_machine("b")],
        *(
            service(f"old-{at}", {"full": 1, "b": 1}, cpu=0.3, cpu_request=request, age_seconds=LONG_AGO)
            for at, request in enumerate(("3", "3", "3", "3", "2500m"))
        ),
        service("young", {"full": 1, "a": 1}, cpu=0.1, cpu_request="500m"),
        service("busy", {"a": 4}, cpu=1.5, cpu_request="500m"),
    )


def newcomer(**fields: Any) -> Any:
    """Fits nowhere but on `full`, and not even there as it is."""
    return workload("new", namespace="shop", replicas=1, cpu=4.5, cpu_request="4", node_selector=ONLY_FULL, **fields)


def where(lab: Lab, name: str) -> Counter[str]:
    with lab.cluster.lock:
        return Counter(each["spec"].get("nodeName", "") for each in lab.cluster.pods(workload=name))


def test_a_full_and_idle_node_gets_room_a_new_pod_comes_and_its_real_use_rises(tmp_path: Path) -> None:
    with a_stage(hoarders(), tmp_path, **POLICY) as stage:
        lab = stage.lab
        before = lab.truth.node_cpu_share()["full"]
        # `b` is as full: whatever leaves `full` has to go to `a`
        assert requested(lab, "full") >= FULL
        assert requested(lab, "b") >= FULL
        stage.turns(4)
        assert requested(lab, "full") <= RELEASE_TO
        assert all(each.service.startswith("old-") and each.target == "a" for each in stage.log.moves)
        lab.cluster.add_workload(newcomer())
        stage.turn()
        assert where(lab, "new") == {"full": 1}
        moved = len(stage.log.evicted)
        stage.turns(CALM_CYCLES)
        assert lab.truth.node_cpu_share()["full"] > before + 0.2
        assert where(lab, "new") == {"full": 1}
        log = stage.log
    assert len(log.evicted) == moved
    assert log.moved_once
    assert log.cordons == []


def test_the_same_pods_that_do_their_work_stay(tmp_path: Path) -> None:
    """Full by requests, and not idle."""
    cluster = hoarders()
    busy = [service(f"more-{name}", {name: 2}, cpu=2.4, cpu_request="10m") for name in ("full", "b")]
    with a_stage(a_scenario(cluster.nodes, *cluster.workloads, *busy), tmp_path, **POLICY) as stage:
        assert requested(stage.lab, "full") >= FULL
        stage.turns(5)
        assert stage.log.evicted == []


def test_a_pod_that_waits_already_is_placed_on_what_is_released(tmp_path: Path) -> None:
    cluster = hoarders()
    with a_stage(a_scenario(cluster.nodes, *cluster.workloads, newcomer()), tmp_path, **POLICY) as stage:
        assert where(stage.lab, "new") == {"": 1}
        before = stage.lab.truth.node_cpu_share()["full"]
        stage.turns(10)
        assert where(stage.lab, "new") == {"full": 1}, codes(stage.reports)
        assert stage.lab.truth.node_cpu_share()["full"] > before + 0.2
        assert not any(report.evictions for report in stage.reports[-5:])
