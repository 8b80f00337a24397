"""MakeRoom: pending pods for which there is enough room in pieces, but on no node.

A node is found where the pods that may leave it hold what the pending pod lacks there. Which of them leave, and whether
they land, is the planner's to find out. No pod moves for one of lower priority. While a room is held for a pod, nothing
else is moved for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.cluster.steering import ROOM, SOFT_TAINT
from rebalancer.model.decisions.plan import Finding, Goal
from rebalancer.model.notation import figures
from rebalancer.model.notation.arrays import Bools, Floats, Ints
from rebalancer.model.notation.figures import counted
from rebalancer.policy.schema.strategies.lifecycle import MakeRoomArgs
from rebalancer.strategies.interface.requests import Requests
from rebalancer.strategies.interface.selection import Places, cheapest_first, chosen_pods, fills, nodes_in_scope
from rebalancer.strategies.interface.view import Findings, StrategyView

MOST_PODS = 20
"""Pending pods of a cycle for which others are moved, in the order of the scheduler's queue."""
MOST_NODES = 16
"""Nodes that are found for a pending pod, those that need the fewest moves by requests."""

EPS = 1e-6


class _Node(NamedTuple):
    """A node on which moves may make room."""

    node: int
    moves: int
    """So many at least, by requests."""
    lacks: tuple[str, ...]
    """What there is too little of."""


def find(view: StrategyView) -> Findings:
    """One finding for each node that is found for a pending pod; those of a pod follow each other."""
    args, snapshot = view.strategy.args, view.snapshot
    assert isinstance(args, MakeRoomArgs)
    waiting = _waiting(view, args)
    if not waiting:
        return Findings(findings=())
    supply = _Supply(view)
    rooms = _rooms(view, args, supply, waiting)
    findings: list[Finding] = []
    nowhere: list[int] = []
    for pod in [each for each in waiting if each not in rooms][:MOST_PODS]:
        nodes = supply.nodes_for(pod, most=args.max_moves)
        if not nodes:
            nowhere.append(pod)
        findings += [_finding(view, args, supply, pod, each) for each in nodes]
    return Findings(findings=tuple(findings), rooms=rooms, notes=_notes(snapshot, args, nowhere))


def _waiting(view: StrategyView, args: MakeRoomArgs) -> list[int]:
    """Pods that their scheduler has found no node for, in the order of its queue. A nominated one gets its room by
    preemption."""
    snapshot, pods = view.snapshot, view.snapshot.pods
    chosen = (pods.node < 0) & (pods.phase == PENDING) & pods.unschedulable & (pods.nominated < 0)
    chosen &= ~(pods.gated | pods.terminating | pods.unreadable) & (view.now - pods.created >= args.pending_for)
    rows = np.flatnonzero(chosen & chosen_pods(snapshot, args)) if chosen.any() else np.flatnonzero(chosen)
    return sorted(
        rows.tolist(),
        key=lambda at: (
            -pods.priority[at],
            pods.created[at],
            snapshot.namespaces[pods.namespace[at]],
            pods.names[at],
        ),
    )


class _Supply:
    """What nodes have, what is requested on them, and which pods may leave."""

    def __init__(self, view: StrategyView) -> None:
        snapshot = self._snapshot = view.snapshot
        closed = np.zeros(len(snapshot.nodes), dtype=np.bool_)
        closed[list(view.projection.closed)] = True
        self._places = Places(snapshot, closed)
        self._cool: Bools = nodes_in_scope(view) & ~view.base.hot
        """(nodes,) a hot node isn't filled."""
        self._may_leave = fills(snapshot) & ~snapshot.pods.terminating & (snapshot.pods.owner >= 0)
        self.requests = Requests(snapshot)
        self._found: dict[tuple[int, int, int], list[_Node]] = {}

    def candidates(self, pod: int, node: int) -> Ints:
        """Pods of a node that may leave it for a pending pod: of its priority, or a lower one."""
        pods, there = self._snapshot.pods, self._snapshot.pods_on(node)
        able = there[self._may_leave[there] & (pods.priority[there] <= pods.priority[pod])]
        return cheapest_first(self._snapshot, able.astype(np.int64), by_qos=True).astype(np.int32)

    def takes(self, pod: int) -> Bools:
        """(nodes,) that would take the pod if they had room."""
        return self._places.of(self._snapshot.pod_templates[int(self._snapshot.pods.template[pod])])

    def free(self, resource: str, *, later: bool = False) -> Floats:
        """(nodes,) what isn't requested; `later`: with what terminating pods leave."""
        out: Floats = self.requests.allocatable(resource) - self.requests.on_nodes(resource, staying=later)
        return out

    def nodes_for(self, pod: int, *, most: int) -> list[_Node]:
        """The nodes on which at most so many moves make room by requests, the fewest first."""
        snapshot, pods = self._snapshot, self._snapshot.pods
        key = int(pods.template[pod]), int(pods.namespace[pod]), int(pods.priority[pod])
        if key not in self._found:
            leaving = np.flatnonzero(self._may_leave & (pods.priority <= pods.priority[pod]))
            open_ = self.takes(pod) & self._cool
            fewest = np.zeros(len(snapshot.nodes), dtype=np.int64)
            lacking = {name: amount - self.free(name) for name, amount in self.requests.of(pod).items()}
            for name, lacks in lacking.items():
                fewest = np.maximum(fewest, _fewest(lacks, pods.node[leaving], self.requests.amount(name)[leaving]))
            found = np.flatnonzero(open_ & (fewest > 0) & (fewest <= most))
            ranked = sorted(found.tolist(), key=lambda node: (fewest[node], snapshot.nodes.names[node]))
            self._found[key] = [
                _Node(node, int(fewest[node]), tuple(name for name, lacks in lacking.items() if lacks[node] > EPS))
                for node in ranked[:MOST_NODES]
            ]
        return self._found[key]


def _fewest(lacks: Floats, node: Ints, amounts: Floats) -> Ints:
    """(nodes,) how many of the pods (their nodes and amounts) leave enough, the largest first; 0 where nothing lacks,
    a large number where all of them don't."""
    size = len(lacks)
    order = np.lexsort((-amounts, node))
    node, total = node[order], np.cumsum(amounts[order])
    before = np.concatenate([[0.0], total])[np.searchsorted(node, np.arange(size))]
    enough = total - before[node] >= lacks[node] - EPS
    short = np.bincount(node[~enough], minlength=size)
    out = np.where(np.bincount(node[enough], minlength=size) > 0, short + 1, np.iinfo(np.int32).max)
    return np.where(lacks > EPS, out, 0).astype(np.int32)


def _rooms(view: StrategyView, args: MakeRoomArgs, supply: _Supply, waiting: Sequence[int]) -> dict[int, int]:
    """Pending pod -> the node on which room is held for it, by requests and with what terminating pods leave."""
    nodes = view.snapshot.nodes
    held = [
        node
        for node, taints in enumerate(nodes.taints)
        for taint in taints
        if (taint.key, taint.value) == (SOFT_TAINT, ROOM) and view.now - taint.added <= args.hold_for
    ]
    out: dict[int, int] = {}
    taken: dict[tuple[int, str], float] = {}
    for pod in waiting if held else ():
        asked, takes = supply.requests.of(pod), supply.takes(pod)
        free = {name: supply.free(name, later=True) for name in asked}
        for node in sorted(held, key=nodes.names.__getitem__):
            left = {name: free[name][node] - taken.get((node, name), 0.0) for name in asked}
            if takes[node] and all(amount <= left[name] + EPS for name, amount in asked.items()):
                out[pod] = node
                for name, amount in asked.items():
                    taken[node, name] = taken.get((node, name), 0.0) + amount
                break
    return out


def _finding(view: StrategyView, args: MakeRoomArgs, supply: _Supply, pod: int, found: _Node) -> Finding:
    snapshot = view.snapshot
    age = figures.age(view.now - float(snapshot.pods.created[pod]))
    lacks = " and ".join(found.lacks)
    return Finding(
        strategy=view.strategy.name,
        node=found.node,
        pool=view.node_pools.names[found.node],
        reason=f"room for {snapshot.pod(pod)}, pending for {age}: {lacks} of {counted(found.moves, 'pod')} or more",
        candidates=supply.candidates(pod, found.node),
        goal=Goal.ROOM,
        wanted=args.max_moves,
        makes_room=True,
        room_for=pod,
    )


def _notes(snapshot: ClusterSnapshot, args: MakeRoomArgs, nowhere: Sequence[int]) -> tuple[str, ...]:
    if not nowhere:
        return ()
    first = snapshot.pod(nowhere[0])
    more = f" and {len(nowhere) - 1} more" if len(nowhere) > 1 else ""
    return (f"MakeRoom: {counted(args.max_moves, 'move')} or fewer make room on no node for {first}{more}",)
