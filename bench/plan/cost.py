"""CPU of one plan at 5,000 nodes and 150,000 plain pods, 250 nodes hot: a dry cycle of the product."""

import time
from dataclasses import dataclass, replace

import numpy as np

from bench.plan.find_and_plan import bench_policy, synthetic_usage, with_memory_thresholds, with_memory_usage
from bench.plan.landing import a_cluster
from rebalancer.cycle.context import CycleContext, NullProgress, NullRecords
from rebalancer.cycle.run import begin_report, execute_cycle
from rebalancer.cycle.soft_taints import SoftTaintController
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.measured.usage import Usage

NODES = 5_000
TO_BE_DELETED = Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")
STAGES = ("find", "steer", "relieve")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one dry cycle."""

    pods: int
    hot: int
    at_target: int
    """Hot nodes that are at or under their target by the plan."""
    moves: int
    cpu_seconds: float
    """Of the stages find, steer and relieve."""


class _Marked(NullRecords):
    """Notes the CPU and the time at the cycle's first and last call."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[tuple[float, float]] = []

    def begin(self, report: CycleReport) -> None:
        self.at.append((time.process_time(), time.monotonic()))

    def finish(self, report: CycleReport) -> None:
        self.at.append((time.process_time(), time.monotonic()))


class _Prepared:
    """Everything that a dry cycle reads, in memory. Nothing is written and nothing is evicted."""

    def __init__(self, snapshot: ClusterSnapshot, usage: Usage) -> None:
        self._snapshot, self._usage = snapshot, usage

    def snapshot(self) -> ClusterSnapshot:
        """Taken beforehand."""
        return self._snapshot

    def pod_states(self, pods: object) -> dict[tuple[str, str], object]:
        """No pod is re-read in a dry run."""
        raise NotImplementedError

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        """Made beforehand."""
        return self._usage

    def now(self) -> float:
        """When the snapshot was taken."""
        return self._snapshot.taken

    def sleep(self, seconds: float) -> None:
        """A dry run waits for nothing."""
        raise NotImplementedError

    def evict(self, eviction: object, *, server_dry_run: bool = False) -> object:
        """A dry run evicts nothing."""
        raise NotImplementedError

    def granted(self) -> bool:
        """Nodes may be patched."""
        return True

    def put(self, node: str, *, value: str) -> bool:
        """A dry run taints nothing."""
        raise NotImplementedError

    def take(self, node: str) -> bool:
        """The same."""
        raise NotImplementedError


def measure(nodes: int = NODES, *, with_memory: bool = False, leaving: int = 0) -> Cost:
    """Plan once; `with_memory`: with thresholds of memory, by which no node is hot. `leaving` nodes are about to be
    removed, and their pods are displaced."""
    snapshot = a_cluster(nodes, rules=False)
    taints = ((TO_BE_DELETED,) if node < leaving else () for node in range(nodes))
    snapshot = replace(snapshot, nodes=replace(snapshot.nodes, taints=tuple(taints)))
    usage, policy = synthetic_usage(snapshot, now=snapshot.taken), bench_policy()
    if with_memory:
        usage, policy = with_memory_usage(usage, snapshot), with_memory_thresholds(policy)
    ports, records = _Prepared(snapshot, usage), _Marked()
    context = CycleContext(
        cluster=ports,  # type: ignore[arg-type]
        usage=ports,
        evictor=ports,  # type: ignore[arg-type]
        records=records,
        ledger=None,
        lease=None,
        clock=ports,
        progress=NullProgress(),
        soft_taint_controller=SoftTaintController(taints=ports),
    )
    report = begin_report(context, policy, dry_run=True)
    execute_cycle(context, policy, report, snapshot=snapshot)
    (cpu, wall), (cpu_end, wall_end) = records.at
    # the summary comes between the last stage and the last call: its part goes by the machine's clock
    staged = sum(report.stages[name] for name in STAGES) / (wall_end - wall)
    target = next(each.thresholds for each in policy.pools if each.thresholds is not None).target / 100
    planned = np.array([each.cpu_planned for each in report.nodes if each.hot], dtype=np.float64)
    return Cost(
        pods=len(snapshot.pods),
        hot=len(planned),
        at_target=int(np.count_nonzero(planned <= target + 1e-9)),
        moves=len(report.evictions),
        cpu_seconds=(cpu_end - cpu) * min(staged, 1.0),
    )
