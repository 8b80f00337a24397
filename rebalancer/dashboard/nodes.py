"""Node views: CPU now, thresholds and expected peaks of the cluster's nodes. Made in a thread, on request.

On the leader, CPU is what its cycles measured. A follower has no cycles: it reads CPU itself, at most once a minute,
and peaks from the forecasts in the database.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import structlog

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.cycle.observe.obstacle_notes import obstacles_of
from rebalancer.cycle.soft_taints import our_taints
from rebalancer.forecast.memory.leaks import MemoryLeak
from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.history import STEP_SECONDS, Grid
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.records.cycles import ExpectedPeak
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.web.pages.views import NodeLine, NodeState, PoolLine, ResourceNow

LOG = structlog.get_logger("rebalancer")

FRESH_SECONDS = 15.0
"""A younger view is not renewed."""
USAGE_SECONDS = 60.0
"""Older CPU measurements are renewed."""
WAIT_SECONDS = 3.0
FIRST_WAIT_SECONDS = 10.0
"""A page waits so long for a new view when the last one is older than USAGE_SECONDS, or there is none."""

NOT_READ_YET = "the cluster was not read yet"

_RANK = {NodeState.HOT: 0, NodeState.EXPECTED: 1, NodeState.COOL: 2, NodeState.UNKNOWN: 3}


class StoredPeaks(Protocol):
    """Forecasts in the database."""

    def expected_peaks(self, now: float) -> Sequence[ExpectedPeak]:
        """The newest daily forecast of each node. Raises ConnectError."""
        ...


@dataclass(frozen=True, kw_only=True)
class MeasuredCpu:
    """Usage of nodes by name, and of pods by UID."""

    at: float
    millicores: Mapping[str, float]
    problems: Mapping[str, str]
    """Node -> why it is not known."""
    resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Resource besides CPU -> node -> share."""
    pod_uids: Sequence[str] = ()
    pod_millicores: Floats | None = None
    """(pods,) in the order of `pod_uids`."""

    @cached_property
    def of_pod(self) -> Mapping[str, float]:
        """UID -> millicores of the pods whose CPU is known."""
        if self.pod_millicores is None:
            return {}
        cpu = self.pod_millicores.tolist()
        return {uid: value for uid, value in zip(self.pod_uids, cpu, strict=True) if np.isfinite(value)}

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, usage: Usage) -> "MeasuredCpu":
        """`usage` is of `snapshot`."""
        names = snapshot.nodes.names
        return cls(
            at=usage.at,
            millicores=dict(zip(names, usage.node_cpu_millicores.tolist(), strict=True)),
            problems={names[node]: refusal.message for node, refusal in usage.problems.items()},
            resources={
                name: dict(zip(names, (used.node / used.capacity).tolist(), strict=True))
                for name, used in sorted(usage.resources.items())
            },
            pod_uids=snapshot.pods.uids,
            pod_millicores=usage.pod_cpu_millicores,
        )


@dataclass(frozen=True, kw_only=True)
class ExpectedPeaks:
    """Forecasts of the snapshot's nodes. NaN where too little is known."""

    made_at: float | None = None
    peak_millicores: Floats = field(default_factory=lambda: np.empty(0))
    peak_at: Floats = field(default_factory=lambda: np.empty(0))
    hot_from: Floats = field(default_factory=lambda: np.empty(0))
    ahead: Grid | None = None
    """(nodes, steps) millicores from `starts_at` on."""
    starts_at: float = 0.0
    leaks: tuple[MemoryLeak, ...] = ()
    """Of pods that are in the snapshot, the first to be killed first."""


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """The nodes at one moment; without any before the cluster was read."""

    lines: tuple[NodeLine, ...] = ()
    """The hottest first."""
    by_name: Mapping[str, NodeLine] = field(default_factory=dict)
    pools: tuple[PoolLine, ...] = ()
    """In the policy's order; those of no pool last."""
    measured_at: float | None = None
    forecast_at: float | None = None
    expected: ExpectedPeaks = field(default_factory=ExpectedPeaks)
    row: Mapping[str, int] = field(default_factory=dict)
    """Node -> its row in `expected`."""
    obstacles: tuple[Obstacle, ...] = ()
    problem: str = ""
    """Why it is out of date."""

    def ahead(self, node: str) -> list[tuple[float, float | None]]:
        """(start of a step, share) of a node's forecast; empty for none."""
        grid, row, line = self.expected.ahead, self.row.get(node), self.by_name.get(node)
        if grid is None or row is None or line is None or not line.capacity_millicores:
            return []
        shares = (grid[row] / line.capacity_millicores).tolist()
        first = self.expected.starts_at
        return [(first + step * STEP_SECONDS, known(share)) for step, share in enumerate(shares)]


@dataclass(slots=True, kw_only=True)
class NodeViewCache:
    """The newest node view. `latest` is for any thread, `measured` for the cycles' thread."""

    current: Callable[[], Active]
    snapshot: Callable[[], ClusterSnapshot]
    """Raises UnsafeDataError."""
    leads: Callable[[], bool]
    kept: StoredPeaks
    clock: Clock
    monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _measured: MeasuredCpu | None = None
    _measured_when: float = -np.inf
    _node_view: NodeView = field(default_factory=lambda: NodeView(problem=NOT_READ_YET))
    _made_when: float = -np.inf
    _making: threading.Event | None = None
    _said: str = ""

    def measured(self, snapshot: ClusterSnapshot, usage: Usage) -> None:
        """Store what a cycle has just measured."""
        self._keep(MeasuredCpu.of(snapshot, usage))

    def latest(self) -> NodeView:
        """The newest view; starts a renewal of an old one and waits for it briefly."""
        age, making, had = self.renew()
        if making is None:
            return had
        if not had.lines:
            making.wait(FIRST_WAIT_SECONDS)
        elif age > USAGE_SECONDS:
            making.wait(WAIT_SECONDS)
        with self._lock:
            return self._node_view

    def renew(self) -> tuple[float, threading.Event | None, NodeView]:
        """Start a renewal of an old view, without waiting: its age, what is set when a renewal ends, and the view."""
        with self._lock:
            age = self.monotonic() - self._made_when
            if age < FRESH_SECONDS:
                return age, None, self._node_view
            if self._making is None:
                self._making = threading.Event()
                threading.Thread(target=self._make, args=(self._making,), name="node-view", daemon=True).start()
            return age, self._making, self._node_view

    def pod_millicores(self, uids: Sequence[str]) -> list[float | None]:
        """CPU of pods now; None where it isn't known."""
        self.latest()
        with self._lock:
            measured = self._measured
        return [None if measured is None else measured.of_pod.get(uid) for uid in uids]

    def _make(self, done: threading.Event) -> None:
        made, problem = None, ""
        try:
            made = self._look()
        except RebalancerError as error:
            problem = str(error)
        except Exception:  # a page shows an older view rather than none, and the next attempt stays possible
            LOG.exception("the dashboard's node view could not be made")
            problem = "an internal error, see the log"
        with self._lock:
            self._node_view = replace(self._node_view, problem=problem) if made is None else made
            if problem and problem != self._said:
                LOG.warning("the dashboard shows an older node view", error=problem)
            self._said = problem
            self._made_when = self.monotonic()
            self._making = None
        done.set()

    def _look(self) -> NodeView:
        current = self.current()
        snapshot = self.snapshot()
        measured, problem = self._measure(current, snapshot)
        return node_view(snapshot, measured, self._expected(current, snapshot), current.policy, problem=problem)

    def _measure(self, current: Active, snapshot: ClusterSnapshot) -> tuple[MeasuredCpu | None, str]:
        with self._lock:
            had, when = self._measured, self._measured_when
        if self.monotonic() - when < USAGE_SECONDS:
            return had, ""
        try:
            usage = (current.instant_usage or current.context.usage).read(snapshot)
        except RebalancerError as error:
            return had, str(error)
        return self._keep(MeasuredCpu.of(snapshot, usage)), ""

    def _keep(self, measured: MeasuredCpu) -> MeasuredCpu:
        with self._lock:
            self._measured, self._measured_when = measured, self.monotonic()
        return measured

    def _expected(self, current: Active, snapshot: ClusterSnapshot) -> ExpectedPeaks:
        now, room = self.clock.now(), snapshot.nodes.cpu_capacity_millicores
        nothing = np.full(len(room), np.nan)
        if current.forecast_loop is None:
            return ExpectedPeaks(made_at=None, peak_millicores=nothing, peak_at=nothing, hot_from=nothing)
        node_pools = NodePools.of(current.policy.pools, snapshot.nodes)
        peaks = current.forecast_loop.peaks(snapshot, now) if self.leads() else None
        if peaks is not None:
            high = node_pools.thresholds(peaks.node_millicores / room).high
            return ExpectedPeaks(
                made_at=peaks.made_at,
                peak_millicores=peaks.node_millicores,
                peak_at=peaks.node_at,
                hot_from=peaks.first_over(high * room),
                ahead=peaks.expected,
                starts_at=peaks.starts_at,
                leaks=current.forecast_loop.memory_leaks(snapshot, now),
            )
        peak, at = nothing.copy(), nothing.copy()
        try:
            kept = self.kept.expected_peaks(now)
        except RebalancerError:
            kept = ()  # the page shows that the database is unavailable
        for each in kept:
            node = snapshot.node_index.get(each.node)
            if node is not None and each.peak_millicores is not None:
                peak[node], at[node] = each.peak_millicores, each.peak_at
        high = node_pools.thresholds(peak / room).high
        with np.errstate(invalid="ignore"):
            hot_from = np.where(peak > high * room, at, np.nan)
        made_at = max((each.made_at for each in kept), default=None)
        return ExpectedPeaks(made_at=made_at, peak_millicores=peak, peak_at=at, hot_from=hot_from)


def node_view(
    snapshot: ClusterSnapshot,
    measured: MeasuredCpu | None,
    expected: ExpectedPeaks,
    policy: RebalancerPolicy,
    *,
    problem: str = "",
) -> NodeView:
    """The view of the snapshot's nodes. `expected` is of that snapshot."""
    nodes, room = snapshot.nodes, snapshot.nodes.cpu_capacity_millicores
    node_pools = NodePools.of(policy.pools, nodes)
    found = measured.millicores if measured is not None else {}
    problems = measured.problems if measured is not None else {}
    shares = np.array([found.get(name, np.nan) for name in nodes.names]) / room
    high, target, _ = node_pools.thresholds(shares)
    resources = measured.resources if measured is not None else {}
    highs = {name: node_pools.resource_thresholds(name).high for name in resources}
    soft_tainted = our_taints(snapshot.nodes)
    on = snapshot.pods.node[snapshot.active]
    pods = np.bincount(on, minlength=len(nodes)).tolist()
    lines = []
    for node, name in enumerate(nodes.names):
        share, hot_from = known(shares[node]), known(expected.hot_from[node])
        others = tuple(
            ResourceNow(resource=each, share=known(of_node.get(name, np.nan)), high=known(highs[each][node]))
            for each, of_node in resources.items()
        )
        lines.append(
            NodeLine(
                name=name,
                pool=node_pools.names[node],
                state=_state(share, known(high[node]), hot_from, others),
                share=share,
                high=known(high[node]),
                target=known(target[node]),
                peak_share=known(expected.peak_millicores[node] / room[node]),
                peak_at=known(expected.peak_at[node]),
                hot_from=hot_from,
                soft_tainted=soft_tainted[name][0] if name in soft_tainted else "",
                cordoned=bool(nodes.unschedulable[node]),
                ready=bool(nodes.ready[node]),
                problem=problems.get(name, ""),
                capacity_millicores=float(room[node]),
                pods=pods[node],
                resources=others,
            )
        )
    lines.sort(key=lambda line: (_RANK[line.state], -(line.share or 0.0), line.name))
    return NodeView(
        lines=tuple(lines),
        by_name={line.name: line for line in lines},
        pools=_pools(lines, [pool.name for pool in policy.pools]),
        measured_at=measured.at if measured is not None else None,
        forecast_at=expected.made_at,
        expected=expected,
        row=snapshot.node_index,
        obstacles=tuple(obstacles_of(snapshot, node_pools)),
        problem=problem,
    )


def known(value: float) -> float | None:
    """None for NaN."""
    return float(value) if np.isfinite(value) else None


def _state(
    share: float | None, high: float | None, hot_from: float | None, others: Sequence[ResourceNow] = ()
) -> NodeState:
    if any(each.hot for each in others):
        return NodeState.HOT
    if share is None:
        return NodeState.UNKNOWN
    if high is not None and share > high:
        return NodeState.HOT
    return NodeState.COOL if hot_from is None else NodeState.EXPECTED


def _pools(lines: Sequence[NodeLine], names: Sequence[str]) -> tuple[PoolLine, ...]:
    by_pool: dict[str, list[NodeLine]] = {name: [] for name in (*names, "")}
    for line in lines:
        by_pool[line.pool].append(line)
    return tuple(_pool(name, members) for name, members in by_pool.items() if members or name)


def _pool(name: str, members: Sequence[NodeLine]) -> PoolLine:
    shares = [line.share for line in members if line.share is not None]
    highs = {line.high for line in members}
    return PoolLine(
        name=name,
        nodes=len(members),
        states={state: sum(line.state is state for line in members) for state in NodeState},
        soft_tainted=sum(bool(line.soft_tainted) for line in members),
        cordoned=sum(line.cordoned for line in members),
        share=sum(shares) / len(shares) if shares else None,
        high=highs.pop() if len(highs) == 1 else None,
    )
