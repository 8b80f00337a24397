"""Pending and displaced pods, which are scheduled whatever a plan does.

First the pending pods in the order of the scheduler's queue (by priority, nominated pods first, then by age), then the
successors of terminating pods whose owner creates them only afterwards. Displaced pods, whose nodes are about to go,
come after the replacements of a plan, so they hold no place: where they would land is kept apart.

Where a pod lands is not known if another scheduler places it, or if its scheduler found no node for it although one
fits here: such a pod is placed nowhere. It waits for the room that a move leaves only where that room is the first that
it fits.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Floats, Ints, Rows
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import CPU, MEMORY, Kind
from rebalancer.placement.cluster.nodes import EPS
from rebalancer.placement.draws.sampling import winners
from rebalancer.placement.scheduler.engine import Engine

ENOUGH = 0.99
"""Target nodes are listed until their probabilities reach it."""

MADE_AFTERWARDS = ("StatefulSet", "Job")
"""Owners that create a pod's successor when it is gone: a StatefulSet because of the name, a Job with a
podFailurePolicy because its podReplacementPolicy can only be Failed."""


SAMPLE = 1000
"""The most displaced pods that are landed. At 5,000 nodes each takes about a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DisplacedLandings:
    """Where displaced pods are expected to land. Arrays are (landings,): a pod may land on several nodes."""

    pods: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    nodes: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    expected: Floats = field(default_factory=lambda: np.zeros(0))
    """Probability that the pod lands on the node."""
    others: tuple[tuple[Rows, float, Floats], ...] = ()
    """(pods, how many that were not landed each of them stands for, (nodes,) share of those on each node)."""
    homeless: tuple[tuple[Kind, int], ...] = ()
    """(kind, pod) of those that fit nowhere."""


class PendingPods:
    """Places pending pods and keeps those that are placed nowhere."""

    def __init__(self, snapshot: ClusterSnapshot, board: Board, engine: Engine) -> None:
        self._snapshot, self._board, self._engine = snapshot, board, engine
        self._homeless: dict[tuple[object, ...], tuple[Kind, int]] = {}
        """Filter class -> its first pod that is placed nowhere, with its kind. Thousands of waiting Jobs are a few."""
        self._alike: Counter[tuple[object, ...]] = Counter()
        """Filter class -> how many pods of it are placed nowhere."""
        self._nowhere: dict[tuple[object, ...], int] = {}
        """Filter class -> version of the board at which it fits nowhere."""

    def place(self, out_of_time: Callable[[], bool]) -> Refusal | None:
        """Book them all; a refusal when the time was up before the last."""
        waiting, successors = self._queue(), self._successors()
        total = len(waiting) + len(successors)
        for done, pod in enumerate(waiting + successors):
            if out_of_time():
                return Refusal.of(Reason.PLANNING_TIMEOUT, f"{done} of {total} pending pods placed")
            kind, nominated = self._board.kinds.of(pod), int(self._snapshot.pods.nominated[pod])
            if done >= len(waiting):
                self._board.take_out(kind, int(self._snapshot.pods.node[pod]), terminating=True)
            elif nominated >= 0:
                self._board.put(kind, np.array([nominated]), np.ones(1))
                continue
            if self._snapshot.pods.unschedulable[pod] or self._land(kind) is None:
                self.keep(kind, pod)
        return None

    def keep(self, kind: Kind, pod: int) -> None:
        """Keep a pod that is placed nowhere."""
        same = self._engine.rules(kind).filter_class
        self._homeless.setdefault(same, (kind, pod))
        self._alike[same] += 1

    def settle(self, kind: Kind, node: int) -> None:
        """Book a pod that was placed nowhere on the node on which it fits now."""
        same = self._engine.rules(kind).filter_class
        self._board.put(kind, np.array([node]), np.ones(1))
        self._alike[same] -= 1
        if self._alike[same] <= 0:
            self._homeless.pop(same, None)

    def land_displaced(self, pods: Ints, out_of_time: Callable[[], bool]) -> DisplacedLandings:
        """Where these pods would land after all that is placed; nothing of it is booked. Of many a sample is landed,
        and of that what there is time for."""
        ordered = self._in_order(pods)
        sample = [ordered[at] for at in np.unique(np.linspace(0, len(ordered) - 1, SAMPLE).astype(np.int64)).tolist()]
        landed: list[tuple[int, Rows, Floats]] = []
        homeless: list[tuple[Kind, int]] = []
        alike: dict[tuple[object, ...], tuple[Kind, list[int]]] = {}
        """Filter class -> a kind of it, and its pods."""
        others: list[tuple[Rows, float, Floats]] = []
        with self._board.tentatively():
            for pod in sample:
                if out_of_time():
                    break
                kind = self._board.kinds.of(pod)
                self._board.take_out(kind, int(self._snapshot.pods.node[pod]), terminating=False)
                if (found := self._land(kind)) is None:
                    homeless.append((kind, pod))
                else:
                    landed.append((pod, *found))
                    alike.setdefault(self._engine.rules(kind).filter_class, (kind, []))[1].append(pod)
            if not landed:
                return DisplacedLandings(homeless=tuple(homeless))
            if missing := len(ordered) - len(landed) - len(homeless):
                # each alone would put all that it stands for on a few nodes
                each_counts = missing / (len(landed) + len(homeless))
                others = [(np.array(pods), each_counts, self._spread(kind)) for kind, pods in alike.values()]
        return DisplacedLandings(
            pods=np.repeat([pod for pod, _, _ in landed], [len(nodes) for _, nodes, _ in landed]),
            nodes=np.concatenate([nodes for _, nodes, _ in landed]),
            expected=np.concatenate([shares for _, _, shares in landed]),
            others=tuple(others),
            homeless=tuple(homeless),
        )

    def _spread(self, kind: Kind) -> Floats:
        """(nodes,) share of many pods of a kind on each node that may take one: as CPU is free there by requests."""
        board = self._board
        used = board.held[:, CPU] + board.booked[:, CPU] * board.whole
        free = (self._snapshot.nodes.cpu_allocatable_millicores - used).clip(0) * self._engine.feasible(kind)
        out: Floats = free / max(float(free.sum()), 1e-9)
        return out

    def _queue(self) -> list[int]:
        pods = self._snapshot.pods
        return self._in_order(
            np.flatnonzero((pods.node < 0) & (pods.phase == PENDING) & ~pods.terminating & ~pods.gated)
        )

    def _in_order(self, chosen: Ints | Rows) -> list[int]:
        """Pods in the order of the scheduler's queue."""
        pods, names, spaces = self._snapshot.pods, self._snapshot.pods.names, self._snapshot.namespaces
        return sorted(
            chosen.tolist(),
            key=lambda at: (
                -pods.priority[at],
                pods.nominated[at] < 0,
                pods.created[at],
                spaces[pods.namespace[at]],
                names[at],
            ),
        )

    def _successors(self) -> list[int]:
        """Terminating pods whose successor will be created and doesn't exist yet."""
        snapshot, pods = self._snapshot, self._snapshot.pods
        going = np.flatnonzero(snapshot.active & pods.terminating & (pods.owner >= 0))
        going = going[[snapshot.owners[owner].kind in MADE_AFTERWARDS for owner in pods.owner[going]]]
        missing: dict[int, int] = {}
        chosen = []
        for pod in sorted(going.tolist(), key=lambda at: (pods.namespace[at], pods.names[at])):
            owner = int(pods.owner[pod])
            if owner not in missing:
                missing[owner] = self._missing(owner)
            if missing[owner] > 0:
                missing[owner] -= 1
                chosen.append(pod)
        return chosen

    def _missing(self, owner: int) -> int:
        """How many pods an owner will still create; where its desired replicas are unknown, as many as it has."""
        pods, desired = self._snapshot.pods, self._snapshot.owners[owner].desired
        own = pods.owner == owner
        if desired is None:
            return int(np.count_nonzero(own))
        unfinished = own & ~pods.terminating & (self._snapshot.active | (pods.phase == PENDING))
        return desired - int(np.count_nonzero(unfinished))

    def _land(self, kind: Kind) -> tuple[Rows, Floats] | None:
        """The likely target nodes and their probabilities; None where it fits nowhere, or that isn't known."""
        engine, board = self._engine, self._board
        if engine.knows(kind) is not None:
            return None
        same = engine.rules(kind).filter_class
        known = self._nowhere.get(same)
        if known is not None and (known == board.version or engine.rules(kind).only_gets_worse):
            return None
        count = engine.feasible_count(kind)
        if not count:
            self._nowhere[same] = board.version
            return None
        rows, shares = winners(engine.scores(kind), engine.sample_size(kind, count), enough=ENOUGH)
        shares = shares / shares.sum()
        board.put(kind, rows, shares)
        return rows, shares

    def taking(self, kind: Kind, node: int) -> int | None:
        """A pending pod that fits nowhere now, and on `node` once one pod of `kind` has left it."""
        for homeless, pod in self._likely(kind, node):
            if self._engine.fits(homeless, node, freed=kind) and not self._engine.feasible_count(homeless):
                return pod
        return None

    def rivals(self, pod: int, node: int, *, earlier: bool) -> int | None:
        """A pod of another class that is placed nowhere and fits on this node alone now; `earlier`: only one that comes
        before `pod` in the scheduler's queue."""
        own = self._engine.rules(self._board.kinds.of(pod)).filter_class
        for same, (kind, other) in self._homeless.items():
            if same == own or (earlier and self._in_order(np.array([pod, other]))[0] == pod):
                continue
            if self._engine.fits(kind, node) and self._engine.feasible_count(kind) == 1:
                return other
        return None

    def _likely(self, kind: Kind, node: int) -> Iterator[tuple[Kind, int]]:
        """Those that aren't too large."""
        if not self._homeless:
            return
        board, nodes = self._board, self._snapshot.nodes
        first = list(self._homeless.values())
        kinds = board.kinds
        demand = kinds.demand[[kinds.number_of(each) for each, _ in first]]
        held = board.held[node] + board.booked[node] * board.whole[node] - kinds.demand[kinds.number_of(kind)]
        columns = ((CPU, nodes.cpu_allocatable_millicores[node]), (MEMORY, nodes.memory_allocatable_bytes[node]))
        small = np.ones(len(first), dtype=np.bool_)
        for column, allocatable in columns:
            small &= (demand[:, column] <= allocatable - held[column] + EPS) | (demand[:, column] == 0)
        yield from (first[index] for index in np.flatnonzero(small))
