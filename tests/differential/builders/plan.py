"""A recorded case through the product: its import, its objects through the reader of the API, and one cycle's plan."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rebalancer.cycle.context import CycleContext, NullProgress, NullRecords
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.kube.snapshot.snapshot import KubeCluster
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import ConfigError
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.quantity import cpu_millicores
from tests.differential.builders.cluster import cluster_of
from tests.differential.builders.policy import imported
from tests.kube.fakes.api import FakeClock, serving

Json = dict[str, Any]

ROWS = 11
ROW_SECONDS = 60.0
BY_POD = (
    *("PodLifeTime", "RemoveFailedPods", "RemovePodsHavingTooManyRestarts"),
    *("RemovePodsViolatingInterPodAntiAffinity", "RemovePodsViolatingNodeTaints"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the product makes of a case."""

    evicted: Sequence[str]
    """`namespace/name`, in the order of the plan."""
    reasons: Mapping[str, str]
    """`namespace/name` of each other candidate -> code of the reason; empty for a node."""
    refused: str = ""
    """Why the import refuses the policy; empty where it doesn't."""
    differences: Sequence[str] = ()
    """Lines of the import: the paths in both policies, and why."""


class RecordedUsage:
    """`model.decisions.ports.UsageReader` of a case: its metrics; without any, pods use what they request."""

    def __init__(self, case: Json) -> None:
        self._case = case

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        node, pod = self._cpu(snapshot)
        times = snapshot.taken - ROW_SECONDS * np.arange(ROWS - 1, -1, -1)
        return Usage(
            source="recorded",
            at=snapshot.taken,
            window_seconds=60.0,
            node_cpu_millicores=node,
            pod_cpu_millicores=pod,
            sample_times=np.repeat(times[:, None], len(node), axis=1),
            samples=np.repeat(node[None, :], ROWS, axis=0),
            problems={},
        )

    def _cpu(self, snapshot: ClusterSnapshot) -> tuple[Any, Any]:
        """(nodes,) and (pods,) millicores."""
        pods, nodes = snapshot.pods, snapshot.nodes
        requested = snapshot.per_node(pods.cpu_request_millicores)
        if metrics := self._case.get("metrics"):
            of_pod = {
                (each["metadata"]["namespace"], each["metadata"]["name"]): sum(
                    cpu_millicores(container["usage"]["cpu"]) for container in each["containers"]
                )
                for each in metrics["pods"]
            }
            keys = [(snapshot.namespaces[at], name) for at, name in zip(pods.namespace, pods.names, strict=True)]
            node = [cpu_millicores(metrics["nodes"].get(name, {"cpu": "0"})["cpu"]) for name in nodes.names]
            return np.array(node), np.array([of_pod.get(key, 0.0) for key in keys])
        if shares := self._case.get("prometheus"):
            percent = np.array(
                [float(shares.get(name, {"MetricResource": 0})["MetricResource"]) for name in nodes.names]
            )
            node = percent / 100 * nodes.cpu_capacity_millicores
            scale = np.append(node / np.where(requested > 0, requested, 1.0), 0.0)
            return node, pods.cpu_request_millicores * scale[pods.node]
        return requested, pods.cpu_request_millicores


class NoTaints:
    """`model.decisions.ports.NodeTaints` that may be set; a dry run sets none."""

    def granted(self) -> bool:
        return True

    def put(self, node: str, *, value: str) -> bool:
        raise NotImplementedError

    def take(self, node: str) -> bool:
        raise NotImplementedError


def _whatever_nodes_there_are(case: Json) -> bool:
    """Whether the original decides by the pod and its node alone. Here a replacement needs a node, which most of these
    cases lack."""
    by_pod = case.get("kind") == "Filter" or case.get("plugin") in BY_POD
    return by_pod and not (case["evictor"].get("nodeFit") and "plugin" in case)


def verdict_on(case: Json) -> Verdict:
    """Import, snapshot, plan."""
    try:
        policy, differences = imported(case)
    except ConfigError as error:
        return Verdict(evicted=(), reasons={}, refused=str(error))
    cluster = cluster_of(case, spare=_whatever_nodes_there_are(case))
    clock = FakeClock(case["now"])
    with serving(cluster) as (_, client):
        context = CycleContext(
            cluster=KubeCluster(client=client, clock=clock),
            usage=RecordedUsage(case),
            evictor=None,  # type: ignore[arg-type]
            records=NullRecords(),
            ledger=None,
            lease=None,
            clock=clock,
            progress=NullProgress(),
            soft_taint_controller=SoftTaintController(taints=NoTaints()),
            planning_seconds=math.inf,
        )
        report = run_cycle(context, policy, dry_run=True).report
    assert report.stopped is None, report.stopped
    return Verdict(
        evicted=[f"{each.namespace}/{each.pod}" for each in report.evictions],
        reasons={
            f"{each.namespace}/{each.name}" if each.name else each.node: str(each.code) for each in report.refusals
        },
        differences=[f"{each.field} {each.ours} {each.why}" for each in differences],
    )
