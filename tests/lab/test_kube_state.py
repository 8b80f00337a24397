"""kube-state-metrics of the lab: pods, nodes, budgets and owners over time."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from rebalancer.lab import Lab, PdbSpec, workload
from tests.lab.conftest import Client, three_nodes

Start = Callable[..., Lab]
MONDAY = 1_788_480_000.0


def web(**fields: Any) -> Any:
    return workload("web", namespace="shop", place={"a": 3}, cpu_request="250m", memory_request="64Mi", **fields)


def query(lab: Lab, text: str, at: float | None = None) -> list[dict[str, Any]]:
    when = "" if at is None else f"&time={at}"
    answer = Client(lab.prometheus_url)(f"/api/v1/query?query={quote(text)}{when}")
    assert answer.code == 200, answer.body
    result: list[dict[str, Any]] = answer.body["data"]["result"]
    return result


def one(lab: Lab, text: str, at: float | None = None) -> float:
    (row,) = query(lab, text, at)
    return float(row["value"][1])


def evicted(start: Start) -> tuple[Lab, dict[str, Any], float]:
    """A lab in which a pod was evicted at the returned time, an hour ago."""
    lab = start(three_nodes(web(pdb=PdbSpec(min_available=1))), stepped=True, start_time=MONDAY)
    lab.clock.sleep(600.0)
    pod = lab.cluster.pods(workload="web")[0]
    at = lab.clock.now()
    assert Client(lab.url).evict(pod).code == 201
    lab.clock.sleep(3600.0)
    return lab, pod["metadata"], at


def test_a_pod_that_is_evicted_ends_and_its_replacement_is_bound_and_ready(start: Start) -> None:
    lab, gone, at = evicted(start)
    selector = f'{{uid="{gone["uid"]}"}}'
    assert query(lab, f"kube_pod_info{selector}") == []
    (before,) = query(lab, f"kube_pod_info{selector}", at)
    labels = before["metric"]
    assert (labels["node"], labels["created_by_kind"], labels["pod"]) == ("a", "ReplicaSet", gone["name"])
    (new,) = {row["metric"]["uid"] for row in query(lab, "kube_pod_info")} - {
        row["metric"]["uid"] for row in query(lab, "kube_pod_info", at - 1.0)
    }
    of_new = f'{{uid="{new}"}}'
    assert one(lab, f"kube_pod_created{of_new}") == pytest.approx(at, abs=1.0)
    bound = one(lab, f"kube_pod_status_scheduled_time{of_new}")
    ready = one(lab, f"kube_pod_status_ready_time{of_new}")
    assert at <= bound < ready < at + 60.0
    assert query(lab, f"kube_pod_status_ready_time{of_new}", ready - 1.0) == []


def test_requests_and_owners_are_those_of_the_objects(start: Start) -> None:
    lab, _, _ = evicted(start)
    requests = query(lab, 'kube_pod_container_resource_requests{container="web"}')
    assert {row["metric"]["resource"]: float(row["value"][1]) for row in requests} == {"cpu": 0.25, "memory": 2.0**26}
    (owner,) = query(lab, "kube_replicaset_owner")
    assert (owner["metric"]["owner_kind"], owner["metric"]["owner_name"]) == ("Deployment", "web")


def test_the_phase_of_a_pod_is_one_at_a_time(start: Start) -> None:
    lab, gone, at = evicted(start)
    for when in (at - 300.0, at + 1.0, None):
        rows = query(lab, f'kube_pod_status_phase{{uid!="{gone["uid"]}"}}', when)
        by_pod: dict[str, float] = {}
        for row in rows:
            by_pod[row["metric"]["pod"]] = by_pod.get(row["metric"]["pod"], 0.0) + float(row["value"][1])
        assert set(by_pod.values()) == {1.0}


def test_a_budget_and_its_room_are_shown_as_they_were(start: Start) -> None:
    lab, _, at = evicted(start)
    assert one(lab, "kube_poddisruptionbudget_status_desired_healthy") == 1.0
    assert one(lab, "kube_poddisruptionbudget_status_current_healthy") == 3.0
    assert one(lab, "kube_poddisruptionbudget_status_current_healthy", at + 1.0) == 2.0


def test_a_cordoned_node_was_schedulable_before(start: Start) -> None:
    lab = start(three_nodes(web()), stepped=True, start_time=MONDAY)
    lab.clock.sleep(600.0)
    lab.cluster.store.change(
        "nodes", lab.cluster.store.get("nodes", "", "b"), lambda new: new["spec"].update(unschedulable=True)
    )
    lab.clock.sleep(600.0)
    cordoned = 'kube_node_spec_unschedulable{node="b"}'
    assert (one(lab, cordoned, MONDAY + 300.0), one(lab, cordoned)) == (0.0, 1.0)
    assert one(lab, 'kube_node_status_condition{node="b",condition="Ready",status="true"}') == 1.0
    assert one(lab, 'kube_node_status_capacity{node="b",resource="cpu"}') == 8.0


def test_the_page_for_scraping_has_the_same(start: Start) -> None:
    lab, _, _ = evicted(start)
    text = Client(lab.url)("/metrics").body
    for metric in lab.kube_state.spans:
        shown = re.findall(rf"^{metric}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
        got = {frozenset(re.findall(r'(\w+)="([^"]*)"', labels)): float(value) for labels, value in shown}
        wanted = {
            frozenset((name, value) for name, value in row["metric"].items() if name != "__name__"): float(
                row["value"][1]
            )
            for row in query(lab, metric)
        }
        assert got == wanted, metric
        assert len(shown) == len(got)
