"""Objects of one tenant that can't be read or are ambiguous, beside services whose hot node is relieved as ever."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.client.client import ApiClient, Resource
from rebalancer.kube.snapshot import lists
from rebalancer.model.reason import Reason
from tests.faults.programs.odd_objects import PATHS, kept
from tests.stories.scenarios.odd_objects import Json, a_pod, a_replicaset, call, controlled_by, odd_pod
from tests.stories.scenarios.stage import Stage, a_machine, a_scenario, a_stage, burner, service

Odd = Callable[[Stage], Callable[[], object]]
"""Makes the objects; what it returns ends them."""
THRESHOLDS = {"high": 75, "target": 65, "low": 50}


@contextmanager
def a_hot_node(folder: Path, *more: str, **sections: Any) -> Iterator[Stage]:
    nodes = [a_machine(name) for name in ("n1", "n2", "n3", *more)]
    workloads = [burner("load", "n1", 9.0), service("web", {"n1": 3}, cpu=1.5)]
    with a_stage(a_scenario(nodes, *workloads), folder, **sections) as stage:
        call(stage.lab, "POST", "/api/v1/namespaces", {"metadata": {"name": "tenant"}})
        yield stage


def relieved(stage: Stage) -> list[tuple[str, str]]:
    """(service, node) of the evictions of the next cycle."""
    return [(str(each.service), each.node) for each in stage.turn().evictions]


def absurd(amount: str, resource: str) -> Odd:
    def create(stage: Stage) -> Callable[[], object]:
        call(stage.lab, "POST", "/api/v1/namespaces/tenant/pods", odd_pod("odd", "n2", **{resource: amount}))
        return lambda: call(stage.lab, "DELETE", "/api/v1/namespaces/tenant/pods/odd")

    return create


def owned_in_a_circle(length: int) -> Odd:
    def create(stage: Stage) -> Callable[[], object]:
        path = "/apis/apps/v1/namespaces/tenant/replicasets"
        made = [call(stage.lab, "POST", path, a_replicaset(f"r{at}")) for at in range(length)]
        for at, each in enumerate(made):
            above = made[(at + 1) % length]
            call(stage.lab, "PATCH", f"{path}/{each['metadata']['name']}", {"metadata": controlled_by(above)})
        call(stage.lab, "POST", "/api/v1/namespaces/tenant/pods", a_pod("odd", "n2", **controlled_by(made[0])))
        return lambda: [
            call(stage.lab, "PATCH", f"{path}/r{at}", {"metadata": {"ownerReferences": None}}) for at in range(length)
        ]

    return create


OBJECTS: dict[str, tuple[Odd, str]] = {
    "cpu 1e400": (absurd("1e400", "cpu"), "Pod tenant/odd: request of cpu: 1e400 is out of range"),
    "cpu 10e399": (absurd("10e399", "cpu"), "Pod tenant/odd: request of cpu: 10e399 is out of range"),
    "cpu 1e308": (absurd("1e308", "cpu"), "Pod tenant/odd: request of cpu: 1e308 is out of range"),
    "memory 1e400": (absurd("1e400", "memory"), "Pod tenant/odd: request of memory: 1e400 is out of range"),
    "its own owner": (owned_in_a_circle(1), "ReplicaSet tenant/r0: ownerReferences: it is its own owner"),
    "owners of each other": (
        owned_in_a_circle(2),
        "ReplicaSet tenant/r0: ownerReferences: it is its own owner, by way of r1",
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_tenants_odd_object_stops_no_ones_relief_and_is_named(tmp_path: Path, name: str) -> None:
    create, text = OBJECTS[name]
    with a_hot_node(tmp_path / "clean") as stage:
        usual = relieved(stage)
    assert usual
    with a_hot_node(tmp_path / "odd") as stage:
        end = create(stage)
        assert relieved(stage) == usual
        report = stage.reports[-1]
        assert any(text in note for note in report.notes), report.notes
        # nothing moved to the node of the pod that can't be read
        if text.startswith("Pod"):
            assert "n2" not in {each.target_node for each in report.evictions}
        end()
        stage.lab.clock.sleep(60.0)
        stage.turn()
        assert not any("can't be read" in note for note in stage.reports[-1].notes)


def test_a_node_that_cannot_be_read_is_neither_hot_nor_a_target(tmp_path: Path) -> None:
    status = {"status": {"allocatable": {"cpu": "1e400"}}}
    with a_hot_node(tmp_path) as stage:
        call(stage.lab, "PATCH", "/api/v1/nodes/n3", status)
        assert relieved(stage) == [("shop/web", "n1")] * len(stage.reports[-1].evictions) != []
        report = stage.reports[-1]
        assert {each.target_node for each in report.evictions} == {"n2"}
        (refusal,) = [each for each in report.refusals if each.node == "n3"]
        assert refusal.code is Reason.NODE_UNREADABLE
        assert "allocatable of cpu: 1e400 is out of range" in refusal.message
        assert not any(line.hot for line in report.nodes if line.name == "n3")
    with a_hot_node(tmp_path / "hot") as stage:
        call(stage.lab, "PATCH", "/api/v1/nodes/n1", status)
        assert relieved(stage) == []


def test_a_node_that_two_pools_match_is_left_out_of_both(tmp_path: Path) -> None:
    pools = [
        {"name": "general", "selector": {"matchLabels": {"pool": "general"}}, "thresholds": THRESHOLDS},
        {"name": "gpu", "selector": {"matchLabels": {"gpu": "yes"}}, "thresholds": THRESHOLDS},
    ]
    with a_hot_node(tmp_path, pools=pools) as stage:
        for node in ("n1", "n2", "n3"):
            call(stage.lab, "PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": {"pool": "general"}}})
        call(stage.lab, "PATCH", "/api/v1/nodes/n3", {"metadata": {"labels": {"gpu": "yes"}}})
        assert relieved(stage)
        report = stage.reports[-1]
        (refusal,) = [each for each in report.refusals if each.node == "n3"]
        assert (refusal.code, refusal.message.endswith(": general and gpu")) == (Reason.NODE_IN_TWO_POOLS, True)
        assert any("ambiguous nodes" in note and "Node n3" in note for note in report.notes)
        assert {line.name: line.pool for line in report.nodes} == {"n1": "general", "n2": "general", "n3": ""}
        # over when the label is
        call(stage.lab, "PATCH", "/api/v1/nodes/n3", {"metadata": {"labels": {"gpu": None}}})
        assert {line.name: line.pool for line in stage.turn().nodes}["n3"] == "general"
        assert not any("ambiguous" in note for note in stage.reports[-1].notes)


def test_an_ambiguous_hot_node_is_not_relieved_by_either_pools_rules(tmp_path: Path) -> None:
    pools = [{"name": name, "selector": {}, "thresholds": THRESHOLDS} for name in ("one", "two")]
    with a_hot_node(tmp_path, pools=pools) as stage:
        assert relieved(stage) == []
        assert [each.code for each in stage.reports[-1].refusals] == [Reason.NODE_IN_TWO_POOLS] * 3


def test_all_odd_objects_that_an_api_server_accepted_start_and_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the odd pods are on the first three, which take no others then
    with a_hot_node(tmp_path / "clean", "n4", "n5") as stage:
        usual = relieved(stage)
    odd: dict[str, list[Json]] = defaultdict(list)
    for each in kept():
        ready = any(condition["type"] == "Ready" for condition in each.get("status", {}).get("conditions") or ())
        # a Ready node without usage is one of the outage that a cycle stops for
        if not (each["kind"] == "Node" and ready) and each["metadata"]["name"] not in ("n1", "n2", "n3", "shop"):
            each["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"  # no scale-up of now
            odd[PATHS[each["kind"]].rpartition("/")[2]].append(each)
    page_body = lists._page_body

    def with_odd(client: ApiClient, resource: Resource, namespace: str | None, accept: str, token: str) -> bytes:
        page = json.loads(page_body(client, resource, namespace, accept, token))
        if not token:
            asked = [each for each in odd[resource.plural] if namespace in (None, each["metadata"].get("namespace"))]
            page["items"] = [*asked, *page["items"]]
        return json.dumps(page).encode()

    monkeypatch.setattr(lists, "_page_body", with_odd)
    with a_hot_node(tmp_path / "odd", "n4", "n5") as stage:
        found = relieved(stage)
        assert Counter(found) <= Counter(usual)
        assert found
        kinds = {each.kind for each in stage.world.cluster.snapshot().obstacles}
        assert {"Pod", "ReplicaSet"} <= kinds
