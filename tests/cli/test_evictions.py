"""`rebalancer evictions`: who evicted what, by the Events of the cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.actions.events import KubeEvents
from rebalancer.lab import Lab
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.decisions.eviction import Outcome
from tests.builders import an_eviction
from tests.kube.fakes.api import client_of_lab
from tests.programs.cli import Result
from tests.programs.in_process import run_here

FROM_PODS: list[tuple[str, str, str, str, str]] = [
    ("Preempted", "default-scheduler", "Preempted by pod 7f3 on node gen-3", "kube-scheduler", "gen-3"),
    ("Evicted", "kubelet", "The node was low on resource: memory.", "kubelet", "host-1"),
    ("TaintManagerEviction", "taint-eviction-controller", "Marking for deletion Pod", "taint-eviction-controller", ""),
    ("ScaleDown", "cluster-autoscaler", "deleting pod for node scale down", "cluster-autoscaler", ""),
    ("Evicted", "karpenter", "Evicted pod: underutilized", "karpenter", ""),
    ("EvictedByVPA", "vpa-updater", "Pod was evicted by VPA Updater", "vpa-updater", ""),
    ("LowNodeUtilization", "sigs.k8s.io/descheduler", "evicted from gen-2 node", "descheduler", "gen-2"),
    ("Migrating", "koord-descheduler", "Pod is evicted", "koord-descheduler", ""),
]  # fmt: skip
"""Reason, component, message -> evictor and node."""
NOTHING = [
    ("TaintManagerEviction", "taint-eviction-controller", "Cancelling deletion of Pod shop/web-1"),
    ("LowNodeUtilization", "sigs.k8s.io/descheduler", "pod eviction from gen-2 node (dry run)"),
    ("Killing", "kubelet", "Stopping containers"),
    ("Evicted", "some-operator", "not one that is known"),
]


class Scene:
    """A lab whose Events the test writes."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.pod = next(each["metadata"] for each in lab.cluster.pods(workload="checkout"))

    def event(
        self, reason: str, component: str, message: str, *, kind: str = "Pod", pod: str = "", at: str = ""
    ) -> None:
        name = pod or self.pod["name"]
        uid = pod or self.pod["uid"]
        about = {"kind": kind, "namespace": "shop", "name": name, "uid": uid}
        event: dict[str, Any] = {
            "metadata": {"namespace": "shop", "generateName": "e-"},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "source": {"component": component, "host": "host-1"},
            "reportingComponent": component,
        }
        if at:
            event["firstTimestamp"] = at
        self.lab.cluster.store.create("events", event)

    def shown(self, *words: str) -> Result:
        done = run_here(["evictions", "--kubeconfig", str(self.lab.write_kubeconfig(self.folder / "config")), *words])
        assert done.code == 0, done.err
        return done

    def listed(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.shown("-o", "json", *words).document["evictions"]
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Lab.start("demo") as lab:
        yield Scene(lab, tmp_path)


def test_each_component_is_distinguished_by_its_event(scene: Scene) -> None:
    for reason, component, message, _, _ in FROM_PODS:
        scene.event(reason, component, message)
    for nothing in NOTHING:
        scene.event(*nothing)
    scene.event("ScaleDown", "cluster-autoscaler", "marked the node as toBeDeleted/unschedulable", kind="Node")
    listed = {each["evictor"]: each for each in scene.listed()}
    assert {name: each["node"] for name, each in listed.items()} == {name: node for *_, name, node in FROM_PODS}
    # a pod that is gone has the service of its ReplicaSet
    assert {each["service"] for each in listed.values()} == {"shop/checkout"}
    assert {each["pod"] for each in listed.values()} == {scene.pod["name"]}


def test_our_own_evictions_are_known_by_their_annotation(scene: Scene) -> None:
    eviction = an_eviction(pod="web-1", uid="u1", node="gen-2", outcome=Outcome.EVICTED)
    with client_of_lab(scene.lab, scene.folder) as client:
        events = KubeEvents(client=client, clock=scene.lab.clock, instance="here")
        owner = Owner(kind="Deployment", namespace="shop", name="web", uid="o1")
        events.about_service(owner, reason="Evicted", note="pod web-1 on gen-2", eviction=eviction)
        assert events.stats.written == 1
    (found,) = scene.listed()
    assert (found["evictor"], found["pod"], found["service"]) == ("rebalancer", "web-1", "shop/web")
    assert (found["node"], found["reason"]) == ("gen-2", "LowNodeUtilization")


def test_a_pod_counts_once_for_each_evictor_and_the_table_sums_up(scene: Scene) -> None:
    for _ in range(3):
        scene.event("Evicted", "kubelet", "The node was low on resource: memory.")
    scene.event("Evicted", "kubelet", "The node was low on resource: memory.", pod="another-0")
    assert len(scene.listed()) == 2
    table = scene.shown().out
    assert "shop/checkout" in table
    assert "shop/another-0" in table
    assert "kubectl drain, is not listed" in " ".join(table.split())
    assert "low on resource" in scene.shown("-o", "wide").out


def test_earlier_ones_and_other_namespaces_are_left_out(scene: Scene) -> None:
    scene.event("Evicted", "kubelet", "long ago", at="2020-01-01T00:00:00Z")
    assert scene.listed() == []
    assert "No eviction." in scene.shown().out
    scene.event("Evicted", "kubelet", "now", pod="web-0")
    assert len(scene.listed("-n", "shop")) == 1
    assert scene.listed("-n", "search") == []


def test_mistakes_are_one_line(scene: Scene) -> None:
    config = str(scene.lab.write_kubeconfig(scene.folder / "config"))
    assert run_here(["evictions", "--kubeconfig", config, "-n", "a", "-A"]).code == 4
    assert "--since: expected an age" in run_here(["evictions", "--kubeconfig", config, "--since", "soon"]).err
