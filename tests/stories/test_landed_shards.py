"""A shard that has moved: until it is measured, it counts with what it used before."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rebalancer.lab import CpuModel, Scenario
from rebalancer.lab.loads.amounts import memory
from rebalancer.lab.loads.cpu import MemoryModel
from tests.builders import GIB
from tests.stories.scenarios.stage import Stage, a_machine, a_scenario, a_stage, burner, service

TURNS, TURN_SECONDS = 12, 20.0
TARGET = 0.65
RUN = {"guards": {"minAge": "1m", "minReplicas": 1}}


def shards(place: dict[str, int], **fields: object) -> object:
    return service("db", place, kind="StatefulSet", **fields)


def two_hot_nodes() -> Scenario:
    """The shard of 6 cores alone cools `first`, and with it `cold` is at 64%. The services of `second` fit there as
    long as the shard counts as one of its siblings of 0.4 cores."""
    return a_scenario(
        ("first", "second", "cold"),
        shards({"first": 1, "second": 2}, cpu=CpuModel(base=0.4, shards=(6.0,))),
        burner("burner-first", "first", 9.2),
        burner("burner-second", "second", 8.6),
        *(service(f"web-{at}", {"second": 1}, cpu=1.4) for at in range(2)),
        burner("burner-cold", "cold", 4.3),
    )


def two_hot_nodes_and_one_of_64_gib() -> Scenario:
    """As above; on `cold` there is CPU for all. The shard of 48 GiB takes half an hour to be warm, its siblings have
    one GiB each, and 10% of the memory must stay available."""
    large = MemoryModel(base_bytes=GIB, shards=(48 * GIB,), warm_seconds=1800.0)
    return a_scenario(
        (a_machine("first", memory="128Gi"), a_machine("second", memory="128Gi"), a_machine("cold", memory="64Gi")),
        shards({"first": 1, "second": 2}, cpu=CpuModel(base=0.4, shards=(6.0,)), memory=large),
        burner("burner-first", "first", 9.2),
        burner("burner-second", "second", 8.6),
        *(service(f"web-{at}", {"second": 1}, cpu=1.4, memory="12Gi") for at in range(2)),
    )


def shares(stage: Stage) -> Iterator[dict[str, float]]:
    """Node -> share of CPU in fact, after each cycle."""
    for _ in range(TURNS):
        stage.turn(TURN_SECONDS)
        yield stage.lab.truth.node_cpu_share()


def test_nothing_lands_beside_a_hot_shard_that_shows_little_yet(tmp_path: Path) -> None:
    with a_stage(two_hot_nodes(), tmp_path, **RUN) as stage:
        highest = max(each["cold"] for each in shares(stage))
        log = stage.log
    assert [(each.service, each.target) for each in log.moves] == [("db", "cold")]
    assert highest <= TARGET


def test_nothing_lands_beside_a_large_shard_before_it_is_warm(tmp_path: Path) -> None:
    with a_stage(two_hot_nodes_and_one_of_64_gib(), tmp_path, **RUN) as stage:
        stage.turns(TURNS, TURN_SECONDS)
        stage.lab.clock.sleep(1800.0)
        columns = stage.lab.usage.history.columns()
        used = memory(columns, np.array([stage.lab.clock.now()])).nodes[:, 0]
        log = stage.log
    of_node = {each.name: used[at] / each.memory_bytes for at, each in enumerate(columns.machines)}
    assert [each.service for each in log.moves if each.target == "cold"] == ["db"]
    assert of_node["cold"] <= 0.9
