"""Soft taints as a pool of few nodes needs them: enough with the default settings, none where the landing holds."""

from pathlib import Path
from typing import Any

import pytest

from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.steering import NO_ROOM
from rebalancer.model.reason import Reason
from rebalancer.policy.schema.limits import resolve
from tests.builders import ANode, APod, a_node, a_policy
from tests.planner.builders.plans import ANY_REPLICAS, codes_of, cold, heavy, hot, single
from tests.planner.builders.searches import Found, Searched, searched
from tests.stories.scenarios.stage import a_scenario, a_stage, burner, service

SIZES = range(3, 13)
LEAVING = Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule")
RATHER_NOT = Taint(key="rather", effect="PreferNoSchedule")
DEFAULT = a_policy().soft_taint


def most(size: int) -> int:
    """Nodes of a pool that may be tainted by default."""
    return resolve(DEFAULT.max_nodes, size, DEFAULT.max_nodes_at_least)


def a_pool(size: int, warm: int, *, soft_taint: dict[str, Any] | None = None, **fields: Any) -> Searched:
    """A hot node, one with room, and `warm` ones that the scheduler prefers to it, as they are empty by requests; the
    others are full by requests. `fields` are those of the warm nodes."""
    names = [f"warm{at}" for at in range(warm)]
    full = [f"full{at}" for at in range(size - 2 - warm)]
    usual = {"used": 10_000.0, **fields}
    nodes: list[ANode] = [
        hot(),
        cold("cold", taints=(RATHER_NOT,) if "taints" in fields else ()),
        *(a_node(name, **usual) for name in names),
    ]
    nodes += [a_node(name, used=10_000.0) for name in full]
    pods: list[APod] = [heavy("hot", 12_000), heavy("cold", 8_000), *(heavy(name, 15_900) for name in full)]
    # a pool that has just grown would be left alone as a whole
    safety = {"cooldowns": {"poolAfterScaleUp": "0s"}}
    policy = a_policy(**ANY_REPLICAS, safety=safety, **({"softTaint": soft_taint} if soft_taint else {}))
    return searched(nodes, [*pods, single("a", used=3_000.0)], policy=policy)


def tainted(world: Searched, found: Found) -> dict[str, str]:
    return {world.snapshot.nodes.names[node]: value for node, value in found.taints.items()}


@pytest.mark.parametrize("size", SIZES)
def test_half_of_a_small_pool_may_be_steered_away_from_by_default(size: int) -> None:
    warm = min(most(size), size - 2)
    assert warm >= 1
    world = a_pool(size, warm)
    found = world.best()
    assert [(move.pod, move.target_node) for move in found.moves] == [("a", "cold")]
    assert tainted(world, found) == {f"warm{at}": NO_ROOM for at in range(warm)}


@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_tainted_where_the_landing_holds_anyway(size: int) -> None:
    world = a_pool(size, 0)
    found = world.best()
    assert [(move.pod, move.target_node) for move in found.moves] == [("a", "cold")]
    assert found.taints == {}


@pytest.mark.parametrize(
    "closed",
    [{"age": 60.0}, {"taints": (LEAVING,)}],
    ids=["young", "leaves soon"],
)
@pytest.mark.parametrize("size", [3, 6, 12])
def test_a_node_that_is_no_target_is_steered_away_from(size: int, closed: dict[str, Any]) -> None:
    world = a_pool(size, 1, **{"used": 1_000.0, **closed})
    without = a_pool(size, 1, **{"used": 1_000.0, **closed})
    without.steers = False
    found, refused = world.best(), without.best()
    assert [(move.pod, move.target_node) for move in found.moves] == [("a", "cold")]
    assert tainted(world, found)["warm0"] == NO_ROOM
    assert refused.moves == ()
    assert codes_of(refused.plan.planner)["a"] in (Reason.TARGET_NODE_UNAVAILABLE, Reason.WOULD_RETURN_TO_NODE)


@pytest.mark.parametrize("size", SIZES)
def test_a_refusal_names_the_value_with_which_exactly_the_move_is_planned(size: int) -> None:
    warm = size - 2
    tight = {"maxNodes": 0, "maxNodesAtLeast": 0}
    (refusal,) = [
        each for each in a_pool(size, warm, soft_taint=tight).best().plan.planner.outcome.refusals() if each.name == "a"
    ]
    assert refusal.setting == "softTaint.maxNodes"
    assert f"soft taints on more nodes (softTaint.maxNodes: {refusal.value}) would allow it" in refusal.message
    percent = int(refusal.value.removesuffix("%"))
    found = a_pool(size, warm, soft_taint={**tight, "maxNodes": refusal.value}).best()
    assert [move.pod for move in found.moves] == ["a"], refusal.value
    less = a_pool(size, warm, soft_taint={**tight, "maxNodes": f"{percent - 1}%" if percent > 1 else 0}).best()
    assert less.moves == ()


# ---- what the cycle's report says


def lab(tmp_path: Path, *, max_nodes: str, other: str) -> Any:
    """Two nodes that are empty by requests and too warm stand in the way of the only one with room. The service's other
    pod is on the node `other`: spreading prefers those without one."""
    tmp_path.mkdir()
    cluster = a_scenario(
        ("hot", "warm0", "warm1", "cold", "full"),
        burner("burner", "hot", 10.0, cpu_request="12"),
        *(burner(f"burner{at}", f"warm{at}", 9.5) for at in range(2)),
        burner("filler", "cold", 1.0, cpu_request="8"),
        burner("filler-full", "full", 1.0, cpu_request="15200m"),
        service("web", {"hot": 1, other: 1}, cpu=3.0),
    )
    return a_stage(cluster, tmp_path, softTaint={"maxNodes": max_nodes, "maxNodesAtLeast": 0})


@pytest.mark.parametrize("other", ["full", "cold"])
def test_a_report_says_of_a_node_that_stays_hot_why_and_which_setting_would_help(tmp_path: Path, other: str) -> None:
    with lab(tmp_path / "first", max_nodes="20%", other=other) as stage:
        report = stage.turn()
        assert [line.name for line in report.nodes if line.hot] == ["hot"]
        (left,) = report.remaining
        assert (left.name, left.code) == ("hot", Reason.TARGET_NODE_WITHOUT_HEADROOM)
        assert left.setting == "softTaint.maxNodes"
        assert left.message.startswith("shop/web-")
    with lab(tmp_path / "second", max_nodes=left.value, other=other) as stage:
        report = stage.turn()
        assert [each.node for each in report.evictions] == ["hot"], left.value
        assert report.remaining == []


def test_the_setting_that_would_help_most_is_named_beside_larger_pods_that_none_would_free(tmp_path: Path) -> None:
    cluster = a_scenario(
        ("hot", "cold"),
        burner("burner", "hot", 10.0, cpu_request="8"),
        service("web", {"hot": 1}, cpu=3.0),
    )
    with a_stage(cluster, tmp_path) as stage:
        (left,) = stage.turn().remaining
    assert (left.name, left.code, left.setting) == ("hot", Reason.MIN_REPLICAS, "guards.minReplicas")
    assert left.message.startswith("shop/web-")
