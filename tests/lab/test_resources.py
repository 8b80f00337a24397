"""Memory and named resources of the lab, as its Prometheus and its metrics-server have them."""

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from rebalancer.bootstrap.wiring.adapters import usage_of
from rebalancer.cycle.context import NullProgress
from rebalancer.kube.client.client import connect
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.lab import Lab, node, workload
from rebalancer.lab.loads.amounts import memory
from rebalancer.lab.loads.cpu import CpuModel, MemoryModel
from rebalancer.lab.scenarios.scenario import scenario
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.policy import RebalancerPolicy
from tests.programs.cli import policy_for

GIB, MIB = 2.0**30, 2.0**20
START = 1_790_000_000.0
DISK = {
    "name": "disk-busy",
    "node": 'lab_node_usage{resource="disk-busy"}',
    "pod": 'lab_pod_usage{resource="disk-busy"}',
}


def usage_in(lab: Lab, tmp_path: Any, usage: dict[str, Any]) -> Usage:
    policy = RebalancerPolicy.model_validate(
        policy_for(lab.prometheus_url, usage={**usage, "stabilizationWindow": {"samples": 1, "duration": "0s"}})
    )
    with ExitStack() as stack:
        client = connect(str(lab.write_kubeconfig(tmp_path / "config")), None, "test")
        stack.callback(client.close)
        snapshot = KubeCluster(client=client, clock=lab.clock, progress=NullProgress()).snapshot()
        return usage_of(policy, client, lab.clock, NullProgress(), stack).read(snapshot)


@pytest.mark.parametrize("source", ["Prometheus", "MetricsServer"])
def test_the_lab_has_memory_of_nodes_and_pods(tmp_path: Any, source: str) -> None:
    cluster = scenario(
        nodes=[node("a", memory="16Gi"), node("b", memory="16Gi")],
        workloads=[workload("web", place={"a": 2}, memory="3Gi", resources={"disk-busy": 0.3})],
    )
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        usage: dict[str, Any] = {"source": "MetricsServer"}
        if source == "Prometheus":
            usage = {"prometheus": {**policy_for(lab.prometheus_url)["usage"]["prometheus"], "resources": [DISK]}}
        found = usage_in(lab, tmp_path, usage)
    of_memory = found.resources[MEMORY]
    assert of_memory.node.tolist() == [6 * GIB, 0.0]
    assert of_memory.capacity.tolist() == [16 * GIB, 16 * GIB]
    assert of_memory.pod.tolist() == [3 * GIB, 3 * GIB]
    assert found.notes == ()
    if source == "Prometheus":
        disk = found.resources["disk-busy"]
        assert disk.node.tolist() == pytest.approx([0.6, 0.0])
        assert disk.pod.tolist() == pytest.approx([0.3, 0.3])


def test_a_new_pod_grows_until_it_is_warm(tmp_path: Any) -> None:
    warm = MemoryModel(base_bytes=4 * GIB, warm_seconds=600.0)
    cluster = scenario(nodes=[node("a")], workloads=[workload("web", place={"a": 1}, memory=warm)])
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        with lab.cluster.lock:
            old = lab.cluster.store.all("pods")[0]
            lab.cluster.store.remove("pods", old["metadata"]["namespace"], old["metadata"]["name"])
        lab.clock.sleep(120)
        young = usage_in(lab, tmp_path, {"source": "MetricsServer"}).resources[MEMORY].pod
        lab.clock.sleep(900)
        grown = usage_in(lab, tmp_path, {"source": "MetricsServer"}).resources[MEMORY].pod
    assert 0 < young[-1] < 1 * GIB
    assert grown[-1] == 4 * GIB


def test_leak_in_the_lab_is_killed_at_its_limit_and_begins_again() -> None:
    """200 MiB and 100 MiB an hour; at 700 MiB its containers are OOM-killed."""
    model = MemoryModel(base_bytes=200 * MIB, growth_bytes_per_hour=100 * MIB)
    cluster = scenario(
        nodes=[node("a", memory="16Gi")],
        workloads=[workload("leaky", place={"a": 1}, memory=model, memory_limit="700Mi", age_seconds=3600.0)],
    )

    def used(lab: Lab) -> float:
        return float(memory(lab.usage.history.columns(), np.array([lab.clock.now()])).pods[0, 0]) / MIB

    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        assert used(lab) == pytest.approx(300)
        lab.clock.sleep(3.99 * 3600)
        assert used(lab) == pytest.approx(699)
        assert lab.log.entries("broken") == ()
        lab.clock.sleep(3 * 3600)
        (killed,) = lab.log.entries("broken")
        assert (killed.at - START, killed.detail) == (4 * 3600, "OOMKilled")
        (pod,) = lab.cluster.pods(workload="leaky")
        (status,) = pod["status"]["containerStatuses"]
        assert (status["restartCount"], status["lastState"]["terminated"]["exitCode"]) == (1, 137)
        assert used(lab) == pytest.approx(200 + 299, abs=1)
        # what was used before the restart is remembered
        before = memory(lab.usage.history.columns(), np.array([START + 3.5 * 3600]))
        assert before.pods[0, 0] / MIB == pytest.approx(650)


def test_memory_without_a_model_differs_by_pod_fills_after_the_start_and_follows_the_cpu() -> None:
    busy = CpuModel(base=0.5, amplitude=0.8, peak_hour=14.0)
    cluster = scenario(
        nodes=[node("a")],
        workloads=[
            workload("web", place={"a": 3}, replicas=4, cpu=busy),
            workload("small", place={"a": 1}, cpu=busy, memory_limit="64Mi"),
        ],
    )
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        lab.clock.sleep(60.0)
        columns = lab.usage.history.columns()
        names = [stay.pod for stay in columns.stays]
        new = [bool(np.isfinite(stay.start)) for stay in columns.stays].index(True)
        began = columns.stays[new].start
        midnight = lab.origin + np.ceil((began - lab.origin) / 86_400) * 86_400
        at_start, night, noon = (
            memory(columns, np.array([at])).pods[:, 0] / MIB
            for at in (began, midnight + 2 * 3600, midnight + 14 * 3600)
        )
    small = next(row for row, name in enumerate(names) if name.startswith("small"))
    assert at_start[new] < 0.9 * night[new]
    assert (night < noon).all()
    assert noon[small] < 64
    web = np.delete(noon, small)
    assert len(np.unique(web.round())) > 1
    assert ((web > 150) & (web < 250)).all()
