"""How long each strategy takes to find over 5,000 nodes and 150,000 pods that break every rule somewhere.

Prints one JSON object a line; exit code 1 when an aim is missed. CPU seconds, the decoding of templates counted in.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from bench.plan.find_and_plan import synthetic_usage
from bench.plan.landing import PODS_PER_NODE, ZONE, a_cluster
from rebalancer.cycle.observe.past import requested_now
from rebalancer.model.cluster.objects import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodTemplate,
    PreferredTerm,
    Requirement,
    Taint,
)
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import FAILED, RUNNING, PodStatus
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.cluster.template_index import PodTemplateOutline
from rebalancer.model.decisions.past import Past, RequestedSample
from rebalancer.model.measured.peaks import ServiceDayProfiles
from rebalancer.model.measured.usage import Contention, Usage
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.projection.projection import Projection
from rebalancer.strategies import StrategyView, strategy_for
from rebalancer.strategies.interface.loads import base_loads, effective_cpu

NODES = 5_000
NOW = 1_000_000.0
AIM = 0.25
DAY = 86_400.0

ARGS: Mapping[str, Mapping[str, Any]] = {
    "LowNodeUtilization": {},
    "HighNodeUtilization": {},
    "RemoveDuplicates": {},
    "RemovePodsViolatingInterPodAntiAffinity": {},
    "RemovePodsViolatingNodeAffinity": {
        "nodeAffinityType": [
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        ]
    },
    "RemovePodsViolatingNodeTaints": {"includePreferNoSchedule": True},
    "RemovePodsViolatingTopologySpreadConstraint": {},
    "RemovePodsHavingTooManyRestarts": {},
    "PodLifeTime": {"maxPodLifeTime": "7d"},
    "RemoveFailedPods": {},
    "MakeRoom": {},
    "PoolPreference": {"order": ["better", "all"]},
    "NodeMaintenance": {"nodeSelector": {"matchLabels": {"reboot": "yes"}}},
    "Interference": {},
    "ServiceSpread": {},
}
MODES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{name: (name, args) for name, args in ARGS.items()},
    "RemovePodsViolatingTopologySpreadConstraint, soft ones too,": (
        "RemovePodsViolatingTopologySpreadConstraint",
        {"constraints": ["DoNotSchedule", "ScheduleAnyway"]},
    ),
    "HighNodeUtilization, mode Release": (
        "HighNodeUtilization",
        {"mode": "Release", "full": 40, "releaseTarget": 30, "idle": 50, "minAge": "1d"},
    ),
}
"""Figure -> (strategy, its arguments)."""


def broken_cluster(nodes: int, *, seed: int = 1) -> ClusterSnapshot:
    """`landing.a_cluster` with rules, of which one node in 50 is tainted, one in 100 is chosen for maintenance, one
    workload in ten asks for a zone that most of its pods aren't in, one in ten prefers one; one pod in 100 restarts all
    the time, one in 200 has failed; half are older than a week."""
    random = np.random.default_rng(seed)
    made = a_cluster(nodes, rules=True, seed=seed)
    count = len(made.pods)
    some = random.random(count)
    templates = [_asking(made.pod_templates[index], index) for index in range(len(made.pod_templates))]
    taints = tuple((Taint(key="gpu", effect="NoSchedule"),) if index % 50 == 0 else () for index in range(nodes))
    labels = tuple(
        {**each, "reboot": "yes"} if index % 100 == 0 else each for index, each in enumerate(made.nodes.labels)
    )
    return replace(
        made,
        nodes=replace(made.nodes, taints=taints, labels=labels),
        pods=replace(
            made.pods,
            created=NOW - random.uniform(0, 14 * DAY, count),
            started=NOW - random.uniform(DAY, 14 * DAY, count),
            phase=np.where(some < 0.005, FAILED, RUNNING).astype(np.int8),
            restarts=np.where(some > 0.99, 500, 0).astype(np.int32),
            status=np.where(some < 0.005, 1, 0).astype(np.int32),
        ),
        pod_templates=PodTemplateTable(
            [msgspec.json.encode(each) for each in templates], json_decoder(PodTemplate).decode, _outline
        ),
        statuses=(PodStatus(), PodStatus(reason="Evicted")),
    )


class _Head(msgspec.Struct, rename="camel"):
    """What an outline reads; the rest is skipped, as the adapter of the Kubernetes API does it."""

    labels: dict[str, str] = {}
    affinity: msgspec.Raw = msgspec.Raw()
    topology_spread: msgspec.Raw = msgspec.Raw()


_head = json_decoder(_Head).decode


def _outline(blob: bytes) -> PodTemplateOutline:
    head = _head(blob)
    return PodTemplateOutline(head.labels, bytes(head.affinity), bool(bytes(head.topology_spread)))


def _asking(template: PodTemplate, index: int) -> PodTemplate:
    if index % 10 not in (8, 9):
        return template
    term = NodeSelectorTerm(match_expressions=(Requirement(key=ZONE, operator="In", values=(f"z{index % 3}",)),))
    if index % 10 == 8:
        wish = NodeAffinity(required=NodeSelector(node_selector_terms=(term,)))
    else:
        wish = NodeAffinity(preferred=(PreferredTerm(weight=10, preference=term),))
    return msgspec.structs.replace(template, affinity=Affinity(node_affinity=wish))


def days_of(snapshot: ClusterSnapshot, *, seed: int = 2) -> ServiceDayProfiles:
    """A day for each workload, of 24 kinds that peak at different hours."""
    random = np.random.default_rng(seed)
    rows = len(snapshot.owners)
    hours = np.arange(288) / 288 * 2 * np.pi
    peak_at = random.integers(0, 24, rows) / 24 * 2 * np.pi
    usual = 1_500.0 * (1.0 + 0.8 * np.cos(hours[None, :] - peak_at[:, None])) + random.normal(0, 50, (rows, 288))
    return ServiceDayProfiles(
        row_of=np.arange(rows, dtype=np.int32), usual=usual, days=np.full(rows, 8, dtype=np.int32)
    )


def contended(usage: Usage, snapshot: ClusterSnapshot, *, seed: int = 3) -> Usage:
    """One node in 20 suffers, from a pod that takes a third of it."""
    random = np.random.default_rng(seed)
    nodes, pods = len(snapshot.nodes), len(snapshot.pods)
    suffers = random.random(nodes) < 0.05
    noisy = [int(snapshot.pods_on(node)[0]) for node in np.flatnonzero(suffers).tolist()]
    used = usage.pod_cpu_millicores.copy()
    used[noisy] = snapshot.nodes.cpu_capacity_millicores[snapshot.pods.node[noisy]] / 3
    contention = Contention(
        node_pressure=np.where(suffers, 0.5, 0.02),
        pod_pressure=random.uniform(0, 0.5, pods),
        pod_throttled=random.uniform(0, 0.5, pods),
    )
    return replace(usage, pod_cpu_millicores=used, contention=contention)


def policy_with(name: str, args: Mapping[str, Any]) -> RebalancerPolicy:
    """All nodes in one pool; for PoolPreference those of a zone are in a better one."""
    pools: list[dict[str, Any]] = [{"name": "all", "selector": {}}]
    if name == "PoolPreference":
        zone = {"key": "topology.kubernetes.io/zone", "values": ["z0"]}
        pools = [
            {"name": pool, "selector": {"matchExpressions": [{**zone, "operator": operator}]}}
            for pool, operator in (("better", "In"), ("all", "NotIn"))
        ]
    return RebalancerPolicy.model_validate(
        {
            "apiVersion": "rebalancer.dev/v1alpha1",
            "kind": "RebalancerPolicy",
            "cluster": "bench",
            "pools": [{**each, "thresholds": {"high": 75, "target": 65, "low": 50}} for each in pools],
            "usage": {"prometheus": {"url": "http://127.0.0.1:9090"}},
            "strategies": [{"name": name, "args": dict(args)}],
        }
    )


def looks_at(snapshot: ClusterSnapshot) -> list[RequestedSample]:
    """Cycles of the last quarter of an hour: pods requested on each node what they do now."""
    every = np.ones(len(snapshot.nodes), dtype=np.bool_)
    sample = requested_now(snapshot, every, NOW)
    return [replace(sample, at=NOW - 120.0 * at) for at in range(8, 0, -1)]


def finding(snapshot: ClusterSnapshot, name: str, args: Mapping[str, Any]) -> tuple[float, int]:
    """CPU seconds of one look, and how many findings it gave."""
    policy = policy_with(name, args)
    usage = contended(synthetic_usage(snapshot, now=NOW), snapshot)
    node_pools, cpu = NodePools.of(policy.pools, snapshot.nodes), effective_cpu(snapshot, usage, (), NOW)
    view = StrategyView(
        snapshot=snapshot,
        usage=usage,
        node_pools=node_pools,
        cpu=cpu,
        base=base_loads(snapshot, node_pools, cpu, None),
        projection=Projection.of(snapshot, policy.safety, now=NOW, pools=node_pools.names),
        strategy=policy.strategies[0],
        source=policy.usage,
        recent=(),
        now=NOW,
        days=days_of(snapshot),
        past=Past(requested=looks_at(snapshot)),
    )
    gc.collect()  # what the cluster's making left behind is no part of the find
    started = time.process_time()
    found = strategy_for(view.strategy)(view)
    return time.process_time() - started, len(found.findings)


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    nodes = parser.parse_args().nodes
    missed = False
    for figure, (name, args) in MODES.items():
        snapshot = broken_cluster(nodes)  # a new one: nothing is decoded yet
        seconds, found = finding(snapshot, name, args)
        holds = seconds <= AIM
        missed |= not holds
        line = {
            "bench": "strategies",
            "figure": f"{figure} finds {found} in {nodes} nodes and {nodes * PODS_PER_NODE} pods",
            "value": round(seconds, 3),
            "unit": "s",
            "aim": AIM,
            "holds": holds,
        }
        print(json.dumps(line), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
