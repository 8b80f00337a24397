"""Where kube-scheduler would put the replacement of an evicted pod, with this plan's moves counted in.

The answer is a distribution: equal scores are equally likely, and above 100 nodes the scheduler scores only a sample.
A pod whose placement rules are not modelled is refused: not knowing is no reason to gamble.
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
"""People are shown so many of the likeliest; all are judged."""
YOUNG_SECONDS = 300.0
"""A node that joined less than this ago is still filling up."""


def never() -> bool:
    """There is time."""
    return False


class LikelyTargets(NamedTuple):
    """Where a replacement lands."""

    nodes: Rows
    """Likeliest first, equal ones by name."""
    shares: Floats
    """Probabilities; those listed make up 99 % or more."""
    feasible: int
    """Number of feasible nodes."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The same, with what is needed to count it."""

    nodes: Rows
    shares: Floats
    exclusive: Bools
    """Whether the node would be less attractive with one such pod on it."""
    feasible: int

    def shown(self, names: Sequence[str]) -> tuple[TargetNode, ...]:
        """The likeliest target nodes, SHOWN_LANDINGS at most; `names` (nodes,)."""
        likeliest = zip(self.nodes[:SHOWN_LANDINGS].tolist(), self.shares[:SHOWN_LANDINGS].tolist(), strict=True)
        return tuple(TargetNode(names[node], share) for node, share in likeliest)


@dataclass(frozen=True, slots=True)
class _ReplacementView:
    """How the scheduler sees the evicted pod when its replacement comes."""

    without: int | None = None
    terminating: int | None = None


class PlacementModel:
    """The scheduler's view of a snapshot, with this plan's moves counted in."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        *,
        config: SchedulerConfig | None = None,
        steered: Bools | None = None,
        cordoned: Bools | None = None,
        closed: Bools | None = None,
        out_of_time: Callable[[], bool] = never,
        young_seconds: float = YOUNG_SECONDS,
    ) -> None:
        """`steered`, `cordoned` (nodes,): as in `Board`. `out_of_time` is asked before each pod that already waits is
        placed."""
        self._snapshot = snapshot
        self._board = Board(snapshot, steered=steered, cordoned=cordoned)
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
        steered: Bools | None = None,
        cordoned: Bools | None = None,
        closed: Bools | None = None,
        out_of_time: Callable[[], bool] = never,
    ) -> None:
        """Undo everything that was counted, steered or cordoned: the model equals a new one with these arguments."""
        self._board.start_over(steered=steered, cordoned=cordoned)
        self._engine.start_over()
        self._begin(cordoned, closed, out_of_time)

    def without_pending(self) -> Engine:
        """The scheduler over the snapshot alone: no pending pod is placed, nothing of a plan is counted. Everything
        that was counted is undone."""
        self._board.start_over()
        self._engine.start_over()
        return self._engine

    def _begin(self, cordoned: Bools | None, closed: Bools | None, out_of_time: Callable[[], bool]) -> None:
        self._pending = PendingPods(self._snapshot, self._board, self._engine)
        self._late = self._pending.place(out_of_time)
        self.cordoned = ours_cordoned(self._snapshot) if cordoned is None else cordoned
        """(nodes,) cordoned from the start."""
        self.closed: Bools = self._unfit | self._board.unschedulable
        """(nodes,) never to be landed on: leaving, cordoned, younger than `young_seconds`, or not Ready."""
        if closed is not None:
            self.closed |= closed

    # ---- questions

    def feasible(self, pod: Pod) -> Bools | Refusal:
        """(nodes,) where the replacement fits by every filter, or why that isn't known."""
        kind = self._board.kind_of(pod.index)
        if (refusal := self._late or self._engine.knows(kind)) is not None:
            return refusal
        masks = [self._feasible(kind, scene) for scene in self._scenes(pod)]
        return masks[0] if len(masks) == 1 else np.logical_or.reduce(masks)

    def landings(self, pod: Pod) -> Distribution | Refusal:
        """Where the replacement lands, or why it lands nowhere or nobody knows."""
        likely = self.likely(pod)
        if isinstance(likely, Refusal):
            return likely
        kind = self._board.kind_of(pod.index)
        return Distribution(likely.nodes, likely.shares, self._engine.exclusive(kind, likely.nodes), likely.feasible)

    def likely(self, pod: Pod) -> LikelyTargets | Refusal:
        """The same without what only those ask that let it land there."""
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
        """Whether a pending pod that fits nowhere would take the room that this one leaves."""
        name = self._pending.taking(self._board.kind_of(pod.index), pod.node)
        return None if name is None else Refusal.of(Reason.PENDING_TAKES_ROOM, name)

    def pull_bytes(self, pod: Pod, nodes: Rows) -> float:
        """The most that any of these nodes would have to pull; images that no node has reported count 0."""
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
        """Count one eviction and its replacement: later landings see both."""
        kind = self._board.kind_of(pod.index)
        self._board.take_out(kind, pod.node, terminating=pod.terminating)
        self._board.put(kind, landing.nodes, landing.shares / landing.shares.sum())

    def steer(self, nodes: Sequence[int], *, away: bool = True) -> None:
        """From now on these nodes are seen with our PreferNoSchedule taint, or without it."""
        self._engine.steer(nodes, away=away)

    def cordon(self, node: int) -> None:
        """From now on this node is seen as cordoned."""
        self._engine.cordon(node)
        self.closed[node] = True

    @contextmanager
    def as_if_cordoned(self, node: int) -> Iterator[None]:
        """For a moment, and without what is committed inside."""
        before = self._engine.cordon(node)
        try:
            with self._board.tentatively():
                yield
        finally:
            self._engine.cordon(node, cordoned=before)

    # ---- scenes

    def _scenes(self, pod: Pod) -> list[_ReplacementView]:
        """A ReplicaSet's replacement is made at once, while the old pod terminates; a StatefulSet's only afterwards,
        and so is one that needs the same exclusive claim. Of other owners nobody knows: both."""
        if pod.node < 0:
            return [_ReplacementView()]
        kind = pod.owner.kind if pod.owner is not None else ""
        after = _ReplacementView(without=pod.node)
        # a pod that terminates already is no longer counted by spreading
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
