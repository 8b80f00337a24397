"""The simulated cluster behind the ports of a cycle."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.cluster.steering import CORDONS
from rebalancer.model.decisions.eviction import Answer, Eviction, Outcome
from rebalancer.model.decisions.ports import PodState
from rebalancer.model.reason import Reason, Refusal
from rebalancer.replay.simulation.cluster import SimulatedCluster
from rebalancer.replay.simulation.pods import NEVER


class ReplayClock:
    """`model.decisions.ports.Clock`: time passes in `sleep` only."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def now(self) -> float:
        """Seconds since the epoch, in the recording."""
        return self._cluster.now

    def sleep(self, seconds: float) -> None:
        """Let these seconds pass."""
        self._cluster.run_to(self._cluster.now + max(seconds, 0.0))


class ReplayLease:
    """`model.decisions.ports.Lease` that is never lost."""

    term = 1

    def holds(self, margin_seconds: float = 0.0) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPod:
    """`model.decisions.ports.PodState`."""

    uid: str
    terminating: bool
    ready: bool
    ready_since: float
    node: str
    eviction_in_progress: bool = False


class ReplayedCluster:
    """`model.decisions.ports.ClusterReader`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._last: tuple[tuple[float, int, int], ClusterSnapshot] | None = None

    def snapshot(self) -> ClusterSnapshot:
        """The cluster now."""
        state = self._cluster.state
        key = state.now, state.pods.version, state.nodes.version
        if self._last is None or self._last[0] != key:
            self._last = key, self._cluster.snapshots.now()
        return self._last[1]

    def services(self, namespaces: Collection[str]) -> ClusterSnapshot:
        """As `snapshot`."""
        return self.snapshot()

    def pod_states(self, pods: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], PodState]:
        """Single pods; a missing one is not in the result."""
        state, wanted, found = self._cluster.state, set(pods), dict[tuple[str, str], PodState]()
        recording, table = state.recording, state.pods
        names = {name for _, name in wanted}
        for row in table.alive().tolist():
            if table.names[row] not in names:
                continue
            pod = int(state.loads.pod[table.load[row]])
            key = recording.namespaces[int(recording.pods.namespace[pod])], table.names[row]
            if key in wanted:
                node, ready = int(table.node[row]), bool(table.ready_at[row] <= state.now)
                found[key] = ReplayedPod(
                    uid=table.uids[row],
                    terminating=bool(table.going_at[row] < NEVER),
                    ready=ready,
                    ready_since=float(table.ready_at[row]) if ready else math.nan,
                    node=recording.nodes.names[node] if node >= 0 else "",
                )
        return found


class ReplayedEvictor:
    """`model.decisions.ports.Evictor`: the Eviction API with its PodDisruptionBudgets."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def evict(self, eviction: Eviction, *, server_dry_run: bool = False) -> Answer:
        """As the API server answers."""
        pods = self._cluster.state.pods
        row = pods.row_of.get(eviction.uid)
        if row is None or pods.going_at[row] < NEVER:
            return Answer(outcome=Outcome.FAILED, refusal=Refusal.of(Reason.SERVER_GONE))
        # replacement first is no disruption
        if not eviction.in_plan.replacement_first and (name := self._barred_by(row)) is not None:
            text = f"the disruption budget {name} doesn't allow it"
            return Answer(outcome=Outcome.REFUSED, refusal=Refusal.of(Reason.SERVER_BUDGET, text))
        if server_dry_run:
            return Answer(outcome=Outcome.PLANNED)
        self._cluster.evict(row)
        return Answer(outcome=Outcome.EVICTED)

    def _barred_by(self, row: int) -> str | None:
        state, snapshots = self._cluster.state, self._cluster.snapshots
        pods = state.pods
        budgets: list[int] = snapshots.budgets_of(int(pods.load[row])).tolist()
        if not budgets:
            return None
        rows = pods.alive()
        ready = (pods.ready_at[rows] <= state.now) & (pods.going_at[rows] == NEVER)
        healthy = snapshots.healthy(np.asarray(pods.load[rows[ready]]))
        is_ready = bool(pods.ready_at[row] <= state.now)
        for at in budgets:
            budget = state.recording.budgets[at]
            there = budget.since <= state.now < budget.until
            spare = int(healthy[at]) - int(budget.desired_healthy[state.step])
            # a pod that isn't Ready is none of the healthy ones
            free = spare > 0 or (not is_ready and (budget.evicts_unhealthy or spare == 0))
            if there and not free:
                return str(budget.name)
        return None


class ReplayedTaints:
    """`model.decisions.ports.NodeTaints`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._state, self._nodes = cluster.state, cluster.state.nodes
        self._index = {name: at for at, name in enumerate(cluster.recording.nodes.names)}

    def granted(self) -> bool:
        """Always."""
        return True

    def put(self, node: str, *, value: str) -> bool:
        """Taint a node; a value of CORDONS cordons it."""
        at, cordon = self._index.get(node, -1), value in CORDONS
        if at < 0 or not self._nodes.there[at] or (cordon and self._nodes.cordoned[at]):
            return False
        self._nodes.taint(at, value, self._state.now, cordon=cordon)
        return True

    def take(self, node: str) -> bool:
        """Remove our taint and our cordon."""
        at = self._index.get(node, -1)
        if at >= 0:
            self._nodes.untaint(at)
        return True
