"""Services behind a load balancer: while a replacement starts, its siblings carry its share (issue 16, 7)."""

from pathlib import Path

from rebalancer.lab import CpuModel, Scenario
from tests.stories.scenarios.stage import a_machine, a_scenario, a_stage, burner, service

START_UP = 300.0
CYCLES = 8


def shared(name: str, place: dict[str, int], cores: float) -> object:
    """A service whose Ready pods share `cores` evenly, and that takes long to start."""
    return service(name, place, cpu=CpuModel(total=cores), start_seconds=START_UP)


def three_replicas() -> Scenario:
    """`hot` is at 77%; `b` and `c` are at 73%, and over their high while two replicas carry the load of three."""
    busy = ("hot", "b", "c")
    return a_scenario(
        [a_machine(name) for name in (*busy, "d", "e")],
        shared("web", dict.fromkeys(busy, 1), 6.0),
        *(service(f"api-{name}", {name: 2}) for name in busy),
        burner("burner-hot", "hot", 8.3),
        burner("burner-b", "b", 7.7),
        burner("burner-c", "c", 7.7),
    )


def all_on_one_node() -> Scenario:
    """All four replicas of a service on the hot node. One has to go, and the node stays at 79% until its replacement
    is Ready."""
    return a_scenario(
        ("hot", "b", "c", "d"),
        shared("web", {"hot": 4}, 9.0),
        service("api", {"hot": 2}, cpu=0.8),
        burner("burner", "hot", 2.0),
    )


def test_siblings_that_carry_more_make_no_node_hot(tmp_path: Path) -> None:
    with a_stage(three_replicas(), tmp_path) as stage:
        stage.turns(CYCLES, 60.0)
        stage.lab.clock.sleep(START_UP)
        log, shares = stage.log, stage.lab.truth.node_cpu_share()
    assert [(each.service, each.source) for each in log.moves] == [("web", "hot")]
    assert max(shares.values()) <= 0.75


def test_replicas_that_share_a_hot_node_are_not_moved_for_each_others_load(tmp_path: Path) -> None:
    with a_stage(all_on_one_node(), tmp_path) as stage:
        stage.turns(CYCLES, 60.0)
        stage.lab.clock.sleep(START_UP)
        log, shares = stage.log, stage.lab.truth.node_cpu_share()
    assert [each.service for each in log.moves] == ["web"]
    assert max(shares.values()) <= 0.75
