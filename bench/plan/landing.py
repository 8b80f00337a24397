"""How long landings take over a synthetic cluster: plain, with affinity and spread, as it grows, and with pending pods.

Prints one JSON object a line; exit code 1 when an aim is missed. CPU seconds; what is made once for a cycle (the board
and its tables) is counted in.
"""

import argparse
import json
import time
from dataclasses import replace

import msgspec
import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import (
    Affinity,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    PodTemplate,
    SpreadConstraint,
    WeightedPodAffinityTerm,
)
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import PENDING, RUNNING, Pods
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.reason import Refusal
from rebalancer.placement.landing.model import PlacementModel

GIB = 2.0**30
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NODES = 5_000
PODS_PER_NODE = 30
WORKLOADS = 3_000
MOVES, WAITING = 500, 20_000
AIM_PLAIN, AIM_RULES = 1.0, 5.0
PENDING_SECONDS, PENDING_SLACK = 10.0, 0.5
"""The deadline that pending pods are placed under, and how much later it may be noticed."""


def a_cluster(nodes: int, *, rules: bool, pending: int = 0, seed: int = 1) -> ClusterSnapshot:
    """30 pods a node of 3,000 workloads in 50 namespaces; with `rules`, of ten workloads three have required
    anti-affinity on the host, two preferred affinity, three spread over zones (hard) and hosts (soft)."""
    random = np.random.default_rng(seed)
    count = nodes * PODS_PER_NODE + pending
    workload = random.integers(0, WORKLOADS, count)
    templates = [_template(index, rules=rules) for index in range(WORKLOADS)]
    node = np.concatenate([np.repeat(np.arange(nodes), PODS_PER_NODE), np.full(pending, -1)]).astype(np.int32)

    def column(name: str) -> np.ndarray:
        return np.array([getattr(template, name) for template in templates], dtype=np.float64)[workload]

    owners = tuple(Owner(kind="ReplicaSet", namespace=f"n{i % 50}", name=f"w{i}", uid=str(i)) for i in range(WORKLOADS))
    return ClusterSnapshot(
        taken=1_000_000.0,
        nodes=replace(
            Nodes.blank(nodes),
            names=tuple(f"node-{index:05d}" for index in range(nodes)),
            cpu_capacity_millicores=np.full(nodes, 32_000.0),
            cpu_allocatable_millicores=random.choice([31_000.0, 15_500.0], nodes),
            memory_capacity_bytes=np.full(nodes, 128 * GIB),
            memory_allocatable_bytes=np.full(nodes, 120 * GIB),
            pods_allocatable=np.full(nodes, 110.0),
            ready=np.ones(nodes, dtype=np.bool_),
            labels=tuple({HOSTNAME: f"node-{index:05d}", ZONE: f"z{index % 3}"} for index in range(nodes)),
        ),
        pods=replace(
            Pods.blank(count),
            names=[f"pod-{index}" for index in range(count)],
            uids=[str(index) for index in range(count)],
            namespace=(workload % 50).astype(np.int32),
            node=node,
            owner=workload.astype(np.int32),
            template=workload.astype(np.int32),
            phase=np.where(node < 0, PENDING, RUNNING).astype(np.int8),
            ready=node >= 0,
            started=np.zeros(count),
            cpu_request_millicores=column("cpu_request_millicores"),
            memory_request_bytes=column("memory_request_bytes"),
            cpu_scored_millicores=column("cpu_scored_millicores"),
            memory_scored_bytes=column("memory_scored_bytes"),
        ),
        pod_templates=PodTemplateTable(
            [msgspec.json.encode(template) for template in templates], json_decoder(PodTemplate).decode
        ),
        namespaces=tuple(f"n{index}" for index in range(50)),
        namespace_labels={},
        owners=owners,
        budgets=(),
    )


def _template(index: int, *, rules: bool) -> PodTemplate:
    own = LabelSelector(match_labels={"app": f"w{index}"})
    affinity, spread = None, ()
    if rules and index % 10 < 3:
        term = PodAffinityTerm(label_selector=own, topology_key=HOSTNAME)
        affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    elif rules and index % 10 < 5:
        other = LabelSelector(match_labels={"tier": f"t{index % 7}"})
        near = WeightedPodAffinityTerm(50, PodAffinityTerm(label_selector=other, topology_key=ZONE))
        affinity = Affinity(pod_affinity=PodAffinity(preferred=(near,)))
    elif rules and index % 10 < 8:
        spread = (
            SpreadConstraint(max_skew=5, topology_key=ZONE, label_selector=own),
            SpreadConstraint(topology_key=HOSTNAME, label_selector=own, when_unsatisfiable="ScheduleAnyway"),
        )
    cpu, memory = 50.0 * (1 + index % 12), GIB / 8 * (1 + index % 17)
    return PodTemplate(
        labels={"app": f"w{index}", "tier": f"t{index % 7}"},
        affinity=affinity,
        topology_spread=spread,
        cpu_request_millicores=cpu,
        memory_request_bytes=memory,
        cpu_scored_millicores=cpu,
        memory_scored_bytes=memory,
        qos="Burstable",
    )


def moving(snapshot: ClusterSnapshot, moves: int) -> tuple[float, int]:
    """CPU seconds of a model and so many landings and commits, and how many of them landed."""
    chosen = np.random.default_rng(2).choice(np.flatnonzero(snapshot.pods.node >= 0), moves, replace=False)
    started, landed = time.process_time(), 0
    model = PlacementModel(snapshot)
    for index in chosen.tolist():
        pod = snapshot.pod(index)
        landing = model.landings(pod)
        if not isinstance(landing, Refusal):
            model.commit(pod, model.winners(pod, landing))
            landed += 1
    return time.process_time() - started, landed


def waiting(nodes: int, pending: int) -> float:
    """Seconds until a model with so many pending pods is made, under the deadline."""
    snapshot = a_cluster(nodes, rules=True, pending=pending)
    started = time.perf_counter()
    PlacementModel(snapshot, out_of_time=lambda: time.perf_counter() - started > PENDING_SECONDS)
    return time.perf_counter() - started


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, help="of the largest cluster")
    parser.add_argument("--pending", type=int, default=WAITING, help="pods that wait in the largest cluster")
    parser.add_argument("--moves", type=int, default=MOVES)
    args = parser.parse_args()
    largest = args.nodes
    missed = False

    def say(figure: str, value: float, aim: float | None) -> None:
        nonlocal missed
        holds = aim is None or value <= aim
        missed |= not holds
        line = {"bench": "landing", "figure": figure, "value": round(value, 3), "unit": "s", "aim": aim, "holds": holds}
        print(json.dumps(line), flush=True)

    for nodes in (largest // 5, largest // 2, largest):
        for rules, name, aim in ((False, "plain", AIM_PLAIN), (True, "affinity and spread", AIM_RULES)):
            seconds, landed = moving(a_cluster(nodes, rules=rules), args.moves)
            figure = f"{args.moves} landings ({landed} landed), {name}, {nodes} nodes"
            say(figure, seconds, aim if nodes == NODES else None)
    for pending in (0, args.pending // 10, args.pending):
        say(
            f"model with {pending} pending pods, {largest} nodes",
            waiting(largest, pending),
            PENDING_SECONDS + PENDING_SLACK,
        )
    return int(missed)
