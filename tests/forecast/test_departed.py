"""What a node uses by itself, when pods have left it or have only just come."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.forecast.series.membership import DepartedPod
from rebalancer.model.measured.history import DAY_SECONDS
from tests.builders import NOW, a_node, a_pod
from tests.forecast.builders import AGED, DAYS, MIDNIGHT, flat, history, look, services, world

ON_A, ON_B = {"node": "a", "age": AGED}, {"node": "b", "age": AGED}
BOTH = (a_node("a"), a_node("b"))


def test_after_an_eviction_the_next_look_does_not_take_the_pods_cpu_for_the_nodes_own() -> None:
    series, pods = services("web", on="a")
    past = history(series | {"shop/db-0": flat(100)}, {"a": flat(1000), "b": flat(150)})
    db = a_pod("db-0", **ON_B)
    base = look(past, world(BOTH, [*pods, db]))
    assert base.peaks(world(BOTH, [*pods, db]), now=MIDNIGHT).node_millicores == pytest.approx([1000, 150])
    leaving = world(BOTH, [replace(pods[0], terminating=True), pods[1], db])
    moved = world(BOTH, [pods[1], db, a_pod("web-9", owner="web", node="b", age=60)])
    first = look(past, leaving, before=base)
    second = look(past, moved, before=first)
    third = look(past, moved, before=second, now=MIDNIGHT + 900)
    assert first.peaks(leaving, now=MIDNIGHT).node_millicores == pytest.approx([600, 150], rel=1e-4)
    # the node that it came to keeps its own 50 as well, though the newcomer has shown nothing yet
    assert second.peaks(moved, now=MIDNIGHT).node_millicores == pytest.approx([600, 550], rel=1e-4)
    assert third.peaks(moved, now=MIDNIGHT + 900).node_millicores[0] == pytest.approx(600, rel=1e-4)
    # the one that left is remembered, also where it ran on the last day only
    series["shop/web-0"] = flat(400)[-1:]
    assert look(history(series, {"a": flat(900)}), moved, before=first).forecasts.nodes[0].days_used == DAYS
    a_day_on = look(past, moved, before=third, now=MIDNIGHT + DAY_SECONDS)
    assert a_day_on.departed == ()


def test_a_newcomer_without_samples_does_not_hide_what_its_node_uses_by_itself() -> None:
    series, pods = services("web")
    past = history(series | {"shop/db-0": flat(600)}, {"a": flat(1750)})
    db = a_pod("db-0", **ON_A)
    base = look(past, world(BOTH, [*pods, db]))
    came = world(BOTH, [*pods, db, a_pod("web-9", owner="web", node="a", age=60)])
    # 1,150 m of its own, more than 1% of its capacity
    assert look(past, came, before=base).peaks(came, now=MIDNIGHT).node_millicores[0] == pytest.approx(1750 + 400)


def test_what_a_node_uses_by_itself_is_known_where_all_of_its_pods_have_samples() -> None:
    holed = flat(300)
    holed[:, -36:] = np.nan  # the last three hours of every day
    past = history({"shop/web-0": flat(300), "shop/web-1": holed}, {"a": flat(650)})
    snapshot = world([a_node("a")], [a_pod("web-0", **ON_A), a_pod("web-1", **ON_A)])
    found = look(past, snapshot, before=look(past, snapshot)).forecasts.nodes[0]
    # 50 m; where a pod has no sample, at most twice that and 1% of 16,000 m
    assert found.peak_millicores == pytest.approx(600 + 2 * 50 + 160, rel=0.01)


def test_a_pod_that_came_back_to_its_node_is_itself_again() -> None:
    past = history({"shop/db-0": flat(600)}, {"a": flat(700)})
    db = a_pod("db-0", owner="db", owner_kind="StatefulSet", **ON_A)
    base = look(past, world([a_node("a")], [db]))
    away = look(past, world([a_node("a")], []), before=base)
    assert [each.pod for each in away.departed] == ["shop/db-0"]
    back = world([a_node("a")], [replace(db, age=60)])
    assert look(past, back, before=away).peaks(back, now=MIDNIGHT).node_millicores == pytest.approx([700])


def test_a_pod_of_an_old_name_on_another_node_is_another_pod() -> None:
    past = history({"shop/db-0": flat(600), "shop/db-1": flat(600), "shop/web-0": flat(100)}, {"a": flat(650)})
    db = [a_pod(f"db-{index}", owner="db", owner_kind="StatefulSet", **ON_A) for index in (0,)]
    rest = [a_pod("db-1", owner="db", owner_kind="StatefulSet", **ON_B), a_pod("web-0", **ON_B)]
    base = look(past, world(BOTH, [*db, *rest]))
    moved = world(BOTH, [replace(db[0], node="b", age=NOW - MIDNIGHT), *rest])
    uids = [*moved.pods.uids]
    uids[0] = "another"
    moved = replace(moved, pods=replace(moved.pods, uids=uids))
    assert base.peaks(moved, now=MIDNIGHT).node_millicores == pytest.approx([50, 1300], rel=1e-4)
    # made anew, what it used on the first node is not taken for the node's own
    assert look(past, moved, before=base).peaks(moved, now=MIDNIGHT).node_millicores[0] == pytest.approx(50, rel=1e-4)


def test_the_first_forecast_of_a_process_knows_what_was_evicted() -> None:
    series, pods = services("web", on="a")
    past = history(series, {"a": flat(1000), "b": flat(150)})
    moved = world(BOTH, [pods[1], a_pod("web-9", owner="web", node="b", age=60)])
    evicted = (DepartedPod("shop/web-0", "a", MIDNIGHT - 60),)
    known = look(past, moved, evicted=evicted)
    assert known.peaks(moved, now=MIDNIGHT).node_millicores[0] == pytest.approx(600, rel=1e-4)
    assert known.departed == evicted
    assert look(past, moved).peaks(moved, now=MIDNIGHT).node_millicores[0] > 900
