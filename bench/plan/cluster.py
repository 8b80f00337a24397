"""A cluster that carries out plans: evictions, replacements placed by a scheduler of its own, start-up times, usage.

The state is this module's own arrays; nothing of `rebalancer.placement` is used. A ReplicaSet's replacement is created
at once, while the evicted pod terminates; requests are held until the grace period is over. CPU moves with the pod.
"""

from dataclasses import dataclass, field

import numpy as np

from bench.plan.scheduler import Machines, Request, Scheduler
from rebalancer.model.notation.arrays import Bools, Floats, Ints

GRACE_SECONDS = 30.0
START_UP_SECONDS = (10.0, 50.0)
"""Range of the time from a pod's binding to Ready."""
TOLERANCE_MILLICORES = 1e-3
LONG_AGO = 30 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class Services:
    """Columns of length `services`."""

    kind: tuple[str, ...]
    """`Deployment`, or `Job`, whose pods no guard lets go."""
    cpu_request: Floats
    memory_request: Floats
    only_pool: Ints
    """Pool that a node selector names; -1 = any."""
    image: Ints
    """Index into the nodes' images; -1 = none."""
    max_unavailable: Ints
    """Of its PodDisruptionBudget; -1 = no budget."""

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Shares of capacity in every pool."""

    high: float = 0.75
    target: float = 0.65
    low: float = 0.50


@dataclass(slots=True, kw_only=True)
class Landings:
    """What became of the replacements."""

    placed: int = 0
    returned: int = 0
    """On the node that the evicted pod left."""
    over_target: int = 0
    """The node was over its target with the replacement."""
    made_hot: set[int] = field(default_factory=set)
    """Nodes that the replacement of another node's pod took over `high`."""


class Cluster:
    """See the module. Times are seconds since the epoch; every change happens in `evict` or `advance`."""

    def __init__(
        self,
        *,
        machines: Machines,
        services: Services,
        service: Ints,
        node: Ints,
        cpu: Floats,
        overhead: Floats,
        thresholds: Thresholds,
        now: float,
        seed: int,
    ) -> None:
        """`service`, `node` (-1 = pending) and `cpu` in millicores are (pods,). `overhead` (nodes,) is CPU of no
        pod, in millicores."""
        self.machines, self.services, self.thresholds = machines, services, thresholds
        self.overhead = overhead
        self.now = now
        self.service, self.node, self.cpu = service.astype(np.int32), node.astype(np.int32), cpu.astype(np.float64)
        pods = len(service)
        self.created = np.full(pods, now - LONG_AGO)
        self.ready_at = np.where(self.node >= 0, now - LONG_AGO, np.inf)
        self.gone_at = np.full(pods, np.inf)
        self.left_node = np.full(pods, -1, dtype=np.int32)
        """(pods,) the node that the predecessor of a replacement left; -1 for other pods."""
        self.alive: Bools = np.ones(pods, dtype=np.bool_)
        self.desired = np.bincount(self.service, minlength=len(services))
        self.random = np.random.default_rng([seed, 77])
        self.scheduler = Scheduler(machines, self.random)
        bound = self.node >= 0
        self.scheduler.hold(self.node[bound], *self._requests(self.service[bound]))
        self.landings = Landings()
        self.evictions = 0
        self.hot_at_first: Bools = self.load > thresholds.high * machines.cpu_capacity + TOLERANCE_MILLICORES

    # ---- state

    @property
    def terminating(self) -> Bools:
        """(pods,)"""
        out: Bools = np.isfinite(self.gone_at)
        return out

    @property
    def load(self) -> Floats:
        """(nodes,) CPU in millicores once terminating pods have left and replacements have started."""
        counts = self.alive & ~self.terminating & (self.node >= 0)
        used = np.bincount(self.node[counts], weights=self.cpu[counts], minlength=len(self.overhead))
        out: Floats = self.overhead + used
        return out

    @property
    def cooled(self) -> Bools:
        """(nodes,) that were hot at first and are at or under their target."""
        limit = self.thresholds.target * self.machines.cpu_capacity + TOLERANCE_MILLICORES
        out: Bools = self.hot_at_first & (self.load <= limit)
        return out

    @property
    def hot(self) -> Bools:
        """(nodes,)"""
        out: Bools = self.load > self.thresholds.high * self.machines.cpu_capacity + TOLERANCE_MILLICORES
        return out

    def in_flight(self) -> bool:
        """Whether a pod is terminating, or a replacement is not Ready yet."""
        waiting = (self.left_node >= 0) & (self.ready_at > self.now)
        return bool((self.alive & (self.terminating | waiting)).any())

    def healthy(self) -> Ints:
        """(services,) Ready pods that are not terminating."""
        counts = self.alive & ~self.terminating & (self.ready_at <= self.now)
        return np.bincount(self.service[counts], minlength=len(self.services)).astype(np.int32)

    def disruptions_allowed(self) -> Ints:
        """(services,) as the disruption controller states it; without a budget -1."""
        allowed = self.healthy() - (self.desired - self.services.max_unavailable)
        return np.where(self.services.max_unavailable < 0, -1, np.maximum(allowed, 0)).astype(np.int32)

    # ---- what happens

    def budget_allows(self, pod: int) -> bool:
        """Whether the API server would admit the eviction."""
        service = int(self.service[pod])
        return self.services.max_unavailable[service] < 0 or self.disruptions_allowed()[service] > 0

    def evict(self, pod: int) -> None:
        """The pod begins to terminate, and its replacement is placed."""
        self.evictions += 1
        self.gone_at[pod] = self.now + GRACE_SECONDS
        source = int(self.node[pod])
        self.scheduler.terminate(int(self.service[pod]), source)
        self._place(self._append(pod, source))

    def advance(self, seconds: float) -> None:
        """Let time pass: pods end, pods that wait for room are tried again, replacements become Ready."""
        end = self.now + seconds
        while (due := self._next_end()) <= end:
            self.now = due
            ended = np.flatnonzero(self.alive & (self.gone_at <= due))
            self.alive[ended] = False
            self.scheduler.hold(self.node[ended], *self._requests(self.service[ended]), sign=-1.0, present=False)
            # the queue is ordered by age where priorities are equal
            pending = np.flatnonzero(self.alive & (self.node < 0))
            for pod in pending[np.argsort(self.created[pending], kind="stable")].tolist():
                self._place(pod)
        self.now = end

    def _next_end(self) -> float:
        return float(self.gone_at[self.alive].min(initial=np.inf))

    def _append(self, pod: int, source: int) -> int:
        self.service = np.append(self.service, self.service[pod])
        self.cpu = np.append(self.cpu, self.cpu[pod])
        self.node = np.append(self.node, np.int32(-1))
        self.created = np.append(self.created, self.now)
        self.ready_at = np.append(self.ready_at, np.inf)
        self.gone_at = np.append(self.gone_at, np.inf)
        self.left_node = np.append(self.left_node, np.int32(source))
        self.alive = np.append(self.alive, True)
        return len(self.service) - 1

    def _requests(self, service: Ints) -> tuple[Ints, Floats, Floats]:
        return service, self.services.cpu_request[service], self.services.memory_request[service]

    def _place(self, pod: int) -> None:
        service = int(self.service[pod])
        request = Request(
            service=service,
            cpu=float(self.services.cpu_request[service]),
            memory=float(self.services.memory_request[service]),
            only_pool=int(self.services.only_pool[service]),
            image=int(self.services.image[service]),
            spreads=self.services.kind[service] != "Job",
        )
        node = self.scheduler.place(request)
        if node is None:
            return
        self.node[pod] = node
        self.ready_at[pod] = self.now + self.random.uniform(*START_UP_SECONDS)
        if self.left_node[pod] >= 0:
            self._count_landing(pod, node)

    def _count_landing(self, pod: int, node: int) -> None:
        capacity, load = float(self.machines.cpu_capacity[node]), float(self.load[node])
        returned, high = node == int(self.left_node[pod]), self.thresholds.high * capacity + TOLERANCE_MILLICORES
        self.landings.placed += 1
        self.landings.returned += returned
        self.landings.over_target += load > self.thresholds.target * capacity + TOLERANCE_MILLICORES
        if not returned and load - float(self.cpu[pod]) <= high < load:
            self.landings.made_hot.add(node)
