"""Nodes that are replaced, and zones that fail."""

from collections.abc import Callable
from typing import Any

from rebalancer.lab import Lab, PdbSpec, Scenario, node, scenario, workload
from rebalancer.lab.scenarios.scenario import parse

Start = Callable[..., Lab]


def a_cluster(**fields: Any) -> Scenario:
    """Three zones with a node each, and a fourth node in zone a."""
    nodes = [node(name, cpu=8, zone=name[0]) for name in ("a1", "a2", "b1", "c1")]
    web = workload("web", namespace="shop", place={"a1": 2, "b1": 1}, cpu_request="500m", **fields)
    agent = workload("agent", namespace="kube-system", kind="DaemonSet", tolerations=({"operator": "Exists"},))
    return scenario(nodes=nodes, workloads=[web, agent], start_seconds=6.0, stop_seconds=3.0)


def where(lab: Lab) -> list[str]:
    pods = [pod for pod in lab.cluster.pods(workload="web") if not pod["metadata"].get("deletionTimestamp")]
    return sorted(pod["spec"].get("nodeName", "") for pod in pods)


def names(lab: Lab) -> list[str]:
    return [each["metadata"]["name"] for each in lab.cluster.nodes()]


def test_a_drained_node_is_emptied_one_pod_at_a_time_where_the_budget_says_so_and_removed(start: Start) -> None:
    lab = start(a_cluster(pdb=PdbSpec(max_unavailable=1)), stepped=True)
    lab.cluster.drain_node("a1")
    lab.clock.sleep(1.0)
    assert where(lab).count("a1") == 1
    taints = {each["key"] for each in lab.cluster.store.get("nodes", "", "a1")["spec"]["taints"]}
    assert taints == {"node.kubernetes.io/unschedulable", "ToBeDeletedByClusterAutoscaler"}
    lab.clock.sleep(120.0)
    assert "a1" not in names(lab)
    assert len(where(lab)) == 3
    terminating = [entry.at for entry in lab.log.entries("terminating") if entry.name.startswith("web")]
    assert len(terminating) == 2
    assert terminating[1] - terminating[0] >= 30.0


def test_a_drain_that_a_budget_holds_up_ends_with_its_time(start: Start) -> None:
    lab = start(a_cluster(pdb=PdbSpec(max_unavailable=0)), stepped=True)
    lab.cluster.drain_node("a1", within_seconds=600.0)
    lab.clock.sleep(599.0)
    assert where(lab) == ["a1", "a1", "b1"]
    lab.clock.sleep(60.0)
    assert "a1" not in names(lab)
    assert "a1" not in where(lab)
    assert len(where(lab)) == 3


def test_pods_of_a_zone_that_fails_are_replaced_elsewhere_and_its_nodes_come_back(start: Start) -> None:
    lab = start(a_cluster(), stepped=True)
    lab.cluster.set_zone("a", up=False)
    lab.clock.sleep(60.0)
    assert len(where(lab)) == 3
    assert not {"a1", "a2"} & set(where(lab))
    node_of = lab.cluster.store.get("nodes", "", "a1")
    assert {each["type"]: each["status"] for each in node_of["status"]["conditions"]}["Ready"] == "Unknown"
    agents = {pod["spec"]["nodeName"] for pod in lab.cluster.pods(workload="agent")}
    assert agents == {"a1", "a2", "b1", "c1"}
    lab.cluster.set_zone("a", up=True)
    node_of = lab.cluster.store.get("nodes", "", "a1")
    assert {each["type"]: each["status"] for each in node_of["status"]["conditions"]}["Ready"] == "True"
    assert "taints" not in node_of["spec"]


WRITTEN = b"""
nodes: [{name: a1, zone: a}, {name: b1, zone: b}, {name: b2, zone: b}]
workloads: [{name: web, place: {a1: 2}, cpu: 0.1, cpu_request: 100m}]
steps:
  - {at_seconds: 10, do: roll-out, workload: web, image: "web:2"}
  - {at_seconds: 100, do: resize, workload: web, requests: {cpu: 300m}}
  - {at_seconds: 200, do: drain-node, node: b1}
  - {at_seconds: 300, do: fail-zone, zone: a}
  - {at_seconds: 400, do: restore-zone, zone: a}
"""


def test_a_scenario_names_these_changes_as_steps(start: Start) -> None:
    lab = start(parse(WRITTEN, "written"), stepped=True)
    lab.clock.sleep(90.0)
    assert {pod["spec"]["containers"][0]["image"] for pod in lab.cluster.pods()} == {"web:2"}
    lab.clock.sleep(20.0)
    pods = lab.cluster.pods()
    assert {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in pods} == {"300m"}
    lab.clock.sleep(180.0)
    assert names(lab) == ["a1", "b2"]
    lab.clock.sleep(100.0)
    assert set(where(lab)) == {"b2"}
    assert "taints" in lab.cluster.store.get("nodes", "", "a1")["spec"]
    lab.clock.sleep(100.0)
    assert "taints" not in lab.cluster.store.get("nodes", "", "a1")["spec"]
