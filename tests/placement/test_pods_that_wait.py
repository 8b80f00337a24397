"""Where a replacement lands while others wait for room."""

from typing import Any

import pytest

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.landing import Landing
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.placement.scheduler.engine import Engine
from tests.builders import a_node, a_pod, cluster
from tests.placement.builders import HOSTNAME, OFF, fits, lands, model_of, mover, refused, waiting

BIG = {"cpu": 9_000}
TWO = [a_node("home", cpu=9_000), a_node("cold")]


def test_pods_that_wait_take_their_room_first() -> None:
    assert fits(TWO, [mover(**BIG)]) == {"cold"}
    assert fits(TWO, [mover(**BIG), waiting("w", **BIG)]) == set()


@pytest.mark.parametrize(
    "fields", [{"gated": True}, {"terminating": True}, {"template": {"nodeSelector": {"no": "where"}}}]
)
def test_what_will_not_be_scheduled_takes_none(fields: dict[str, Any]) -> None:
    assert fits(TWO, [mover(**BIG), waiting("w", **BIG, **fields)]) == {"cold"}


def test_a_nominated_pod_keeps_its_node_even_where_it_would_fit_elsewhere() -> None:
    nodes = [a_node("home", cpu=9_000), a_node("a", cpu=10_000), a_node("b")]
    assert lands(nodes, [mover(cpu=100), waiting("w", cpu=9_950, nominated="a")]) == {"b": 1.0}
    assert fits(nodes, [mover(cpu=100), waiting("w", cpu=9_950, nominated="a")]) == {"home", "b"}
    # nor does it have to fit there: its victims are still going
    assert fits(nodes, [mover(cpu=100), waiting("w", cpu=99_000, nominated="a")]) == {"home", "b"}


def test_a_nominated_pod_keeps_its_room_from_an_older_one_of_the_same_priority() -> None:
    big = {"cpu": 16_000, "memory": 0}
    older, nominated = waiting("older", age=90.0, **big), waiting("nominated", age=10.0, nominated="cold", **big)
    model, made = model_of([a_node("home"), a_node("cold")], [mover(cpu=9_000), older, nominated])
    refusal = model.pending_takes(made.pod(0))
    assert refusal is not None
    assert "shop/older fits nowhere else" in refusal.message


def test_higher_priority_comes_first_and_then_age() -> None:
    def left(first: dict[str, Any], second: dict[str, Any]) -> str:
        """Who of two finds no room: only one of them fits."""
        big = {"cpu": 16_000, "memory": 0}
        pods = [mover(cpu=9_000), waiting("one", owner="1", **big, **first), waiting("two", owner="2", **big, **second)]
        model, made = model_of([a_node("home"), a_node("cold")], pods)
        refusal = model.pending_takes(made.pod(0))
        assert refusal is not None
        assert refusal.code is Reason.PENDING_TAKES_ROOM
        return refusal.message.rsplit("/", 1)[1].split()[0]

    assert left({}, {"priority": 1}) == "one"
    assert left({"priority": 1}, {}) == "two"
    assert left({"age": 50.0}, {"age": 40.0}) == "two"
    assert left({"age": 40.0}, {"age": 50.0}) == "one"
    assert left({}, {}) == "two"


def test_a_pod_that_finds_no_room_takes_what_is_left_behind_only_if_it_fits_there() -> None:
    def takes(**fields: Any) -> bool:
        model, made = model_of([a_node("home", cpu=9_000)], [mover(cpu=8_500), waiting("w", **fields)])
        return model.pending_takes(made.pod(0)) is not None

    assert takes(cpu=9_000)
    assert not takes(cpu=9_001)
    assert not takes(cpu=400)  # it fits already
    assert not takes(cpu=9_000, template={"nodeSelector": {"no": "where"}})
    assert not takes(cpu=9_000, gated=True)


def test_a_pod_of_another_scheduler_takes_only_the_first_room_that_it_fits() -> None:
    def takes(cpu: float, **template: Any) -> str:
        other = waiting("w", cpu=cpu, memory=0, template={"schedulerName": "mine", **template})
        model, made = model_of(TWO, [mover(**BIG), other])
        assert isinstance(model.landings(made.pod(0)), Landing)  # it is not booked
        refusal = model.pending_takes(made.pod(0))
        return "" if refusal is None else refusal.message

    assert not takes(100)  # it fits on the cold node already
    assert not takes(9_000)
    assert not takes(16_001)
    here = takes(9_000, nodeSelector={HOSTNAME: "home"})
    assert "shop/w (schedulerName mine) fits nowhere else; until it is bound or deleted" in here


def test_a_pod_that_its_scheduler_cannot_place_takes_only_the_first_room_that_it_fits() -> None:
    """The condition PodScheduled knows more than the model: an unbound claim, a plugin."""
    stuck = [waiting(f"w{index}", cpu=4_000, unschedulable=True) for index in range(20)]
    assert fits(TWO, [mover(**BIG), *stuck]) == {"cold"}
    model, made = model_of(TWO, [mover(**BIG), *stuck])
    assert model.pending_takes(made.pod(0)) is None
    # nominated: its scheduler has found a node, where others still terminate
    nominated = waiting("w", cpu=9_000, unschedulable=True, nominated="cold")
    assert fits(TWO, [mover(**BIG), nominated]) == set()
    large = [waiting("w", cpu=9_000, unschedulable=True, template={"nodeSelector": {HOSTNAME: "home"}})]
    model, made = model_of(TWO, [mover(**BIG), *large])
    refusal = model.pending_takes(made.pod(0))
    assert refusal is not None
    assert refusal.code is Reason.PENDING_TAKES_ROOM


def test_a_pod_that_found_no_room_is_tried_again_when_that_may_have_changed() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOSTNAME}
    near = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    pods = [
        mover(cpu=100),
        waiting("early", owner="fan", age=30.0, cpu=8_000, template=near),
        waiting("db", owner="db", age=20.0, cpu=100),
        waiting("late", owner="fan", age=10.0, cpu=8_000, template=near),
    ]
    # "late" follows "db" to the only node: 8,000 are gone
    nodes = [a_node("home", cpu=200, **OFF), a_node("cold", cpu=8_150)]
    assert refused(nodes, pods) is Reason.NO_TARGET_NODE
    assert fits(nodes, pods[:3]) == {"cold"}


def test_the_successor_of_a_terminating_stateful_set_pod_takes_a_place_too() -> None:
    nodes = [a_node("home", cpu=9_000, **OFF), a_node("old", cpu=9_000, **OFF), a_node("cold")]
    going = a_pod("db-0", "old", owner="db", owner_kind="StatefulSet", cpu=8_000, terminating=True)
    assert fits(nodes, [mover(**BIG), going]) == set()
    of_replica_set = a_pod("db-0", "old", owner="db", cpu=8_000, terminating=True)
    assert fits(nodes, [mover(**BIG), of_replica_set]) == {"cold"}
    scaled_down = Owner(kind="StatefulSet", namespace="shop", name="db", uid="u", desired=0)
    assert fits(nodes, [mover(**BIG), going], owners=[scaled_down]) == {"cold"}


def test_the_successor_may_take_the_room_of_the_old_pod() -> None:
    nodes = [a_node("home", cpu=9_000, **OFF), a_node("old", cpu=8_000), a_node("cold")]
    pin = {"nodeSelector": {HOSTNAME: "old"}}
    going = a_pod("db-0", "old", owner="db", owner_kind="StatefulSet", cpu=8_000, terminating=True, template=pin)
    assert fits(nodes, [mover(**BIG), going]) == {"cold"}


def test_when_time_is_over_before_all_that_wait_are_placed_nothing_is_predicted() -> None:
    made = cluster(TWO, [mover(), *(waiting(f"w{index}", cpu=1) for index in range(3))])
    asked = iter([False, True])
    model = PlacementModel(made, out_of_time=lambda: next(asked))
    for answer in (model.landings(made.pod(0)), model.feasible(made.pod(0))):
        assert isinstance(answer, Refusal)
        assert answer.code is Reason.PLANNING_TIMEOUT
        assert answer.message.endswith("1 of 3 pending pods placed")


def test_a_crowd_that_waits_is_placed_whole() -> None:
    crowd = [waiting(f"w{index:04d}", cpu=1, memory=0) for index in range(1_000)]
    nodes = [a_node("home", **OFF), *(a_node(f"n{index}", cpu=100, pods=2_000) for index in range(9))]
    # 900 fit, and all nodes are full then
    assert refused(nodes, [mover(cpu=1, memory=0), *crowd]) is Reason.NO_TARGET_NODE
    assert fits(nodes, [mover(cpu=1, memory=0), *crowd[:800]]) != set()


def test_a_crowd_of_jobs_that_waits_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Job has a template of its own; asked one by one, 2,000 of them took 0.1 s for each pod that was judged."""
    crowd = [waiting(f"j{index:03d}", owner=f"j{index:03d}", cpu=4_000, unschedulable=True) for index in range(200)]
    model, made = model_of(TWO, [mover(**BIG), *crowd])
    asked: list[object] = []
    fits_on = Engine.fits

    def counted(engine: Engine, *given: Any, **named: Any) -> bool:
        asked.append(given)
        return fits_on(engine, *given, **named)

    monkeypatch.setattr(Engine, "fits", counted)
    assert model.pending_takes(made.pod(0)) is None
    assert len(asked) == 1
