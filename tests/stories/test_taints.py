"""Our soft taint: on how many nodes, for how long, on which; and those of others."""

from pathlib import Path

import pytest

from rebalancer.lab import Scenario
from rebalancer.model.cluster.steering import HOT, NO_ROOM, SOFT_TAINT
from tests.stories.readers import ours_on, taints_on
from tests.stories.scenarios.stage import (
    TOLERATES_ALL,
    TURN_SECONDS,
    a_machine,
    a_scenario,
    a_stage,
    burner,
    codes,
    messages,
    service,
)

MAX_AGE = 600.0


def two_pools(**fields: object) -> Scenario:
    """Of each pool two nodes are hot; in the larger one another attracts every replacement: it is empty by requests,
    and warm in fact."""
    nodes, workloads = [], []
    for pool, size, attractors in (("big", 20, 1), ("small", 8, 0)):
        names = [f"{pool}-{number}" for number in range(size)]
        hot, warm, cool = names[:2], names[2 : 2 + attractors], names[2 + attractors :]
        nodes += [a_machine(name, pool=pool) for name in names]
        workloads += [burner(f"burner-{name}", name, 10.0, cpu_request="1") for name in hot]
        workloads += [burner(f"burner-{name}", name, 10.2) for name in warm]
        here = {"node_selector": {"pool": pool}}
        workloads.append(service(f"{pool}-fill", dict.fromkeys(cool, 1), cpu_request="7", cpu=4.0, **here))
        for number in range(3):
            place = dict.fromkeys([*hot, *cool[1:]], 1)
            workloads.append(service(f"{pool}-web{number}", place, cpu=0.9, **here, **fields))
    return a_scenario(nodes, *workloads)


POOLS = [
    {"name": pool, "selector": {"matchLabels": {"pool": pool}}, "thresholds": {"high": 75, "target": 65, "low": 50}}
    for pool in ("big", "small")
]


@pytest.mark.parametrize(
    ("most", "seen"),
    [
        # a tenth of 8 nodes is none, but at least two are allowed
        ("10%", {"big": 2, "small": 2}),
        # what was relieved first attracts, too
        (3, {"big": 3, "small": 2}),
    ],
)
def test_of_each_pool_only_so_many_nodes_carry_the_taint_at_any_moment(
    tmp_path: Path, most: object, seen: dict[str, int]
) -> None:
    with a_stage(two_pools(), tmp_path, pools=POOLS, softTaint={"maxNodes": most}) as stage:
        stage.turns(6)
        log = stage.log
        names = [each["metadata"]["name"] for each in stage.lab.cluster.nodes()]
    for pool, count in seen.items():
        of_pool = [name for name in names if name.startswith(pool)]
        assert log.most_tainted_at_once(of_pool) == count
    assert {each.value for each in log.stints} == {HOT, NO_ROOM}
    assert {each.node for each in log.stints if each.value == NO_ROOM} >= {"big-2"}
    assert {each.service for each in log.moves} >= {"big-web0", "small-web0"}
    assert log.returned == []
    assert not {each.target for each in log.moves} & {"big-2"}


def test_pods_that_tolerate_everything_are_not_evicted_towards_tainted_nodes(tmp_path: Path) -> None:
    """Our taint wouldn't keep them away from the attractor; the same pods without the toleration are moved."""
    with a_stage(two_pools(tolerations=TOLERATES_ALL), tmp_path, pools=POOLS, softTaint={"maxNodes": 3}) as stage:
        for _ in range(3):
            report = stage.turn()
            assert codes(report, "big-web") == {"TargetNodeWithoutHeadroom"}
            assert all("big-2" in each for each in messages(report, "big-web"))
        log = stage.log
    assert [each for each in log.moves if each.service.startswith("big-")] == []
    assert "big-2" not in {each.node for each in log.stints}


def a_node_that_stays_hot() -> Scenario:
    """One of its two services may go; that isn't enough."""
    return a_scenario(
        ("hot", "a", "b"),
        burner("burner", "hot", 12.0),
        service("web", dict.fromkeys(("hot", "a", "b"), 1)),
        service("filler", {"a": 1, "b": 1}, cpu_request="6", cpu=0.5),
    )


def test_a_taint_that_is_too_old_goes_whatever_the_plan_says(tmp_path: Path) -> None:
    with a_stage(a_node_that_stays_hot(), tmp_path, softTaint={"maxAge": f"{MAX_AGE:g}s"}) as stage:
        stage.turns(12)
        assert "hot" in stage.lab.truth.hot(0.7)
        log = stage.log
    (only,) = log.stints
    assert only.node == "hot"
    assert only.end is not None
    # the node is warm all the time, so it was kept for as long as it may; the next cycle took it off
    assert MAX_AGE <= only.end - only.start <= MAX_AGE + TURN_SECONDS
    assert log.returned == []


def test_a_taint_of_ours_that_does_not_say_how_old_it_is_goes_at_once(tmp_path: Path) -> None:
    with a_stage(a_node_that_stays_hot(), tmp_path) as stage:
        stage.lab.cluster.taint("b", SOFT_TAINT, value="hot", effect="PreferNoSchedule")
        stage.lab.cluster.taint("hot", SOFT_TAINT, value="hot", effect="PreferNoSchedule")
        # not ours: another effect
        stage.lab.cluster.taint("a", SOFT_TAINT, value="hot", effect="NoSchedule")
        stage.turn()
        assert ours_on(stage.lab) == {"a": "hot"}
        assert taints_on(stage.lab, "a") == [(SOFT_TAINT, "hot", "NoSchedule")]


@pytest.mark.parametrize("mode", ["Taint", "Off"])
def test_what_an_earlier_run_left_goes_when_the_next_one_begins(tmp_path: Path, mode: str) -> None:
    """The cluster has cooled since; with steering switched off it goes as well."""
    cluster = a_scenario(("a", "b"), service("web", {"a": 1, "b": 1}))
    with a_stage(cluster, tmp_path, softTaint={"mode": mode}) as stage:
        stage.lab.cluster.taint("b", SOFT_TAINT, value="hot", effect="PreferNoSchedule")
        stage.lab.cluster.taint("b", "example.com/soft", value="x", effect="PreferNoSchedule")
        stage.turn()
        assert taints_on(stage.lab, "b") == [("example.com/soft", "x", "PreferNoSchedule")]
