"""Real kubectl against the lab: every one that is found, the one on PATH and the one beside the API server."""

import copy
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rebalancer.lab import Lab, PdbSpec, workload
from tests.lab.conftest import three_nodes

Start = Callable[..., Lab]


def _found() -> list[str]:
    beside = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/usr/local/kubebuilder/bin") / "kubectl"
    return list(dict.fromkeys(filter(None, (shutil.which("kubectl"), shutil.which(str(beside))))))


KUBECTL = _found()
pytestmark = [pytest.mark.real, pytest.mark.skipif(not KUBECTL, reason="no kubectl on PATH or in KUBEBUILDER_ASSETS")]


class Kubectl:
    """One binary with the lab's kubeconfig, and nothing of the machine's own configuration."""

    def __init__(self, binary: str, lab: Lab, folder: Path) -> None:
        self.command = [binary, f"--kubeconfig={lab.write_kubeconfig(folder / 'config')}"]
        self.environment = {**os.environ, "HOME": str(folder)}

    def with_binary(self, binary: str) -> "Kubectl":
        """Another program with the same kubeconfig."""
        other = copy.copy(self)
        other.command = [binary, *self.command[1:]]
        return other

    def __call__(self, *arguments: str, timeout: float = 30) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self.command, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


@pytest.fixture(params=KUBECTL, ids=["kubectl", "other-kubectl"][: len(KUBECTL)])
def lab_and_kubectl(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> tuple[Lab, Kubectl]:
    lab = start(
        three_nodes(
            workload("web", namespace="shop", place={"a": 2}, cpu_request="500m", cpu=1.5),
            workload("api", namespace="pay", place={"a": 2}, cpu_request="500m", pdb=PdbSpec(max_unavailable=0)),
            workload("agent", namespace="kube-system", kind="DaemonSet", cpu_request="100m"),
        ),
        speed=10.0,
    )
    return lab, Kubectl(request.param, lab, tmp_path)


def test_nodes_pods_and_budgets_are_listed(lab_and_kubectl: tuple[Lab, Kubectl]) -> None:
    lab, kubectl = lab_and_kubectl
    nodes = kubectl("get", "nodes").stdout.splitlines()
    assert nodes[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [line.split()[:2] for line in nodes[1:]] == [["a", "Ready"], ["b", "Ready"], ["c", "Ready"]]
    pods = kubectl("get", "pods", "-A", "-o", "wide").stdout.splitlines()
    assert pods[0].split()[:8] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert len(pods) == 1 + 7
    assert {line.split()[7] for line in pods[1:] if line.startswith("shop")} == {"a"}
    budgets = kubectl("get", "pdb", "-A").stdout.splitlines()
    assert budgets[1].split()[:5] == ["pay", "api", "N/A", "0", "0"]
    assert len(kubectl("get", "pods", "-A", "-o", "name").stdout.splitlines()) == 7
    assert "8" in kubectl("get", "node", "a", "-o", "jsonpath={.status.capacity.cpu}").stdout
    assert "Taints:" in kubectl("describe", "node", "a").stdout
    assert len(kubectl("top", "nodes").stdout.splitlines()) == 4
    assert kubectl("get", "deployments,rs,ds,leases,events,ns,pc", "-A").returncode == 0
    assert lab.log.requests() == ()


def test_drain_cordons_evicts_and_is_refused_by_a_budget(lab_and_kubectl: tuple[Lab, Kubectl]) -> None:
    lab, kubectl = lab_and_kubectl
    drained = kubectl("drain", "a", "--ignore-daemonsets", "--timeout=4s")
    output = drained.stdout + drained.stderr
    assert drained.returncode != 0
    assert "Cannot evict pod as it would violate the pod's disruption budget" in output
    assert output.count("evicting pod shop/web") == 2
    assert len(lab.log.evictions(code=201)) == 2
    assert len(lab.log.evictions(code=429)) >= 2
    assert "kubectl" in lab.log.evictions()[0].user_agent
    lab.cluster.wait_until(lambda: len(lab.log.entries("ready")) == 2)
    assert {pod["spec"]["nodeName"] for pod in lab.cluster.pods(workload="web")} <= {"b", "c"}
    assert "SchedulingDisabled" in kubectl("get", "node", "a").stdout
    assert kubectl("uncordon", "a").returncode == 0
    assert "SchedulingDisabled" not in kubectl("get", "node", "a").stdout


def test_a_watch_prints_an_eviction_as_it_happens(lab_and_kubectl: tuple[Lab, Kubectl], tmp_path: Path) -> None:
    lab, kubectl = lab_and_kubectl
    victim = lab.cluster.pods(workload="web")[0]["metadata"]["name"]
    output = tmp_path / "watched"
    with output.open("w") as file:
        watching = subprocess.Popen(
            [*kubectl.command, "get", "pods", "-n", "shop", "-w"], env=kubectl.environment, stdout=file
        )
    try:
        lab.cluster.wait_until(lambda: victim in output.read_text(), what="the first list")
        time.sleep(0.3)  # the watch follows the list
        assert kubectl("delete", "pod", "-n", "shop", victim, "--wait=false").returncode == 0
        lab.cluster.wait_until(lambda: "ContainerCreating" in output.read_text(), what="the replacement's start")
        lab.cluster.wait_until(lambda: output.read_text().count("1/1") >= 4, what="the replacement's readiness")
    finally:
        watching.terminate()
        watching.wait(timeout=10)
    lines = output.read_text().splitlines()
    assert any(line.startswith(victim) and "Terminating" in line for line in lines)
    assert sum(line.startswith("NAME") for line in lines) == 1


def test_taint_label_scale_and_delete_work(lab_and_kubectl: tuple[Lab, Kubectl]) -> None:
    lab, kubectl = lab_and_kubectl
    assert kubectl("taint", "node", "b", "hot=yes:PreferNoSchedule").returncode == 0
    assert lab.cluster.nodes()[1]["spec"]["taints"][0]["key"] == "hot"
    assert kubectl("taint", "node", "b", "hot-").returncode == 0
    assert not lab.cluster.nodes()[1]["spec"].get("taints")
    assert kubectl("label", "node", "b", "color=red").returncode == 0
    assert kubectl("scale", "-n", "shop", "deployment/web", "--replicas=3").returncode == 0
    lab.cluster.wait_until(lambda: len(lab.cluster.pods(workload="web")) == 3)
    assert kubectl("delete", "deployment", "-n", "shop", "web").returncode == 0
    lab.cluster.wait_until(lambda: not lab.cluster.pods(workload="web"))
