"""Where a replacement lands: what the scheduler sees when it comes, probabilities, and bookings."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rebalancer.model.cluster.objects import NodeSelector, NodeSelectorTerm, Requirement, Taint
from rebalancer.model.cluster.scheduler import SchedulerConfig
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.landing import Landing
from rebalancer.placement.landing.model import PlacementModel
from tests.builders import GIB, ANode, APod, a_node, a_pod, cluster
from tests.placement.builders import HOSTNAME, OFF, counted, fits, lands, model_of, mover, refused, waiting

GPU = {"extendedRequests": {"nvidia.com/gpu": 1.0}}
PORT = {"hostPorts": [["TCP", 80, "0.0.0.0"]]}


def shares(landing: Landing, names: Sequence[str]) -> tuple[tuple[str, float], ...]:
    return tuple((each.node, each.probability) for each in landing.shown(names))


# ---- what the scheduler sees


def test_a_replica_sets_old_pod_still_holds_its_room_and_a_stateful_sets_does_not() -> None:
    nodes = [a_node("home", pods=1), a_node("room")]
    assert fits(nodes, [mover()]) == {"room"}
    assert fits(nodes, [mover(owner_kind="ReplicationController")]) == {"room"}
    assert fits(nodes, [mover(owner_kind="StatefulSet")]) == {"home", "room"}
    assert fits(nodes, [mover(owner_kind="Job")]) == {"home", "room"}


@pytest.mark.parametrize("template", [GPU, PORT])
def test_a_stateful_sets_old_pod_frees_devices_and_ports_too(template: dict[str, Any]) -> None:
    nodes = [a_node(name, extended={"nvidia.com/gpu": 1.0}) for name in ("home", "room")]
    assert fits(nodes, [mover(template=template)]) == {"room"}
    assert fits(nodes, [mover(owner_kind="StatefulSet", template=template)]) == {"home", "room"}


def test_of_an_unknown_owner_both_are_possible() -> None:
    nodes = [a_node("home"), a_node("room")]
    pods = [mover(owner_kind="Rollout", cpu=8_000), a_pod("there", "room", owner="x", cpu=4_000)]
    # afterwards home is empty and wins, before it the other is
    assert lands(nodes, pods) == {"home": 0.5, "room": 0.5}
    assert lands([a_node("home", pods=1), a_node("room")], pods) == {"home": 0.5, "room": 0.5}
    assert fits([a_node("home", pods=1), a_node("room")], pods) == {"home", "room"}


def test_spreading_does_not_count_the_old_pod_while_it_terminates() -> None:
    rule = {"maxSkew": 1, "topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
    pods = [mover(template={"topologySpread": [rule]})]
    # were it counted, home would have one more than the other
    assert fits([a_node("home"), a_node("room")], pods) == {"home", "room"}
    anti = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
    template = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}}}
    assert fits([a_node("home"), a_node("room")], [mover(template=template)]) == {"room"}


def test_the_replacement_of_a_pod_with_an_exclusive_claim_comes_afterwards() -> None:
    claim = {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}
    nodes, exclusive = [a_node("home", pods=1), a_node("room")], {"exclusive_claims": frozenset({("shop", "data")})}
    assert fits(nodes, [mover(template=claim)], **exclusive) == {"home", "room"}
    assert fits(nodes, [mover(template=claim)]) == {"room"}


def test_a_pod_whose_volume_is_elsewhere_stays_with_it() -> None:
    claim = {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}
    here = NodeSelector((NodeSelectorTerm(match_expressions=(Requirement(HOSTNAME, "In", ("home",)),)),))
    assert fits([a_node("home"), a_node("room")], [mover(template=claim)], volume_nodes={("shop", "data"): here}) == {
        "home"
    }


# ---- the answer


def test_equal_nodes_are_equally_likely_and_listed_by_name() -> None:
    nodes = [a_node("home", **OFF), a_node("y"), a_node("x"), a_node("busy")]
    pods = [mover(), a_pod("there", "busy", owner="z", cpu=8_000)]
    model, made = model_of(nodes, pods)
    landing = model.landings(made.pod(0))
    assert isinstance(landing, Landing)
    assert shares(landing, made.nodes.names) == (("x", 0.5), ("y", 0.5))
    assert landing.feasible == 3


def test_at_most_eight_landings_are_shown_and_all_are_known() -> None:
    model, made = model_of([a_node("home", **OFF), *(a_node(f"n{index}") for index in range(20))], [mover()])
    landing = model.landings(made.pod(0))
    assert isinstance(landing, Landing)
    shown = shares(landing, made.nodes.names)
    assert [name for name, _ in shown] == sorted(f"n{index}" for index in range(20))[:8]
    assert [share for _, share in shown] == pytest.approx([0.05] * 8)
    assert len(landing.nodes) == 20


def test_above_a_hundred_nodes_the_best_is_not_always_seen() -> None:
    nodes = [a_node("home", **OFF), *(a_node(f"n{index:03d}", cpu=4_000) for index in range(199)), a_node("best")]
    found = lands(nodes, [mover(cpu=2_000)])
    # 201 nodes: the scheduler stops at 100 feasible ones of 200
    assert found["best"] == pytest.approx(0.5)
    assert found["n000"] == pytest.approx(0.5 / 199)
    made = cluster(nodes, [mover(cpu=2_000)])
    everything = PlacementModel(made, config=SchedulerConfig(percentage_of_nodes_to_score=100))
    landing = everything.landings(made.pod(0))
    assert isinstance(landing, Landing)
    assert shares(landing, made.nodes.names) == (("best", 1.0),)


@pytest.mark.parametrize(
    ("nodes", "template", "back"),
    [
        ({"cpu": 16_000.0}, {}, 0.0),  # 500m of 16 cores: a point less
        ({"cpu": 1e6, "memory": 1e15}, {}, 0.5),  # next to nothing
        ({"cpu": 1e6, "memory": 1e15, "pods": 2}, {}, 0.0),
        ({"cpu": 1e6, "memory": 1e15}, PORT, 0.0),
        ({"cpu": 1e6, "memory": 1e15, "extended": {"nvidia.com/gpu": 1.0}}, GPU, 0.0),
        ({"cpu": 1e6, "memory": 1e15, "extended": {"nvidia.com/gpu": 2.0}}, GPU, 0.5),
    ],
)
def test_the_node_that_took_one_is_among_the_best_for_the_next_only_where_nothing_tells_it_apart(
    nodes: dict[str, Any], template: dict[str, Any], back: float
) -> None:
    # no spreading by the owner: each pod has its own. The first pod of an empty node makes it less balanced by a point
    pods = [mover(template=template), a_pod("next", "home", owner="other", template=template)]
    pods += [a_pod(f"agent-{name}", name, owner="agent", owner_kind="DaemonSet") for name in ("a", "b")]
    _follow([a_node("home", **OFF), a_node("a", **nodes), a_node("b", **nodes)], pods, back)


def test_the_next_keeps_away_by_its_own_anti_affinity_and_follows_by_its_affinity() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    near = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    }
    large = {"cpu": 1e6, "memory": 1e15}
    for size, affinity, back in ((large, anti, 0.0), (large, near, 1.0)):
        template = {"affinity": affinity}
        pods = [mover(template=template), a_pod("next", "home", owner="web", template=template)]
        _follow([a_node("home", **OFF), a_node("a", **size), a_node("b", **size)], pods, back)


def _follow(nodes: list[ANode], pods: list[APod], back: float) -> None:
    """The second pod lands on the first one's node with the probability `back`, in each draw."""
    model, made = model_of(nodes, pods)
    placed = counted(model, made, 0)
    assert sorted(set(placed.winners.tolist())) == [1, 2]
    landing = model.landings(made.pod(1))
    assert isinstance(landing, Landing)
    assert dict(shares(landing, made.nodes.names)) == pytest.approx({"a": 0.5, "b": 0.5})
    again = model.winners(made.pod(1), landing) == placed.winners
    assert again.mean() == pytest.approx(back, abs=0.0 if back in (0.0, 1.0) else 0.15)


def test_where_nothing_is_feasible_it_is_told_why() -> None:
    assert refused([a_node("home", **OFF)], [mover()]) is Reason.NO_TARGET_NODE
    full = [a_node("home", **OFF), a_node("room", pods=1)]
    there = a_pod("there", "room", owner="x")
    assert refused(full, [mover(), there]) is Reason.NO_TARGET_NODE
    assert refused(full, [mover(priority=1), there]) is Reason.NEEDS_PREEMPTION
    # on a node where it could never be, lower priorities are no help
    tainted = [a_node("home", **OFF), a_node("room", taints=(Taint(key="k", effect="NoSchedule"),))]
    assert refused(tainted, [mover(priority=1), there]) is Reason.NO_TARGET_NODE
    assert refused(full, [mover(template={"schedulerName": "mine"}), there]) is Reason.PLACEMENT_NOT_MODELLED


def test_nodes_that_leave_are_new_or_not_ready_are_closed() -> None:
    nodes = [a_node("a"), a_node("new", age=299.0), a_node("old", age=300.0), a_node("down", ready=False)]
    model = PlacementModel(cluster([*nodes, a_node("gone")], []), removed={4: "about to go: a taint"})
    assert model.closed.tolist() == [False, True, False, True, True]
    assert [model.why_closed(node) for node in (1, 3, 4)] == ["joined 299s ago", "not Ready", "about to go: a taint"]


def test_the_most_that_has_to_be_pulled() -> None:
    nodes = [
        a_node("home", images={"r/a:latest": 100.0, "r/b:1": 10.0}),
        a_node("one", images={"r/a:latest": 100.0}),
        a_node("none"),
    ]
    model, made = model_of(nodes, [mover(template={"images": ["r/a", "r/b:1", "r/a", "r/unknown"]})])
    pod = made.pod(0)
    assert model.pull_bytes(pod, np.array([0])) == 0
    assert model.pull_bytes(pod, np.array([0, 1])) == 10
    assert model.pull_bytes(pod, np.array([1, 2])) == 110


def test_a_landing_is_explained_as_it_is_predicted() -> None:
    nodes = [a_node("home"), a_node("room"), a_node("off", **OFF)]
    model, made = model_of(nodes, [mover(), waiting("w", cpu=9_000)])
    verdict = model.explain(made.pod(0))
    assert verdict.feasible.tolist() == [True, True, False]
    assert verdict.filtered[2] == ("NodeUnschedulable", "node(s) were unschedulable")
    # a pod that waits is explained without the room that it is going to take
    assert model.explain(made.pod(1)).raw["NodeResourcesFit"][1] == 70  # (43 + 98) / 2, all cut


def test_nodes_can_be_steered_away_from() -> None:
    made = cluster([a_node("home", **OFF), a_node("a"), a_node("b")], [mover()])
    model = PlacementModel(made, soft_tainted=np.array([False, True, False]))
    landing = model.landings(made.pod(0))
    assert isinstance(landing, Landing)
    assert landing.nodes.tolist() == [2]
    model.steer([2])
    landing = model.landings(made.pod(0))
    assert isinstance(landing, Landing)
    assert landing.nodes.tolist() == [1, 2]


# ---- bookings


def test_of_two_equal_nodes_the_second_landing_is_again_equally_likely_on_both() -> None:
    nodes = [a_node("home", **OFF), a_node("a", pods=1), a_node("b", pods=1)]
    pods = [a_pod(f"web-{index}", "home", owner="web") for index in range(3)]
    model, made = model_of(nodes, pods)
    for index in range(2):
        landing = model.landings(made.pod(index))
        assert isinstance(landing, Landing)
        assert shares(landing, made.nodes.names) == (("a", 0.5), ("b", 0.5))
        counted(model, made, index)
    assert isinstance(model.landings(made.pod(2)), Refusal)


def test_half_a_pod_on_each_of_two_nodes_makes_neither_worse() -> None:
    # the second goes to whichever of a and b the first has left free, never to the smaller c
    nodes = [a_node("home", **OFF), a_node("a"), a_node("b"), a_node("c", cpu=14_000)]
    pods = [a_pod(f"web-{index}", "home", owner=f"o{index}", cpu=2_000) for index in range(3)]
    model, made = model_of(nodes, pods)
    seen = []
    for index in range(3):
        landing = model.landings(made.pod(index))
        assert isinstance(landing, Landing)
        seen.append(landing.nodes.tolist())
        counted(model, made, index)
    assert seen == [[1, 2], [1, 2], [3]]


def _pods_of_all_kinds(draw: random.Random, nodes: list[ANode]) -> list[APod]:
    return [
        a_pod(
            f"p{index}",
            draw.choice(nodes).name,
            owner=f"o{index % 5}",
            owner_kind="StatefulSet" if index % 5 == 0 else "ReplicaSet",
            cpu=draw.choice([0, 100, 500, 2_000]),
            memory=draw.choice([0, 1, 4]) * GIB,
            template=draw.choice(
                [{}, {}, GPU, PORT, {"nodeSelector": {"zone": "1"}}, {"tolerations": [{"operator": "Exists"}]}]
            ),
        )
        for index in range(24)
    ]


def says(model: PlacementModel, made: ClusterSnapshot, index: int) -> Any:
    landing = model.landings(made.pod(index))
    if isinstance(landing, Refusal):
        return landing.code
    return shares(landing, made.nodes.names), landing.feasible


@pytest.mark.parametrize("seed", range(20))
def test_a_model_that_has_seen_moves_says_what_a_new_one_would_say(seed: int) -> None:
    draw = random.Random(seed)
    soft = Taint(key="rather-not", effect="PreferNoSchedule")
    nodes = [
        a_node(
            f"n{index}",
            cpu=draw.choice([4_000.0, 8_000.0]),
            memory=16 * GIB,
            pods=draw.choice([6, 12]),
            labels={"zone": str(index % 2)},
            taints=(soft,) if draw.random() < 0.3 else (),
            extended={"nvidia.com/gpu": 2.0},
        )
        for index in range(6)
    ]
    pods = _pods_of_all_kinds(draw, nodes)
    model, made = model_of(nodes, pods)
    for index in draw.sample(range(len(pods)), 8):
        for other in draw.sample(range(len(pods)), 6):
            says(model, made, other)  # asked at some time before, or not
        target = draw.randrange(len(nodes))
        assert model.commit(made.pod(index), np.full(model.draws.count, target)).node == target
        pods[index].node = nodes[target].name
        fresh, moved = model_of(nodes, pods)
        for other in range(len(pods)):
            # a moved pod is not asked about again
            if moved.pod(other).node == made.pod(other).node:
                assert says(model, made, other) == says(fresh, moved, other)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_in_which_nodes_and_pods_are_listed_changes_nothing(seed: int) -> None:
    draw = random.Random(seed)
    nodes = [a_node(f"n{index}", cpu=draw.choice([4_000.0, 8_000.0])) for index in range(6)]
    pods = [*_pods_of_all_kinds(draw, nodes), *(waiting(f"w{index}", cpu=700) for index in range(4))]
    model, made = model_of(nodes, pods)
    expected = {pods[index].name: says(model, made, index)[0] for index in range(24)}
    draw.shuffle(nodes)
    draw.shuffle(pods)
    model, made = model_of(nodes, pods)
    for index, pod in enumerate(pods):
        if pod.node:
            assert says(model, made, index)[0] == expected[pod.name]
