"""Replacements that would return to the node that they are to leave."""

from pathlib import Path
from typing import Any

from rebalancer.lab import NodeSpec, Scenario
from tests.stories.scenarios.stage import HIGH, a_machine, a_scenario, a_stage, burner, codes, service

NODES = ("hot", "a", "b")


def a_favourite(*more_nodes: NodeSpec, other: str = "api", **fields: Any) -> Scenario:
    """By requests the hot node is nearly empty; and it alone loses a pod of each service, so that spreading wants the
    replacement there, too. `fields`: of the `other` service."""
    everywhere = dict.fromkeys(NODES, 1)
    return a_scenario(
        (*NODES, *more_nodes),
        burner("burner", "hot", 10.5),
        service("web", everywhere),
        service(other, everywhere, **fields),
        service("filler", {"a": 1, "b": 1}, cpu_request="6", cpu=0.5),
    )


def test_a_pod_that_would_come_back_is_not_evicted(tmp_path: Path) -> None:
    with a_stage(a_favourite(), tmp_path, softTaint={"mode": "Off"}) as stage:
        for _ in range(3):
            report = stage.turn()
            assert codes(report, "web-") == codes(report, "api-") == {"WouldReturnToNode"}
        assert "hot" in stage.lab.truth.hot(HIGH / 100)
        log = stage.log
    assert not [each for each in log if each.event == "eviction"]
    assert log.stints == []


def test_with_a_soft_taint_the_same_pods_are_moved_and_stay_away(tmp_path: Path) -> None:
    with a_stage(a_favourite(), tmp_path) as stage:
        stage.turns(3)
        stage.lab.clock.sleep(60)
        assert stage.lab.truth.hot(HIGH / 100) == {}
        log = stage.log
    assert [(each.service, each.source) for each in log.moves] == [("api", "hot"), ("web", "hot")]
    assert log.returned == []
    tainted = log.stints
    assert [(each.node, each.value) for each in tainted] == [("hot", "hot")]
    assert tainted[0].start <= log.evicted[0].at


def test_where_nodes_may_not_be_patched_the_plan_says_so_and_takes_sure_landings_only(tmp_path: Path) -> None:
    """Of the two services one would come back, the other can't: its replacement doesn't fit on the hot node."""
    cluster = a_favourite(a_machine("c", memory="80Gi"), other="batch", memory_request="40Gi")
    with a_stage(cluster, tmp_path) as stage:
        stage.lab.faults.set(denied=(("patch", "nodes"),))
        for _ in range(4):
            report = stage.turn()
            if report.findings:
                assert any("nodes may not be patched" in note for note in report.notes)
        seen = codes(stage.reports, "web-")
        log = stage.log
    assert seen == {"WouldReturnToNode"}
    assert {each.service for each in log.moves} == {"batch"}
    assert log.returned == []
    assert log.stints == []
