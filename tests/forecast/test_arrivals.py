"""Pods that are expected to come: who they are, where, and what becomes of them when they have come."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from rebalancer.forecast import Arrival, expected_arrivals
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import History
from tests.builders import ANode, APod, a_node, a_pod
from tests.forecast.builders import AGED, MIDNIGHT, by_pod, flat, history, look, services, world

ON_A = {"node": "a", "age": AGED}
BOTH = (a_node("a"), a_node("b"))


def run_of(service: str, wanted: int, *pods: APod, kind: str = "Deployment", **nodes: ANode) -> ClusterSnapshot:
    """One service's pods and what it wants."""
    named = [replace(pod, owner=service, owner_kind=kind) for pod in pods]
    owner = Owner(kind=kind, namespace="shop", name=service, uid=service, desired=wanted)
    machines = [nodes.get(name, a_node(name)) for name in ("a", "b", "c")]
    return world(machines, named, owners=[owner])


def arriving(
    snapshot: ClusterSnapshot, *in_flight: tuple[str, str], pools: Sequence[int] = (0, 0, 0)
) -> Mapping[str, Mapping[str, float]]:
    found = expected_arrivals(snapshot, pool_of=np.array(pools, dtype=np.int32), in_flight=in_flight)
    return {each.service: each.nodes for each in found}


def test_what_a_service_lacks_is_expected_evenly_on_the_nodes_of_its_pool() -> None:
    snapshot = run_of("web", 5, a_pod("web-0", "a"), a_pod("web-1", "b"), a_pod("web-2", phase=PENDING))
    # three are missing; that one of them waits already makes it no fourth
    assert arriving(snapshot) == {"shop/web": pytest.approx({"a": 1, "b": 1, "c": 1})}
    assert arriving(snapshot, pools=(0, 0, 1)) == {"shop/web": pytest.approx({"a": 1.5, "b": 1.5})}
    assert arriving(run_of("web", 2, a_pod("web-0", "a"), a_pod("web-1", "b"))) == {}


def test_a_rollout_that_has_taken_pods_down_will_bring_them_back() -> None:
    going = [a_pod("web-0", "a", terminating=True), a_pod("web-1", "a", terminating=True), a_pod("web-2", "b")]
    assert arriving(run_of("web", 3, *going), pools=(0, 1, 1)) == {"shop/web": pytest.approx({"b": 1, "c": 1})}
    # surplus pods of a rollout bring nothing
    assert arriving(run_of("web", 2, a_pod("web-2", "b"), a_pod("web-3", "b"), a_pod("web-4", "b"))) == {}


def test_cordoned_and_broken_nodes_expect_no_pods() -> None:
    pods = [a_pod("web-0", "a"), a_pod("web-1", "b")]
    snapshot = run_of("web", 3, *pods, a=a_node("a", unschedulable=True), b=a_node("b", ready=False))
    assert arriving(snapshot) == {"shop/web": {"c": 1.0}}
    assert arriving(snapshot, pools=(0, 0, 1)) == {}


def test_a_service_without_pods_is_expected_on_all_schedulable_nodes() -> None:
    snapshot = run_of("web", 1, a_pod("web-0", phase=PENDING), b=a_node("b", unschedulable=True))
    assert arriving(snapshot, pools=(0, 1, -1)) == {"shop/web": {"a": 0.5, "c": 0.5}}


def test_replacements_in_flight_are_expected_where_they_will_land_as_many_as_are_missing() -> None:
    evicted = [a_pod("web-0", "a", terminating=True), a_pod("web-1", "a"), a_pod("web-2", "b")]
    snapshot = run_of("web", 3, *evicted)
    assert arriving(snapshot, ("shop/web", "c")) == {"shop/web": {"c": 1.0}}
    assert arriving(snapshot, ("shop/web", "c"), ("shop/web", "b")) == {"shop/web": {"c": 1.0}}
    assert arriving(snapshot, ("shop/db", "c")) == {"shop/web": pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})}
    assert arriving(snapshot, ("shop/web", "gone")) == arriving(snapshot)
    # one more is missing than was evicted
    assert arriving(run_of("web", 4, *evicted), ("shop/web", "c"))["shop/web"] == pytest.approx(
        {"a": 1 / 3, "b": 1 / 3, "c": 4 / 3}
    )
    # an eviction that the snapshot doesn't show yet
    assert arriving(run_of("web", 2, *evicted), ("shop/web", "c")) == {}


@pytest.mark.parametrize("kind", ["DaemonSet", "Job", "CronJob"])
def test_pods_of_daemon_sets_and_jobs_are_not_expected(kind: str) -> None:
    assert arriving(run_of("agent", 3, a_pod("agent-0", "a"), kind=kind)) == {}


def beside_db() -> tuple[History, list[APod]]:
    """A database on a, and two replicas of web on b."""
    series, pods = services("web")
    return history(series | {"shop/db-0": flat(100)}), [*pods, a_pod("db-0", **ON_A)]


def test_an_expected_pod_that_came_is_not_counted_twice() -> None:
    past, pods = beside_db()
    coming = (Arrival(service="shop/web", nodes={"a": 1.0}),)
    base = look(past, world(BOTH, pods), arrivals=coming)
    assert base.peaks(world(BOTH, pods), now=MIDNIGHT).node_millicores == pytest.approx([500, 800])
    newer = world(BOTH, [*pods, a_pod("web-8", owner="web", node="a", age=60)])
    peaks = base.peaks(newer, now=MIDNIGHT)
    assert peaks.node_millicores == pytest.approx([500, 800])
    assert by_pod(newer, peaks.relief_millicores) == pytest.approx(
        {"web-0": 400, "web-1": 400, "web-8": 400, "db-0": 100}
    )
    # a second one was not expected
    more = world(BOTH, [*pods, *(a_pod(f"web-{index}", owner="web", node="a", age=60) for index in (8, 9))])
    assert base.peaks(more, now=MIDNIGHT).node_millicores == pytest.approx([900, 800])


@pytest.mark.parametrize(
    ("each", "came", "millicores"),
    [
        # one is missing, half of it is expected on each of two nodes
        (0.5, (), (300, 1000)),
        (0.5, ("a",), (500, 800)),
        (0.5, ("b",), (100, 1200)),
        (0.5, ("c",), (100, 800)),
        # two are missing
        (1.0, ("a",), (500, 1200)),
        (1.0, ("a", "a"), (900, 800)),
        (1.0, ("c",), (300, 1000)),
        (1.0, ("a", "c"), (500, 800)),
        (1.0, ("a", "b", "b"), (500, 1600)),
        (1.0, ("a", "a", "a"), (1300, 800)),
    ],
)
def test_one_that_came_stands_first_for_one_that_was_expected_there_else_for_a_share_of_what_is_still_missing(
    each: float, came: Sequence[str], millicores: tuple[float, float]
) -> None:
    past, pods = beside_db()
    coming = (Arrival(service="shop/web", nodes={"a": each, "b": each}),)
    base = look(past, world(BOTH, pods), arrivals=coming)
    new = [a_pod(f"web-x{index}", owner="web", node=node, age=60) for index, node in enumerate(came)]
    newer = world([*BOTH, a_node("c")], [*pods, *new])
    assert base.peaks(newer, now=MIDNIGHT).node_millicores[:2] == pytest.approx(millicores, abs=0.01)


def test_arrivals_of_many_services_are_expected_together() -> None:
    series, pods = services(*(f"web{number}" for number in range(300)), level=10)
    past = history(series | {"shop/db-0": flat(100)})
    pods.append(a_pod("db-0", **ON_A))
    coming = [Arrival(service=f"shop/web{number}", nodes={"a": 0.5}) for number in range(300) for _ in range(2)]
    base = look(past, world(BOTH, pods), arrivals=coming)
    assert base.peaks(world(BOTH, pods), now=MIDNIGHT).node_millicores == pytest.approx([3100, 6000])


def test_a_service_that_ran_only_on_days_that_do_not_count_is_still_known() -> None:
    series, pods = services("db")
    days = flat(400)
    days[-1] = np.nan
    coming = (Arrival(service="shop/web", nodes={"a": 1.0}),)
    options = {"arrivals": coming, "predictor": "weightedP95", "dayWeights": {"weights": [1.0]}}
    lacking = world(BOTH, [*pods, a_pod("web-9", owner="web", phase=PENDING, age=60)])
    base = look(history(series | {"shop/web-0": days}), lacking, **options)
    assert base.peaks(lacking, now=MIDNIGHT).node_millicores[1] == pytest.approx(800)
    came = world(BOTH, [*pods, a_pod("web-9", owner="web", node="a", age=60)])
    # node a is known by what was expected there only
    assert base.peaks(came, now=MIDNIGHT).node_millicores[1] == pytest.approx(800)


def test_what_is_expected_on_a_faster_machine_needs_less_there() -> None:
    nodes = (a_node("a", labels={"type": "new"}), a_node("b", labels={"type": "old"}))
    past, pods = beside_db()
    coming = (Arrival(service="shop/web", nodes={"a": 1.0}),)
    generation = {"label": "type", "factors": {"new": 2.0, "old": 1.0}}
    base = look(past, world(nodes, pods), arrivals=coming, generation=generation)
    for newer in (world(nodes, pods), world(nodes, [*pods, a_pod("web-9", owner="web", node="a", age=60)])):
        assert base.peaks(newer, now=MIDNIGHT).node_millicores == pytest.approx([300, 800])
