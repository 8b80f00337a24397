"""A kube-scheduler for the executor of plans, written from its sources and apart from `rebalancer.placement`.

Filters: room by requests, one node selector, cordons. Scores, with default weights: LeastAllocated 1, the change of
balance 1, TaintToleration 3, PodTopologySpread with the system's defaults 2, ImageLocality 1. From 100 nodes on it
scores the first feasible nodes of a round robin that begins where the last one ended. Ties are broken at random.

Source: Kubernetes v1.36, `schedule_one.go`, plugins/noderesources, plugins/podtopologyspread/scoring.go,
plugins/tainttoleration, plugins/imagelocality.
"""

from dataclasses import dataclass

import numpy as np

from rebalancer.model.notation.arrays import Bools, Floats, Ints, Rows

MIB = 2.0**20
HOST_SKEW, ZONE_SKEW = 3, 5
"""`maxSkew` of the system's default constraints."""


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Columns of length `nodes`; `images_there` is (images, nodes)."""

    cpu_capacity: Floats
    cpu_allocatable: Floats
    memory_allocatable: Floats
    pods_allocatable: Floats
    pool: Ints
    zone: Ints
    """-1 = the node has no zone label."""
    image_bytes: Floats
    """(images,)"""
    images_there: Bools

    def __len__(self) -> int:
        return len(self.cpu_capacity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A pod to be placed."""

    service: int
    cpu: float
    memory: float
    only_pool: int = -1
    image: int = -1
    spreads: bool = True
    """Its owner is one that the system's default constraints select by."""


def nodes_to_find(nodes: int) -> int:
    """`numFeasibleNodesToFind` with an adaptive percentage."""
    if nodes < 100:
        return nodes
    return max(100, nodes * max(5, 50 - nodes // 125) // 100)


class Scheduler:
    """See the module."""

    def __init__(self, machines: Machines, random: np.random.Generator) -> None:
        self._machines, self._random = machines, random
        nodes = len(machines)
        self._cpu, self._memory, self._count = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
        self._of_service: dict[int, dict[int, int]] = {}
        """Service -> node -> its pods there that are not terminating."""
        self.soft_tainted: Bools = np.zeros(nodes, dtype=np.bool_)
        self.cordoned: Bools = np.zeros(nodes, dtype=np.bool_)
        self._order = _zones_in_turn(machines.zone, random)
        self._start = int(random.integers(nodes))

    def hold(
        self,
        node: Ints,
        service: Ints,
        cpu: Floats,
        memory: Floats,
        *,
        sign: float = 1.0,
        present: bool = True,
    ) -> None:
        """Count pods (pods,) on their nodes; `sign` -1 takes them away. Without `present` spreading ignores them."""
        size = len(self._machines)
        self._cpu += sign * np.bincount(node, weights=cpu, minlength=size)
        self._memory += sign * np.bincount(node, weights=memory, minlength=size)
        self._count += sign * np.bincount(node, minlength=size)
        for at, of in zip(node.tolist(), service.tolist(), strict=True) if present else ():
            there = self._of_service.setdefault(of, {})
            there[at] = there.get(at, 0) + 1

    @property
    def free(self) -> tuple[Floats, Floats]:
        """(nodes,) twice: CPU in millicores and memory in bytes that no pod requests."""
        return self._machines.cpu_allocatable - self._cpu, self._machines.memory_allocatable - self._memory

    def terminate(self, service: int, node: int) -> None:
        """From now on spreading doesn't count this pod; its requests stay until it has ended."""
        self._of_service[service][node] -= 1

    def place(self, pod: Request) -> int | None:
        """Bind the pod: its node, or None where none is feasible."""
        rows = self._sample(self._feasible(pod))
        if not len(rows):
            return None
        scores = self.scores(pod, rows)
        best = rows[scores == scores.max()]
        node = int(best[self._random.integers(len(best))])
        self.hold(
            np.array([node], dtype=np.int32),
            np.array([pod.service], dtype=np.int32),
            np.array([pod.cpu]),
            np.array([pod.memory]),
        )
        return node

    def _feasible(self, pod: Request) -> Bools:
        machines = self._machines
        fits = (
            (self._cpu + pod.cpu <= machines.cpu_allocatable)
            & (self._memory + pod.memory <= machines.memory_allocatable)
            & (self._count + 1 <= machines.pods_allocatable)
            & ~self.cordoned
        )
        out: Bools = fits if pod.only_pool < 0 else fits & (machines.pool == pod.only_pool)
        return out

    def _sample(self, feasible: Bools) -> Rows:
        """The feasible nodes that are scored, and the round robin moved on."""
        size = len(self._machines)
        order = np.roll(self._order, -self._start)
        found = np.flatnonzero(feasible[order])
        wanted = nodes_to_find(size)
        if len(found) > wanted:
            looked = int(found[wanted - 1]) + 1
            found = found[:wanted]
        else:
            looked = size
        self._start = (self._start + looked) % size
        return order[found]

    # ---- scores

    def scores(self, pod: Request, rows: Rows) -> Floats:
        """(rows,) sum of the weighted scores of these nodes, the only ones that are compared."""
        total = self._least_allocated(pod, rows) + self._balance_gain(pod, rows)
        total += 3 * self._toleration(rows)
        total += 2 * self._spread(pod, rows)
        total += self._image(pod, rows)
        return total

    def _least_allocated(self, pod: Request, rows: Rows) -> Floats:
        machines = self._machines
        parts = []
        for used, allocatable in (
            (self._cpu[rows] + pod.cpu, machines.cpu_allocatable[rows]),
            (self._memory[rows] + pod.memory, machines.memory_allocatable[rows]),
        ):
            parts.append(np.where(used > allocatable, 0, np.floor((allocatable - used) * 100 / allocatable)))
        out: Floats = np.floor((parts[0] + parts[1]) / 2)
        return out

    def _balance_gain(self, pod: Request, rows: Rows) -> Floats:
        machines = self._machines

        def balance(cpu: Floats, memory: Floats) -> Floats:
            first = np.minimum(cpu / machines.cpu_allocatable[rows], 1.0)
            second = np.minimum(memory / machines.memory_allocatable[rows], 1.0)
            out: Floats = np.floor((1 - np.abs(first - second) / 2) * 100)
            return out

        before = balance(self._cpu[rows], self._memory[rows])
        after = balance(self._cpu[rows] + pod.cpu, self._memory[rows] + pod.memory)
        out: Floats = 50 + np.floor((50 + after - before) / 2)
        return out

    def _toleration(self, rows: Rows) -> Floats:
        tainted = self.soft_tainted[rows]
        return np.where(tainted, 0.0, 100.0) if tainted.any() else np.full(len(rows), 100.0)

    def _spread(self, pod: Request, rows: Rows) -> Floats:
        if not pod.spreads:
            return np.zeros(len(rows))
        zone = self._machines.zone
        there = {node: count for node, count in self._of_service.get(pod.service, {}).items() if count}
        own = np.zeros(len(self._machines))
        own[list(there)] = list(there.values())
        raw = own[rows] * np.log(len(rows) + 2.0) + (HOST_SKEW - 1)
        zones = np.unique(zone[rows][zone[rows] >= 0])
        if len(zones):
            labelled = zone >= 0
            in_zone = np.bincount(zone[labelled], weights=own[labelled])
            points = in_zone[np.maximum(zone[rows], 0)] * np.log(len(zones) + 2.0) + (ZONE_SKEW - 1)
            raw = raw + np.where(zone[rows] >= 0, points, 0.0)
        raw = np.floor(raw + 0.5)
        least, most = float(raw.min()), float(raw.max())
        if most == 0:
            return np.full(len(rows), 100.0)
        out: Floats = np.floor(100.0 * (most + least - raw) / most)
        return out

    def _image(self, pod: Request, rows: Rows) -> Floats:
        if pod.image < 0:
            return np.zeros(len(rows))
        there = self._machines.images_there[pod.image]
        scaled = np.floor(float(self._machines.image_bytes[pod.image]) * np.count_nonzero(there) / len(there))
        bytes_there = np.where(there[rows], scaled, 0.0)
        clipped = np.clip(bytes_there, 23 * MIB, 1000 * MIB)
        out: Floats = np.floor(100 * (clipped - 23 * MIB) / (1000 * MIB - 23 * MIB))
        return out


def _zones_in_turn(zone: Ints, random: np.random.Generator) -> Rows:
    """Node indices as the scheduler's node tree lists them: one of each zone in turn, in any order within a zone."""
    shuffled = random.permutation(len(zone))
    rank = np.zeros(len(zone), dtype=np.int64)
    for each in np.unique(zone):
        members = shuffled[zone[shuffled] == each]
        rank[members] = np.arange(len(members))
    return np.lexsort((zone, rank))
