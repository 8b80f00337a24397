"""Each replacement is that of one eviction."""

import pytest

from rebalancer.constraints.moves.in_flight import CLOCK_SLACK_SECONDS, typical_start_up
from rebalancer.model.cluster.pods import FAILED
from tests.constraints.test_in_flight import EVICTED_AGO, SET, an_eviction, new, old, progress, service


def test_a_pod_that_replaced_an_earlier_one_is_not_taken_again() -> None:
    """It was made within the slack before the second eviction, and the first one's row is closed already."""
    second = an_eviction("web-1", ago=30, record=2)
    just_before = new("a", age=30 + CLOCK_SLACK_SECONDS - 1)
    (one,) = progress([just_before, old("web-2")], second, owner=service(2))
    assert one.replacement is not None
    (one,) = progress([just_before, old("web-2")], second, owner=service(2), replacements=["uid-shop-a"])
    assert one.replacement is None
    (one,) = progress([just_before, new("b", age=20)], second, owner=service(2), replacements=["uid-shop-a"])
    assert one.replacement is not None
    assert one.replacement.name == "b"


def test_the_successor_of_a_statefulset_pod_has_its_name_and_another_uid_whatever_the_clocks_say() -> None:
    rest = [old("web-1", **SET), old("web-2", **SET)]
    seems_older = old("web-0", age=EVICTED_AGO + 10 * CLOCK_SLACK_SECONDS, **SET)
    (one,) = progress([seems_older, *rest], an_eviction(kind="StatefulSet", uid="uid-before"), owner=service(**SET))
    assert one.replacement is not None
    assert (one.replacement.name, one.replacement.uid, one.landed) == ("web-0", "uid-shop-web-0", True)
    # the same uid: it is still the one that was evicted
    (one,) = progress([seems_older, *rest], an_eviction(kind="StatefulSet"), owner=service(**SET))
    assert (one.replacement, one.landed) == (None, False)


@pytest.mark.parametrize(
    ("measured", "usual"),
    [
        ([], 300.0),
        ([10.0, 20.0], 300.0),
        ([10.0, 20.0, 30.0], 28.0),
        ([float(each) for each in range(11)], 9.0),
        ([5.0] * 19 + [9000.0], 5.0),
        ([-20.0, -25.0, -30.0], 0.0),
    ],
    ids=["none", "too few", "three", "eleven", "one outlier of twenty", "Ready before the old one was gone"],
)
def test_the_usual_start_up_is_what_nine_of_ten_took(measured: list[float], usual: float) -> None:
    assert typical_start_up(measured, otherwise=300.0) == pytest.approx(usual)


def test_a_finished_pods_eviction_is_settled_once_it_is_gone_and_nothing_takes_its_place() -> None:
    finished = an_eviction("dead", record=1, expected_on="")
    other = an_eviction("web-2", record=2)
    there = [old("web-0"), old("web-1")]
    [still, _] = progress([*there, old("dead", phase=FAILED, ready=False)], finished, other)
    assert (still.landed, still.late) == (False, False)
    [gone, waits] = progress([*there, new("new", ready=False)], finished, other)
    assert gone.replacement is None
    assert waits.replacement is not None  # the new pod is the other one's
    assert waits.replacement.name == "new"
    [gone] = progress([*there, old("web-2")], finished)
    assert (gone.landed, gone.came_back) == (True, False)


def test_a_pod_that_was_not_ready_is_settled_though_its_replacement_crashes_too() -> None:
    """Two of three were ready when it went."""
    crashing = an_eviction("web-2", ago=1_000.0, ready_before=2)
    there = [old("web-0"), old("web-1"), new("next", age=900.0, ready=False)]
    [it] = progress(there, crashing, owner=service(3))
    assert (it.landed, it.late) == (True, False)
    was_ready = an_eviction("web-2", ago=1_000.0, ready_before=3)
    [it] = progress(there, was_ready, owner=service(3))
    assert (it.landed, it.late) == (False, True)


@pytest.mark.parametrize(("expected_on", "came_back"), [("n1", False), ("n3", True)])
def test_a_replacement_that_was_expected_on_its_own_node_did_not_come_back(expected_on: str, came_back: bool) -> None:
    eviction = an_eviction(expected_on=expected_on)
    [it] = progress([old("web-1"), old("web-2"), new("next", "n1")], eviction)
    assert (it.landed, it.came_back) == (True, came_back)
