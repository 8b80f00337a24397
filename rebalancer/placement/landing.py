"""Where kube-scheduler would put the replacement of an evicted pod, with this plan's moves counted.

The result is a distribution: equal scores are equally likely, and above 100 nodes the scheduler scores only a sample.
A pod whose placement rules are not modelled is refused.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rebalancer.model.eviction import TargetNode
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.scheduler import SchedulerConfig
from rebalancer.model.snapshot import ClusterSnapshot, Pod
from rebalancer.placement.board import Board, Kind
from rebalancer.placement.engine import Engine, Verdict
from rebalancer.placement.filters import leaving
from rebalancer.placement.nodes import Bools, Floats, Rows, ours_cordoned
from rebalancer.placement.pending import ENOUGH, MADE_AFTERWARDS, PendingPods
from rebalancer.placement.sampling import winners
from rebalancer.placement.scores import missing_bytes

SHOWN_LANDINGS = 8
"""Target nodes that are shown, the likeliest first; all are checked."""
YOUNG_SECONDS = 300.0
"""A younger node is still filling up."""


def never() -> bool:
    """No time limit."""
    return False


class LikelyTargets(NamedTuple):
    """Possible target nodes of a replacement."""

    nodes: Rows
    """Likeliest first, equal ones by name."""
    shares: Floats
    """Probabilities; together 99 % or more."""
    feasible: int
    """Number of feasible nodes."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Possible target nodes of a replacement, as it is counted."""

    nodes: Rows
    shares: Floats
    exclusive: Bools
    """Whether the node is less attractive to the next such pod with one on it."""
    feasible: int

    def shown(self, names: Sequence[str]) -> tuple[TargetNode, ...]:
        """The likeliest target nodes, SHOWN_LANDINGS at most; `names` (nodes,)."""
        likeliest = zip(self.nodes[:SHOWN_LANDINGS].tolist(), self.shares[:SHOWN_LANDINGS].tolist(), strict=True)
        return tuple(TargetNode(names[node], share) for node, share in likeliest)


@dataclass(frozen=True, slots=True)
class _ReplacementView:
    """The evicted pod in the scheduler's view when its replacement is created."""

    without: int | None = None
    terminating: int | None = None


class PlacementModel:
    """The scheduler's view of a snapshot, with this plan's moves counted."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        *,
        config: SchedulerConfig | None = None,
        soft_tainted: Bools | None = None,
        cordoned: Bools | None = None,
        closed: Bools | None = None,
        out_of_time: Callable[[], bool] = never,
        young_seconds: float = YOUNG_SECONDS,
    ) -> None:
        """`soft_tainted`, `cordoned` (nodes,): as in `Board`. `closed` (nodes,) are no targets. Pending pods are placed
        until `out_of_time` returns True. Nodes younger than `young_seconds` are no targets."""
        self._snapshot = snapshot
        self._board = Board(snapshot, soft_tainted=soft_tainted, cordoned=cordoned)
        self._engine = Engine(self._board, config)
        # ties are shown by name, so that the order in which nodes are listed changes nothing
        self._name_rank = np.argsort(np.argsort(np.array(snapshot.nodes.names)))
        pods, active = snapshot.pods, snapshot.active
        self._least_priority = np.full(len(snapshot.nodes), np.iinfo(np.int64).max)
        np.minimum.at(self._least_priority, pods.node[active], pods.priority[active])
        nodes = snapshot.nodes
        self._unfit: Bools = leaving(nodes) | (snapshot.taken - nodes.created < young_seconds) | ~nodes.ready
        self._begin(cordoned, closed, out_of_time)

    def start_over(
        self,
        *,
        soft_tainted: Bools | None = None,
        cordoned: Bools | None = None,
        closed: Bools | None = None,
        out_of_time: Callable[[], bool] = never,
    ) -> None:
        """Undo everything that was counted, tainted or cordoned: the model equals a new one with these arguments."""
        self._board.start_over(soft_tainted=soft_tainted, cordoned=cordoned)
        self._engine.start_over()
        self._begin(cordoned, closed, out_of_time)

    def without_pending(self) -> Engine:
        """The scheduler over the snapshot alone, with no pending pod placed. Undoes everything that was counted."""
        self._board.start_over()
        self._engine.start_over()
        return self._engine

    def _begin(self, cordoned: Bools | None, closed: Bools | None, out_of_time: Callable[[], bool]) -> None:
        self._pending = PendingPods(self._snapshot, self._board, self._engine)
        self._late = self._pending.place(out_of_time)
        self.cordoned = ours_cordoned(self._snapshot) if cordoned is None else cordoned
        """(nodes,) cordoned before the plan."""
        self.closed: Bools = self._unfit | self._board.unschedulable
        """(nodes,) no targets: leaving, cordoned, young, not Ready, or closed by the caller."""
        if closed is not None:
            self.closed |= closed

    # ---- questions

    def feasible(self, pod: Pod) -> Bools | Refusal:
        """(nodes,) feasible for the replacement, or why that isn't known."""
        kind = self._board.kind_of(pod.index)
        if (refusal := self._late or self._engine.knows(kind)) is not None:
            return refusal
        masks = [self._feasible(kind, scene) for scene in self._scenes(pod)]
        return masks[0] if len(masks) == 1 else np.logical_or.reduce(masks)

    def landings(self, pod: Pod) -> Distribution | Refusal:
        """Where the replacement lands, or why that is nowhere or unknown."""
        likely = self.likely(pod)
        if isinstance(likely, Refusal):
            return likely
        kind = self._board.kind_of(pod.index)
        return Distribution(likely.nodes, likely.shares, self._engine.exclusive(kind, likely.nodes), likely.feasible)

    def likely(self, pod: Pod) -> LikelyTargets | Refusal:
        """The same without `exclusive`."""
        kind = self._board.kind_of(pod.index)
        if (refusal := self._late or self._engine.knows(kind)) is not None:
            return refusal
        found: list[tuple[Rows, Floats]] = []
        most = 0
        for scene in self._scenes(pod):
            count = self._engine.feasible_count(kind, without=scene.without, terminating=scene.terminating)
            if count:
                scores = self._engine.scores(kind, without=scene.without, terminating=scene.terminating)
                found.append(winners(scores, self._engine.sample_size(kind, count), enough=ENOUGH))
                most = max(most, count)
        if not found:
            return self._homeless(pod, kind)
        rows, shares = found[0]
        if len(found) > 1:
            share_of = np.zeros(len(self._snapshot.nodes))
            for rows, shares in found:
                share_of[rows] += shares / len(found)
            rows = np.flatnonzero(share_of)
            shares = share_of[rows]
        if len(rows) > 1:
            order = np.lexsort((self._name_rank[rows], -shares))
            rows, shares = rows[order], shares[order]
        return LikelyTargets(rows, shares, most)

    def pending_takes(self, pod: Pod) -> Refusal | None:
        """Why a pending pod that fits nowhere would take the place of this pod, or None."""
        name = self._pending.taking(self._board.kind_of(pod.index), pod.node)
        return None if name is None else Refusal.of(Reason.PENDING_TAKES_ROOM, name)

    def pull_bytes(self, pod: Pod, nodes: Rows) -> float:
        """The most bytes that any of these nodes would have to pull; images that no node has reported count 0."""
        snapshot = self._snapshot
        missing = missing_bytes(snapshot.nodes.images, pod.template, nodes, len(snapshot.nodes))
        return float(missing.max(initial=0.0))

    def explain(self, pod: Pod) -> Verdict:
        """The scheduler's view of every node for this pod's replacement. For a pending pod, its view of the pod itself
        before any pending pod is placed: then everything that was counted is undone."""
        kind = self._board.kind_of(pod.index)
        if pod.node < 0:
            return self.without_pending().verdict(kind)
        scene = self._scenes(pod)[0]
        return self._engine.verdict(kind, without=scene.without, terminating=scene.terminating)

    # ---- this plan's moves

    def commit(self, pod: Pod, landing: Distribution) -> None:
        """Count an eviction and its replacement."""
        kind = self._board.kind_of(pod.index)
        self._board.take_out(kind, pod.node, terminating=pod.terminating)
        self._board.put(kind, landing.nodes, landing.shares / landing.shares.sum())

    def steer(self, nodes: Sequence[int], *, away: bool = True) -> None:
        """See these nodes with our soft taint from now on, or without it."""
        self._engine.steer(nodes, away=away)

    def cordon(self, node: int) -> None:
        """See this node as cordoned from now on."""
        self._engine.cordon(node)
        self.closed[node] = True

    @contextmanager
    def as_if_cordoned(self, node: int) -> Iterator[None]:
        """See the node as cordoned inside, and undo at the end what is committed there."""
        before = self._engine.cordon(node)
        try:
            with self._board.tentatively():
                yield
        finally:
            self._engine.cordon(node, cordoned=before)

    # ---- scenes

    def _scenes(self, pod: Pod) -> list[_ReplacementView]:
        """A ReplicaSet creates the replacement at once, while the old pod terminates; a StatefulSet only afterwards.
        A pod with an exclusive claim is placed afterwards too. For other owners both are assumed."""
        if pod.node < 0:
            return [_ReplacementView()]
        kind = pod.owner.kind if pod.owner is not None else ""
        after = _ReplacementView(without=pod.node)
        # spreading doesn't count a pod that is terminating already
        while_it_goes = _ReplacementView() if pod.terminating else _ReplacementView(terminating=pod.node)
        if kind in MADE_AFTERWARDS or self._uses_exclusive_claim(pod):
            return [after]
        return [while_it_goes] if kind in ("ReplicaSet", "ReplicationController") else [after, while_it_goes]

    def _uses_exclusive_claim(self, pod: Pod) -> bool:
        exclusive = self._snapshot.exclusive_claims
        return bool(exclusive) and any(
            (pod.namespace, str(volume.persistent_volume_claim.get("claimName", ""))) in exclusive
            for volume in pod.template.volumes
            if volume.persistent_volume_claim is not None
        )

    def _feasible(self, kind: Kind, scene: _ReplacementView) -> Bools:
        return self._engine.feasible(kind, without=scene.without, terminating=scene.terminating)

    def _homeless(self, pod: Pod, kind: Kind) -> Refusal:
        lower = self._engine.statically_feasible(kind) & (self._least_priority < pod.priority)
        return Refusal.of(Reason.NEEDS_PREEMPTION if lower.any() else Reason.NO_TARGET_NODE)
