"""How the model sees cordons, and what is tried and undone."""

import numpy as np
import pytest
from numpy.typing import NDArray

from rebalancer.model.cluster.objects import LabelSelector, Taint
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.cluster.steering import (
    CORDONS,
    DRAINING,
    HOT,
    MAINTENANCE,
    SOFT_TAINT,
    UNSCHEDULABLE,
    ours_cordoned,
)
from rebalancer.model.reason import Refusal
from rebalancer.placement.cluster import board as board_module
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.landing.landing import Landing
from rebalancer.placement.landing.model import PlacementModel
from tests.builders import ANode, APod, a_node, a_pod, cluster, replicas
from tests.placement.scenarios import crowded_world

TOLERATES = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}


def ours(value: str = DRAINING) -> Taint:
    return Taint(key=SOFT_TAINT, value=value, effect="PreferNoSchedule")


def mask(made: ClusterSnapshot, *names: str) -> NDArray[np.bool_]:
    return np.array([name in names for name in made.nodes.names], dtype=np.bool_)


def world(*nodes: ANode, **pod: object) -> ClusterSnapshot:
    """A pod on `src`, which is full."""
    full = a_node("src", cpu=500.0)
    return cluster([full, *nodes], [a_pod("web-0", "src", owner="web", **pod)])


def landings(model: PlacementModel, made: ClusterSnapshot) -> set[str]:
    found = model.landings(made.pod(0))
    return set() if isinstance(found, Refusal) else {made.nodes.names[node] for node in found.nodes}


@pytest.mark.parametrize(
    ("node", "mine"),
    [
        (a_node("n", unschedulable=True, taints=(ours(),)), True),
        (a_node("n", unschedulable=True, taints=(ours(MAINTENANCE), UNSCHEDULABLE)), True),
        (a_node("n", unschedulable=True, taints=(ours(HOT),)), False),
        (a_node("n", unschedulable=True), False),
        (a_node("n", taints=(ours(),)), False),
    ],
    ids=["drained", "maintained", "soft_tainted by us, cordoned by others", "theirs", "uncordoned by others"],
)
def test_a_cordon_is_ours_where_our_taint_says_so(node: ANode, mine: bool) -> None:
    assert ours_cordoned(cluster([node], []).nodes).tolist() == [mine]


def test_a_node_that_is_to_be_cordoned_takes_nothing() -> None:
    made = world(a_node("a"), a_node("b"))
    assert landings(PlacementModel(made), made) == {"a", "b"}
    model = PlacementModel(made, cordoned=mask(made, "b"))
    assert landings(model, made) == {"a"}
    assert model.closed.tolist() == [False, False, True]
    said = model.explain(made.pod(0)).filtered
    assert said[2] is not None
    assert said[2][0] == "NodeUnschedulable"


def test_a_cordon_of_ours_that_is_to_go_is_not_seen_and_one_of_others_is() -> None:
    mine = a_node("mine", unschedulable=True, taints=(ours(), UNSCHEDULABLE))
    made = world(mine, a_node("theirs", unschedulable=True, taints=(UNSCHEDULABLE,)))
    nothing = mask(made)
    assert landings(PlacementModel(made), made) == set()
    model = PlacementModel(made, soft_tainted=nothing, cordoned=nothing)
    assert landings(model, made) == {"mine"}
    assert model.closed.tolist() == [False, False, True]
    assert Board(made, soft_tainted=nothing, cordoned=nothing).taints == [(), (), (UNSCHEDULABLE,)]


def test_who_tolerates_a_cordon_may_come_and_is_not_wanted() -> None:
    made = world(a_node("a"), template=TOLERATES)
    model = PlacementModel(made, cordoned=mask(made, "a"))
    assert landings(model, made) == {"a"}
    model = PlacementModel(made)
    model.cordon(1)
    assert landings(model, made) == {"a"}
    assert model.closed.tolist() == [False, True]


def test_a_cordon_while_the_plan_is_made_counts_from_then_on() -> None:
    made = world(a_node("a"), a_node("b"))
    model = PlacementModel(made)
    assert landings(model, made) == {"a", "b"}
    model.cordon(2)
    assert landings(model, made) == {"a"}
    with model.as_if_cordoned(1):
        assert landings(model, made) == set()
    assert landings(model, made) == {"a"}
    with model.as_if_cordoned(2):
        assert landings(model, made) == {"a"}
    assert landings(model, made) == {"a"}
    feasible = model.feasible(made.pod(0))
    assert not isinstance(feasible, Refusal)
    assert feasible.tolist() == [False, True, False]


def test_a_cordon_counts_for_every_sort_of_pod() -> None:
    for kind in ("StatefulSet", "ReplicaSet", "Job"):
        made = world(a_node("a"), a_node("b"), owner_kind=kind)
        model = PlacementModel(made)
        model.cordon(2)
        assert landings(model, made) <= {"a", "src"}


def test_pods_that_differ_only_in_tolerating_a_cordon_are_not_taken_for_each_other() -> None:
    full = a_node("src", cpu=1_000.0)
    pods = [a_pod("web-0", "src", owner="web"), a_pod("op-0", "src", owner="op", template=TOLERATES)]
    made = cluster([full, a_node("a")], pods)
    model = PlacementModel(made)
    model.cordon(1)
    masks = [model.feasible(made.pod(index)) for index in (0, 1, 0)]
    assert [mask.tolist() for mask in masks if not isinstance(mask, Refusal)] == [
        [False, False], [False, True], [False, False],
    ]  # fmt: skip


def test_a_pending_pod_is_not_placed_on_a_node_that_is_to_be_cordoned() -> None:
    made = cluster(
        [a_node("src", cpu=1_000.0), a_node("a", cpu=1_000.0), a_node("b", cpu=1_000.0)],
        [a_pod("web-0", "src", owner="web", cpu=900.0), a_pod("waits", owner="api", cpu=900.0, phase=0)],
    )
    assert landings(PlacementModel(made, cordoned=mask(made, "b")), made) == set()
    assert landings(PlacementModel(made), made) <= {"a", "b"} != set()


# ---- tried and undone


def _everything(board: Board) -> list[list[object]]:
    tallies = [
        [tally.held.tolist(), tally.staying.tolist(), tally.booked.tolist()] for tally in board._tallies.values()
    ]
    return [board.held.tolist(), board.booked.tolist(), board.whole.tolist(), board.counted.tolist(), *tallies]


@pytest.mark.parametrize("number", range(6))
def test_what_is_tried_is_undone_to_the_last_bit(number: int) -> None:
    made = crowded_world(number, 15).snapshot
    model, fresh = PlacementModel(made), PlacementModel(made)
    pods = [made.pod(index) for index in range(len(made.pods)) if made.active[index]][:6]
    for each in (model, fresh):  # what was committed before stays
        _commit(each, made, pods[0].index)
    before, held = [_asked(model, made, pod.index) for pod in pods], _everything(model._board)
    drawn = _drawn(model)
    with model.as_if_cordoned(int(pods[1].node)):
        for pod in pods[1:4]:
            _commit(model, made, pod.index)
        _asked(model, made, pods[5].index)
    assert _everything(model._board)[:4] == held[:4]
    assert _drawn(model) == drawn
    assert [_asked(model, made, pod.index) for pod in pods] == before
    for pod in pods[2:5]:
        for each in (model, fresh):
            _commit(each, made, pod.index)
    assert [_asked(model, made, pod.index) for pod in pods] == [_asked(fresh, made, pod.index) for pod in pods]


def _drawn(model: PlacementModel) -> list[object]:
    draws = model.draws
    slots = [each.tolist() for each in (draws.draw, draws.node, draws.requests)]
    everywhere = np.arange(len(model.closed))
    of = [draws.slots(np.full(len(everywhere), draw), everywhere).tolist() for draw in range(draws.count)]
    return [slots, of, [(number, nodes.tolist()) for number, nodes in draws.landed]]


def _commit(model: PlacementModel, made: ClusterSnapshot, pod: int) -> None:
    found = model.landings(made.pod(pod))
    if isinstance(found, Landing):
        model.commit(made.pod(pod), model.winners(made.pod(pod), found))


def _asked(model: PlacementModel, made: ClusterSnapshot, pod: int) -> object:
    found = model.landings(made.pod(pod))
    return found.code if isinstance(found, Refusal) else (found.nodes.tolist(), found.shares.tolist())


def test_what_was_counted_meanwhile_is_counted_anew() -> None:
    """The tally is made inside, with the change in it, and would stay wrong."""
    pods: list[APod] = replicas("web", {"a": 2, "b": 1})
    board = Board(cluster([a_node("a"), a_node("b")], pods))
    kind = board.kinds.of(0)
    group = board.kinds.selected((LabelSelector(match_labels={"app": "web"}),), (None,))
    with board.tentatively():
        board.take_out(kind, 0)
        assert board.tally(group).held.tolist() == [1, 1]
        with board.seen_without(kind, 0):
            assert board.tally(group).held.tolist() == [0, 1]
        board.put(kind, np.array([0, 1]), np.array([0.5, 0.5]))
    assert board.tally(group).held.tolist() == [2, 1]
    assert board.tally(group).booked.tolist() == [0, 0]
    with board.tentatively():
        board.put(kind, np.array([1]), np.ones(1))
        assert board.tally(group).held.tolist() == [2, 2]
    assert board.tally(group).held.tolist() == [2, 1]


def test_a_tally_that_is_dropped_and_made_again_meanwhile_is_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "MOST_TALLIES", 1)
    board = Board(cluster([a_node("a"), a_node("b")], replicas("web", {"a": 2, "b": 1})))
    kind, everywhere = board.kinds.of(0), LabelSelector()
    web = board.kinds.selected((LabelSelector(match_labels={"app": "web"}),), (None,))
    others = board.kinds.selected((everywhere,), (None,))
    board.tally(web)
    with board.tentatively():
        board.take_out(kind, 0)
        board.tally(others)
        assert board.tally(web).held.tolist() == [1, 1]
    assert board.tally(web).held.tolist() == [2, 1]
    assert board.tally(others).held.tolist() == [2, 1]


def test_marks_of_nodes_equal_those_read_taint_by_taint() -> None:
    taints: list[tuple[Taint, ...]] = [
        (),
        (Taint(key=SOFT_TAINT, value="draining"),),
        (Taint(key="other"), Taint(key=SOFT_TAINT, value="maintenance")),
        (Taint(key=SOFT_TAINT, value=HOT),),
    ]
    nodes = [
        a_node(f"{'cordoned' if cordoned else 'open'}-{index}", taints=held, unschedulable=cordoned)
        for cordoned in (False, True)
        for index, held in enumerate(taints)
    ]
    made = cluster(nodes, [])
    assert ours_cordoned(made.nodes).tolist() == [
        node.unschedulable and any(each.key == SOFT_TAINT and each.value in CORDONS for each in node.taints)
        for node in nodes
    ]
