"""A recording of a cluster that never was, from a seed: what the benchmark of replays runs over.

Services with day curves and bursts, rollouts, replicas for the day, hourly Jobs, a DaemonSet and budgets, in two pools
whose pods name their pool. Requests are even over the nodes and CPU is not, so that some nodes are hot at their peak.
Pods are placed by a small scheduler of this module; no eviction by rebalancer is in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

import msgspec
import numpy as np

from bench.replays.machines import (
    ALLOCATABLE_MILLICORES,
    CORES,
    GIB,
    HOSTNAME,
    POOL,
    POOLS,
    START,
    machines_of,
    today_of,
)
from rebalancer.model.cluster.objects import LabelSelector, PodTemplate, SpreadConstraint, Toleration
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.measured.history import DAY_SECONDS, HOUR_SECONDS, SLOTS, STEP_SECONDS
from rebalancer.model.notation.arrays import Floats, Ints
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import RecordedBudget, RecordedPods, RecordedUsage, Recording

Random = np.random.Generator

COMPUTE_SHARE = 0.2
"""Of the nodes and of the services, unless another is given."""
REQUESTED_SHARE = 0.65
"""Of the allocatable CPU, by the pods of services at night."""
NAMESPACES = 20
SINGLE_SHARE, SCALED_SHARE, BUDGET_SHARE, SPREAD_SHARE = 0.08, 0.1, 0.3, 0.2
"""Of the services: with one replica; with half as many replicas more by day; with a PodDisruptionBudget; with a soft
spread over hosts."""
ROLLOUTS_A_DAY = 0.15
"""Of a service, on working days."""
BURSTS_A_DAY = 0.1
JOB_SHARE = 0.02
"""Pods of Jobs that run at the same time, of all pods."""
JOB_HOURS = (0.3, 1.2)
HIGH, HOT_SHARE = 0.75, 0.1
"""Share of its CPU that a node is hot over, and the share of nodes that get there on their highest day."""
FULL_SHARE = 0.97
"""No node uses more of its CPU."""
OVERHEAD_SHARE = 0.03
SAMPLED_NODES = 50
"""Nodes that the scheduler looks at for one pod."""
DAEMON_MILLICORES = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    kind: str
    """`Deployment`, `DaemonSet` or `CronJob`."""
    namespace: int
    name: str
    pool: int
    """-1 for any."""
    replicas: int
    cpu_request: float
    millicores: float
    """Of one replica on its average day, before all are scaled to HOT_SHARE."""
    spreads: bool = False
    has_budget: bool = False
    scales: bool = False


@dataclass(slots=True)
class _Columns:
    """Pods while they are made."""

    names: list[str] = field(default_factory=list)
    service: list[int] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    template: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    """-1 until it is placed."""
    created: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


class _Life:
    """Makes owners, templates and pods of services over the days."""

    def __init__(self, random: Random, *, steps: int) -> None:
        self.random, self.end = random, START + steps * STEP_SECONDS
        self.days = -(-steps // SLOTS)
        self.pods, self.owners = _Columns(), list[Owner]()
        self.templates = list[PodTemplate]()

    def deployment(self, number: int, service: _Service) -> None:
        """Its replicas from before the start on, with rollouts, and more of them by day where it scales."""
        random = self.random
        top = self._owner(service, "Deployment", service.name)
        revision = self._revision(service, top, 0)
        running = [
            self._add(number, revision, START - random.uniform(1, 30) * DAY_SECONDS) for _ in range(service.replicas)
        ]
        more, at = list[int](), 0
        for when, what in sorted(self._events(service)):
            if what == "rollout":
                at += 1
                revision = self._revision(service, top, at)
                running = self._roll(number, revision, running, when)
                more = self._roll(number, revision, more, when)
            elif what == "out":
                more = [self._add(number, revision, when) for _ in range(service.replicas // 2)]
            else:
                for pod in more:
                    self._end(pod, when)
                more = []

    def daemon_set(self, number: int, service: _Service, nodes: int) -> None:
        """One pod on each node."""
        top = self._owner(service, "DaemonSet", service.name)
        template = self._template(service, {"app": service.name})
        for node in range(nodes):
            pod = self._add(number, (top, template), START - 10 * DAY_SECONDS)
            self.pods.node[pod] = node

    def cron_job(self, number: int, service: _Service) -> None:
        """A Job at the same minute of every hour."""
        random = self.random
        top = self._owner(service, "CronJob", service.name)
        minute = int(random.integers(0, 60))
        for hour in range(self.days * 24):
            when = START + hour * HOUR_SECONDS + minute * 60.0
            if when >= self.end:
                return
            name = f"{service.name}-{hour:04d}"
            job = self._owner(service, "Job", name, parent=top)
            template = self._template(service, {"app": service.name, "job-name": name})
            for _ in range(service.replicas):
                pod = self._add(number, (job, template), when)
                self._end(pod, when + random.uniform(*JOB_HOURS) * HOUR_SECONDS)

    def _events(self, service: _Service) -> Iterator[tuple[float, str]]:
        random = self.random
        for day in range(self.days):
            midnight, working = START + day * DAY_SECONDS, day % 7 < 5
            if working and random.random() < ROLLOUTS_A_DAY:
                yield midnight + random.uniform(9, 17) * HOUR_SECONDS, "rollout"
            if working and service.scales:
                yield midnight + random.uniform(7.5, 8.5) * HOUR_SECONDS, "out"
                yield midnight + random.uniform(19.5, 20.5) * HOUR_SECONDS, "in"

    def _roll(self, number: int, revision: tuple[int, int], old: list[int], when: float) -> list[int]:
        """The pods that replace `old`, one after the other."""
        out = []
        for each in old:
            if when >= self.end:
                out.append(each)
                continue
            out.append(self._add(number, revision, when))
            self._end(each, when := self.pods.ready[out[-1]] + 5.0)
        return out

    def _revision(self, service: _Service, top: int, number: int) -> tuple[int, int]:
        """Owner and template of a ReplicaSet."""
        digest = f"{number:04x}"
        owner = self._owner(service, "ReplicaSet", f"{service.name}-{digest}", parent=top)
        return owner, self._template(service, {"app": service.name, "pod-template-hash": digest})

    def _owner(self, service: _Service, kind: str, name: str, parent: int = -1) -> int:
        namespace = f"n{service.namespace}"
        self.owners.append(
            Owner(kind=kind, namespace=namespace, name=name, uid=f"owner-{len(self.owners)}", parent=parent)
        )
        return len(self.owners) - 1

    def _template(self, service: _Service, labels: dict[str, str]) -> int:
        spread = SpreadConstraint(
            topology_key=HOSTNAME,
            when_unsatisfiable="ScheduleAnyway",
            label_selector=LabelSelector(match_labels={"app": service.name}),
        )
        memory = _memory(service)
        self.templates.append(
            PodTemplate(
                labels=labels,
                node_selector={POOL: POOLS[service.pool]} if service.pool >= 0 else {},
                tolerations=(Toleration(operator="Exists"),) if service.kind == "DaemonSet" else (),
                topology_spread=(spread,) if service.spreads else (),
                cpu_request_millicores=service.cpu_request,
                memory_request_bytes=memory,
                cpu_scored_millicores=service.cpu_request,
                memory_scored_bytes=memory,
                qos="Burstable",
            )
        )
        return len(self.templates) - 1

    def _add(self, number: int, revision: tuple[int, int], created: float) -> int:
        pods, index = self.pods, len(self.pods.names)
        owner, template = revision
        pods.names.append(f"{self.owners[owner].name}-{index:06d}")
        pods.service.append(number)
        pods.owner.append(owner)
        pods.template.append(template)
        pods.node.append(-1)
        pods.created.append(created)
        pods.ready.append(created + 1.0 + self.random.uniform(5, 40))
        pods.ended.append(np.inf)
        return index

    def _end(self, pod: int, when: float) -> None:
        self.pods.ended[pod] = when if when < self.end else np.inf


def make(
    nodes: int,
    pods: int,
    days: float,
    seed: int,
    *,
    compute_share: float = COMPUTE_SHARE,
    hot_share: float = HOT_SHARE,
) -> Recording:
    """A recording of `days` from a Monday on. `pods` run on the first night besides those of Jobs. `compute_share` of
    the nodes and services are of the second pool; `hot_share` of the nodes are hot on their highest day."""
    random, steps = np.random.default_rng([seed, 22]), round(days * SLOTS)
    node_pool = (np.arange(nodes) >= round(nodes * (1 - compute_share))).astype(np.int32)
    services = _services(random, nodes, pods, compute_share)
    life = _Life(random, steps=steps)
    for number, service in enumerate(services):
        if service.kind == "Deployment":
            life.deployment(number, service)
        elif service.kind == "DaemonSet":
            life.daemon_set(number, service, nodes)
        else:
            life.cron_job(number, service)
    _place(random, life.pods, services, node_pool)
    machines = machines_of(nodes, node_pool)
    namespaces = tuple(f"n{index}" for index in range(NAMESPACES))
    templates = PodTemplateTable(
        [msgspec.json.encode(each) for each in life.templates], json_decoder(PodTemplate).decode
    )
    recorded = _recorded(life.pods, services)
    return Recording(
        source=f"bench, seed {seed}",
        cluster="bench",
        start=START,
        steps=steps,
        nodes=machines,
        node_joined=np.full(nodes, -np.inf),
        node_left=np.full(nodes, np.inf),
        node_ready=np.ones((nodes, steps), dtype=np.bool_),
        node_unschedulable=np.zeros((nodes, steps), dtype=np.bool_),
        namespaces=namespaces,
        owners=tuple(life.owners),
        pod_templates=templates,
        pods=recorded,
        usage={CPU: _usage(random, life.pods, services, recorded, nodes=nodes, steps=steps, hot_share=hot_share)},
        budgets=tuple(_budget(each, steps) for each in services if each.has_budget),
        today=today_of(machines, templates, namespaces, at=life.end),
    )


def _services(random: Random, nodes: int, pods: int, compute_share: float) -> list[_Service]:
    """Deployments with about `pods` replicas, the pods of two DaemonSets counted, and CronJobs."""
    left = pods - 2 * nodes
    if left <= 0:
        raise ValueError(f"{pods} pods: more than {2 * nodes} are needed, two of a DaemonSet for each node")
    mean_request = REQUESTED_SHARE * ALLOCATABLE_MILLICORES * nodes / pods
    out = [
        _Service(
            kind="DaemonSet",
            namespace=index,
            name=f"agent{index}",
            pool=-1,
            replicas=nodes,
            cpu_request=DAEMON_MILLICORES,
            millicores=DAEMON_MILLICORES,
        )
        for index in range(2)
    ]
    while left > 0:
        replicas = 1 if random.random() < SINGLE_SHARE else min(int(random.geometric(0.12)) + 1, max(left, 2), 40)
        left -= replicas
        request = float(np.round(mean_request * random.gamma(2.0, 0.5), -1)) + 10.0
        out.append(
            _Service(
                kind="Deployment",
                namespace=int(random.integers(NAMESPACES)),
                name=f"web{len(out)}",
                pool=int(random.random() < compute_share),
                replicas=replicas,
                cpu_request=request,
                millicores=request * random.lognormal(-0.6, 0.7),
                spreads=bool(random.random() < SPREAD_SHARE),
                has_budget=bool(replicas > 1 and random.random() < BUDGET_SHARE),
                scales=bool(replicas > 1 and random.random() < SCALED_SHARE),
            )
        )
    at_once = JOB_SHARE * pods / np.mean(JOB_HOURS)
    while at_once > 0:
        replicas = int(random.integers(1, 5))
        at_once -= replicas
        request = float(np.round(mean_request * random.gamma(2.0, 0.5), -1)) + 10.0
        out.append(
            _Service(
                kind="CronJob",
                namespace=int(random.integers(NAMESPACES)),
                name=f"batch{len(out)}",
                pool=int(random.random() < compute_share),
                replicas=replicas,
                cpu_request=request,
                millicores=request * random.lognormal(0.0, 0.3),
            )
        )
    return out


def _memory(service: _Service) -> float:
    """Bytes that a pod requests."""
    return float(np.round(service.cpu_request / 1000 * 3 * GIB))


def _place(random: Random, pods: _Columns, services: list[_Service], node_pool: Ints) -> None:
    """Sets the nodes: each pod on the one with the least requested share among a sample of its pool."""
    free = np.full(len(node_pool), ALLOCATABLE_MILLICORES)
    there = np.zeros((len(services), len(node_pool)), dtype=np.int16)
    members = [np.flatnonzero(node_pool == pool) for pool in range(len(POOLS))]
    ending: list[tuple[float, int]] = []
    for pod in np.argsort(pods.created, kind="stable").tolist():
        number, service = pods.service[pod], services[pods.service[pod]]
        while ending and ending[0][0] <= pods.created[pod]:
            _, gone = heappop(ending)
            free[pods.node[gone]] += services[pods.service[gone]].cpu_request
            there[pods.service[gone], pods.node[gone]] -= 1
        if pods.node[pod] < 0:
            pool = members[service.pool]
            sample = pool[random.integers(0, len(pool), SAMPLED_NODES)] if len(pool) > SAMPLED_NODES else pool
            pods.node[pod] = int(sample[np.argmax(free[sample] - there[number, sample] * 0.2 * ALLOCATABLE_MILLICORES)])
        free[pods.node[pod]] -= service.cpu_request
        there[number, pods.node[pod]] += 1
        if np.isfinite(pods.ended[pod]):
            heappush(ending, (pods.ended[pod], pod))


def _recorded(pods: _Columns, services: list[_Service]) -> RecordedPods:
    count = len(pods.names)
    return RecordedPods(
        names=pods.names,
        uids=[f"uid-{index}" for index in range(count)],
        namespace=np.array([services[each].namespace for each in pods.service], dtype=np.int32),
        owner=np.array(pods.owner, dtype=np.int32),
        template=np.array(pods.template, dtype=np.int32),
        node=np.array(pods.node, dtype=np.int32),
        created=np.array(pods.created),
        bound=np.array(pods.created) + 1.0,
        ready=np.array(pods.ready),
        ended=np.array(pods.ended),
        priority=np.zeros(count, dtype=np.int64),
        replaced=np.full(count, -1, dtype=np.int32),
    )


def _usage(
    random: Random,
    pods: _Columns,
    services: list[_Service],
    recorded: RecordedPods,
    *,
    nodes: int,
    steps: int,
    hot_share: float,
) -> RecordedUsage:
    """CPU of the pods while they ran, and of the nodes: the part of each step that each pod ran, and the overhead."""
    first = (np.clip(recorded.bound - START, 0, None) / STEP_SECONDS).astype(np.int32)
    last = np.ceil(np.clip(recorded.ended - START, 0, steps * STEP_SECONDS) / STEP_SECONDS).astype(np.int64)
    counts = np.maximum(last - first, 0)
    start = np.concatenate([[0], np.cumsum(counts)])
    values = np.empty(int(start[-1]), dtype=np.float32)
    curves = np.stack([_curve(random, service, steps) for service in services])
    own = random.lognormal(0.0, 0.15, len(pods.names))
    sums = np.zeros((nodes, steps))
    edges = START + STEP_SECONDS * np.arange(steps + 1)
    for pod, (at, many) in enumerate(zip(first.tolist(), counts.tolist(), strict=True)):
        shape = own[pod] * curves[pods.service[pod], at : at + many]
        used = (shape * random.normal(1.0, 0.05, many).clip(0.7, 1.3)).astype(np.float32)
        values[start[pod] : start[pod + 1]] = used
        ran = np.minimum(edges[at + 1 : at + many + 1], recorded.ended[pod]) - np.maximum(
            edges[at : at + many], recorded.bound[pod]
        )
        sums[pods.node[pod], at : at + many] += used * ran.clip(0, STEP_SECONDS) / STEP_SECONDS
    capacity = CORES * 1000.0
    overhead = OVERHEAD_SHARE * capacity * random.normal(1.0, 0.1, sums.shape).clip(0.5, 1.5)
    peaks = sums.max(axis=1, initial=1e-9)
    scale = (HIGH - OVERHEAD_SHARE) * capacity / np.quantile(peaks, 1 - hot_share)
    # a saturated node gives its pods what there is
    limits = np.minimum(FULL_SHARE * capacity - overhead, sums * scale)
    factor = (limits / np.maximum(sums, 1e-9)).astype(np.float32)
    for pod, (at, many) in enumerate(zip(first.tolist(), counts.tolist(), strict=True)):
        values[start[pod] : start[pod + 1]] *= factor[pods.node[pod], at : at + many]
    return RecordedUsage(
        pod_values=values, pod_start=start, pod_first=first, node=(limits + overhead).astype(np.float32)
    )


def _curve(random: Random, service: _Service, steps: int) -> Floats:
    """(steps,) millicores of one replica."""
    hours = np.arange(steps) * (STEP_SECONDS / HOUR_SECONDS)
    drift = np.cumsum(random.normal(0, 0.01, steps)) if steps else np.zeros(0)
    noise = 1 + 0.1 * np.tanh(drift - np.linspace(0, drift[-1] if steps else 0, steps))
    if service.kind != "Deployment":
        return service.millicores * noise
    swing, peak = random.uniform(0.1, 0.7), random.choice([10.5, 14.0, 20.0]) + random.normal(0, 0.7)
    days = (hours // 24).astype(int)
    weekend = np.where(days % 7 < 5, 1.0, random.uniform(0.5, 1.0))
    shape = 1 + swing * weekend * np.cos((hours - peak) / 24 * 2 * np.pi)
    for day in range(int(days[-1]) + 1 if steps else 0):
        if random.random() < BURSTS_A_DAY:
            begin, length = 24 * day + random.uniform(0, 22), random.uniform(0.5, 3)
            shape[(hours >= begin) & (hours < begin + length)] *= random.uniform(1.3, 2.0)
    out: Floats = service.millicores * shape * noise
    return out


def _budget(service: _Service, steps: int) -> RecordedBudget:
    return RecordedBudget(
        namespace=f"n{service.namespace}",
        name=service.name,
        selector=LabelSelector(match_labels={"app": service.name}),
        desired_healthy=np.full(steps, service.replicas - 1, dtype=np.int32),
    )
