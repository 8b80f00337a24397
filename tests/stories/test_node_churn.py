"""Nodes that live for a day: one is replaced every few minutes, and the others are relieved all the same."""

from pathlib import Path

from rebalancer.lab import Lab, Scenario
from rebalancer.lab.log import Entry
from tests.stories.readers import Log, service_of
from tests.stories.scenarios.stage import (
    HIGH,
    START,
    TURN_SECONDS,
    Stage,
    a_machine,
    a_scenario,
    a_stage,
    burner,
    service,
)

REPLACEMENTS = 10
TURNS_EACH = 4
"""A node is replaced every eight minutes: a node has always joined within `poolAfterScaleUp`."""
SECOND = 5
"""The replacement after which another node gets hot."""
NEW_NODE = 300.0
OLD = tuple(f"n{number}" for number in range(8))


def a_pool() -> Scenario:
    around = dict.fromkeys(OLD, 1)
    workloads = [
        burner("burner", "hot", 10.0, cpu_request="8"),
        *(service(name, {"hot": 1, "later": 1, **around}) for name in ("web", "api", "cart")),
    ]
    return a_scenario([a_machine(name) for name in ("hot", "later", *OLD)], *workloads)


def live_through(stage: Stage) -> dict[str, float]:
    """Replace nodes, the oldest first, with cycles in between. Returns when the new ones joined."""
    joined: dict[str, float] = {}
    alive = list(OLD)
    for number in range(REPLACEMENTS):
        name = f"new{number}"
        stage.lab.cluster.add_node(a_machine(name))
        joined[name] = stage.lab.clock.now()
        stage.lab.cluster.drain_node(alive.pop(0))
        alive.append(name)
        if number == SECOND:
            stage.lab.cluster.add_workload(burner("second", "later", 10.0, cpu_request="8"))
        stage.turns(TURNS_EACH)
    return joined


def hot_minutes(lab: Lab, name: str) -> int:
    timeline = lab.truth.timeline(start=START + TURN_SECONDS, end=lab.clock.now(), step_seconds=60.0)
    return sum(shares.get(name, 0.0) > HIGH / 100 for _, shares in timeline)


def targets(log: Log) -> list[Entry]:
    """Where the replacement of each evicted pod was bound."""
    return [
        next(
            each for each in log[log.index(entry) :] if each.event == "bound" and service_of(each) == service_of(entry)
        )
        for entry in log.evicted
    ]


def test_a_pool_whose_nodes_live_for_a_day_is_relieved(tmp_path: Path) -> None:
    # pods of drained nodes may make a node hot again that their siblings have just left
    with a_stage(a_pool(), tmp_path, safety={"cooldowns": {"serviceNode": "0s"}}) as stage:
        joined = live_through(stage)
        log = stage.log
        minutes = {name: hot_minutes(stage.lab, name) for name in ("hot", "later")}
        assert stage.lab.truth.hot(HIGH / 100) == {}
    gone = log.evicted
    assert {each.node for each in gone} == {"hot", "later"}
    assert len(gone) <= 9
    # the next cycle relieves what got hot
    assert all(0 < each <= 4 for each in minutes.values()), minutes
    assert all(each.at - joined.get(each.node, 0.0) >= NEW_NODE for each in targets(log))
