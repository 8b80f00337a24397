"""What pods' statuses and nodes' annotations say, by both ways in: pages and events."""

from typing import Any

import msgspec
import numpy as np
import pytest

from rebalancer.kube.snapshot.columns import LONGEST_ANNOTATION, PodColumns
from rebalancer.kube.snapshot.records import Node, Pod
from rebalancer.kube.watch.rows import FIRST_TIDYING, PodRows
from rebalancer.kube.watch.stores import NodeRecords
from rebalancer.model.cluster.pods import Pods, PodStatus
from tests.kube.builders import Cluster, Json, a_node, a_pod, read

RUNS: Json = {"running": {"startedAt": "2026-11-21T03:00:00Z"}}
EMPTY = PodStatus()


def waits(reason: str) -> Json:
    return {"waiting": {"reason": reason, "message": "back-off 5m0s"}}


def ended(code: int, reason: str = "") -> Json:
    return {"terminated": {"exitCode": code} | ({"reason": reason} if reason else {})}


def container(state: Json | None = None, *, restarts: int = 0, before: Json | None = None) -> Json:
    return {"name": "main", "restartCount": restarts, "state": state or RUNS, "lastState": before or {}}


def pod(name: str = "a", **status: Any) -> Json:
    return a_pod(name, status=status)


def by_pages(pods: list[Json]) -> tuple[Pods, tuple[PodStatus, ...]]:
    columns = PodColumns(nodes={"n1": 0}, namespaces=["shop"])
    for each in pods:
        columns.add([msgspec.convert(each, Pod)])
    return columns.finish(range(len(columns.owners))), columns.statuses


def by_events(pods: list[Json]) -> tuple[Pods, tuple[PodStatus, ...]]:
    rows = PodRows()
    for each in pods:
        rows.apply([(False, msgspec.convert(each, Pod))])
    taken = rows.taken()
    return taken.columns(nodes={"n1": 0}, namespaces={"shop": 0}, owners={}), tuple(taken.statuses)


@pytest.mark.parametrize("way", [by_pages, by_events])
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, EMPTY),
        ({"containerStatuses": None, "initContainerStatuses": []}, EMPTY),
        ({"containerStatuses": [container()]}, EMPTY),
        ({"containerStatuses": [{"name": "main", "restartCount": 0}]}, EMPTY),
        # how its run before ended is history
        ({"containerStatuses": [container(before=ended(137, "OOMKilled"))]}, EMPTY),
        ({"reason": "Evicted", "phase": "Failed"}, PodStatus(reason="Evicted")),
        ({"containerStatuses": [container(waits("CrashLoopBackOff"))]}, PodStatus(containers=("CrashLoopBackOff",))),
        # each reason and code once, whatever the order of the containers
        (
            {"containerStatuses": [container(waits("B")), container(ended(2, "A")), container(waits("B"))]},
            PodStatus(containers=("A", "B"), exit_codes=(2,)),
        ),
        (
            {"containerStatuses": [container(ended(137, "OOMKilled")), container(ended(1, "Error")), container()]},
            PodStatus(containers=("Error", "OOMKilled"), exit_codes=(1, 137)),
        ),
        # a container may end without a reason
        ({"containerStatuses": [container(ended(3))]}, PodStatus(exit_codes=(3,))),
        (
            {"initContainerStatuses": [container(ended(0, "Completed"))]},
            PodStatus(init_containers=("Completed",), init_exit_codes=(0,)),
        ),
        (
            {"initContainerStatuses": [container(waits("ErrImagePull"))], "containerStatuses": [container(waits("W"))]},
            PodStatus(containers=("W",), init_containers=("ErrImagePull",)),
        ),
    ],
)
def test_a_status_says_why_containers_wait_or_have_ended(way: Any, status: Json, expected: PodStatus) -> None:
    pods, statuses = way([pod("quiet"), pod("shown", **status)])
    assert statuses[0] == EMPTY
    at = dict(zip(pods.names, pods.status.tolist(), strict=True))
    assert at["quiet"] == 0
    assert statuses[at["shown"]] == expected
    assert (at["shown"] == 0) is (expected == EMPTY)


@pytest.mark.parametrize("way", [by_pages, by_events])
def test_restarts_are_added_up_over_containers_and_apart_for_init_containers(way: Any) -> None:
    pods, _ = way(
        [
            pod("none"),
            pod(
                "some",
                containerStatuses=[container(restarts=3), container(waits("CrashLoopBackOff"), restarts=97)],
                initContainerStatuses=[container(ended(0), restarts=1), container(restarts=4)],
            ),
        ]
    )
    assert pods.names == ["none", "some"]
    assert pods.restarts.tolist() == [0, 100]
    assert pods.init_restarts.tolist() == [0, 5]
    assert {each.dtype for each in (pods.restarts, pods.init_restarts, pods.status)} == {np.dtype(np.int32)}


@pytest.mark.parametrize("way", [by_pages, by_events])
def test_equal_statuses_are_kept_once(way: Any) -> None:
    loops = {"containerStatuses": [container(waits("CrashLoopBackOff"), restarts=1)]}
    pods, statuses = way([pod(f"p{number}", **loops) for number in range(5)])
    assert statuses == (EMPTY, PodStatus(containers=("CrashLoopBackOff",)))
    assert pods.status.tolist() == [1] * 5


def test_an_event_changes_the_status() -> None:
    rows = PodRows()
    for count, state in ((0, RUNS), (1, waits("CrashLoopBackOff")), (2, RUNS)):
        status = {"containerStatuses": [container(state, restarts=count)]}
        rows.apply([(False, msgspec.convert(pod(**status), Pod))])
        taken = rows.taken()
        columns = taken.columns(nodes={}, namespaces={"shop": 0}, owners={})
        assert columns.restarts.tolist() == [count]
        assert bool(taken.statuses[columns.status[0]].containers) is (state is not RUNS)


def test_statuses_that_no_pod_has_any_more_are_dropped_and_the_empty_one_stays_the_first() -> None:
    rows = PodRows()
    rows.add([msgspec.convert(pod("stays", reason="Stays"), Pod)])
    for number in range(FIRST_TIDYING + 1):
        rows.apply([(False, msgspec.convert(pod("changes", reason=f"R{number}"), Pod))])
    taken = rows.taken()
    assert len(taken.statuses) < FIRST_TIDYING
    assert taken.statuses[0] == EMPTY
    columns = taken.columns(nodes={}, namespaces={"shop": 0}, owners={})
    reasons = {name: taken.statuses[status].reason for name, status in zip(columns.names, columns.status, strict=True)}
    assert reasons == {"stays": "Stays", "changes": f"R{FIRST_TIDYING}"}


def test_a_snapshot_knows_what_its_pods_say() -> None:
    snapshot = read(Cluster(pods=[pod("a"), pod("b", reason="NodeLost", phase="Unknown")]))
    assert [snapshot.statuses[index].reason for index in snapshot.pods.status] == ["", "NodeLost"]


def annotated(name: str, annotations: dict[str, str] | None) -> Json:
    node = a_node(name)
    node["metadata"]["annotations"] = annotations
    return node


def test_short_annotations_of_nodes_are_kept_and_documents_are_not() -> None:
    longest = "x" * LONGEST_ANNOTATION
    described = [
        annotated("a", {"maintenance": "kernel", "longest": longest, "document": longest + "x"}),
        annotated("b", None),
        annotated("c", {"document": longest + "x"}),
    ]
    kept = [{"maintenance": "kernel", "longest": longest}, {}, {}]
    assert [dict(each) for each in read(Cluster(nodes=described)).nodes.annotations] == kept
    records = NodeRecords()
    records.add(msgspec.convert(described, list[Node]))
    assert [dict(each) for each in records.columns().annotations] == kept
