"""The simulated cluster behind the ports of a cycle."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.model.eviction import Answer, Eviction, Outcome
from rebalancer.model.ports import PodState
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.model.steering import CORDONS
from rebalancer.replay.simulation.cluster import NEVER, SimulatedCluster


class ReplayClock:
    """`model.ports.Clock`: time passes in `sleep` only."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def now(self) -> float:
        """Seconds since the epoch, in the recording."""
        return self._cluster.now

    def sleep(self, seconds: float) -> None:
        """Let these seconds pass."""
        self._cluster.run_to(self._cluster.now + max(seconds, 0.0))


class ReplayLease:
    """`model.ports.Lease` that is never lost."""

    term = 1

    def holds(self, margin_seconds: float = 0.0) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPod:
    """`model.ports.PodState`."""

    uid: str
    terminating: bool
    ready: bool
    ready_since: float
    node: str
    eviction_in_progress: bool = False


class ReplayedCluster:
    """`model.ports.ClusterReader`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._last: tuple[tuple[float, int, int], ClusterSnapshot] | None = None

    def snapshot(self) -> ClusterSnapshot:
        """The cluster now."""
        cluster = self._cluster
        key = cluster.now, cluster.pods_version, cluster.nodes_version
        if self._last is None or self._last[0] != key:
            self._last = key, cluster.snapshots.now()
        return self._last[1]

    def pod_states(self, pods: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], PodState]:
        """Single pods; a missing one is not in the result."""
        cluster, wanted, found = self._cluster, set(pods), dict[tuple[str, str], PodState]()
        recording = cluster.recording
        names = {name for _, name in wanted}
        for row in cluster.alive().tolist():
            if cluster.names[row] not in names:
                continue
            pod = int(cluster.loads.pod[cluster.load[row]])
            key = recording.namespaces[int(recording.pods.namespace[pod])], cluster.names[row]
            if key in wanted:
                node, ready = int(cluster.node[row]), bool(cluster.ready_at[row] <= cluster.now)
                found[key] = ReplayedPod(
                    uid=cluster.uids[row],
                    terminating=bool(cluster.going_at[row] < NEVER),
                    ready=ready,
                    ready_since=float(cluster.ready_at[row]) if ready else math.nan,
                    node=recording.nodes.names[node] if node >= 0 else "",
                )
        return found


class ReplayedEvictor:
    """`model.ports.Evictor`: the Eviction API with its PodDisruptionBudgets."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def evict(self, eviction: Eviction, *, server_dry_run: bool = False) -> Answer:
        """As the API server answers."""
        cluster = self._cluster
        row = cluster.row_of.get(eviction.uid)
        if row is None or cluster.going_at[row] < NEVER:
            return Answer(outcome=Outcome.FAILED, refusal=Refusal.of(Reason.SERVER_GONE))
        if (name := self._barred_by(row)) is not None:
            text = f"the disruption budget {name} doesn't allow it"
            return Answer(outcome=Outcome.REFUSED, refusal=Refusal.of(Reason.SERVER_BUDGET, text))
        if server_dry_run:
            return Answer(outcome=Outcome.PLANNED)
        cluster.evict(row)
        return Answer(outcome=Outcome.EVICTED)

    def _barred_by(self, row: int) -> str | None:
        cluster, snapshots = self._cluster, self._cluster.snapshots
        budgets: list[int] = snapshots.budgets_of(int(cluster.load[row])).tolist()
        if not budgets:
            return None
        rows = cluster.alive()
        ready = (cluster.ready_at[rows] <= cluster.now) & (cluster.going_at[rows] == NEVER)
        healthy = snapshots.healthy(np.asarray(cluster.load[rows[ready]]))
        is_ready = bool(cluster.ready_at[row] <= cluster.now)
        for at in budgets:
            budget = cluster.recording.budgets[at]
            there = budget.since <= cluster.now < budget.until
            spare = int(healthy[at]) - int(budget.desired_healthy[cluster.step])
            # a pod that isn't Ready is none of the healthy ones
            free = spare > 0 or (not is_ready and (budget.evicts_unhealthy or spare == 0))
            if there and not free:
                return str(budget.name)
        return None


class ReplayedTaints:
    """`model.ports.NodeTaints`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._index = {name: at for at, name in enumerate(cluster.recording.nodes.names)}

    def granted(self) -> bool:
        """Always."""
        return True

    def put(self, node: str, *, value: str) -> bool:
        """Taint a node; a value of CORDONS cordons it."""
        at, cordon = self._index.get(node, -1), value in CORDONS
        if at < 0 or not self._cluster.there[at] or (cordon and self._cluster.cordoned[at]):
            return False
        self._cluster.taint(at, value, cordon=cordon)
        return True

    def take(self, node: str) -> bool:
        """Remove our taint and our cordon."""
        at = self._index.get(node, -1)
        if at >= 0:
            self._cluster.untaint(at)
        return True
