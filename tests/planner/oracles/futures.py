"""What really comes of a plan: every course that kube-scheduler's draws among equal nodes can take, whole pods only.

The planner counts with shares; here each course is followed by itself, the pods placed one after the other on a fresh
board.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.scheduler.engine import Departure, Engine

NOWHERE = -1
MOST_COURSES = 30_000

Landed = tuple[tuple[int, int], ...]
"""(pod, node) of what has been moved; a pod stands for all that are like it in every respect."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One of the courses at one move."""

    chance: float
    before: Landed
    """What moved before, and where to."""
    node: int


def futures(
    snapshot: ClusterSnapshot,
    pods: Sequence[int],
    cpu: NDArray[np.float64],
    *,
    soft_tainted: NDArray[np.bool_] | None = None,
) -> Iterator[list[Draw]]:
    """For each pod in the order of its eviction, all that may have happened up to its landing.

    `cpu` (pods,) tells apart what the scheduler can't. Ends early when there are too many courses to follow.
    """
    kinds = Board(snapshot).kinds
    like = {pod: replacement_of(snapshot, pod) for pod in pods}
    twins: dict[object, int] = {}
    twin = {pod: twins.setdefault((kinds.of(pod), kinds.of(like[pod]), cpu[pod]), pod) for pod in pods}
    chances: Mapping[Landed, float] = {(): 1.0}
    for step, pod in enumerate(pods):
        after: dict[Landed, float] = defaultdict(float)
        draws: list[Draw] = []
        known: dict[object, Mapping[int, float]] = {}
        for before, chance in chances.items():
            placed = tuple(sorted((kinds.of(like[other]), node) for other, node in before))
            if placed not in known:
                known[placed] = _lands(snapshot, pods[:step], before, pod, soft_tainted)
            for node, share in known[placed].items():
                draws.append(Draw(chance=chance * share, before=before, node=node))
                after[tuple(sorted([*before, (twin[pod], node)]))] += chance * share
        if len(draws) > MOST_COURSES:
            return
        yield draws
        chances = after


def _lands(
    snapshot: ClusterSnapshot,
    gone: Sequence[int],
    landed: Landed,
    pod: int,
    soft_tainted: NDArray[np.bool_] | None,
) -> Mapping[int, float]:
    """Node -> probability, for one course."""
    board = Board(snapshot, soft_tainted=soft_tainted)
    for each in gone:
        board.take_out(board.kinds.of(each), int(snapshot.pods.node[each]))
    for each, node in landed:
        if node != NOWHERE:
            board.put(board.kinds.of(replacement_of(snapshot, each)), np.array([node]), np.ones(1))
    kind = board.kinds.of(replacement_of(snapshot, pod))
    engine, source = Engine(board), int(snapshot.pods.node[pod])
    owner = _owner_kind(snapshot.pod(pod))
    out: dict[int, float] = defaultdict(float)
    # a ReplicaSet replaces a pod while it goes, a StatefulSet and a Job afterwards; of others nobody knows
    orders = {"ReplicaSet": "w", "StatefulSet": "a", "Job": "a"}.get(owner, "wa")
    for order in orders:
        scores = engine.scores(kind, Departure(source, terminating=order == "w"))
        best = np.flatnonzero((scores == scores.max()) & (scores > -np.inf)).tolist() or [NOWHERE]
        for node in best:
            out[node] += 1 / len(best) / len(orders)
    return out


def replacement_of(snapshot: ClusterSnapshot, pod: int) -> int:
    """A pod that requests what this one's replacement will: a ReplicaSet's is as the newest of its pods."""
    pods = snapshot.pods
    if _owner_kind(snapshot.pod(pod)) != "ReplicaSet":
        return pod
    siblings = [
        each
        for each in np.flatnonzero(pods.owner == pods.owner[pod]).tolist()
        if not pods.terminating[each] and pods.phase[each] not in (SUCCEEDED, FAILED)
    ]
    # of pods of one second the one that requests most
    newest = max(
        siblings,
        key=lambda at: (pods.created[at], pods.cpu_request_millicores[at], pods.memory_request_bytes[at]),
        default=pod,
    )
    alike = all(column[newest] == column[pod] for column in (pods.cpu_request_millicores, pods.memory_request_bytes))
    return newest if pods.created[newest] > pods.created[pod] and not alike else pod


def _owner_kind(pod: Pod) -> str:
    return pod.owner.kind if pod.owner is not None else ""
