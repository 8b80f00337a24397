"""`rebalancer cleanup`: taints and cordons of ours leave the nodes, but for those in maintenance."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.actions.taints import KubeNodeTaints
from rebalancer.kube.snapshot.times import rfc3339_micro
from rebalancer.lab import Lab
from rebalancer.model.cluster.steering import DRAINING, HOT, MAINTENANCE, SOFT_TAINT
from tests.kube.fakes.api import Asked, FakeApi, Reply, client_of_lab, status
from tests.programs.in_process import run_here

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/rebalancer"


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab.start("demo", stepped=True) as started:
        yield started


def taints_of(lab: Lab) -> dict[str, tuple[str, bool]]:
    """Node -> value of our taint, whether it is cordoned."""
    return {
        each["metadata"]["name"]: (taint["value"], bool(each["spec"].get("unschedulable")))
        for each in lab.cluster.nodes()
        for taint in each["spec"].get("taints", ())
        if taint["key"] == SOFT_TAINT
    }


def test_taints_and_cordons_are_removed_but_for_maintenance(lab: Lab, tmp_path: Path) -> None:
    config = str(lab.write_kubeconfig(tmp_path / "config"))
    assert "No node has a taint or cordon of rebalancer." in run_here(["cleanup", "--kubeconfig", config]).out
    with client_of_lab(lab, tmp_path) as client:
        taints = KubeNodeTaints(client=client, clock=lab.clock)
        for node, value in (("gen-1", HOT), ("gen-2", DRAINING), ("gen-3", MAINTENANCE)):
            assert taints.put(node, value=value)
    done = run_here(["cleanup", "--kubeconfig", config, "-o", "json"])
    assert (done.code, done.document["nodes"]) == (
        0,
        [
            {"node": "gen-1", "value": HOT, "outcome": "removed"},
            {"node": "gen-2", "value": DRAINING, "outcome": "removed"},
            {"node": "gen-3", "value": MAINTENANCE, "outcome": "kept"},
        ],
    )
    assert taints_of(lab) == {"gen-3": (MAINTENANCE, True)}


class Installed:
    """An API server with one tainted node, and a daemon that releases its Lease some looks after it was scaled to 0."""

    def __init__(self, *, looks: int, patched: int = 200) -> None:
        self.replicas, self.looks, self.patched = 1, looks, patched
        self.taints: list[dict[str, Any]] = [{"key": SOFT_TAINT, "value": HOT, "effect": "PreferNoSchedule"}]

    def __call__(self, asked: Asked) -> Reply:
        node = {"metadata": {"name": "n1", "resourceVersion": "7"}, "spec": {"taints": self.taints}}
        match asked.method, asked.path:
            case "PATCH", "/apis/apps/v1/namespaces/kube-system/deployments/rebalancer/scale":
                self.replicas = asked.body["spec"]["replicas"]
                return Reply(body={"kind": "Scale"})
            case "GET", path if path == LEASE:
                self.looks -= self.replicas == 0
                spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": rfc3339_micro(time.time())}
                return Reply(body={"metadata": {"name": "rebalancer"}, "spec": spec if self.looks >= 0 else {}})
            case "GET", "/api/v1/nodes":
                return Reply(body={"kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": [node]})
            case "GET", "/api/v1/nodes/n1":
                return Reply(body=node)
            case "PATCH", "/api/v1/nodes/n1":
                if self.patched == 200:
                    self.taints = asked.body["spec"]["taints"]
                return Reply(body=node) if self.patched == 200 else status(self.patched, "denied")
            case _:
                return status(404, "not found")


def kubeconfig_of(api: FakeApi, folder: Path) -> str:
    path = folder / "config"
    cluster = {"name": "c", "cluster": {"server": api.url}}
    context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
    users = [{"name": "c", "user": {}}]
    path.write_text(
        json.dumps(
            {"kind": "Config", "clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"}
        )
    )
    return str(path)


def test_the_daemon_is_scaled_to_0_and_awaited(tmp_path: Path) -> None:
    installed = Installed(looks=2)
    with FakeApi(installed) as api:
        config = kubeconfig_of(api, tmp_path)
        done = run_here(["cleanup", "--deployment", "rebalancer", "--kubeconfig", config])
    assert (done.code, installed.replicas, installed.taints) == (0, 0, [])
    assert "n1" in done.out


def test_while_a_daemon_holds_the_lease_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rebalancer.cli.commands.cleanup.WAIT_SECONDS", 1.0)
    installed = Installed(looks=0)
    with FakeApi(installed) as api:
        done = run_here(["cleanup", "--kubeconfig", kubeconfig_of(api, tmp_path)])
    assert (done.code, len(installed.taints)) == (3, 1)
    assert "the lease kube-system/rebalancer is held by pod-1, renewed 0 s ago" in done.err
    assert "--deployment" in done.err


def test_an_unknown_deployment_is_one_line(tmp_path: Path) -> None:
    installed = Installed(looks=0)
    with FakeApi(installed) as api:
        done = run_here(["cleanup", "--deployment", "other", "--kubeconfig", kubeconfig_of(api, tmp_path)])
    assert done.code == 4
    assert "has no Deployment other in namespace kube-system" in done.err
    assert "Traceback" not in done.err


def test_a_node_that_cannot_be_changed_is_shown_and_has_an_exit_code(tmp_path: Path) -> None:
    installed = Installed(looks=-1, patched=403)
    with FakeApi(installed) as api:
        done = run_here(["cleanup", "--kubeconfig", kubeconfig_of(api, tmp_path), "-o", "json"])
    assert done.code == 5
    assert [each["outcome"] for each in done.document["nodes"]] == ["failed"]
