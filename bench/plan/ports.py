"""The ports of a cycle over a `plan_cluster.Cluster`: snapshot, usage, evictions and taints in memory, the real ledger
in a SQLite file."""

import math
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import msgspec
import numpy as np

from bench.plan.cluster import Cluster
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.model.cluster.nodes import NodeImages, Nodes
from rebalancer.model.cluster.objects import LabelSelector, PodTemplate, Taint
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.pods import PENDING, RUNNING, Pods
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget
from rebalancer.model.cluster.steering import CORDONS, SOFT_TAINT
from rebalancer.model.decisions.eviction import Answer, Eviction, Outcome
from rebalancer.model.decisions.ports import PodState
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy import RebalancerPolicy
from rebalancer.store import open_records, upgrade

HOSTNAME, ZONE, POOL = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "pool"
LOOKS = 7
"""Samples of the stabilization window."""
LOOK_SECONDS = 20.0
WINDOW_SECONDS = 300.0
NAMESPACE = "shop"
FREE_OF_DISK = Path("/dev/shm")
"""Every reservation is a commit that waits for the disk; a file in memory takes the same path without that wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPod:
    """A pod as it is now."""

    uid: str
    terminating: bool
    ready: bool
    ready_since: float
    """Seconds since the epoch; NaN while it is not Ready."""
    node: str
    """Name; empty while it is not bound."""
    eviction_in_progress: bool = False
    """No other component evicts."""


class ClusterPorts:
    """ClusterReader, UsageReader, Evictor, NodeTaints, Clock and Lease of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.evicted: list[str] = []
        """Names of the evicted pods, in order."""
        self._ours: dict[int, Taint] = {}
        services = cluster.services
        templates = [
            PodTemplate(
                labels={"app": f"w{index}"},
                node_selector={POOL: f"p{services.only_pool[index]}"} if services.only_pool[index] >= 0 else {},
                cpu_request_millicores=float(services.cpu_request[index]),
                memory_request_bytes=float(services.memory_request[index]),
                cpu_scored_millicores=float(services.cpu_request[index]),
                memory_scored_bytes=float(services.memory_request[index]),
                images=(f"image-{services.image[index]}:1",) if services.image[index] >= 0 else ("unknown:1",),
                qos="Burstable",
            )
            for index in range(len(services))
        ]
        self._templates = [msgspec.json.encode(each) for each in templates]

    # ---- Clock and Lease

    term = 1

    def now(self) -> float:
        """Of the cluster."""
        return self.cluster.now

    def sleep(self, seconds: float) -> None:
        """Time passes in the cluster."""
        self.cluster.advance(seconds)

    def holds(self, margin_seconds: float = 0.0) -> bool:
        """There is one process."""
        return True

    # ---- ClusterReader

    def pod_states(self, pods: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], PodState]:
        """Of the pods that have not ended."""
        cluster, found = self.cluster, {}
        for namespace, name in pods:
            row = int(name.rpartition("-")[2])
            if row < len(cluster.alive) and cluster.alive[row]:
                ready_at = float(cluster.ready_at[row])
                found[namespace, name] = SeenPod(
                    uid=f"uid-{row}",
                    terminating=bool(cluster.terminating[row]),
                    ready=ready_at <= cluster.now,
                    ready_since=ready_at if ready_at <= cluster.now else math.nan,
                    node=self.node_names[cluster.node[row]] if cluster.node[row] >= 0 else "",
                )
        return found

    def services(self, namespaces: Collection[str]) -> ClusterSnapshot:
        """As `snapshot`."""
        return self.snapshot()

    def snapshot(self) -> ClusterSnapshot:
        """Pods that have not ended, in the order of their creation."""
        cluster, services = self.cluster, self.cluster.services
        rows = np.flatnonzero(cluster.alive)
        service, node = cluster.service[rows], cluster.node[rows]
        ready = cluster.ready_at[rows] <= cluster.now
        started = np.where(ready, cluster.ready_at[rows], np.nan)
        names = [f"w{of}-{row}" for of, row in zip(service.tolist(), rows.tolist(), strict=True)]
        return ClusterSnapshot(
            taken=cluster.now,
            nodes=self._nodes(),
            pods=replace(
                Pods.blank(len(rows)),
                names=names,
                uids=[f"uid-{row}" for row in rows.tolist()],
                namespace=np.zeros(len(rows), dtype=np.int32),
                node=node,
                owner=service + len(services),
                template=service,
                phase=np.where(node < 0, PENDING, RUNNING).astype(np.int8),
                ready=ready,
                terminating=cluster.terminating[rows],
                created=cluster.created[rows],
                started=np.where(node >= 0, np.where(np.isnan(started), cluster.now, started), np.nan),
                cpu_request_millicores=services.cpu_request[service],
                memory_request_bytes=services.memory_request[service],
                cpu_scored_millicores=services.cpu_request[service],
                memory_scored_bytes=services.memory_request[service],
            ),
            pod_templates=PodTemplateTable(self._templates, json_decoder(PodTemplate).decode),
            namespaces=(NAMESPACE,),
            namespace_labels={},
            owners=self._owners(),
            budgets=self._budgets(),
            listed_kinds=frozenset({"Deployment", "ReplicaSet", "Job"}),
        )

    def _owners(self) -> tuple[Owner, ...]:
        """First the top owners, then the controllers of their pods."""
        cluster, kinds = self.cluster, self.cluster.services.kind
        ready, count = cluster.healthy().tolist(), len(cluster.services)
        tops = [
            Owner(kind=kind, namespace=NAMESPACE, name=f"w{at}", uid=f"top-{at}", desired=desired, ready=ready[at])
            for at, (kind, desired) in enumerate(zip(kinds, cluster.desired.tolist(), strict=True))
        ]
        controllers = [
            Owner(kind="Job", namespace=NAMESPACE, name=f"w{at}", uid=f"job-{at}")
            if kinds[at] == "Job"
            else Owner(kind="ReplicaSet", namespace=NAMESPACE, name=f"w{at}-1", uid=f"set-{at}", parent=at)
            for at in range(count)
        ]
        return (*tops, *controllers)

    def _budgets(self) -> tuple[DisruptionBudget, ...]:
        cluster = self.cluster
        allowed, healthy = cluster.disruptions_allowed(), cluster.healthy()
        return tuple(
            DisruptionBudget(
                namespace=NAMESPACE,
                name=f"w{at}",
                selector=LabelSelector(match_labels={"app": f"w{at}"}),
                disruptions_allowed=int(allowed[at]),
                current_healthy=int(healthy[at]),
                desired_healthy=int(cluster.desired[at] - cluster.services.max_unavailable[at]),
            )
            for at in np.flatnonzero(allowed >= 0).tolist()
        )

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """(nodes,)"""
        return tuple(f"node-{index:05d}" for index in range(len(self.cluster.machines)))

    @cached_property
    def _labels(self) -> tuple[Mapping[str, str], ...]:
        machines = self.cluster.machines
        columns = zip(self.node_names, machines.pool.tolist(), machines.zone.tolist(), strict=True)
        return tuple(
            {HOSTNAME: name, POOL: f"p{pool}", **({ZONE: f"z{zone}"} if zone >= 0 else {})}
            for name, pool, zone in columns
        )

    @cached_property
    def _images(self) -> NodeImages:
        machines = self.cluster.machines
        image, node = np.nonzero(machines.images_there)
        names = {f"image-{index}:1": index for index in range(len(machines.image_bytes))}
        return NodeImages(names, machines.image_bytes, image.astype(np.int32), node.astype(np.int32))

    def _nodes(self) -> Nodes:
        machines, names = self.cluster.machines, self.node_names
        count = len(names)
        return replace(
            Nodes.blank(count),
            names=names,
            cpu_capacity_millicores=machines.cpu_capacity,
            cpu_allocatable_millicores=machines.cpu_allocatable,
            memory_capacity_bytes=machines.memory_allocatable,
            memory_allocatable_bytes=machines.memory_allocatable,
            pods_allocatable=machines.pods_allocatable,
            ready=np.ones(count, dtype=np.bool_),
            unschedulable=self.cluster.scheduler.cordoned.copy(),
            labels=self._labels,
            taints=tuple((self._ours[at],) if at in self._ours else () for at in range(count)),
            images=self._images,
        )

    # ---- UsageReader

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        """The true CPU at this moment; nothing of pods that have ended is measured any more."""
        cluster, rows = self.cluster, np.array([int(uid.removeprefix("uid-")) for uid in snapshot.pods.uids])
        bound = cluster.node[rows] >= 0
        cpu = np.where(bound, cluster.cpu[rows], np.nan)
        used = cluster.overhead + np.bincount(
            cluster.node[rows][bound], weights=cpu[bound], minlength=len(cluster.overhead)
        )
        times = cluster.now - LOOK_SECONDS * np.arange(LOOKS - 1, -1, -1)
        return Usage(
            source="synthetic",
            at=cluster.now,
            window_seconds=WINDOW_SECONDS,
            node_cpu_millicores=used,
            pod_cpu_millicores=cpu,
            sample_times=np.repeat(times[:, None], len(used), axis=1),
            samples=np.repeat(used[None, :], LOOKS, axis=0),
            departed_millicores=np.zeros(len(used)),
            problems={},
        )

    # ---- Evictor

    def evict(self, eviction: Eviction, *, server_dry_run: bool = False) -> Answer:
        """The pod is evicted, unless its budget has no room or it is gone."""
        cluster, pod = self.cluster, int(eviction.uid.removeprefix("uid-"))
        if not cluster.alive[pod] or cluster.terminating[pod]:
            return Answer(outcome=Outcome.FAILED, refusal=Refusal.of(Reason.SERVER_GONE))
        if not cluster.budget_allows(pod):
            return Answer(outcome=Outcome.REFUSED, refusal=Refusal.of(Reason.SERVER_BUDGET))
        if server_dry_run:
            return Answer(outcome=Outcome.PLANNED)
        cluster.evict(pod)
        self.evicted.append(eviction.pod)
        return Answer(outcome=Outcome.EVICTED)

    # ---- NodeTaints

    def granted(self) -> bool:
        """Nodes may be patched."""
        return True

    def put(self, node: str, *, value: str) -> bool:
        """Taint the node; a value of CORDONS cordons it too."""
        at = int(node.removeprefix("node-"))
        added = _rfc3339(self.cluster.now)
        self._ours[at] = Taint(key=SOFT_TAINT, value=value, effect="PreferNoSchedule", time_added=added)
        self.cluster.scheduler.soft_tainted[at] = True
        self.cluster.scheduler.cordoned[at] = value in CORDONS
        return True

    def take(self, node: str) -> bool:
        """Remove the taint, and the cordon with it."""
        at = int(node.removeprefix("node-"))
        self._ours.pop(at, None)
        self.cluster.scheduler.soft_tainted[at] = self.cluster.scheduler.cordoned[at] = False
        return True


def _rfc3339(seconds: float) -> str:
    return str(np.datetime64(int(seconds), "s")) + "Z"


@contextmanager
def context_over(ports: ClusterPorts, policy: RebalancerPolicy) -> Iterator[CycleContext]:
    """The context of a process that stays for all rounds, with a new database."""
    place = FREE_OF_DISK if FREE_OF_DISK.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="plan-bench-", dir=place) as folder:
        file = Path(folder, "rebalancer.db")
        file.write_bytes(_newest_schema())
        with open_records(url=f"sqlite:///{file}", cluster=policy.cluster, clock=ports) as records:
            yield CycleContext(
                cluster=ports,
                usage=ports,
                evictor=ports,
                records=records,
                ledger=records.ledger(clock=ports),
                lease=ports,
                clock=ports,
                progress=NullProgress(),
                soft_taint_controller=SoftTaintController(taints=ports),
            )


@cache
def _newest_schema() -> bytes:
    """A SQLite file with all tables: making one takes longer than most runs."""
    folder = Path(tempfile.mkdtemp(prefix="plan-bench-"))
    try:
        upgrade(f"sqlite:///{folder / 'newest.db'}")
        return (folder / "newest.db").read_bytes()
    finally:
        shutil.rmtree(folder)
