"""What happens to a practice cluster later: cordons, taints, labels, machines that come and go."""

from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.lab import Lab, Scenario, ScenarioError, node, scenario, workload
from rebalancer.lab.scenarios.scenario import parse
from tests.lab.conftest import Client

Start = Callable[..., Lab]

HOST = "kubernetes.io/hostname"


def three(*workloads: Any, **fields: Any) -> Scenario:
    nodes = [node(name, cpu=8, memory="32Gi", zone=name, labels={"disk": "ssd"}) for name in "abc"]
    timing = {"start_seconds": 6.0, "stop_seconds": 3.0, "history_days": 0.01}
    return scenario(nodes=nodes, workloads=workloads, **timing, **fields)


def where(lab: Lab, name: str) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in lab.cluster.pods(workload=name))


def taints_of(lab: Lab, name: str) -> list[tuple[str, str]]:
    found = lab.cluster.store.get("nodes", "", name)["spec"].get("taints") or ()
    return [(each["key"], each["effect"]) for each in found]


WRITTEN = b"""
nodes: [{name: a}, {name: b}]
workloads: [{name: web, place: {a: 2}, cpu: 0.1}]
steps:
  - {at_seconds: 20, do: uncordon, node: b}
  - {at_seconds: 10, do: cordon, node: b}
  - {at_seconds: 30, do: taint, node: a, key: dedicated, value: gpu}
  - {at_seconds: 40, do: untaint, node: a, key: dedicated}
  - {at_seconds: 50, do: label-node, node: a, labels: {disk: ssd, kubernetes.io/arch: null}}
  - {at_seconds: 60, do: label-pods, workload: web, labels: {tier: front}}
  - {at_seconds: 70, do: add-node, node: {name: c, cpu: 4}}
  - {at_seconds: 80, do: end-containers, workload: web, node: a, how: {after_seconds: 0, restarts: false}}
  - {at_seconds: 90, do: add-workload, workload: {name: late, place: {c: 1}}}
  - {at_seconds: 100, do: remove-node, node: a}
"""


def test_steps_are_taken_each_at_its_time_whatever_their_order_in_the_file(start: Start) -> None:
    lab = start(parse(WRITTEN, "written"), stepped=True)
    unschedulable = ("node.kubernetes.io/unschedulable", "NoSchedule")
    assert taints_of(lab, "b") == []
    lab.clock.sleep(10)
    assert taints_of(lab, "b") == [unschedulable]
    assert lab.cluster.store.get("nodes", "", "b")["spec"]["unschedulable"] is True
    lab.clock.sleep(10)
    assert taints_of(lab, "b") == []
    lab.clock.sleep(10)
    assert taints_of(lab, "a") == [("dedicated", "NoSchedule")]
    assert where(lab, "web") == ["a", "a"]
    lab.clock.sleep(20)
    assert taints_of(lab, "a") == []
    labels = lab.cluster.store.get("nodes", "", "a")["metadata"]["labels"]
    assert (labels["disk"], "kubernetes.io/arch" in labels) == ("ssd", False)
    lab.clock.sleep(10)
    assert {pod["metadata"]["labels"]["tier"] for pod in lab.cluster.pods(workload="web")} == {"front"}
    lab.clock.sleep(20)
    assert [each["metadata"]["name"] for each in lab.cluster.nodes()] == ["a", "b", "c"]
    assert sorted(pod["status"]["phase"] for pod in lab.cluster.pods(workload="web", node="a"))[:2] == ["Failed"] * 2
    lab.clock.sleep(10)
    assert where(lab, "late") == ["c"]
    lab.clock.sleep(60)
    assert [each["metadata"]["name"] for each in lab.cluster.nodes()] == ["b", "c"]
    assert lab.cluster.pods(node="a") == []
    assert [pod["status"]["phase"] for pod in lab.cluster.pods(workload="web")] == ["Running"] * 2


def test_an_unknown_step_is_an_error_in_one_line() -> None:
    with pytest.raises(ScenarioError, match="explode") as raised:
        parse(b"steps: [{at_seconds: 1, do: explode, node: a}]", "bad")
    assert "\n" not in str(raised.value)


def test_a_taint_that_comes_later_leaves_running_pods_and_keeps_new_ones_away(start: Start) -> None:
    lab = start(three(workload("web", place={"a": 2}), workload("agent", kind="DaemonSet")), stepped=True)
    for name in ("a", "b"):
        lab.cluster.taint(name, "dedicated")
    lab.clock.sleep(30)
    assert (where(lab, "web"), where(lab, "agent")) == (["a", "a"], ["a", "b", "c"])
    lab.cluster.add_workload(workload("new", replicas=3))
    lab.clock.sleep(30)
    assert where(lab, "new") == ["c", "c", "c"]


def test_no_execute_drives_out_those_that_do_not_tolerate_it_whatever_their_budget_says(start: Start) -> None:
    tolerant = workload("tolerant", place={"a": 1}, tolerations=[{"key": "draining", "operator": "Exists"}])
    web = workload("web", place={"a": 2}, pdb={"max_unavailable": 0})
    lab = start(three(web, tolerant, workload("agent", kind="DaemonSet")), stepped=True)
    lab.cluster.taint("a", "draining", effect="NoExecute")
    lab.clock.sleep(30)
    assert "a" not in where(lab, "web")
    assert len(where(lab, "web")) == 2
    assert (where(lab, "tolerant"), where(lab, "agent")) == (["a"], ["b", "c"])


def test_a_label_that_goes_leaves_the_pods_that_needed_it(start: Start) -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    web = workload("web", place={"a": 2}, affinity={"nodeAffinity": required})
    lab = start(three(web), stepped=True)
    lab.cluster.label_node("a", {"disk": None})
    lab.clock.sleep(60)
    assert where(lab, "web") == ["a", "a"]
    for pod in lab.cluster.pods(workload="web"):
        assert Client(lab.url).evict(pod).code == 201
    lab.clock.sleep(60)
    assert len(where(lab, "web")) == 2
    assert "a" not in where(lab, "web")


def test_anti_affinity_that_comes_to_matter_later_leaves_the_pods_that_share_a_node(start: Start) -> None:
    term = {"labelSelector": {"matchLabels": {"noisy": "yes"}}, "topologyKey": HOST}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    lab = start(three(workload("web", place={"a": 1}, affinity=apart), workload("batch", place={"a": 1})), stepped=True)
    (batch,) = lab.cluster.pods(workload="batch")
    lab.cluster.label_pod("default", batch["metadata"]["name"], {"noisy": "yes"})
    lab.clock.sleep(60)
    assert (where(lab, "web"), where(lab, "batch")) == (["a"], ["a"])
    (web,) = lab.cluster.pods(workload="web")
    Client(lab.url).evict(web)
    lab.clock.sleep(60)
    assert where(lab, "web") in (["b"], ["c"])


def test_an_uncordoned_node_takes_pods_again(start: Start) -> None:
    lab = start(three(), stepped=True)
    for name in "abc":
        lab.cluster.cordon(name)
    lab.cluster.add_workload(workload("web", replicas=1))
    lab.clock.sleep(30)
    assert where(lab, "web") == [""]
    lab.cluster.cordon("b", on=False)
    lab.clock.sleep(30)
    assert where(lab, "web") == ["b"]


def test_one_patch_may_cordon_and_taint_a_node_and_one_may_undo_both(start: Start) -> None:
    lab = start(three(), stepped=True)
    steer = {"key": "rebalancer.dev/steer", "value": "draining", "effect": "PreferNoSchedule"}
    headers = {"Content-Type": "application/merge-patch+json"}
    client = Client(lab.url)
    body: Any = {"spec": {"unschedulable": True, "taints": [steer]}}
    assert client("/api/v1/nodes/a", method="PATCH", body=body, headers=headers).code == 200
    assert taints_of(lab, "a") == [
        ("rebalancer.dev/steer", "PreferNoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ]
    body = {"spec": {"unschedulable": None, "taints": None}}
    assert client("/api/v1/nodes/a", method="PATCH", body=body, headers=headers).code == 200
    assert taints_of(lab, "a") == []


def test_the_autoscaler_removes_a_node_that_stays_empty_and_spares_one_that_says_so(start: Start) -> None:
    nodes = [
        node("busy"),
        node("empty"),
        node("spared", annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}),
    ]
    workloads = [workload("web", place={"busy": 1}), workload("agent", kind="DaemonSet")]
    lab = start(
        scenario(nodes=nodes, workloads=workloads, history_days=0.01, remove_empty_after_seconds=600), stepped=True
    )
    lab.clock.sleep(599)
    assert len(lab.cluster.nodes()) == 3
    lab.clock.sleep(2)
    assert [each["metadata"]["name"] for each in lab.cluster.nodes()] == ["busy", "spared"]
    assert [each.node for each in lab.log.entries("removed")] == ["empty"]
    assert where(lab, "agent") == ["busy", "spared"]


def test_a_node_that_is_needed_again_in_time_stays(start: Start) -> None:
    lab = start(scenario(nodes=[node("a")], history_days=0.01, remove_empty_after_seconds=600), stepped=True)
    lab.clock.sleep(400)
    lab.cluster.add_workload(workload("web", place={"a": 1}))
    lab.clock.sleep(400)
    assert len(lab.cluster.nodes()) == 1
